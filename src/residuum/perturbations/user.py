"""A user's own perturbation: any callable `(model, x, y, generator) -> x`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass, make_dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import refuse_outside
from residuum.core.seeds import generator
from residuum.perturbations.base import Perturbation, Randomness


@dataclass(frozen=True)
class UserPerturbation(Perturbation):
    """Calls `function(model, x, y, generator)` for one input at a time; what it returns must be within the bounds.

    The radius reaches it as a keyword `tau`, or as the field `tau` if it is a dataclass. The generator is seeded
    by audit seed, id and draw, and is the same at every radius.

    >>> def brighter(model, x, y, generator, tau):
    ...     return x + tau
    >>> perturbation = UserPerturbation(0.25, function=brighter)
    >>> perturbation(nn.Identity(), torch.zeros(1, 2), torch.zeros(1), torch.Generator()).tolist()
    [[0.25, 0.25]]
    >>> perturbation.settings()
    {'name': 'brighter', 'bounds': (0.0, 1.0)}
    """

    function: Callable[..., Tensor] = field(kw_only=True)
    name: ClassVar[str] = "user"
    crafted: ClassVar[bool] = True  # it may look at the model
    rowwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at is not None or self.scale is not None:
            raise InputError("expected a function of your own to act on inputs by itself, got a layer (at=) or a scale")
        takes_radius = callable(self.function) and "tau" in inspect.signature(self.function).parameters
        if not (takes_radius or has_radius(self.function)):
            raise InputError(
                "expected a perturbation that takes its radius as a keyword `tau`, or a dataclass with a field `tau`; "
                f"{function_name(self.function)} has neither"
            )

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return one number for each row, which becomes the seed of its generator."""
        return Randomness(uniform=torch.from_numpy(rng.random(rows)))

    def apply(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Tensor:
        """Return what the function makes of each input."""
        assert randomness.uniform is not None
        seeds = (randomness.uniform * 2**53).long().tolist()
        return torch.cat([self.one(model, x[i : i + 1], y[i : i + 1], seed) for i, seed in enumerate(seeds)])

    def one(self, model: nn.Module, x: Tensor, y: Tensor, seed: int) -> Tensor:
        """Return one perturbed input; refuse anything that is not an input."""
        call = self.function
        if has_radius(call):
            moved = replace(call, tau=self.tau)(model, x, y, generator(seed))  # type: ignore[type-var]
        else:
            moved = call(model, x, y, generator(seed), tau=self.tau)
        if not isinstance(moved, Tensor) or moved.shape != x.shape or moved.isnan().any():
            got = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
            name = function_name(self.function)
            raise InputError(f"{name}: expected a tensor of shape {tuple(x.shape)} without NaN, got {got}")
        name, hint = function_name(self.function), "clamp there what it returns, or give bounds=None"
        refuse_outside(moved, self.bounds, f"{name}: expected it to return inputs", hint)
        return moved.detach().to(x.dtype)

    def settings(self) -> dict[str, Any]:
        """Return the function's name, and its fields if it has any."""
        fields = vars(self.function) if has_radius(self.function) else {}
        own = {key: value for key, value in fields.items() if key != "tau"}
        return {"name": function_name(self.function), "bounds": self.bounds, **own}


def as_perturbation(candidate: Any) -> type[Perturbation]:  # noqa: ANN401 (whatever a plug-in holds)
    """Return a plug-in as a class of perturbations: a subclass as it is, a function in one that calls it.

    >>> def darker(model, x, y, generator, tau):
    ...     return x * (1 - tau)
    >>> as_perturbation(darker)(0.5)(nn.Identity(), torch.ones(1, 1), torch.zeros(1), torch.Generator()).tolist()
    [[0.5]]
    """
    if isinstance(candidate, type) and issubclass(candidate, Perturbation):
        return candidate
    if not inspect.isfunction(candidate):
        raise InputError(f"expected a subclass of residuum.perturbations.Perturbation or a function, got {candidate!r}")
    UserPerturbation(function=candidate)  # refuses what takes no radius
    name = function_name(candidate)
    fields_of_class = [("function", Callable[..., Tensor], field(default=candidate, kw_only=True))]
    namespace = {"name": name, "__doc__": candidate.__doc__}
    made = make_dataclass(name, fields_of_class, bases=(UserPerturbation,), namespace=namespace, frozen=True)
    made.__module__ = candidate.__module__
    return made


def has_radius(function: object) -> bool:
    """Return whether the object is a dataclass with a field `tau`."""
    return is_dataclass(function) and not isinstance(function, type) and hasattr(function, "tau")


def function_name(function: object) -> str:
    """Return what to call it in records and messages."""
    return getattr(function, "__name__", type(function).__name__)
