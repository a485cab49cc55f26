"""A recipe whose open settings are the original's."""

import dataclasses
from typing import TypeVar, get_type_hints

from pydantic.dataclasses import dataclass

from residuum.training import STRICT, Recipe

DECIDED = ("epochs", "schedule", "schedule_epochs", "bn_mode", "max_iters", "sigma", "noise")  # by the method itself
NEEDED = ("lr", "momentum", "weight_decay", "batch_size", "optimizer")  # no value of these suits every network
Kind = TypeVar("Kind", bound=type[Recipe])


def with_open_settings(kind: Kind) -> Kind:
    """Let every setting of a recipe be None, and make that its default, except those that a method decides."""
    hints = get_type_hints(Recipe, include_extras=True)
    kind.__annotations__ = {name: hint | None for name, hint in hints.items() if name not in DECIDED}
    for name in kind.__annotations__:
        setattr(kind, name, None)
    return kind


@dataclass(frozen=True, kw_only=True, config=STRICT)
@with_open_settings
class InheritedRecipe(Recipe):
    """A `Recipe` to train as the original was trained: settings that are None take its values.

    Every setting of `Recipe` is open, new ones included, except how long to train, how the rate falls, and noise.

    >>> InheritedRecipe(epochs=3).resolved(Recipe(lr=0.2, epochs=30)).lr
    0.2
    """

    @property
    def is_open(self) -> bool:
        """Whether a setting is left to the original that has no value for every network."""
        return any(getattr(self, name) is None for name in NEEDED)

    def resolved(self, original: Recipe) -> Recipe:
        """Return the recipe with the original's values in place of None."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(Recipe)}
        inherited = [name for name in settings if name not in DECIDED and settings[name] is None]
        return Recipe(**settings | {name: getattr(original, name) for name in inherited})
