"""What a method knows of the original, what `edit` receives, and what `unlearn` returns."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from residuum.core.errors import warn
from residuum.core.seeds import child_seed
from residuum.training import Progress, Recipe


@dataclass(frozen=True)
class Origin:
    """What is known of the original besides its weights.

    `recipe` is how it was trained, `initial` the weights it started from, and `seen` the ids of the samples that these
    were trained on: none for a random start, None if they are not known. `fresh` returns the weights of a new network
    for a seed; without it, layers initialize themselves.
    """

    recipe: Recipe | None = None
    initial: Mapping[str, Tensor] | None = None
    seen: Container[str] | None = frozenset()
    fresh: Callable[[int], Mapping[str, Tensor]] | None = None


@dataclass
class Context:
    """What `edit` receives besides model and data, and where it records what it did: `passes` and `notes`.

    `seed` is the run's seed; batches come from its child "unlearn", injected noise from its child "noise".
    """

    seed: int
    origin: Origin = Origin()
    progress: Progress | None = None
    passes: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def batch_seed(self) -> int:
        """Seed of the mini-batches: the same for every method of a run."""
        return child_seed(self.seed, "unlearn")

    @property
    def noise_seed(self) -> int:
        """Seed of injected noise."""
        return child_seed(self.seed, "noise")

    @property
    def reset_seed(self) -> int:
        """Seed of fresh weights: the same for every method of a run."""
        return child_seed(self.batch_seed, "reset")

    def training(self) -> Recipe:
        """Return the recipe of the original; where it is not known, GD's values, with a warning."""
        if self.origin.recipe is None:
            warn("how the original was trained is not known, so GD's values are used; give its recipe: recipe=")
        return self.origin.recipe or Recipe(weight_decay=1e-4)


@dataclass(frozen=True)
class Unlearning:
    """An unlearned model, the single-sample forward-backward passes it took, and the method's notes.

    `unchanged` says that the model is the original, bit for bit.
    """

    model: nn.Module
    passes: int
    notes: Mapping[str, Any]
    unchanged: bool
