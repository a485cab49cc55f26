"""The decoy audit's statistics: does a model treat decoys differently from samples that it never saw?

Decoys are training samples, chosen at random, that are unlearned together with a request. If unlearning is exact, they
and held-out samples of the same population are exchangeable within their classes, given the model, whatever the model
is. So permuting the two gives an exact p-value, and no model is retrained.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.statistics import Classes, Floats, Labels, normal_quantile, rank
from residuum.core.errors import InputError

Sides = NDArray[np.bool_]
PERMUTATIONS = 999
POWER = 0.8
BLOCK = 2_000_000  # entries of the permutations that are held at a time
FOLDS, COSINES, RIDGE = 5, 128, 1.0  # of the classifier that tells two samples apart


@dataclass(frozen=True)
class PermutationTest:
    """A one-sided test within classes: are the scores of one side larger than those of the other?

    `difference` is that of the mean scores within classes, `deviation` its standard deviation under permutation, and
    `p` the share of permutations, the observed one among them, that are at least as large.
    """

    p: float
    difference: float
    deviation: float

    def detectable(self, significance: float = 0.05) -> float:
        """Return the difference that the test finds with a power of 80 %."""
        quantiles = normal_quantile(1 - 2 * significance) + normal_quantile(2 * POWER - 1)
        return float(quantiles * self.deviation)


def permutation_test(
    scores: Floats, side: Sides, labels: Labels, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> PermutationTest:
    r"""Return the test of scores by permuting which samples are on the side, within classes; all have shape (n,).

    $$D = \frac{\sum_c w_c (\bar a_{c,1} - \bar a_{c,0})}{\sum_c w_c}, \quad w_c = \frac{n_{c,1} n_{c,0}}{n_c},
    \quad p = \frac{1 + \#\{D_b \ge D\}}{1 + B},$$

    with the mean scores of class c on the side and off it. The p-value is exact at any number B of permutations.

    Reference: Phipson and Smyth, "Permutation p-values should never be zero", 2010.

    >>> rng = np.random.default_rng(0)
    >>> side, labels = np.arange(60) % 2 == 0, np.arange(60) % 3
    >>> test = permutation_test(rng.normal(size=60) + 2 * side, side, labels)
    >>> test.p, round(test.difference, 1)
    (0.001, 1.6)
    """
    order = np.argsort(labels, kind="stable")
    scores, side, labels = scores[order].astype(float), side[order], labels[order]
    centered, starts, sizes = _within_classes(scores, labels)
    on_side = np.add.reduceat(side.astype(np.int64), starts)
    weights = on_side * (sizes - on_side) / sizes
    weight = float(weights.sum())
    if not weight:
        raise InputError("expected a class with samples on both sides, got none")
    variances = np.add.reduceat(centered**2, starts) / np.maximum(sizes - 1, 1)
    deviation = float(np.sqrt(weights @ variances)) / weight
    observed = centered[side].sum()
    first = np.arange(len(side)) - np.repeat(starts, sizes) < np.repeat(on_side, sizes)  # as many of each class
    rng, as_large, block = _standard_generator(seed), 0, max(1, BLOCK // len(side))
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        drawn = np.argsort(labels + rng.random((rows, len(side))), axis=1)[:, first]
        as_large += int((centered[drawn].sum(1) >= observed - 1e-9).sum())  # equal but for the order of the sum
    return PermutationTest((1 + as_large) / (1 + permutations), float(observed) / weight, deviation)


@dataclass(frozen=True)
class TwoSampleTest:
    """Whether a classifier tells two samples apart: its area under the curve within classes, and p by permutation."""

    p: float
    auc: float


def two_sample_test(
    inputs: Floats, labels: Labels, side: Sides, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> TwoSampleTest:
    r"""Return whether inputs (n, d) with labels (n,) on one side (n,) have another distribution, class by class.

    A ridge classifier is cross-fitted: each fold is scored by a fit to the others. It reads random cosine features of
    the inputs, and how well the sample's label fits its input by a leave-one-out ridge classifier of the labels, which
    does not know the sides. No network takes part. For fixed features, scores are linear in the sides, $s = Sz$, so
    the correlation $\langle z, Sz \rangle / (|z| |Sz|)$ is computed at once for all permutations z of the sides within
    classes.

    References: Lopez-Paz and Oquab, "Revisiting classifier two-sample tests", 2017; Rahimi and Recht, "Random features
    for large-scale kernel machines", 2007.

    >>> rng = np.random.default_rng(0)
    >>> x, side, labels = rng.normal(size=(200, 5)), np.arange(200) < 100, np.arange(200) % 2
    >>> two_sample_test(x, labels, side).p > 0.05, two_sample_test(x + side[:, None], labels, side).p
    (True, 0.001)
    """
    rng, order = np.random.default_rng(seed), np.argsort(labels, kind="stable")
    inputs, side, labels = inputs[order].astype(float), side[order], labels[order]
    deviations = inputs.std(0)
    standard = (inputs - inputs.mean(0)) / np.where(deviations > 0, deviations, 1)
    directions = rng.normal(size=(inputs.shape[1], COSINES)) / np.sqrt(inputs.shape[1])
    cosines = np.sqrt(2 / COSINES) * np.cos(standard @ directions + rng.uniform(0, 2 * np.pi, COSINES))
    projected = standard @ directions / np.sqrt(COSINES)
    features = np.concatenate([projected, cosines], axis=1)
    fit = label_fit(features, labels)
    fit = fit / (fit.std() or 1.0)
    features = _within_classes(np.concatenate([features, fit[:, None]], axis=1), labels)[0]
    sides = np.repeat(side[:, None].astype(float), 1 + permutations, axis=1)
    fold = np.empty(len(side), np.int64)
    for rows in (np.flatnonzero(labels == label) for label in np.unique(labels)):
        sides[rows, 1:] = rng.permuted(sides[rows, 1:], axis=0)
        fold[rows] = rng.permutation(len(rows)) % FOLDS
    z = _within_classes(sides, labels)[0]
    scores = np.empty_like(z)
    for k in range(FOLDS):
        left_out, fitted = features[fold == k], features[fold != k]
        gram = fitted.T @ fitted + RIDGE * np.eye(fitted.shape[1])
        scores[fold == k] = left_out @ np.linalg.solve(gram, fitted.T @ z[fold != k])
    lengths = np.linalg.norm(scores, axis=0) * np.linalg.norm(z, axis=0)
    correlations = np.divide((z * scores).sum(0), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    as_large = int((correlations[1:] >= correlations[0] - 1e-9).sum())
    ranking = rank(scores[side, 0], scores[~side, 0], Classes(labels[side], labels[~side]))
    return TwoSampleTest((1 + as_large) / (1 + permutations), ranking.auc)


def label_fit(features: Floats, labels: Labels) -> Floats:
    """Return the margin of each label over the best other one in a ridge regression on all other samples, (n,)."""
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    targets = (labels[:, None] == np.unique(labels)).astype(float)
    hat = design @ np.linalg.inv(design.T @ design + RIDGE * np.eye(design.shape[1]))
    leverage = (hat * design).sum(1)[:, None]
    left_out = (hat @ (design.T @ targets) - leverage * targets) / (1 - leverage)
    if targets.shape[1] == 1:
        return np.zeros(len(labels))
    others = np.where(targets > 0, -np.inf, left_out).max(1)
    fit: Floats = (left_out * targets).sum(1) - others
    return fit


def _standard_generator(seed: int) -> np.random.Generator:
    """Return numpy's form of `random.Random(seed)`, so that the standard library alone draws the same permutations."""
    *key, position = random.Random(seed).getstate()[1]
    mersenne_twister = np.random.MT19937()
    mersenne_twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
    return np.random.Generator(mersenne_twister)


def _within_classes(values: Floats, labels: Labels) -> tuple[Floats, Labels, Labels]:
    """Return values (n, ...) minus the means of their classes, and where classes begin; labels are sorted."""
    _, starts, sizes = np.unique(labels, return_index=True, return_counts=True)
    means = np.add.reduceat(values, starts) / sizes.reshape(-1, *[1] * (values.ndim - 1))
    return values - np.repeat(means, sizes, axis=0), starts, sizes
