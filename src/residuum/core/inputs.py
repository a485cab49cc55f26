"""The space that inputs live in: bounds, units of features, token ids, and the layer that noise moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError

Bounds = tuple[Any, Any] | None  # low and high: a number each, or nested tuples that broadcast to the shape of an input
Unit = Literal["raw", "std"]
UNIT: Bounds = (0.0, 1.0)
SPACE_SETTINGS = ("bounds", "scale", "at", "unit")  # what texts and records say of a space


def _nested(values: Any) -> Any:  # noqa: ANN401 (a number or lists of lists)
    return tuple(_nested(value) for value in values) if isinstance(values, list) else values


@dataclass(frozen=True)
class InputSpace:
    """What the inputs of a model are, and how noise may move them.

    `bounds` are (0, 1) for images, (low, high) with a number for each feature, or None for data that have none, such as
    standardized features. `scale` is the unit of the radius, one number or one for each feature. The features at the
    positions `fixed` of the last dimension (categories) and those of scale 0 are left alone. `names` are the keyword
    arguments that a stack of integers (n, parts, length) is unpacked to. Noise cannot move inputs that are `tokens`.
    `at` is the layer whose output noise moves instead of the input; with `unit="std"` the radius is in standard
    deviations of that output, each model's own.

    >>> space = InputSpace(scale=2.0, fixed=(1,))
    >>> space.move(torch.zeros(1, 3), torch.ones(1, 3), radius=0.25).tolist()
    [[0.5, 0.0, 0.5]]
    >>> space.move(torch.zeros(1, 3), torch.ones(1, 3)).tolist()
    [[1.0, 0.0, 1.0]]
    """

    bounds: Bounds = UNIT
    scale: Any = None  # None, a number, or numbers in nested tuples
    fixed: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    tokens: bool = False
    at: str | None = None
    unit: Unit = "raw"

    def __post_init__(self) -> None:
        bounds, scale = self.bounds, self.scale
        if bounds is not None:
            try:
                low, high = (np.asarray(limit, np.float64) for limit in bounds)
                ordered = bool((low < high).all())
            except (TypeError, ValueError):
                ordered = False
            if not ordered:
                raise InputError(f"expected bounds (low, high) with low < high, or None, got {bounds!r}")
            object.__setattr__(self, "bounds", (_nested(low.tolist()), _nested(high.tolist())))
        if scale is not None:
            try:
                numbers = np.asarray(scale, np.float64)
                usable = bool((np.isfinite(numbers) & (numbers >= 0)).all())
            except (TypeError, ValueError):
                usable = False
            if not usable:
                raise InputError(f"expected a scale of finite numbers, 0 or more, or None, got {scale!r}")
            object.__setattr__(self, "scale", _nested(numbers.tolist()))
        object.__setattr__(self, "fixed", tuple(self.fixed))
        if self.unit not in get_args(Unit) or (self.unit == "std" and self.at is None):
            raise InputError(f"expected unit raw, or std with a layer (at=), got {self.unit!r}")

    def scale_of(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor | None:
        """Return how far radius one moves each feature of inputs of this shape; None if it moves all by one.

        >>> InputSpace(scale=2.0, fixed=(1,)).scale_of((3,))
        tensor([2., 0., 2.])
        """
        if self.scale is None and not self.fixed:
            return None
        scale = torch.as_tensor(1.0 if self.scale is None else self.scale, dtype=dtype)
        got = f"shape {tuple(scale.shape)}" + (f" and fixed features {list(self.fixed)}" if self.fixed else "")
        try:
            scale = scale.expand(*shape).clone()
            scale[..., list(self.fixed)] = 0
        except (RuntimeError, IndexError):
            raise InputError(f"expected a scale for inputs of shape {tuple(shape)}, got {got}") from None
        return scale

    def scaled(self, step: Tensor) -> Tensor:
        """Return a step (n, ...) of radius one in the units of each feature."""
        scale = self.scale_of(step.shape[1:], step.dtype)
        return step if scale is None else step * scale.to(step.device)

    def move(self, x: Tensor, step: Tensor, radius: float = 1.0) -> Tensor:
        """Return clamp(x + radius * scale * step) for inputs x and steps of shape (n, ...)."""
        if self.tokens:
            raise InputError(f"token ids cannot be moved by noise; move the output of a layer, such as {self.at!r}")
        return self.clamp_(torch.add(x, self.scaled(step), alpha=radius))

    def clamp_(self, x: Tensor) -> Tensor:
        """Return `x`, changed in place, with every feature at the nearest value within the bounds."""
        return x if self.bounds is None else x.clamp_(*self._limits(x, self.bounds))

    def check(self, x: Tensor, what: str, hint: str, ids: Sequence[str] | None = None) -> None:
        """Refuse inputs that are not within the bounds: name the first by its id, and say what to do."""
        if self.bounds is None:
            return
        low, high = self._limits(x, self.bounds)
        inside = (x >= low) & (x <= high)  # false for NaN
        if bool(inside.all()):
            return
        row = int(inside.flatten(1).all(1).to(torch.uint8).argmin())
        value, where = x[row][~inside[row]][0].item(), "" if ids is None else f" in {ids[row]!r}"
        limits = "the bounds of each feature" if isinstance(low, Tensor) else f"[{low:g}, {high:g}]"
        raise InputError(f"{what} within {limits}, got {value:g}{where}; {hint}")

    def _limits(self, x: Tensor, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the bounds as two numbers, or as two tensors on the device of the inputs x (n, ...)."""
        if isinstance(bounds[0], float) and isinstance(bounds[1], float):
            return bounds
        low, high = (torch.tensor(limit, dtype=x.dtype, device=x.device) for limit in bounds)
        shape = tuple(x.shape[1:])
        try:
            fits = np.broadcast_shapes(low.shape, high.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            shapes = f"{tuple(low.shape)} and {tuple(high.shape)}"
            raise InputError(f"expected bounds for inputs of shape {shape}, got shapes {shapes}")
        return low, high

    def settings(self, shape: Sequence[int] = ()) -> dict[str, Any]:
        """Return what decides how inputs of this shape are moved, for the run record.

        >>> InputSpace().settings(), InputSpace(at="fc", unit="std").settings()
        ({'bounds': (0.0, 1.0)}, {'bounds': None, 'at': 'fc', 'unit': 'std'})
        """
        if self.at is not None:
            return {"bounds": None, "at": self.at} | ({} if self.unit == "raw" else {"unit": self.unit})
        scale = self.scale_of(shape) if self.fixed else self.scale
        listed = scale.tolist() if isinstance(scale, Tensor) else scale
        return {"bounds": self.bounds} | ({} if listed is None else {"scale": listed})

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> InputSpace:
        """Return the space that the settings of a record describe."""
        return cls(**{key: settings[key] for key in SPACE_SETTINGS if key in settings})


PIXELS = InputSpace()


def space_of(model: nn.Module, otherwise: InputSpace = PIXELS) -> InputSpace:
    """Return the space of a wrapped model's inputs; otherwise pixels in [0, 1], unless another space is given."""
    return getattr(model, "input_space", otherwise)
