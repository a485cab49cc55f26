"""U-LiRA: can the best test on margins tell unlearned models from innocent ones?"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.intervals import Floats
from residuum.types import InputError

FEWEST, FEWEST_FOR_TPR, FEWEST_SCORES = 8, 16, 100
MANY = 64  # from so many models of each kind on every sample has variances of its own
FALSE_POSITIVES = 0.01
PERMUTATIONS = 999


class ULira(NamedTuple):
    """AUC over (model, sample) with its interval over models, TPR at 1 % FPR (None with too few models), and p."""

    auc: float
    low: float
    high: float
    tpr: float | None
    p: float
    left_out_auc: float


class Fit(NamedTuple):
    """Gaussians of the margins of each sample for both kinds of models."""

    means: tuple[Floats, Floats]
    variances: tuple[Floats, Floats]

    def score(self, phi: Floats) -> Floats:
        """Return log N(phi; unlearned) - log N(phi; innocent), shape of phi (models, n)."""
        own, other = (
            (phi - mean) ** 2 / var + np.log(var) for mean, var in zip(self.means, self.variances, strict=True)
        )
        score: Floats = (other - own) / 2
        return score


def fit(unlearned: Floats, innocent: Floats) -> Fit:
    """Fit both kinds; below 64 models of a kind, all samples and both kinds share one variance."""
    kinds = (unlearned, innocent)
    means = (unlearned.mean(0), innocent.mean(0))
    if min(len(unlearned), len(innocent)) >= MANY:
        spread = [np.maximum(phi.var(0, ddof=1), 1e-12) for phi in kinds]
        return Fit(means, (spread[0], spread[1]))
    squares = sum(float(((phi - mean) ** 2).sum()) for phi, mean in zip(kinds, means, strict=True))
    freedom = sum((len(phi) - 1) * phi.shape[1] for phi in kinds)
    shared = np.full(unlearned.shape[1], max(squares / max(freedom, 1), 1e-12))
    return Fit(means, (shared, shared))


def u_lira(
    unlearned: Floats, innocent: Floats, *, seed: int, confidence: float = 0.95, permutations: int = PERMUTATIONS
) -> ULira:
    """Return how well the log ratio of two Gaussians tells unlearned margins (K, n) from innocent ones (N, n).

    Fitted on half of the models and scored on the others, so that no model is scored by a fit that saw it; the interval
    is DeLong's with whole models as clusters and t with min(K, N)/2 - 1 degrees of freedom: nearly all variance comes
    from the fewer models. p permutes which models are unlearned. `left_out_auc` uses all models: each pair of an
    unlearned and an innocent one is scored by a fit without both (leaving out only one of them biases it). At least 8
    of each kind; TPR needs 16 and 100 innocent scores.

    Reference: Hayes et al., "Inexact unlearning needs more careful evaluations to avoid a false sense of privacy",
    2024.
    """
    fewest = min(len(unlearned), len(innocent))
    if fewest < FEWEST:
        raise InputError(f"expected at least {FEWEST} models of each kind, got {len(unlearned)} and {len(innocent)}")
    rng = np.random.default_rng(seed)
    shuffled = [phi[rng.permutation(len(phi))] for phi in (unlearned, innocent)]
    halves = [(phi[: len(phi) // 2], phi[len(phi) // 2 :]) for phi in shuffled]
    fitted = fit(halves[0][0], halves[1][0])
    scores = [fitted.score(phi[1]) for phi in halves]
    auc, low, high = clustered_auc(scores[0], scores[1], confidence)
    enough = fewest >= FEWEST_FOR_TPR and scores[1].size >= FEWEST_SCORES
    tpr = rate_at(scores[0].ravel(), scores[1].ravel()) if enough else None
    p = permutation_p(np.concatenate(shuffled), len(unlearned), rng, permutations)
    return ULira(auc, low, high, tpr, p, left_out_auc(unlearned, innocent))


def clustered_auc(one: Floats, other: Floats, confidence: float) -> tuple[float, float, float]:
    """Return P(one > other) + ties / 2 over (models, n) scores with its interval, whole models being the clusters."""
    from scipy.special import stdtrit

    by_model, by_other = _shares_above(one, other), 1 - _shares_above(other, one)
    auc = float(by_model.mean())
    se = np.sqrt(by_model.var(ddof=1) / len(one) + by_other.var(ddof=1) / len(other))
    half = float(stdtrit(min(len(one), len(other)) - 1, (1 + confidence) / 2) * se)
    return auc, max(auc - half, 0.0), min(auc + half, 1.0)


def _shares_above(one: Floats, other: Floats) -> Floats:
    """Return for each model of `one` the share of pairs with all scores of `other` that it wins, ties as half."""
    line = np.sort(other.ravel())
    below, upto = (np.searchsorted(line, one, side) for side in ("left", "right"))
    shares: Floats = ((below + upto) / 2 / len(line)).mean(1)
    return shares


def rate_at(one: Floats, other: Floats, limit: float = FALSE_POSITIVES) -> float:
    """Return the share of `one` at or above the lowest threshold that at most `limit` of `other` reach."""
    line = np.sort(other)[::-1]
    allowed = int(limit * len(line))
    threshold = line[allowed]  # one score more than allowed: only what lies above it counts
    return float((one > threshold).mean())


def crossed_auc(models: Floats, unlearned: NDArray[np.bool_]) -> float:
    """Return the mean AUC of two fits, each on every second model of each kind and scored on the others."""
    kinds = models[unlearned], models[~unlearned]
    found = []
    for turn in (0, 1):
        fitted = fit(*(phi[turn::2] for phi in kinds))
        one, other = (fitted.score(phi[1 - turn :: 2]) for phi in kinds)
        found.append(_shares_above(one, other).mean())
    return float(np.mean(found))


def permutation_p(models: Floats, unlearned: int, rng: np.random.Generator, permutations: int) -> float:
    """Return the share of permutations of the kinds, this one included, whose AUC is as large."""
    kinds = np.arange(len(models)) < unlearned
    value = crossed_auc(models, kinds)
    larger = sum(crossed_auc(models, rng.permutation(kinds)) >= value for _ in range(permutations))
    return (1 + larger) / (1 + permutations)


def left_out_auc(unlearned: Floats, innocent: Floats) -> float:
    """Return the mean AUC over all pairs of an unlearned and an innocent model, scored by a fit without both."""
    found = []
    for k in range(len(unlearned)):
        for j in range(len(innocent)):
            fitted = fit(np.delete(unlearned, k, 0), np.delete(innocent, j, 0))
            found.append(_shares_above(fitted.score(unlearned[[k]]), fitted.score(innocent[[j]]))[0])
    return float(np.mean(found))
