"""How far samples lie from the boundary of their label's region: recovery radius and depth, by one search."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from residuum.auditing.probes.base import NO_HELDOUT, Evidence, Probe, Value
from residuum.auditing.probes.search import HALVINGS, STEPS, recovery_radii
from residuum.auditing.statistics import Floats, mean_interval, rank
from residuum.core.samples import Samples
from residuum.theory.empirical import sign_test_p

DEFAULT_REACH = 2.5  # of a search, in largest radii


@dataclass(frozen=True)
class RecoveryRadius(Probe):
    """AUC of the signed recovery radius, at most 2.5 times the largest radius, between forgotten and held-out samples.

    See `recovery_radii`.
    """

    name: ClassVar[str] = "recovery"
    meaning: ClassVar[str] = "AUC: forgotten samples need smaller perturbations to be recognized than held-out ones"
    reads: ClassVar[Literal["models", "margins"]] = "models"
    searches: ClassVar[bool] = True

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return AUC with interval and, if there is a reference, the difference from it with p, and p of fragility."""
        if not len(evidence.heldout):
            return dict.fromkeys(evidence.models, NO_HELDOUT)
        reach = DEFAULT_REACH * max(evidence.radii)
        pushed, labels = pushed_to(evidence.splits.test, evidence.forget, seed=evidence.seed)
        rankings, pushes = {}, {}
        for row, predictor in evidence.predictors.items():
            search = partial(recovery_radii, predictor, tau_max=reach, space=evidence.space)
            forgotten, heldout = (search(part, signed=True).rho for part in (evidence.forget, evidence.heldout))
            rankings[row] = rank(-forgotten, -heldout, evidence.classes)
            pushes[row] = search(pushed, labels=labels).rho
        values = {}
        for row, ranking in rankings.items():
            p: float | None = None
            details: dict[str, Any] = {"tau_max": reach}
            if evidence.reference in rankings:
                *difference, p = ranking.minus(rankings[evidence.reference])
                fragile = easier_to_push(pushes[row], pushes[evidence.reference])
                details |= {"above_reference": difference, "fragile_p": fragile}
            values[row] = Value(ranking.auc, *ranking.interval(), p=p, details=details)
        return values

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches."""
        return 2 * (HALVINGS + 1) * STEPS * (2 * forgotten + heldout)


@dataclass(frozen=True)
class Depth(Probe):
    """Mean over forgotten samples of how deep they lie in their label's region: -rho, signed, censored at `tau_max`.

    Knowledge of the class counts too: `heldout` is the same mean over held-out samples of the forgotten classes.

    Reference: Choquette-Choo et al., "Label-only membership inference attacks", ICML 2021 (distance to the boundary).
    """

    tau_max: Annotated[float, Field(gt=0)] | None = None
    name: ClassVar[str] = "depth"
    meaning: ClassVar[str] = "forgotten samples lie deeper in their label's region; knowledge of the class included"
    reads: ClassVar[Literal["models", "margins"]] = "models"
    searches: ClassVar[bool] = True
    stepwise: ClassVar[bool] = False

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the mean with its interval over samples, that of held-out ones, and p of the sign test."""
        reach = self.tau_max or DEFAULT_REACH * max(evidence.radii)
        parts = [part for part in (evidence.splits.forget, evidence.heldout) if len(part)]
        search = partial(recovery_radii, tau_max=reach, signed=True, space=evidence.space)
        depths = {
            row: [-search(predictor, part).rho.clip(-reach, reach) for part in parts]
            for row, predictor in evidence.predictors.items()
        }
        values = {}
        for row, (forgotten, *heldout) in depths.items():
            mean, low, high = mean_interval(forgotten)
            p = easier_to_push(-forgotten, -depths[evidence.reference][0]) if evidence.reference in depths else None
            details = {"tau_max": reach, "heldout": float(heldout[0].mean()) if heldout else None}
            values[row] = Value(mean, low, high, p=p, details=details)
        return values

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches."""
        return 2 * (HALVINGS + 1) * STEPS * (forgotten + heldout)


def pushed_to(samples: Samples, forgotten: Samples, *, seed: int) -> tuple[Samples, Tensor]:
    """Return held-out samples of other classes, at most as many as were forgotten, and labels drawn from those."""
    rng = np.random.default_rng(seed)
    others = np.flatnonzero(~np.isin(samples.y.numpy(), forgotten.y.numpy()))
    rows = np.sort(rng.permutation(others)[: len(forgotten)])
    return samples.subset(rows), torch.from_numpy(rng.choice(forgotten.y.numpy(), len(rows)))


def easier_to_push(model: Floats, reference: Floats) -> float:
    """Return p of the one-sided sign test that rho of the model is not smaller: small p means fragility, not memory."""
    return float(sign_test_p((model < reference).sum(), (model > reference).sum()))
