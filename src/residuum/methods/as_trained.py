"""Methods that train as the original was trained."""

import dataclasses
from typing import Annotated, Literal, Self

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn

from residuum.methods.base import Context
from residuum.methods.fresh import Parts, restart
from residuum.methods.gd import GD
from residuum.training import STRICT, NonNegative, Positive, Recipe
from residuum.types import InputError, Splits

NEEDED = ("lr", "momentum", "weight_decay", "batch_size", "optimiser")  # no value of these suits every network
TAKEN = (*NEEDED, "drop_last", "clip", "augment")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AsTrained(GD):
    """Descend L(w, S_r) with the original's recipe: settings left None take its values; the rate falls by a cosine.

    `fresh="draw"`: fresh weights come from the network's own initialisation. "initial": they are those the original
    started from, if they have not seen the forget samples: always so for a random start, for loaded weights only
    with a manifest that says so. Without the recipe, settings left None are refused: another network's values can
    destroy this one.
    """

    lr: NonNegative | None = None  # type: ignore[assignment]
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None  # type: ignore[assignment]
    weight_decay: NonNegative | None = None  # type: ignore[assignment]
    batch_size: Annotated[int, Field(ge=1)] | None = None  # type: ignore[assignment]
    drop_last: bool | None = None  # type: ignore[assignment]
    clip: Positive | None = None
    augment: bool | None = None  # type: ignore[assignment]
    optimiser: Literal["sgd", "adamw"] | None = None  # type: ignore[assignment]
    schedule: Literal["constant", "cosine"] = "cosine"
    fresh: Literal["draw", "initial"] = "draw"

    @property
    def needs_recipe(self) -> bool:
        """Whether a setting is left to the original's recipe."""
        return any(getattr(self, key) is None for key in NEEDED)

    def filled(self, context: Context) -> Self:
        """Return the method with the original's values in place of None."""
        if context.recipe is None and self.needs_recipe:
            how = f"{self.name} trains as the original was trained, which is not known"
            raise InputError(f"{how}; give its recipe: context=Context(seed, recipe=)")
        recipe = context.recipe or Recipe()
        return dataclasses.replace(self, **{key: getattr(recipe, key) for key in TAKEN if getattr(self, key) is None})

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Run the shared loop on the copy."""
        ready = self.filled(context)
        ready.descend(model, splits, context, ready.phases)
        return model

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Write the chosen fresh values over those of the modules."""
        if self.fresh == "draw":
            return super().renew(parts, splits, context)
        if context.initial is None:
            raise InputError(
                f"{self.name}: fresh='initial' needs initial weights; pass context=Context(seed, initial=)"
            )
        if context.initial_saw is None or any(sample_id in context.initial_saw for sample_id in splits.forget.ids):
            raise InputError(
                f"{self.name}: the weights that the original started from have seen samples to forget, or nobody says "
                "that they have not; give a manifest, or set fresh=draw"
            )
        return restart(parts, context.initial)
