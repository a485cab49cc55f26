"""A data set: samples checked by one set of rules, classes by name or position, and the constants of normalization."""

import hashlib
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Samples
from residuum.data.ids import ONE_LINE, as_texts, is_one_line, refuse_repeats, refuse_unusable_ids

NORMALIZED = "undo the normalization, which is a layer of the model, or say unbounded=True"
MOST_CLASSES = 2**20
LARGEST_INTEGER = 2**24  # the inputs of samples are float32, which holds integers up to here
SCOPE = "the scope is classification with a single label; multi-label data and regression are outside it"
Array = Any  # what numpy or torch can turn into an array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training samples, the official test samples if there are any, the names of the classes, and constants.

    `mean` and `std` are fixed constants, one per channel or one for all, for the model's normalization layer. They are
    never computed from the training set, because a retrained model would then learn from the forget set.
    """

    name: str
    train: Samples
    test: Samples | None
    class_names: tuple[str, ...]
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.train.shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) over class names, pixels (or the files they are read from), labels and ids."""
        digest = hashlib.sha256(repr(self.class_names).encode())
        for samples in (self.train, self.test):
            digest.update(b"part")
            if samples is not None:
                add_samples(digest, samples)
        return digest.hexdigest()

    @classmethod
    def from_arrays(
        cls,
        x: Array,
        y: Array,
        *,
        ids: Iterable[Any] | None = None,
        class_names: Iterable[Any] | None = None,
        name: str = "arrays",
        test: Samples | tuple[Array, ...] | None = None,
        unbounded: bool = False,
    ) -> Self:
        """Return a checked data set from arrays or tensors.

        `x` (n, features) or (n, channels, height, width): floats in [0, 1], or uint8, which is divided by 255. `y` (n,)
        integers 0..C-1. `ids` default to the row number (`test/` and the row number for test samples). `test` is
        (x, y), (x, y, ids) or `Samples`. Without `class_names` the classes are called by their number. `unbounded`
        takes any finite floats, such as standardized features; audit them, and unlearn with RURK, with `bounds=None`.

        >>> import numpy as np
        >>> data = Dataset.from_arrays(np.zeros((3, 1, 8, 8)), [0, 1, 1], class_names=["cat", "dog"])
        >>> data.classes, data.shape, data.train.ids
        (2, (1, 8, 8), ('0', '1', '2'))
        """
        names = None if class_names is None else checked_class_names(class_names)
        classes = None if names is None else len(names)
        train = checked_samples(x, y, ids, classes=classes, bounded=not unbounded)
        if names is None:
            present = torch.unique(train.y)  # without class names, the labels say how many classes there are
            if (gap := _first(present != torch.arange(len(present)))) is not None:
                text = f"y has labels up to {present[-1]} but none is {gap}"
                raise InputError(f"{text}; number the classes 0..C-1 or give class_names")
            names = checked_class_names([str(label) for label in present.tolist()])
        if test is None:
            return cls(name, train, None, names)
        parts = (*test.batch(torch.arange(len(test))), test.ids) if isinstance(test, Samples) else tuple(test)
        if len(parts) not in {2, 3}:
            raise InputError(f"test must be (x, y), (x, y, ids) or Samples, got {len(parts)} parts")
        tested = checked_samples(*parts, classes=len(names), part="_test", bounded=not unbounded)
        if tested.shape != train.shape:
            raise InputError(f"x_test holds inputs of shape {tested.shape}, but x of shape {train.shape}")
        refuse_repeats((*train.ids, *tested.ids), "ids and ids_test")
        return cls(name, train, tested, names)


def add_samples(digest: "hashlib._Hash", samples: Samples) -> None:
    """Add inputs, labels and ids to a hash; for images in files, what they have as `fingerprint`."""
    digest.update(repr(tuple(samples.x.shape)).encode())
    if (fingerprint := getattr(samples.x, "fingerprint", None)) is not None:
        digest.update(fingerprint)
    else:
        for x, _, _ in samples.batches(4096):
            digest.update(x.contiguous().numpy().data)
    digest.update(samples.y.contiguous().numpy().data)
    digest.update("\n".join(samples.ids).encode())


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
    finite numbers (n, ...), such as standardized features and token ids; their labels may leave classes out. Without
    `ids` the row number is the id.
    """
    inputs, labels = _inputs(x, f"x{part}", bounded), _labels(y, f"y{part}")
    if len(labels) != len(inputs):
        raise InputError(f"x{part} has {len(inputs)} samples but y{part} has {len(labels)} labels; give one per sample")
    if ids is None:
        names = tuple(f"{'test/' if part else ''}{row}" for row in range(len(inputs)))
    else:
        names = as_texts(ids, f"ids{part}")
        if len(names) != len(inputs):
            raise InputError(f"ids{part} has {len(names)} entries for {len(inputs)} samples; give one id per sample")
        refuse_unusable_ids(names, f"ids{part}")
        refuse_repeats(names, f"ids{part}")
    _refuse_bad_values(inputs, names, f"x{part}", bounded)
    _refuse_bad_labels(labels, names, f"y{part}", classes)
    return Samples(inputs, labels, names)


def as_tensor(values: Array, name: str) -> Tensor:
    """Return an array, or numbers in lists, as a tensor on the CPU."""
    try:
        tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        kind = np.asarray(values, dtype=object).dtype if not hasattr(values, "dtype") else values.dtype
        hint = "; number the classes, and tokenize texts" if kind.kind in "USO" else ""
        raise InputError(f"{name} must be an array of numbers, but numpy reads it as {kind}{hint}") from error
    if tensor.layout != torch.strided or tensor.is_quantized:
        layout = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise InputError(f"{name}: expected a dense tensor, got a {layout} one; use .to_dense()")
    return tensor


def _inputs(x: Array, name: str, bounded: bool) -> Tensor:
    """Return float32 inputs; 8-bit images are divided by 255."""
    values = as_tensor(x, name)
    shape = tuple(values.shape)
    if not bounded and (values.ndim < 2 or values.numel() == 0):
        raise InputError(f"{name} must hold one input per row, (n, ...), got shape {shape}")
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
    whole = not (values.is_complex() or values.is_floating_point())
    if values.is_complex() or (whole and bool(values.double().abs().max() >= LARGEST_INTEGER)):
        raise InputError(f"{name} must hold real numbers, integers below {LARGEST_INTEGER}, got {values.dtype}")
    return values.to(torch.float32, copy=True).contiguous()


def _labels(y: Array, name: str) -> Tensor:
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


def _first(wrong: Tensor) -> int | None:
    """Return the position of the first sample with a true entry, or None."""
    rows = wrong.flatten(1).any(1) if wrong.ndim > 1 else wrong
    return int(rows.to(torch.uint8).argmax()) if bool(rows.any()) else None


def _refuse_bad_values(x: Tensor, ids: Sequence[str], name: str, bounded: bool) -> None:
    """Refuse NaN and infinite inputs, and bounded ones outside [0, 1], the first by its id."""
    lowest, highest = x.aminmax()
    if bool(lowest >= 0) and bool(highest <= 1):  # false if any is NaN
        return
    if (row := _first(~x.isfinite())) is not None:
        value = x[row][~x[row].isfinite()][0].item()
        raise InputError(f"{name}[{row}] (id {ids[row]!r}) holds {value}; remove or repair that sample")
    if bounded and (row := _first((x < 0) | (x > 1))) is not None:
        value = x[row][(x[row] < 0) | (x[row] > 1)][0].item()
        hint = "divide 8-bit images by 255" if bool(highest > 1) else NORMALIZED
        raise InputError(f"pixels must lie in [0, 1], but {name}[{row}] (id {ids[row]!r}) holds {value:g}; {hint}")


def _refuse_bad_labels(y: Tensor, ids: Sequence[str], name: str, classes: int | None) -> None:
    """Refuse negative labels, huge ones, and those of `classes` or more."""
    most = MOST_CLASSES if classes is None else classes
    if (row := _first((y < 0) | (y >= most))) is None:
        return
    label = f"{name}[{row}] (id {ids[row]!r}) is {y[row]}"
    if y[row] < 0:
        raise InputError(f"labels must be 0 or more, but {label}")
    if classes is None:
        raise InputError(f"labels must be below {MOST_CLASSES}, but {label}; number the classes from 0")
    text = f"labels must lie in 0..{classes - 1} ({classes} classes), but {label}"
    raise InputError(f"{text}; give class_names for all classes or correct the label")


def checked_class_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of two or more different classes; each fits on one line, so that a request can name it."""
    names = as_texts(names, "class_names")
    for name in names:
        if not is_one_line(name):
            raise InputError(f"class_names: {name!r} cannot name a class; a name is {ONE_LINE}")
    if len(names) < 2:
        raise InputError(f"a classifier needs at least 2 classes, got {len(names)}: {', '.join(names) or 'none'}")
    refuse_repeats(names, "class_names")
    return names


def class_index(name: int | str, class_names: Sequence[str]) -> int:
    """Return the position of a class, from its name or its position.

    A text is a name, or a position if no class has that name. A number is a position or a name; it is an error if these
    are two different classes.
    """
    if isinstance(name, bool | np.bool_) or not isinstance(name, str | SupportsIndex):
        raise InputError(f"a class is given by name or number, got {name!r}")
    text = name if isinstance(name, str) else str(operator.index(name))
    matches = [position for position, class_name in enumerate(class_names) if class_name == text]
    matches += [position for position in range(len(class_names)) if str(position) == text]
    if not matches:
        hint = "; to name no class, leave it empty" if text.lower() in {"none", "null"} else ""
        raise InputError(f"{unknown_name('class', text, class_names)}{hint}")
    if not isinstance(name, str) and matches[0] != matches[-1]:
        other = class_names[matches[-1]]
        both = f"{text!r}, or {other!r}, which is at position {text} counted from 0"
        raise InputError(f"class {text} can mean two classes: {both}; give the name as a text, {text!r} or {other!r}")
    return matches[0]


def keep_classes(dataset: Dataset, classes: Sequence[int | str]) -> Dataset:
    """Return the data set with these classes only, renumbered 0..k-1 in the order given."""
    if isinstance(classes, str):
        raise InputError(f"classes must be a list of names or numbers, got the text {classes!r}")
    positions = [class_index(name, dataset.class_names) for name in classes]
    if len(positions) < 2 or len(set(positions)) < len(positions):
        raise InputError(f"classes must name at least two different classes, got {list(classes)}")
    new_label = torch.full((dataset.classes,), -1)
    new_label[positions] = torch.arange(len(positions))

    def renumbered(samples: Samples) -> Samples:
        labels = new_label[samples.y]
        rows = (labels >= 0).nonzero().flatten()
        return replace(samples.subset(rows.numpy()), y=labels[rows])

    test = None if dataset.test is None else renumbered(dataset.test)
    names = tuple(dataset.class_names[position] for position in positions)
    return replace(dataset, train=renumbered(dataset.train), test=test, class_names=names)
