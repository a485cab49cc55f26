"""A recipe whose open settings are the original's."""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from residuum.core.settings import refused_booleans
from residuum.training import STRICT, Epochs, NonNegative, Positive, Recipe

NEEDED = ("lr", "momentum", "weight_decay", "batch_size", "optimizer")  # no value of these suits every network


@dataclass(frozen=True, kw_only=True, config=STRICT)
class InheritedRecipe:
    """A `Recipe` to train as the original was trained: settings that are None take its values.

    The rate falls by a cosine.

    >>> InheritedRecipe(epochs=3).resolved(Recipe(lr=0.2, epochs=30)).lr
    0.2
    """

    epochs: Epochs = 10
    lr: NonNegative | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_decay: NonNegative | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    drop_last: bool | None = None
    schedule: Literal["constant", "cosine"] = "cosine"
    schedule_epochs: Annotated[int, Field(ge=1)] | None = None
    clip: Positive | None = None
    bn_mode: Literal["train", "eval"] = "train"
    max_iters: Annotated[int, Field(ge=0)] | None = None
    augment: bool | None = None
    sigma: NonNegative = 0.0
    noise: Literal["grad", "langevin"] = "grad"
    optimizer: Literal["sgd", "adamw"] | None = None

    _numbers = refused_booleans

    @property
    def is_open(self) -> bool:
        """Whether a setting is left to the original that has no value for every network."""
        return any(getattr(self, key) is None for key in NEEDED)

    def resolved(self, original: Recipe) -> Recipe:
        """Return the recipe with the original's values in place of None; how long to train is not taken from it."""
        inherited = (*NEEDED, "drop_last", "clip", "augment")
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return Recipe(**settings | {key: getattr(original, key) for key in inherited if settings[key] is None})
