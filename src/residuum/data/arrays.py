"""The rules for arrays: turn them into `Samples`, or say in one line what is wrong and where."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data.ids import as_texts, refuse_repeats, refuse_unusable_ids

NORMALIZED = "undo the normalization, which is a layer of the model, or say unbounded=True"
MOST_CLASSES = 2**20
LARGEST_INTEGER = 2**24  # the inputs of samples are float32, which holds integers up to here
SCOPE = "the scope is classification with a single label; multi-label data and regression are outside it"
Array = Any  # what numpy or torch can turn into an array


def checked_samples(
    x: Array,
    y: Array,
    ids: Iterable[Any] | None = None,
    *,
    classes: int | None = None,
    part: str = "",
    bounded: bool = True,
) -> Samples:
    """Return checked samples; `part` ("" or "_test") is how messages call the arrays: x_test, y_test.

    Bounded inputs are pixels: (n, features) or (n, channels, height, width), uint8 or floats in [0, 1]. Others are any
    finite numbers (n, ...), such as standardized features and token ids; their labels may leave classes out.
    """
    inputs = _as_inputs(x, f"x{part}", bounded)
    labels = checked_labels(y, f"y{part}")
    if len(labels) != len(inputs):
        raise InputError(f"x{part} has {len(inputs)} samples but y{part} has {len(labels)} labels; give one per sample")
    names = checked_ids(ids, len(inputs), part)
    _refuse_bad_values(inputs, names, f"x{part}", bounded)
    _refuse_bad_labels(labels, names, f"y{part}", classes)
    return Samples(inputs, labels, names)


def as_tensor(values: Array, name: str) -> Tensor:
    """Return an array, or numbers in lists, as a tensor on the CPU."""
    try:
        tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        kind = np.asarray(values, dtype=object).dtype if not hasattr(values, "dtype") else values.dtype
        raise InputError(f"{name} must be an array of numbers, but numpy reads it as {kind}") from error
    if tensor.layout != torch.strided or tensor.is_quantized:
        layout = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise InputError(f"{name}: expected a dense tensor, got a {layout} one; use .to_dense()")
    return tensor


def _as_inputs(x: Array, name: str, bounded: bool) -> Tensor:
    """Return float32 inputs; 8-bit images are divided by 255."""
    values = as_tensor(x, name)
    shape = tuple(values.shape)
    if not bounded and (values.ndim < 2 or values.numel() == 0):
        raise InputError(f"{name} must hold one input a row, (n, ...), got shape {shape}")
    if bounded and values.ndim not in {2, 4}:
        hint = f"; for gray images use {name}[:, None]" if values.ndim == 3 else ""
        raise InputError(f"{name} must be (n, features) or (n, channels, height, width), got shape {shape}{hint}")
    if values.numel() == 0:
        raise InputError(f"{name} is empty (shape {shape}); at least one sample is needed")
    if values.ndim == 4 and shape[1] > 4 >= shape[3]:
        hint = f"with the channels last; use {name}.transpose(0, 3, 1, 2)"
        raise InputError(f"{name} must be (n, channels, height, width), got shape {shape} {hint}")
    if values.dtype == torch.uint8 and (bounded or values.ndim > 2):
        return values.to(torch.float32).div_(255)
    if bounded and not values.is_floating_point():
        raise InputError(f"{name} must be uint8 or floats in [0, 1], got {values.dtype}; use {name}.astype('uint8')")
    values = values.float() if values.dtype == torch.bool else values
    if values.is_complex() or (not values.is_floating_point() and bool(values.abs().max() >= LARGEST_INTEGER)):
        raise InputError(f"{name} must hold real numbers, integers below {LARGEST_INTEGER}, got {values.dtype}")
    return values.to(torch.float32, copy=True).contiguous()


def checked_labels(y: Array, name: str) -> Tensor:
    """Return one class per sample, int64 (n,); multi-label data and regression are out of scope."""
    values = as_tensor(y, name)
    if values.ndim != 1:
        hint = f"give {name}.squeeze(1)" if values.ndim == 2 and values.shape[1] == 1 else SCOPE
        raise InputError(f"{name} must have shape (n,), one class for each sample, got {tuple(values.shape)}; {hint}")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        position = _first(values != values.round()) if values.is_floating_point() else None
        where = f" and {name}[{position}] is {values[position].item()}" if position is not None else ""
        numbered = position is None and not values.is_complex()
        hint = f"give {name}.long() if these are classes; {SCOPE}" if numbered else SCOPE
        raise InputError(f"labels must be integers, but {name} is {values.dtype}{where}; {hint}")
    return values.to(torch.int64, copy=True)


def checked_ids(ids: Iterable[Any] | None, count: int, part: str) -> tuple[str, ...]:
    """Return one id per sample, by default the row number; ids are unique, and fit on a line of a text file."""
    if ids is None:
        prefix = "test/" if part else ""
        return tuple(f"{prefix}{row}" for row in range(count))
    names = as_texts(ids, f"ids{part}")
    if len(names) != count:
        raise InputError(f"ids{part} has {len(names)} entries for {count} samples; give one id per sample")
    refuse_unusable_ids(names, f"ids{part}")
    refuse_repeats(names, f"ids{part}")
    return names


def _first(wrong: Tensor) -> int | None:
    """Return the position of the first sample with a true entry, or None."""
    rows = wrong.flatten(1).any(1) if wrong.ndim > 1 else wrong
    return int(rows.to(torch.uint8).argmax()) if bool(rows.any()) else None


def _refuse_bad_values(x: Tensor, ids: Sequence[str], name: str, bounded: bool) -> None:
    """Refuse NaN and infinite inputs, and bounded ones outside [0, 1], the first by its id."""
    lowest, highest = x.aminmax()
    if bool(lowest >= 0) and bool(highest <= 1):  # false if any is NaN
        return
    if (bad := _first(~x.isfinite())) is not None:
        value = x[bad][~x[bad].isfinite()][0].item()
        raise InputError(f"{name}[{bad}] (id {ids[bad]!r}) holds {value}; remove or repair that sample")
    if not bounded:
        return
    outside = (x < 0) | (x > 1)
    row = int(outside.flatten(1).any(1).to(torch.uint8).argmax())
    value = x[row][outside[row]][0].item()
    hint = "divide 8-bit images by 255" if bool(highest > 1) else NORMALIZED
    raise InputError(f"pixels must lie in [0, 1], but {name}[{row}] (id {ids[row]!r}) holds {value:g}; {hint}")


def _refuse_bad_labels(y: Tensor, ids: Sequence[str], name: str, classes: int | None) -> None:
    """Refuse negative labels, huge ones, and those of `classes` or more."""
    if (negative := _first(y < 0)) is not None:
        raise InputError(f"labels must be 0 or more, but {name}[{negative}] (id {ids[negative]!r}) is {y[negative]}")
    if (high := _first(y >= MOST_CLASSES)) is not None:
        text = f"labels must be below {MOST_CLASSES}, but {name}[{high}] (id {ids[high]!r}) is {y[high]}"
        raise InputError(f"{text}; number the classes from 0")
    if classes is not None and (high := _first(y >= classes)) is not None:
        text = f"labels must lie in 0..{classes - 1} ({classes} classes), but {name}[{high}] (id {ids[high]!r})"
        raise InputError(f"{text} is {y[high]}; give class_names for all classes or correct the label")


def refuse_missing_classes(y: Tensor, name: str = "y") -> None:
    """Raise an error if a class has no label: without class names, the labels say how many classes there are."""
    present = torch.unique(y)
    if (gap := _first(present != torch.arange(len(present)))) is not None:
        text = f"{name} has labels up to {present[-1]} but none is {gap}"
        raise InputError(f"{text}; number the classes 0..C-1 or give class_names")
