"""What every probe has, what it may look at, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from residuum.auditing.heldout import choose_heldout
from residuum.auditing.predictor import Predictor, probe_batch
from residuum.auditing.statistics import Classes, Floats, Ranking, rank
from residuum.core.inputs import PIXELS, InputSpace
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits
from residuum.perturbations import Gaussian, Perturbation

FURTHER = "reference"  # the label of retrained models that are no rows of the run
Model = tuple[str, str]  # label and seed
Further = Callable[[nn.Module, Sequence[str], int], nn.Module]  # of a model, ids of forgotten samples, and a seed
Margins = Mapping[str, Floats]  # by part: forget, heldout, retain, validation


@dataclass(frozen=True)
class Value:
    """What a probe measures of one row: larger where it seems to remember; None with a note where that is impossible.

    `low` and `high` are the ends of its interval, `p` tests it, and `details` are further entries of its record. Some
    probes decide themselves whether the row shows more than retrained models do; `more` is their decision.

    >>> Value(0.6, 0.5, 0.7, details={"tau_max": 0.1}).record()
    {'value': 0.6, 'low': 0.5, 'high': 0.7, 'tau_max': 0.1}
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    more: bool | None = None
    note: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the value's entry in a record, without what does not exist."""
        parts = {"low": self.low, "high": self.high, "p": self.p, "found": self.more, "note": self.note}
        return {"value": self.value, **{k: part for k, part in parts.items() if part is not None}, **self.details}


NO_HELDOUT = Value(None, note="expected at least 10 held-out samples of a forgotten class, got fewer")


@dataclass(frozen=True)
class Evidence:
    """What a probe may look at; nothing is computed before a probe asks for it.

    `roles` has the role of every label; further retrained models, which are no rows of the run, are controls. Probes
    that read models get `models` of one seed by label, the radii above 0 and the space of the inputs. Probes that read
    margins get `margins` of all models of a run; `of_seed` is then the seed whose rows are measured, None for all seeds
    together. `seed` is that of the probe's own random numbers.

    Probes that treat models show them `perturbation` at the radii `taus`. `further_training(model, ids, seed)` returns
    a copy that was trained on the retain set and these forgotten samples, as the original was for a tenth of its
    epochs; it is None if the training of the original is not known.
    """

    splits: Splits
    seed: int
    roles: Mapping[str, Role]
    models: Mapping[str, nn.Module] = field(default_factory=dict)
    radii: Sequence[float] = ()
    space: InputSpace = PIXELS
    margins: Mapping[Model, Margins] = field(default_factory=dict)
    of_seed: str | None = None
    perturbation: Perturbation = field(default_factory=Gaussian)
    taus: Sequence[float] = ()
    further_training: Further | None = None

    @cached_property
    def heldout(self) -> Samples:
        """Held-out samples of the forgotten classes."""
        return choose_heldout(self.splits.heldout, self.splits.forget)

    @cached_property
    def forget(self) -> Samples:
        """The forgotten samples of classes that were held out too."""
        return self.splits.forget.subset(np.flatnonzero(self._comparable))

    @property
    def reference(self) -> str | None:
        """The label of the reference, if there is one."""
        return next((label for label, role in self.roles.items() if role is Role.REFERENCE), None)

    @property
    def original(self) -> nn.Module | None:
        """The original, if it is among the models."""
        return next((self.models[label] for label, role in self.roles.items() if role is Role.ORIGINAL), None)

    @property
    def controls(self) -> list[str]:
        """The labels of the controls."""
        return [label for label, role in self.roles.items() if role is Role.CONTROL]

    @cached_property
    def predictors(self) -> dict[str, Predictor]:
        """All models, ready to predict."""
        probe = probe_batch(self.splits.forget, self.space, max(self.radii), self.seed)
        return {label: Predictor(model, probe) for label, model in self.models.items()}

    @cached_property
    def classes(self) -> Classes:
        """The labels of `forget` and `heldout`."""
        return Classes(self.forget.y.numpy(), self.heldout.y.numpy())

    def rank(self, forgotten: Floats, heldout: Floats) -> Ranking:
        """Return how scores of all forgotten samples rank those whose class was held out among held-out samples."""
        return rank(forgotten[self._comparable], heldout, self.classes)

    @property
    def rows(self) -> list[str]:
        """The labels of the models with margins, further retrained models included."""
        return list(dict.fromkeys(label for label, _ in self._measured))

    def margins_of(self, row: str, part: str) -> tuple[Floats, Floats]:
        """Return the margins of the row's models and of all retrained models that are not among them, (models, n)."""
        models = [model for model in self._measured if model[0] == row]
        others = [model for model in self.margins if self.roles[model[0]].retrained and model not in models]
        return self._stacked(models, part), self._stacked(others, part)

    def seeds(self) -> dict[str, Evidence]:
        """Return the evidence of each seed; retrained models of all seeds stay in it."""
        return {seed: replace(self, of_seed=seed) for seed in dict.fromkeys(seed for _, seed in self.margins)}

    @property
    def _comparable(self) -> NDArray[np.bool_]:
        return np.isin(self.splits.forget.y.numpy(), self.heldout.y.numpy())

    @property
    def _measured(self) -> list[Model]:
        return [model for model in self.margins if self.of_seed in (None, model[1])]

    def _stacked(self, models: Sequence[Model], part: str) -> Floats:
        return np.stack([self.margins[model][part] for model in models]) if models else np.empty((0, 0))


@dataclass(frozen=True)
class Probe(ABC):
    """A measure of a row with one number, larger where the row seems to remember.

    `reads` says what it is computed from. A probe measures each seed by itself (`per_seed`) or all seeds of a row
    together. Values of a `relative` probe are against the reference of the seed, so only controls make its noise floor;
    for others every retrained model does. `stepwise` values are shares of samples: retrained models that differ by less
    than half a sample count as differing by half a sample. A probe that `searches` moves inputs within the radii of an
    attack.

    A probe may judge several `columns` instead of its value, each with its share of the error of 5 %. The details then
    have `COLUMN_before` and `COLUMN_after`; a row is found where both the change and the end of a column are above
    those of the retrained models. A column with a share of 0 and the `hints` among the details are shown, not judged.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    reads: ClassVar[Literal["models", "margins"]]
    per_seed: ClassVar[bool] = True
    relative: ClassVar[bool] = False
    stepwise: ClassVar[bool] = True
    searches: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, float]] = {}
    hints: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the value of every row that has one, by label."""

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return how many gradients and predictions of single inputs one model takes at most; 0 without a search."""
        return 0

    def predictions(self, splits: Splits, radii: int) -> int:
        """Return how many inputs one model is shown outside searches, at so many radii above 0."""
        return 0

    def epochs(self, original: int) -> int:
        """Return for how many epochs one model is trained on about the retain set, of an original's so many."""
        return 0


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the margins phi = z_y - logsumexp_{k != y} z_k = log(p_y / (1 - p_y)) in float64, shape (n,).

    >>> import torch
    >>> log_odds(torch.tensor([[2.0, 1.0]]), torch.tensor([0])).tolist()
    [1.0]
    """
    precise, column = logits.double(), labels[:, None]
    others = precise.scatter(1, column, float("-inf")).logsumexp(1)
    return precise.gather(1, column)[:, 0] - others
