"""What every other witness has, and what it may look at."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from torch import nn

from residuum.auditing.engine import probe_batch
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.predictor import Predictor
from residuum.auditing.witnesses.ranking import Classes
from residuum.bounds import UNIT
from residuum.perturbations import Bounds, UniformLinf
from residuum.types import Samples, Splits

Values = dict[str, Any]  # value, low, high, and what stands beside them in the record
NO_HELDOUT: Values = {"value": None, "note": "expected at least 10 held-out samples of a forgotten class, got fewer"}
REFERENCE = "retrain"


@dataclass(frozen=True)
class Witness(ABC):
    """A measure of one model with one number, larger where the model seems to remember.

    `relative` numbers are against the seed's reference, so that only controls are innocents; others have every
    re-trained model. `reads` says what it is computed from. `stepwise` numbers are shares of samples: innocents that
    differ by less than half a sample are not believed to.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    reads: ClassVar[Literal["models", "margins"]]
    relative: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True


@dataclass(frozen=True)
class Scene:
    """What a witness may look at: the models of one seed by label, the splits, radii above 0, and the data's bounds."""

    models: Mapping[str, nn.Module]
    splits: Splits
    radii: Sequence[float]
    seed: int
    bounds: Bounds = UNIT

    @cached_property
    def heldout(self) -> Samples:
        """Held-out samples of the forgotten classes."""
        return choose_heldout(self.splits.heldout, self.splits.forget)

    @cached_property
    def forget(self) -> Samples:
        """The forgotten samples of classes that were held out too."""
        same = np.isin(self.splits.forget.y.numpy(), self.heldout.y.numpy())
        return self.splits.forget.subset(np.flatnonzero(same))

    @cached_property
    def classes(self) -> Classes:
        """The labels of both."""
        return Classes(self.forget.y.numpy(), self.heldout.y.numpy())

    @cached_property
    def predictors(self) -> dict[str, Predictor]:
        """All models, ready to predict."""
        widest = UniformLinf(max(self.radii), bounds=self.bounds)
        probe = probe_batch(self.splits.forget, widest, self.seed)
        return {label: Predictor(model, probe) for label, model in self.models.items()}

    @property
    def controls(self) -> list[str]:
        """The labels of the controls."""
        return [label for label in self.models if label == "control" or label.startswith("control_")]
