"""What many unlearned and retrained models show: a lower bound on epsilon, and the divergence of one readout."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from residuum.theory.disagreement import nearest_boundary_point
from residuum.theory.result import Array, Bound, Labels, check

FEWEST_MODELS = 1000
_LOWER_BOUND = (
    "models of each kind are independent draws",
    "the event was chosen on the first half of the models and tested on the second half only",
    "a lower bound: a small value does not show that eps is small",
)
_READOUT = (
    "models of each kind are independent draws, one readout (accuracy, loss, attack score) per model",
    "by data processing it bounds the divergence of the models from below: it can refute forgetting, never prove it",
    "the plug-in estimate is biased upwards; read it against `null_high`",
)


class Event(NamedTuple):
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
    tail, misses = (1 - confidence) / 2, trials - hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1e-9), 1 - tail), 1.0)
    return low, high


def sign_test_p(more: NDArray[np.integer], less: NDArray[np.integer]) -> Array:
    """Return Pr[Bin(more + less, 1/2) >= more]: the one-sided exact sign test, elementwise.

    With `more` and `less` the two discordant cells of a paired table, this is McNemar's exact test.

    >>> sign_test_p(np.array([3, 0]), np.array([0, 2])).tolist()
    [0.125, 1.0]
    """
    return np.where(more > 0, betainc(np.maximum(more, 1), less + 1.0, 0.5), 1.0)


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
    return Bound(value, max(value, 0.0), value <= 0, _LOWER_BOUND, constants)


def choose_event(unlearned: Array, retrained: Array, delta: float, confidence: float) -> Event:
    """Return the event with the largest lower bound on these models, over columns, 199 thresholds and both sides."""
    best, best_event = -math.inf, Event(0, 0.0, 1, True)
    for column in range(unlearned.shape[1]):
        thresholds = np.unique(np.quantile(np.r_[unlearned[:, column], retrained[:, column]], np.linspace(0, 1, 199)))
        for sign in (1, -1):
            hits = [(sign * m[:, column][:, None] > sign * thresholds).sum(axis=0) for m in (unlearned, retrained)]
            for way in (True, False):
                event = Event(column, 0.0, sign, way)
                scores = _scores(hits[0], hits[1], (unlearned, retrained), event, delta, confidence)
                top = int(np.argmax(scores))
                if scores[top] > best:
                    best, best_event = float(scores[top]), event._replace(threshold=float(thresholds[top]))
    return best_event


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


def adversarial_examples(weights: Array, x: Array, *, overshoot: float = 0.02) -> Array:
    """Return the nearest copies of x that the mean of some two-class linear models predicts otherwise, shape (n, d)."""
    if weights.shape[1] != 1:
        raise ValueError(f"expected two-class models (one weight row each), got {weights.shape[1]} rows")
    return x + (1 + overshoot) * (nearest_boundary_point(x, weights.mean(axis=0)[0]) - x)


def adversarial_statistics(unlearned: Array, retrained: Array, x: Array, y: Labels) -> tuple[Array, Array]:
    """Return what an observer with adversarial examples sees of each two-class model, two arrays (models, 3 n).

    Per sample: the size of the smallest adversarial perturbation, and the score on examples crafted against the
    first half of the unlearned and of the retrained models (the half on which events are chosen).
    """
    crafted = [adversarial_examples(m[: len(m) // 2], x) for m in (unlearned, retrained)]

    def observe(models: Array) -> Array:
        scores = [np.tensordot(models[:, 0], points, axes=(1, 1)) for points in crafted]
        return np.concatenate([signed_distances(models, x, y), *scores], axis=1)

    return observe(unlearned), observe(retrained)


def histogram_divergence(unlearned: Array, retrained: Array, *, bins: int = 10, prior: float = 0.5) -> float:
    """Return KL(unlearned || retrained) between histograms on pooled quantile bins, `prior` added to every cell.

    sum_b p_b log(p_b / q_b) in nats; every bin holds an equal share of the pooled readouts.
    """
    inner = np.unique(np.quantile(np.r_[unlearned, retrained], np.linspace(0, 1, bins + 1)[1:-1]))
    cells = [np.bincount(np.searchsorted(inner, m), minlength=len(inner) + 1) + prior for m in (unlearned, retrained)]
    p, q = (counts / counts.sum() for counts in cells)
    return float(np.sum(p * np.log(p / q)))


def readout_certificate(
    unlearned: Array, retrained: Array, *, bins: int = 10, prior: float = 0.5, draws: int = 1000,
    confidence: float = 0.95, seed: int = 0,
) -> Bound:  # fmt: skip
    """Return the histogram divergence with a bootstrap interval and the value that equal models would reach.

    `low`, `high`: percentile bootstrap over models. `null_high`: quantile under permutation of the two kinds; a
    value below it is no evidence of a difference, and the bound is then called vacuous.

    >>> rng = np.random.default_rng(7)
    >>> far = readout_certificate(rng.normal(1, 1, 500), rng.normal(0, 1, 500), draws=200)
    >>> far.vacuous, far.constants["low"] < far.value < far.constants["high"]
    (False, True)

    Reference: Golatkar et al., Eternal sunshine of the spotless net (2020).
    """
    for name, readouts in {"unlearned": unlearned, "retrained": retrained}.items():
        if readouts.ndim != 1 or not np.isfinite(readouts).all():
            raise ValueError(f"expected one finite readout per {name} model, got shape {readouts.shape}")
        check(f"number of {name} readouts", len(readouts), low=2)
    check("bins", bins, low=2)
    check("draws", draws, low=1)
    check("confidence", confidence, low=0, high=1, ends="()")
    check("prior", prior, low=0, ends="(]")
    rng = np.random.default_rng(seed)

    def divergence(a: Array, b: Array) -> float:
        return histogram_divergence(a, b, bins=bins, prior=prior)

    value, n, tail = divergence(unlearned, retrained), len(unlearned), (1 - confidence) / 2
    bootstrap = [divergence(rng.choice(unlearned, n), rng.choice(retrained, len(retrained))) for _ in range(draws)]
    low, high = np.quantile(bootstrap, [tail, 1 - tail])
    pooled: Array = np.concatenate([unlearned, retrained])
    shuffled = (rng.choice(pooled, len(pooled), replace=False) for _ in range(draws))
    null_high = float(np.quantile([divergence(s[:n], s[n:]) for s in shuffled], confidence))
    constants = {"low": float(low), "high": float(high), "null_high": null_high, "bins": float(bins), "prior": prior}
    return Bound(value, max(value, 0.0), value <= null_high, _READOUT, constants)


def _scores(
    hits: Array | int, misses: Array | int, models: tuple[Array, Array], event: Event, delta: float, confidence: float
) -> Array:
    """Return log((p_low - delta) / q_high), minus infinity where it is not defined."""
    counts = [(hits, len(models[0])), (misses, len(models[1]))]
    larger, smaller = counts if event.unlearned_first else counts[::-1]
    low, _ = binomial_limits(np.asarray(larger[0], float), larger[1], confidence)
    _, high = binomial_limits(np.asarray(smaller[0], float), smaller[1], confidence)
    return np.asarray(np.log(np.maximum(low - delta, 1e-300) / high))


def _halves(unlearned: Array, retrained: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return first and second halves of both, with the first half's linear discriminant as a new column."""
    cut, cut_r = len(unlearned) // 2, len(retrained) // 2
    a, b = unlearned[:cut], retrained[:cut_r]
    spread = np.atleast_2d(np.cov(a, rowvar=False) + np.cov(b, rowvar=False))
    ridge = 1e-9 * max(float(np.trace(spread)), 1e-12) * np.eye(len(spread))
    direction = np.linalg.solve(spread + ridge, a.mean(axis=0) - b.mean(axis=0))
    wide, wide_r = (np.c_[models, models @ direction] for models in (unlearned, retrained))
    return (wide[:cut], wide_r[:cut_r]), (wide[cut:], wide_r[cut_r:])
