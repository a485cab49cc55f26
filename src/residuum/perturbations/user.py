"""A user's perturbation: any callable `(model, x, y, generator, tau) -> x`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
from residuum.core.seeds import generator
from residuum.perturbations.base import Perturbation, Randomness


@dataclass(frozen=True, kw_only=True)
class UserPerturbation(Perturbation):
    """Calls `function(model, x, y, generator)` for one input at a time; what it returns must be within the bounds.

    The function gets the radius as a keyword `tau`. The generator is seeded by audit seed, id and draw, and is the same
    at every radius.

    >>> def brighter(model, x, y, generator, tau):
    ...     return x + tau
    >>> perturbation = UserPerturbation(function=brighter)
    >>> perturbation(nn.Identity(), torch.zeros(1, 2), torch.zeros(1), torch.Generator(), 0.25).tolist()
    [[0.25, 0.25]]
    >>> perturbation.settings()
    {'name': 'brighter'}
    """

    function: Callable[..., Tensor]
    name: ClassVar[str] = "user"
    crafted: ClassVar[bool] = True  # it may look at the model
    rowwise: ClassVar[bool] = True
    moves_in_units: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.function) or "tau" not in inspect.signature(self.function).parameters:
            expected = "expected a perturbation that takes its radius as a keyword `tau`"
            raise InputError(f"{expected}; {function_name(self.function)} does not")

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return one number for each row, which becomes the seed of its generator."""
        return Randomness(uniform=torch.from_numpy(rng.random(rows)))

    def apply(
        self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness, space: InputSpace, radius: float
    ) -> Tensor:
        """Return what the function makes of each input; refuse anything that is not an input."""
        assert randomness.uniform is not None
        name, hint = function_name(self.function), "clamp there what it returns, or give bounds=None"
        rows = []
        for i, seed in enumerate((randomness.uniform * 2**53).long().tolist()):
            row = x[i : i + 1]
            moved = self.function(model, row, y[i : i + 1], generator(seed), tau=radius)
            if not isinstance(moved, Tensor) or moved.shape != row.shape or moved.isnan().any():
                got = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
                raise InputError(f"{name}: expected a tensor of shape {tuple(row.shape)} without NaN, got {got}")
            space.check(moved, f"{name}: expected it to return inputs", hint)
            rows.append(moved.detach().to(x.dtype))
        return torch.cat(rows)

    def settings(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"name": function_name(self.function)}


def as_perturbation(candidate: object) -> type[Perturbation]:
    """Return a plug-in as a class of perturbations: a subclass as it is, a function in one that calls it.

    >>> def darker(model, x, y, generator, tau):
    ...     return x * (1 - tau)
    >>> as_perturbation(darker)()(nn.Identity(), torch.ones(1, 1), torch.zeros(1), torch.Generator(), 0.5).tolist()
    [[0.5]]
    """
    if isinstance(candidate, type) and issubclass(candidate, Perturbation):
        return candidate
    if not inspect.isfunction(candidate):
        raise InputError(f"expected a subclass of residuum.perturbations.Perturbation or a function, got {candidate!r}")
    UserPerturbation(function=candidate)  # refuses what takes no radius
    kind = make_dataclass(
        candidate.__name__,
        [("function", Callable[..., Tensor], field(default=candidate, kw_only=True))],
        bases=(UserPerturbation,),
        namespace={"name": candidate.__name__, "__doc__": candidate.__doc__},
        frozen=True,
    )
    kind.__module__ = candidate.__module__
    return kind


def function_name(function: object) -> str:
    """Return the function's name in records and messages."""
    return getattr(function, "__name__", type(function).__name__)
