"""Soft reset of the user's network: by the training function or a recipe, and again where accuracy was lost."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor

from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.models import check_model, private_copy
from residuum.studies.retraining import TrainingFunction, parameter, trained_from
from residuum.training import Recipe
from residuum.unlearning import Context, Origin, SoftReset, Unlearning, unlearn

BUDGET = 0.5  # of the original's epochs
HALF = 0.5  # of the original's weights, that a second start keeps
BY_FUNCTION = ("keep", "fresh", "share", "epochs")  # settings that do not say how to descend
Accuracies = Mapping[str, float]


def training_epochs(retrain: TrainingFunction | None, epochs: int | None, recipe: Recipe | None) -> int | None:
    """Return how many epochs a whole training has: as said, the recipe's, or the default of the user's function."""
    if epochs is None and recipe is not None:
        return recipe.epochs
    if epochs is None and retrain is not None and (one := parameter(retrain, "epochs")) is not None:
        return one.default if type(one.default) is int and one.default > 0 else None
    return epochs


@dataclass(frozen=True)
class Way(ABC):
    """How the softened network is trained; `whole` is the number of epochs of the original's training, if known."""

    splits: Splits
    whole: int | None

    @abstractmethod
    def begin(self, model: nn.Module, method: SoftReset, seed: int) -> Unlearning:
        """Return a softened copy of the model, trained for the first time."""

    @abstractmethod
    def go_on(self, model: nn.Module, method: SoftReset, epochs: int, seed: int) -> Unlearning:
        """Return a copy of the model, trained for this number of epochs more."""

    @property
    def takes_epochs(self) -> bool:
        """Whether it can be told how long to train."""
        return True

    def first_epochs(self, method: SoftReset) -> int | None:
        """Return the number of epochs of the first training; None if it is not known."""
        if method.share is None:
            return method.recipe.epochs
        return None if self.whole is None else max(1, floor(method.share * self.whole))


@dataclass(frozen=True)
class ByRecipe(Way):
    """By the original's recipe."""

    origin: Origin

    def begin(self, model: nn.Module, method: SoftReset, seed: int) -> Unlearning:
        """Return what the method makes of the model."""
        return unlearn(model, self.splits, method, seed=seed, origin=self.origin)

    def go_on(self, model: nn.Module, method: SoftReset, epochs: int, seed: int) -> Unlearning:
        """Return what the same training makes of the model from where it is."""
        longer = SoftReset(**method.settings | {"keep": 1.0, "fresh": "draw", "share": None, "epochs": epochs})
        return unlearn(model, self.splits, longer, seed=seed, origin=self.origin)


@dataclass(frozen=True)
class ByFunction(Way):
    """By the user's function `retrain(samples, seed, model=...)`, with `epochs=...` if it takes them."""

    retrain: TrainingFunction
    samples: object
    origin: Origin

    @property
    def takes_epochs(self) -> bool:
        """Whether the function does."""
        return parameter(self.retrain, "epochs") is not None

    def first_epochs(self, method: SoftReset) -> int | None:
        """Return the number of epochs of the first training; None where the function alone decides."""
        return super().first_epochs(method) if self.takes_epochs else None

    def begin(self, model: nn.Module, method: SoftReset, seed: int) -> Unlearning:
        """Return a softened copy of the model, trained by the function."""
        self._refuse_settings(method)
        start, context = private_copy(model), Context(seed, self.origin)
        method.soften(start, self.splits, context)
        done = self._trained(start, model, self.first_epochs(method), context.batch_seed)
        return dataclasses.replace(done, notes=context.notes)

    def go_on(self, model: nn.Module, method: SoftReset, epochs: int, seed: int) -> Unlearning:
        """Return what the function makes of the model from where it is."""
        return self._trained(model, model, epochs, Context(seed).batch_seed)

    def _trained(self, start: nn.Module, model: nn.Module, epochs: int | None, seed: int) -> Unlearning:
        """Return what the function makes of the start, wrapped as the model is; passes are epochs times samples."""
        result = trained_from(start, self.retrain, self.samples, seed, like=model, epochs=epochs)
        try:
            check_model(result, self.splits.retain, self.splits.classes)
        except InputError as error:
            raise InputError(f"retrain: {error}") from None
        return Unlearning(result, (epochs or 0) * len(self.splits.retain), {}, unchanged=False)

    def _refuse_settings(self, method: SoftReset) -> None:
        """Refuse settings that the function decides, and an unknown number of epochs."""
        plain = SoftReset().settings
        changed = [name for name, value in method.settings.items() if value != plain[name] and name not in BY_FUNCTION]
        if not self.takes_epochs and method.share != plain["share"]:
            changed.append("epochs" if method.share is None else "share")
        if changed:
            raise InputError(f"soft_reset: your training function decides {changed[0]}; leave it out, or give recipe=")
        if self.takes_epochs and self.first_epochs(method) is None:
            name = getattr(self.retrain, "__name__", "retrain")
            how = f"{name}(samples, seed, model=None, epochs=30)"
            raise InputError(
                f"soft_reset trains for a share of your training's epochs, which are not known: give Request(epochs=), "
                f"a default in {how}, or soft_reset:epochs="
            )


@dataclass(frozen=True)
class Reset:
    """What a soft reset made, and why it ended; `gained` is the retain accuracy that more training added, if any."""

    done: Unlearning
    way: Way
    budget: float
    keep: float
    gained: float | None = None

    def advice(self, method: SoftReset, lost: Accuracies) -> str:
        """Return which of two changes to try: longer training, or more of the original's weights."""
        keep = f"{method.name}:keep={min(1.0, self.keep + 0.3):g}"
        slow = self.gained is not None and 3 * self.gained < lost.get("retain", 0.0)
        if "retain" not in lost or slow:
            return keep
        if not self.way.takes_epochs:
            return "a training function that takes epochs= as well, so that it can train longer"
        if method.share is None:
            return f"{method.name}:epochs={2 * max(1, method.recipe.epochs)}"
        return keep if self.budget == 1 else f"budget={min(1.0, self.budget + 0.25):g}"


def soft_reset(
    way: Way, model: nn.Module, method: SoftReset, *, seed: int, budget: float, lost: Callable[[nn.Module], Accuracies]
) -> Reset:
    """Return the softened and trained network, with the rest of the budget spent where `lost` says accuracy is lost.

    `lost` returns the points that a model lost, by part of the data. The budget is a share of the original's epochs. A
    start that kept less than half of the original is replaced by one that keeps half, which fits again sooner; the
    better of both is returned. Another start is trained on. A method that sets `epochs` trains for that number.
    """
    if method.share is not None and method.share > budget:
        if not way.takes_epochs:
            text = f"budget: expected {method.share:g} or more, because your training function decides its length"
            raise InputError(f"{text}; let it take epochs= as well, or leave the budget out")
        method = SoftReset(**method.settings | {"share": budget})
    keep = method.start.keep
    first, spent = way.begin(model, method, seed), way.first_epochs(method)
    left = floor(budget * way.whole) - spent if way.whole and spent and method.share is not None else 0
    missing = lost(first.model) if left > 0 else {}
    if not missing:
        return Reset(first, way, budget, keep)
    more = child_seed(seed, "further")
    if keep < HALF:
        half = SoftReset(**method.settings | {"keep": HALF, "share": None, "epochs": left})
        second, note = way.begin(model, half, more), {"second_start_keep": HALF, "second_start_epochs": left}
    else:
        second, note = way.go_on(first.model, method, left, more), {"further_epochs": left}
    missing_then = lost(second.model)
    gained = missing.get("retain", 0.0) - missing_then.get("retain", 0.0)
    improved = sum(missing_then.values()) <= sum(missing.values())
    result, notes = (second, note) if improved else (first, {"second_start_rejected": 1.0})
    passes = first.passes + second.passes
    outcome = Unlearning(result.model, passes, {**result.notes, **notes}, unchanged=False)
    return Reset(outcome, way, budget, HALF if improved and keep < HALF else keep, gained)
