"""Witnesses that attack: the recovery radius, the depth and the worst case."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from residuum.auditing.intervals import Floats, normal_quantile, wilson_interval
from residuum.auditing.witnesses.base import NO_HELDOUT, REFERENCE, Scene, Values, Witness
from residuum.auditing.witnesses.ranking import rank
from residuum.auditing.witnesses.recovery import HALVINGS, easier_to_push, pushed_to, recovery_radii
from residuum.auditing.witnesses.search import RESTARTS, STEPS, Objective, more_often, worst_case

Booleans = NDArray[np.bool_]  # of shape (n, T)
Reach = Annotated[float, Field(gt=0)] | None


class ModelWitness(Witness):
    """A witness that attacks the models themselves."""

    reads = "models"

    @abstractmethod
    def of_models(self, scene: Scene) -> dict[str, Values]:
        """Return the values of every model that has some, by label."""

    @abstractmethod
    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return how many gradients and predictions of single inputs one model takes at most."""


@dataclass(frozen=True)
class RecoveryRadius(ModelWitness):
    """AUC of the recovery radius between forgotten and held-out samples; see `recovery_radii`.

    `tau_max` is 2.5 times the largest radius unless given.
    """

    tau_max: Reach = None
    signed: bool = True
    name: ClassVar[str] = "recovery"
    meaning: ClassVar[str] = "AUC: forgotten samples need smaller perturbations to be recognised than held-out ones"
    relative: ClassVar[bool] = False

    def of_models(self, scene: Scene) -> dict[str, Values]:
        """Return AUC with interval and, beside a reference, the difference from it with p, and p of fragility."""
        if not len(scene.heldout):
            return dict.fromkeys(scene.models, NO_HELDOUT)
        reach = reach_of(self.tau_max, scene)
        pushed, labels = pushed_to(scene.splits.test, scene.forget, seed=scene.seed)
        rankings, pushes = {}, {}
        for label, predictor in scene.predictors.items():
            sets = [(scene.forget, None, self.signed), (scene.heldout, None, self.signed), (pushed, labels, False)]
            rho = [
                recovery_radii(predictor, each, tau_max=reach, labels=own, signed=signed, bounds=scene.bounds).rho
                for each, own, signed in sets
            ]
            rankings[label], pushes[label] = rank(-rho[0], -rho[1], scene.classes), rho[2]
        found: dict[str, Values] = {}
        for label, ranking in rankings.items():
            low, high = ranking.interval()
            found[label] = {"value": ranking.auc, "low": low, "high": high, "tau_max": reach}
            if REFERENCE in rankings:
                *difference, p = ranking.minus(rankings[REFERENCE])
                fragile = easier_to_push(pushes[label], pushes[REFERENCE])
                found[label] |= {"p": p, "above_reference": difference, "fragile_p": fragile}
        return found

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches."""
        return 2 * (HALVINGS + 1) * STEPS * (2 * forgotten + heldout)


@dataclass(frozen=True)
class Depth(ModelWitness):
    """Mean over forgotten samples of how deep they lie in their label's region: -rho, signed, censored at `tau_max`.

    What a model knows of the class counts too: `heldout` is the same of held-out samples of the forgotten classes.
    Reference: Choquette-Choo et al., "Label-only membership inference attacks", ICML 2021 (distance to the boundary).
    """

    tau_max: Reach = None
    name: ClassVar[str] = "depth"
    meaning: ClassVar[str] = "forgotten samples lie deeper in their label's region; knowledge of the class included"
    relative: ClassVar[bool] = False
    stepwise: ClassVar[bool] = False

    def of_models(self, scene: Scene) -> dict[str, Values]:
        """Return the mean with its interval over samples, that of held-out ones and, beside a reference, the sign p."""
        reach = reach_of(self.tau_max, scene)
        depths = {
            label: [
                -recovery_radii(predictor, part, tau_max=reach, signed=True, bounds=scene.bounds).rho.clip(
                    -reach, reach
                )
                for part in (scene.splits.forget, scene.heldout)
                if len(part)
            ]
            for label, predictor in scene.predictors.items()
        }
        found = {}
        for label, (own, *heldout) in depths.items():
            beside = {"tau_max": reach, "heldout": float(heldout[0].mean()) if heldout else None}
            found[label] = mean_interval(own) | beside
            if REFERENCE in depths:
                found[label]["p"] = easier_to_push(-own, -depths[REFERENCE][0])
        return found

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches."""
        return 2 * (HALVINGS + 1) * STEPS * (forgotten + heldout)


def reach_of(tau_max: float | None, scene: Scene) -> float:
    """Return how far a search goes: 2.5 times the largest radius unless given."""
    return tau_max or 2.5 * max(scene.radii)


@dataclass(frozen=True)
class WorstCase(ModelWitness):
    """s(m, a) - s(a, m): how much more often some perturbation has m right and a wrong than the other way round.

    The mean over the radii; s(m, a) beside s(a', a) of the first control a' and the exact McNemar test of both.
    """

    objective: Objective = "ce"
    restarts: int = RESTARTS
    name: ClassVar[str] = "worst_case"
    meaning: ClassVar[str] = "share of samples with a perturbation at which only the model is right, minus the reverse"

    def of_models(self, scene: Scene) -> dict[str, Values]:
        """Return the difference with its interval over samples, and all shares by radius."""
        radii, reference = sorted(scene.radii), scene.predictors[REFERENCE]
        options: dict[str, Any] = {"objective": self.objective, "restarts": self.restarts, "bounds": scene.bounds}
        only, back = {}, {}
        for label, predictor in scene.predictors.items():
            if label != REFERENCE:
                pair = (predictor, reference)
                only[label] = worst_case(*pair, scene.splits.forget, radii, seed=scene.seed, **options)[0]
                back[label] = worst_case(*pair[::-1], scene.splits.forget, radii, seed=scene.seed, **options)[0]
        control = scene.controls[0]
        return {
            label: mean_interval((only[label].astype(float) - back[label]).mean(1))
            | {
                "p": None if label == control else least_p(only[label], only[control]),
                "radii": list(radii),
                "shares": wilson_shares(only[label]),
                "swapped": back[label].mean(0).tolist(),
                "control": only[control].mean(0).tolist(),
            }
            for label in only
        }

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches, in both directions."""
        return 2 * 4 * STEPS * self.restarts * radii * forgotten


def mean_interval(values: Floats, confidence: float = 0.95) -> Values:
    """Return the mean over samples with its normal interval."""
    mean = float(values.mean())
    half = normal_quantile(confidence) * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return {"value": mean, "low": None if half is None else mean - half, "high": None if half is None else mean + half}


def wilson_shares(found: Booleans) -> list[list[float]]:
    """Return share, low and high of each radius over samples."""
    share = np.asarray(found, np.float64).mean(0)
    return np.stack([share, *wilson_interval(share, len(found), normal_quantile(0.95))], axis=1).tolist()  # type: ignore[no-any-return]


def least_p(model: Booleans, control: Booleans) -> float:
    """Return the smallest p over the radii, multiplied by their number."""
    return float(min(1.0, model.shape[1] * min(more_often(*each) for each in zip(model.T, control.T, strict=True))))
