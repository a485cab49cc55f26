"""U-LiRA: can the best test on margins tell unlearned models from retrained ones?"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.probes.base import FURTHER, Evidence, Probe, Value
from residuum.auditing.probes.klom import refuse_few
from residuum.auditing.statistics import SIGNIFICANCE, Floats, clustered_auc, shares_above, true_positive_rate
from residuum.core.errors import InputError

FEWEST, FEWEST_FOR_TPR, FEWEST_SCORES = 8, 16, 100
MANY = 64  # from so many models of each kind on every sample has variances of its own
PERMUTATIONS = 999


@dataclass(frozen=True)
class ULiRA(Probe):
    """AUC of the likelihood ratio between a row's models and retrained ones, on forgotten samples; see `u_lira`.

    The row shows more than retrained models if models permuted at random are seldom told apart so well (p), and if the
    low end of the AUC is above the AUC on held-out samples. Without the second condition a row that differs everywhere
    would seem to remember.
    """

    name: ClassVar[str] = "ulira"
    meaning: ClassVar[str] = "AUC: margins tell the row's models from retrained ones; memory if above held-out's"
    reads: ClassVar[Literal["models", "margins"]] = "margins"
    per_seed: ClassVar[bool] = False

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return AUC with interval over models, TPR at 1 % FPR and p of each row."""
        return {row: self._of_row(evidence, row) for row in evidence.rows if row != FURTHER}

    def _of_row(self, evidence: Evidence, row: str) -> Value:
        unlearned, retrained = evidence.margins_of(row, "forget")
        if reason := refuse_few(len(unlearned), len(retrained), FEWEST):
            return Value(None, note=reason)
        result = u_lira(unlearned, retrained, seed=evidence.seed)
        heldout_auc = self.of_heldout(*evidence.margins_of(row, "heldout"))
        more = result.p <= SIGNIFICANCE and (heldout_auc is None or result.low > heldout_auc)
        details = {"models": [len(unlearned), len(retrained)], "tpr": result.tpr, "heldout_auc": heldout_auc}
        return Value(result.auc, result.low, result.high, p=result.p, more=more, details=details)

    def of_heldout(self, unlearned: Floats, retrained: Floats) -> float | None:
        """Return the AUC on held-out samples: as large, it shows models that differ everywhere, not memory."""
        if not unlearned.size:
            return None
        kinds = np.arange(len(unlearned) + len(retrained)) < len(unlearned)
        return crossed_auc(np.concatenate([unlearned, retrained]), kinds)


class ULiRAResult(NamedTuple):
    """AUC over (model, sample) with its interval over models, TPR at 1 % FPR (None with too few models), and p."""

    auc: float
    low: float
    high: float
    tpr: float | None
    p: float


class Fit(NamedTuple):
    """Gaussians of the margins of each sample for both kinds of models."""

    means: tuple[Floats, Floats]
    variances: tuple[Floats, Floats]

    def score(self, phi: Floats) -> Floats:
        """Return log N(phi; unlearned) - log N(phi; retrained), shape of phi (models, n)."""
        unlearned, retrained = (
            (phi - mean) ** 2 / var + np.log(var) for mean, var in zip(self.means, self.variances, strict=True)
        )
        score: Floats = (retrained - unlearned) / 2
        return score


def fit(unlearned: Floats, retrained: Floats) -> Fit:
    """Fit both kinds; below 64 models of a kind, all samples and both kinds share one variance."""
    kinds = (unlearned, retrained)
    means = (unlearned.mean(0), retrained.mean(0))
    if min(len(unlearned), len(retrained)) >= MANY:
        spread = [np.maximum(phi.var(0, ddof=1), 1e-12) for phi in kinds]
        return Fit(means, (spread[0], spread[1]))
    squares = sum(float(((phi - mean) ** 2).sum()) for phi, mean in zip(kinds, means, strict=True))
    freedom = sum((len(phi) - 1) * phi.shape[1] for phi in kinds)
    shared = np.full(unlearned.shape[1], max(squares / max(freedom, 1), 1e-12))
    return Fit(means, (shared, shared))


def u_lira(unlearned: Floats, retrained: Floats, *, seed: int, permutations: int = PERMUTATIONS) -> ULiRAResult:
    """Return how well the log ratio of two Gaussians tells unlearned margins (K, n) from retrained ones (N, n).

    Fitted on half of the models and scored on the others, so that no model is scored by a fit that saw it; the interval
    is DeLong's with whole models as clusters and t with min(K, N)/2 - 1 degrees of freedom: nearly all variance comes
    from the fewer models. p permutes which models are unlearned. At least 8 of each kind; TPR needs 16 of each, and 100
    scores of retrained ones.

    Reference: Hayes et al., "Inexact unlearning needs more careful evaluations to avoid a false sense of privacy",
    2024.
    """
    fewest = min(len(unlearned), len(retrained))
    if fewest < FEWEST:
        raise InputError(f"expected at least {FEWEST} models of each kind, got {len(unlearned)} and {len(retrained)}")
    rng = np.random.default_rng(seed)
    shuffled = [phi[rng.permutation(len(phi))] for phi in (unlearned, retrained)]
    halves = [(phi[: len(phi) // 2], phi[len(phi) // 2 :]) for phi in shuffled]
    fitted = fit(halves[0][0], halves[1][0])
    scores = [fitted.score(phi[1]) for phi in halves]
    auc, low, high = clustered_auc(*scores)
    enough = fewest >= FEWEST_FOR_TPR and scores[1].size >= FEWEST_SCORES
    tpr = true_positive_rate(scores[0].ravel(), scores[1].ravel()) if enough else None
    p = permutation_p(np.concatenate(shuffled), len(unlearned), rng, permutations)
    return ULiRAResult(auc, low, high, tpr, p)


def crossed_auc(models: Floats, unlearned: NDArray[np.bool_]) -> float:
    """Return the mean AUC of two fits, each on every second model of each kind and scored on the others."""
    kinds = models[unlearned], models[~unlearned]
    areas = []
    for turn in (0, 1):
        fitted = fit(*(phi[turn::2] for phi in kinds))
        one, other = (fitted.score(phi[1 - turn :: 2]) for phi in kinds)
        areas.append(shares_above(one, other).mean())
    return float(np.mean(areas))


def permutation_p(models: Floats, unlearned: int, rng: np.random.Generator, permutations: int) -> float:
    """Return the share of permutations of the kinds, this one included, whose AUC is as large."""
    kinds = np.arange(len(models)) < unlearned
    value = crossed_auc(models, kinds)
    larger = sum(crossed_auc(models, rng.permutation(kinds)) >= value for _ in range(permutations))
    return (1 + larger) / (1 + permutations)
