"""Statistics of the audit: intervals and tests of counts, areas under curves, and the test against retrained models.

Intervals of ratios, differences and shares of counts are over the perturbation draws with the samples fixed. Those over
samples or models say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.theory.empirical import sign_test_p

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PSEUDO_COUNT = 1 / 20  # added to each cell for the variance only, so that an unseen event still has width
BOOTSTRAP_RESAMPLES = 1000
SIGNIFICANCE, CONFIDENCE = 0.05, 0.95
FEWEST_RETRAINED = 3  # with two retrained models their standard deviation is a single difference
CHANCE = 0.5  # the area under the curve of a score that says nothing
FALSE_POSITIVES = 0.01  # rate at which a true-positive rate is measured


def normal_quantile(confidence: float = CONFIDENCE) -> float:
    """Return z with Pr[|N(0,1)| <= z] = confidence."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def paired_variance(counts: Counts, r: Floats | float, weights: Floats | float = 1.0) -> Floats:
    """Return the variance of sum_i w_i (p_m,i - r p_a,i) over the draws, shape (T,): sum_i w_i^2 v_i / draws_i.

    v_i is the variance of 1[m right] - r 1[a right] over the smoothed cells: both right, only m, only a, neither.
    `weights` of shape (n,).
    """
    m, a, both = counts.method_right, counts.reference_right, counts.both_right
    cells = np.stack([both, m - both, a - both, counts.draws - m - a + both]) + PSEUDO_COUNT
    shares = cells / (counts.draws + 4 * PSEUDO_COUNT)
    ratio = np.broadcast_to(r, counts.taus.shape)
    values = np.stack([1 - ratio, np.ones_like(ratio), -ratio, np.zeros_like(ratio)])[:, None, :]
    mean = (shares * values).sum(0)
    v = (shares * values**2).sum(0) - mean**2
    return total_over_draws(v * np.square(np.reshape(weights, (-1, 1))), counts)


def share_variance(hits: NDArray[np.int32], counts: Counts) -> tuple[Floats, Floats]:
    """Return mean and variance over the draws of the mean of hits_i / draws_i, both smoothed, shape (T,)."""
    share = (hits + 2 * PSEUDO_COUNT) / (counts.draws + 4 * PSEUDO_COUNT)
    return share.mean(0), total_over_draws(share * (1 - share), counts) / len(counts) ** 2


def total_over_draws(v: Floats, counts: Counts) -> Floats:
    """Return sum_i v_i / draws_i, the variance of a sum of means, with v_i made unbiased as for its cells' total."""
    cells = counts.draws + 4 * PSEUDO_COUNT
    total: Floats = (v * cells / (cells - 1) / counts.draws).sum(0)
    return total


def ratio_interval(r: Floats, variance: Floats, z: float, scale: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """Return r exp(-+ z se / r), the interval of a ratio on the log scale; at r = 0 it is [0, z se].

    `variance` is that of r times `scale`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        se = np.sqrt(variance) / scale
        low, high = r * np.exp(-z * se / r), r * np.exp(z * se / r)
    return np.where(r == 0, 0.0, low), np.where(r == 0, z * se, high)


def wilson_interval(share: Floats, n: Floats | int, z: float) -> tuple[Floats, Floats]:
    """Return Wilson's interval of a share of n."""
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(center - half, 0, 1), np.clip(center + half, 0, 1)


def mean_interval(values: Floats) -> tuple[float, float | None, float | None]:
    """Return the mean of `values` with its normal interval of 95 %, None where there is only one value."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, None, None
    half = normal_quantile() * float(values.std(ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def fieller(top: Floats, bottom: Floats, covariance: Sequence[Floats], z: float) -> tuple[Floats, Floats]:
    """Return Fieller's interval of top / bottom; NaN where it is unbounded.

    `covariance` has var(N), cov(N, D), var(D) of top N and bottom D. With A = D^2 - z^2 var(D), B = N D - z^2 cov(N, D)
    and K = N^2 - z^2 var(N) the ends are (B -+ sqrt(B^2 - A K)) / A; A <= 0 means that D can be 0.

    >>> low, high = fieller(np.array([0.2]), np.array([0.4]), (np.array([1e-4]), np.array([0.0]), np.array([1e-4])), 2)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.4453], [0.5572])
    """
    v_top, c, v_bottom = covariance
    A, B, K = bottom**2 - z**2 * v_bottom, top * bottom - z**2 * c, top**2 - z**2 * v_top
    root = np.sqrt(np.maximum(B**2 - A * K, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (np.where(A > 0, (B + sign * root) / A, np.nan) for sign in (-1, 1))
    return low, high


def sign_test(counts: Counts) -> Floats:
    """Return one-sided p-values of "the model is right more often than the reference", shape (n, T).

    Under the null hypothesis, a draw on which exactly one of both is right favors either with probability 1/2.
    """
    both = counts.both_right
    return sign_test_p(counts.method_right - both, counts.reference_right - both)


def discoveries(p: Floats) -> NDArray[np.bool_]:
    """Return which p-values of each column survive Benjamini and Hochberg's control of false discoveries."""
    from scipy.stats import false_discovery_control

    significant: NDArray[np.bool_] = false_discovery_control(p, axis=0) <= SIGNIFICANCE
    return significant


def bootstrap_tail(confidence: float) -> float:
    """Return the share of resamples below a percentile interval: rank 25 of 1000 for 0.95.

    (1 - 0.95) / 2 is a little more than 0.025, which would be rank 26.

    >>> bootstrap_tail(0.95)
    0.025
    """
    return round((1 - confidence) / 2, 12)


def bootstrap_ratio(p_m: Floats, p_a: Floats, *, confidence: float, seed: int) -> tuple[Floats, Floats]:
    """Return the percentile interval of sum p_m / sum p_a over resampled samples; NaN where it does not exist.

    `p_m`, `p_a` of shape (n, T); all radii share the resamples.
    """
    rng = np.random.default_rng(seed)
    n = len(p_m)
    rates = np.concatenate([p_m, p_a], axis=1)
    sums = np.empty((BOOTSTRAP_RESAMPLES, rates.shape[1]))
    for row in sums:
        row[:] = np.bincount(rng.integers(n, size=n), minlength=n) @ rates
    top, bottom = np.split(sums, 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = top / bottom
    tail = bootstrap_tail(confidence)
    low, high = np.quantile(np.where(bottom > 0, ratios, np.inf), [tail, 1 - tail], axis=0, method="inverted_cdf")
    return np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(high), high, np.nan)


@dataclass(frozen=True)
class Classes:
    """Labels of forgotten samples F and held-out samples H; every class of F has some in H."""

    forgotten: Labels
    heldout: Labels

    def __post_init__(self) -> None:
        missing = sorted(set(self.forgotten.tolist()) - set(self.heldout.tolist()))
        if missing or len(self.forgotten) == 0:
            raise InputError(f"expected held-out samples of every forgotten class, got none of {missing}")

    def variance(self, forgotten: Floats, heldout: Floats) -> float:
        """Return var(V_F) / |F| + sum_c W_c^2 var_c(V_H) / n_c, DeLong's variance with the class mix W of F.

        Means of F vary with the mix of the next |F| samples too, so that a class with one of them needs no variance of
        its own; with one class this is DeLong's formula.
        """
        over_heldout = 0.0
        for label, share in zip(*np.unique(self.forgotten, return_counts=True), strict=True):
            of_class = heldout[self.heldout == label]
            weight = share / len(self.forgotten)
            over_heldout += weight**2 * (of_class.var(ddof=1) / len(of_class) if len(of_class) > 1 else np.inf)
        spread = forgotten.var(ddof=1) / len(forgotten) if len(forgotten) > 1 else np.inf
        return float(spread + over_heldout)


@dataclass(frozen=True)
class Ranking:
    """AUC = P(s_F > s_H) + P(s_F = s_H) / 2, class by class, pooled by F's class mix; higher scores mean "member".

    `forgotten` has each forgotten sample's share of held-out ones of its class below it, `heldout` each held-out
    sample's share of forgotten ones above it.

    Reference: DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", 1988.

    >>> one_class = Classes(np.zeros(3, int), np.zeros(2, int))
    >>> rank(np.array([1.0, 3.0, 4.0]), np.array([0.0, 3.0]), one_class).auc
    0.75
    """

    classes: Classes
    forgotten: Floats
    heldout: Floats

    @property
    def auc(self) -> float:
        """The area under the curve."""
        return float(self.forgotten.mean())

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval over samples on the logit scale; at 1 it begins at 0.025^(1 / min(n_F, n_H))."""
        auc, alpha = self.auc, 1 - CONFIDENCE
        if auc in (0.0, 1.0):
            end = float((alpha / 2) ** (1 / min(len(self.forgotten), len(self.heldout))))
            return (end, 1.0) if auc == 1.0 else (0.0, 1 - end)
        se = np.sqrt(self.classes.variance(self.forgotten, self.heldout)) / (auc * (1 - auc))
        center, half = np.log(auc / (1 - auc)), normal_quantile() * se
        low, high = 1 / (1 + np.exp(-(center + np.array([-half, half]))))
        return float(low), float(high)

    def minus(self, other: "Ranking") -> tuple[float, float, float, float]:
        """Return the difference of both areas on the same samples, low, high, and p of "not above" (paired DeLong)."""
        from scipy.special import ndtr

        value = self.auc - other.auc
        paired = (self.forgotten - other.forgotten, self.heldout - other.heldout)
        se = float(np.sqrt(self.classes.variance(*paired)))
        half = normal_quantile() * se
        p = float(ndtr(-value / se)) if se > 0 else CHANCE if value == 0 else float(value < 0)
        return value, value - half, value + half, p


def rank(forgotten: Floats, heldout: Floats, classes: Classes) -> Ranking:
    """Return how forgotten samples rank among held-out ones of their class by these scores."""
    wins = (forgotten[:, None] > heldout) + CHANCE * (forgotten[:, None] == heldout)
    same = classes.forgotten[:, None] == classes.heldout  # which pairs (|F|, |H|) are of one class
    of_forgotten: Floats = (wins * same).sum(1) / same.sum(1)
    of_heldout: Floats = (wins * same).sum(0) / np.maximum(same.sum(0), 1)
    return Ranking(classes, of_forgotten, of_heldout)


def clustered_auc(one: Floats, other: Floats) -> tuple[float, float, float]:
    """Return P(one > other) + ties / 2 over (models, n) scores with its interval; whole models are the clusters."""
    from scipy.special import stdtrit

    by_model, by_other = shares_above(one, other), 1 - shares_above(other, one)
    auc = float(by_model.mean())
    se = np.sqrt(by_model.var(ddof=1) / len(one) + by_other.var(ddof=1) / len(other))
    half = float(stdtrit(min(len(one), len(other)) - 1, (1 + CONFIDENCE) / 2) * se)
    return auc, max(auc - half, 0.0), min(auc + half, 1.0)


def shares_above(one: Floats, other: Floats) -> Floats:
    """Return for each model of `one` the share of pairs with all scores of `other` that it wins, ties as half."""
    line = np.sort(other.ravel())
    below, upto = (np.searchsorted(line, one, side) for side in ("left", "right"))
    shares: Floats = ((below + upto) / 2 / len(line)).mean(1)
    return shares


def true_positive_rate(one: Floats, other: Floats) -> float:
    """Return the share of `one` at or above the lowest threshold that at most 1 % of `other` reach."""
    descending = np.sort(other)[::-1]
    threshold = descending[int(FALSE_POSITIVES * len(other))]  # one too many reach it: only what lies above it counts
    return float((one > threshold).mean())


class Comparison(NamedTuple):
    """A row compared with retrained models: p of "shows no more than they do", the decision, and the noise floor.

    `p` and `more` (p is at most 5 %) are None with fewer than three retrained models or where a value is missing.
    `floor` is the range of the values of the retrained models, `retrained` their number.
    """

    p: float | None
    more: bool | None
    floor: tuple[float, float] | None
    retrained: int


def compare_with_retrained(
    values: Sequence[float | None], retrained: Sequence[float | None], *, least: float = 0.0
) -> Comparison:
    """Compare a row's values, one per seed, with those of N retrained models by Student's t-test, one-sided.

    T = (mean of the row - mean of the retrained models) / (s sqrt(1/S + 1/N)) follows t with N - 1 degrees of freedom
    if the S models of the row are retrained too; s is the standard deviation of the retrained models, at least `least`.

    >>> remembering = compare_with_retrained([0.9, 0.8], [0.5, 0.52, 0.48, 0.5])
    >>> remembering.more, compare_with_retrained([0.5], [0.5, 0.52, 0.48]).more
    (True, False)
    """
    from scipy.special import stdtr

    sample = np.array([value for value in retrained if value is not None], np.float64)
    floor = (float(sample.min()), float(sample.max())) if len(sample) else None
    row = [value for value in values if value is not None]
    if len(sample) < FEWEST_RETRAINED or not row or len(row) < len(values):
        return Comparison(None, None, floor, len(sample))
    deviation = max(float(sample.std(ddof=1)), least)
    distance = float(np.mean(row) - sample.mean())
    if deviation == 0:
        p = float(distance <= 0)
    else:
        p = float(stdtr(len(sample) - 1, -distance / (deviation * np.sqrt(1 / len(row) + 1 / len(sample)))))
    return Comparison(p, p <= SIGNIFICANCE, floor, len(sample))
