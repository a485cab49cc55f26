"""The space that inputs live in: bounds, the scale of features, token ids, and clamping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError

Bounds = tuple[Any, Any] | None  # low and high: a number each, or nested tuples that broadcast to the shape of an input
UNIT: Bounds = (0.0, 1.0)


def checked_bounds(bounds: Any, name: str) -> Bounds:  # noqa: ANN401 (numbers, sequences or arrays)
    """Return the bounds as floats or nested tuples of floats; refuse what is no pair with low < high."""
    if bounds is None:
        return None
    try:
        low, high = (np.asarray(limit, np.float64) for limit in bounds)
        ordered = bool((low < high).all())
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise InputError(f"{name}: expected bounds (low, high) with low < high, or None, got {bounds!r}")
    return _nested(low.tolist()), _nested(high.tolist())


def _nested(values: Any) -> Any:  # noqa: ANN401 (a number or lists of lists)
    return tuple(_nested(value) for value in values) if isinstance(values, list) else values


def checked_scale(scale: Any, name: str) -> Any:  # noqa: ANN401 (numbers, sequences or arrays)
    """Return the scale as a float or nested tuples of floats; refuse what is negative or no number. Tensors stay."""
    if scale is None or isinstance(scale, Tensor):
        return scale
    try:
        values = np.asarray(scale, np.float64)
        usable = bool((np.isfinite(values) & (values >= 0)).all())
    except (TypeError, ValueError):
        usable = False
    if not usable:
        raise InputError(f"{name}: expected a scale of finite numbers, 0 or more, or None, got {scale!r}")
    return _nested(values.tolist())


def fitting_scale(scale: Any, x: Tensor) -> Tensor:  # noqa: ANN401 (numbers, nested tuples or a tensor)
    """Return the scale as a tensor that broadcasts to inputs x (n, ...)."""
    values = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
    if not _fits(tuple(x.shape[1:]), values.shape):
        raise InputError(f"expected a scale for inputs of shape {tuple(x.shape[1:])}, got shape {tuple(values.shape)}")
    return values


def _fits(shape: tuple[int, ...], *others: tuple[int, ...]) -> bool:
    """Tell whether arrays of the other shapes broadcast to this one."""
    try:
        return np.broadcast_shapes(*others, shape) == shape
    except ValueError:
        return False


def clamped(x: Tensor, bounds: Bounds) -> Tensor:
    """Return `x`, changed in place, with every feature at the nearest value within the bounds."""
    return x if bounds is None else x.clamp_(*_limits(x, bounds))


def refuse_outside(x: Tensor, bounds: Bounds, what: str, hint: str, names: Sequence[str] | None = None) -> None:
    """Refuse inputs that are not within the bounds: say which, if they have names, and what to do."""
    if bounds is None:
        return
    low, high = _limits(x, bounds)
    inside = (x >= low) & (x <= high)  # false for NaN
    if bool(inside.all()):
        return
    row = int(inside.flatten(1).all(1).to(torch.uint8).argmin())
    value, where = x[row][~inside[row]][0].item(), "" if names is None else f" in {names[row]!r}"
    near = "the bounds of each feature" if isinstance(low, Tensor) else f"[{low:g}, {high:g}]"
    raise InputError(f"{what} within {near}, got {value:g}{where}; {hint}")


def _limits(x: Tensor, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the bounds as two numbers, or as two tensors on the device of the inputs x (n, ...)."""
    if isinstance(bounds[0], float) and isinstance(bounds[1], float):
        return bounds
    low, high = (torch.tensor(limit, dtype=x.dtype, device=x.device) for limit in bounds)
    if not _fits(tuple(x.shape[1:]), low.shape, high.shape):
        shapes = f"{tuple(low.shape)} and {tuple(high.shape)}"
        raise InputError(f"expected bounds for inputs of shape {tuple(x.shape[1:])}, got shapes {shapes}")
    return low, high


@dataclass(frozen=True)
class InputSpace:
    """What the inputs of a model are, and how noise may move them.

    `bounds` are those of the data; `scale` is the unit of the radius, one number or one for each feature, and the
    features at the positions `fixed` (categories) are left alone. `names` are the keyword arguments that a stack of
    integers (n, parts, length) is unpacked to. Inputs that are `tokens` cannot be moved at all: `at` is the layer whose
    output is moved instead.
    """

    bounds: Bounds = UNIT
    scale: Any = None
    fixed: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    tokens: bool = False
    at: str | None = None

    def scale_of(self, shape: Sequence[int]) -> Tensor | None:
        """Return how far radius one moves each feature of inputs of this shape; None: all by one.

        >>> InputSpace(scale=2.0, fixed=(1,)).scale_of((3,))
        tensor([2., 0., 2.])
        """
        if self.scale is None and not self.fixed:
            return None
        scale = torch.as_tensor(1.0 if self.scale is None else self.scale, dtype=torch.float32)
        try:
            scale = scale.expand(*shape).clone()
            scale[..., list(self.fixed)] = 0
        except (RuntimeError, IndexError):
            last = f"scale of shape {tuple(scale.shape)}, categorical {list(self.fixed)}"
            raise InputError(
                f"expected a scale and categorical features for inputs of shape {tuple(shape)}, got {last}"
            ) from None
        return scale

    def moved(self, x: Tensor, step: Tensor) -> Tensor:
        """Return inputs x (n, ...) moved by a step in the units of each feature, within the bounds."""
        if self.tokens:
            raise InputError(f"token ids cannot be moved by noise; move the output of a layer, such as {self.at!r}")
        scale = self.scale_of(x.shape[1:])
        return clamped(x + (step if scale is None else step * scale.to(x)), self.bounds)


def space_of(model: nn.Module) -> InputSpace:
    """Return what is known of a model's inputs: pixels in [0, 1] unless `wrap` says otherwise."""
    return getattr(model, "input_space", InputSpace())
