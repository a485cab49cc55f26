"""A lower bound on epsilon from many unlearned and re-trained models: what a certificate must not undercut."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from residuum.theory.result import Array, Bound, Labels, check

FEWEST_MODELS = 1000
TINY = 1e-9  # keeps the parameters of a beta law positive where its limit is known
_ASSUMPTIONS = (
    "models of each kind are independent draws",
    "the event was chosen on the first half of the models and tested on the second half only",
    "a lower bound: a small value does not show that eps is small",
)


@dataclass(frozen=True)
class Event:
    """The event sign * statistic[column] > sign * threshold; `unlearned_first` says whose probability is larger."""

    column: int
    threshold: float
    sign: int
    unlearned_first: bool

    def happens(self, statistics: Array) -> int:
        """Return how many rows of (models, columns) fall into the event."""
        return int((self.sign * statistics[:, self.column] > self.sign * self.threshold).sum())


def binomial_limits(hits: Array, trials: Array | int, confidence: float) -> tuple[Array, Array]:
    """Return Clopper-Pearson limits, each one-sided at (1 + confidence) / 2; numbers need not be whole.

    >>> low, high = binomial_limits(np.array([0.0, 5.0, 10.0]), 10, 0.95)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.1871, 0.6915], [0.3085, 0.8129, 1.0])
    """
    tail = (1 - confidence) / 2
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, TINY), trials - hits + 1, tail))
    high = np.where(hits == trials, 1.0, betaincinv(hits + 1, np.maximum(trials - hits, TINY), 1 - tail))
    return low, high


def epsilon_lower_bound(unlearned: Array, retrained: Array, delta: float, *, confidence: float = 0.95) -> Bound:
    """Bound eps from below: log((p_low - delta) / q_high) for one event, chosen on one half, tested on the other.

    Arrays (models, columns) hold what an observer computes from each model; at least 1,000 models of each kind. A
    column with the best linear discriminant of the first half is added.

    >>> rng = np.random.default_rng(7)
    >>> bound = epsilon_lower_bound(rng.normal(2, 1, (2000, 1)), rng.normal(0, 1, (2000, 1)), 1e-5)
    >>> bool(1.5 < bound.value < 9)
    True
    """
    check("delta", delta, low=0, high=1, ends="[)")
    check("confidence", confidence, low=0, high=1, ends="()")
    for name, models in {"unlearned": unlearned, "retrained": retrained}.items():
        check(f"number of {name} models", len(models), low=FEWEST_MODELS)
    first, second = _halves(unlearned, retrained)
    event = choose_event(*first, delta, confidence)
    value = float(_scores(event.happens(second[0]), event.happens(second[1]), second, event, delta, confidence))
    constants = {"delta": delta, "confidence": confidence, "models": float(len(unlearned))}
    constants |= {"column": float(event.column), "threshold": event.threshold}
    return Bound(value, max(value, 0.0), value <= 0, _ASSUMPTIONS, constants)


def choose_event(unlearned: Array, retrained: Array, delta: float, confidence: float) -> Event:
    """Return the event with the largest lower bound on these models, over columns, 199 thresholds and both sides."""
    best, chosen = -math.inf, Event(0, 0.0, 1, True)
    for column in range(unlearned.shape[1]):
        thresholds = np.unique(np.quantile(np.r_[unlearned[:, column], retrained[:, column]], np.linspace(0, 1, 199)))
        for sign in (1, -1):
            hits = [(sign * m[:, column][:, None] > sign * thresholds).sum(axis=0) for m in (unlearned, retrained)]
            for way in (True, False):
                event = Event(column, 0.0, sign, way)
                scores = _scores(hits[0], hits[1], (unlearned, retrained), event, delta, confidence)
                top = int(np.argmax(scores))
                if scores[top] > best:
                    best, chosen = float(scores[top]), Event(column, float(thresholds[top]), sign, way)
    return chosen


def signed_distances(weights: Array, x: Array, y: Labels) -> Array:
    """Return each sample's l2 distance to the decision boundary of each linear model, negative if already wrong.

    The size of the smallest adversarial perturbation; shapes (models, k, d), (n, d), (n,) -> (models, n).

    >>> signed_distances(np.array([[[0.0, 2.0]]]), np.array([[3.0, 4.0], [3.0, -1.0]]), np.array([1, 1])).tolist()
    [[4.0, -1.0]]
    """
    if weights.shape[1] == 1:
        margins = (2 * y - 1) * np.tensordot(weights[:, 0], x, axes=(1, 1))
        return np.asarray(margins / np.linalg.norm(weights[:, 0], axis=1, keepdims=True))
    columns = []
    for row, label in zip(x, y, strict=True):
        gaps = weights[:, [label]] - np.delete(weights, label, axis=1)
        columns.append(((gaps @ row) / np.linalg.norm(gaps, axis=2)).min(axis=1))
    return np.stack(columns, axis=1)


def adversarial_examples(weights: Array, x: Array, y: Labels, overshoot: float = 0.02) -> Array:
    """Return the nearest misclassified copies of x for the mean of some two-class linear models, shape (n, d).

    >>> adversarial_examples(np.array([[[0.0, 2.0]]]), np.array([[3.0, 4.0]]), np.array([1]), overshoot=0.0).tolist()
    [[3.0, 0.0]]
    """
    if weights.shape[1] != 1:
        raise ValueError(f"expected two-class models (one weight row each), got {weights.shape[1]} rows")
    w = weights.mean(axis=0)[0]
    return np.asarray(x - (1 + overshoot) * ((x @ w) / (w @ w))[:, None] * w)


def adversarial_statistics(unlearned: Array, retrained: Array, x: Array, y: Labels) -> tuple[Array, Array]:
    """Return what an observer with adversarial examples sees of each two-class model, two arrays (models, 3 n).

    Per sample: the size of the smallest adversarial perturbation, and the score on examples crafted against the
    first half of the unlearned and of the re-trained models (the half on which events are chosen).
    """
    crafted = [adversarial_examples(m[: len(m) // 2], x, y) for m in (unlearned, retrained)]

    def observe(models: Array) -> Array:
        scores = [np.tensordot(models[:, 0], points, axes=(1, 1)) for points in crafted]
        return np.concatenate([signed_distances(models, x, y), *scores], axis=1)

    return observe(unlearned), observe(retrained)


def _scores(
    hits: Array | int, misses: Array | int, models: tuple[Array, Array], event: Event, delta: float, confidence: float
) -> Array:
    """Return log((p_low - delta) / q_high), minus infinity where it is not defined."""
    counts = [(hits, len(models[0])), (misses, len(models[1]))]
    larger, smaller = counts if event.unlearned_first else counts[::-1]
    low, _ = binomial_limits(np.asarray(larger[0], float), larger[1], confidence)
    _, high = binomial_limits(np.asarray(smaller[0], float), smaller[1], confidence)
    excess = np.maximum(low - delta, 0)
    return np.asarray(np.log(np.maximum(excess, 1e-300) / high))


def _halves(unlearned: Array, retrained: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return first and second halves of both, with the first half's linear discriminant as a new column."""
    cut, cut_r = len(unlearned) // 2, len(retrained) // 2
    direction = _discriminant(unlearned[:cut], retrained[:cut_r])
    wide, wide_r = (np.c_[models, models @ direction] for models in (unlearned, retrained))
    return (wide[:cut], wide_r[:cut_r]), (wide[cut:], wide_r[cut_r:])


def _discriminant(a: Array, b: Array) -> Array:
    spread = np.cov(a, rowvar=False) + np.cov(b, rowvar=False)
    spread = np.atleast_2d(spread)
    ridge = 1e-9 * max(float(np.trace(spread)), 1e-12) * np.eye(len(spread))
    return np.asarray(np.linalg.solve(spread + ridge, a.mean(axis=0) - b.mean(axis=0)))
