"""A data set: checked samples, classes by name or position, and the constants of normalization."""

import hashlib
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Samples
from residuum.data.arrays import Array, checked_samples, refuse_missing_classes
from residuum.data.ids import ONE_LINE, as_texts, is_one_line, refuse_repeats
from residuum.data.images import ImageFiles


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
            refuse_missing_classes(train.y)
            names = checked_class_names([str(label) for label in range(int(train.y.max()) + 1)])
        return cls(name, train, _checked_test(test, train, len(names), unbounded), names)


def add_samples(digest: "hashlib._Hash", samples: Samples) -> None:
    """Add inputs, labels and ids to a hash."""
    digest.update(repr(tuple(samples.x.shape)).encode())
    if isinstance(samples.x, ImageFiles):
        digest.update(samples.x.fingerprint)
    else:
        for part in torch.split(torch.arange(len(samples)), 4096):
            digest.update(samples.batch(part)[0].contiguous().numpy().data)
    digest.update(samples.y.contiguous().numpy().data)
    digest.update("\n".join(samples.ids).encode())


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


def _checked_test(
    test: Samples | tuple[Array, ...] | None, train: Samples, classes: int, unbounded: bool
) -> Samples | None:
    if test is None:
        return None
    parts = (*test.batch(torch.arange(len(test))), test.ids) if isinstance(test, Samples) else tuple(test)
    if len(parts) not in {2, 3}:
        raise InputError(f"test must be (x, y), (x, y, ids) or Samples, got {len(parts)} parts")
    ids = parts[2] if len(parts) == 3 else None
    samples = checked_samples(parts[0], parts[1], ids, classes=classes, part="_test", bounded=not unbounded)
    if samples.shape != train.shape:
        raise InputError(f"x_test holds inputs of shape {samples.shape}, but x of shape {train.shape}")
    refuse_repeats((*train.ids, *samples.ids), "ids and ids_test")
    return samples


def class_index(wanted: int | str, class_names: Sequence[str]) -> int:
    """Return the position of a class, from its name or its position.

    A text is a name, or a position if no class has that name. A number is a position or a name; it is an error if these
    are two different classes.
    """
    text = wanted if isinstance(wanted, str) else _whole_number(wanted)
    matches = [position for position, name in enumerate(class_names) if name == text]
    matches += [position for position in range(len(class_names)) if str(position) == text]
    if not matches:
        hint = "; to name no class, leave it empty" if text.lower() in {"none", "null"} else ""
        raise InputError(f"{unknown_name('class', text, class_names)}{hint}")
    if not isinstance(wanted, str) and matches[0] != matches[-1]:
        other = class_names[matches[-1]]
        both = f"{text!r}, or {other!r}, which is at position {text} counted from 0"
        raise InputError(f"class {text} can mean two classes: {both}; give the name as a text, {text!r} or {other!r}")
    return matches[0]


def _whole_number(wanted: int) -> str:
    try:
        return str(operator.index(None if isinstance(wanted, bool | np.bool_) else wanted))  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"a class is given by name or number, got {wanted!r}") from None


def keep_classes(dataset: Dataset, classes: Sequence[int | str]) -> Dataset:
    """Return the data set with these classes only, renumbered 0..k-1 in the order given."""
    if isinstance(classes, str):
        raise InputError(f"classes must be a list of names or numbers, got the text {classes!r}")
    positions = [class_index(wanted, dataset.class_names) for wanted in classes]
    if len(positions) < 2 or len(set(positions)) < len(positions):
        raise InputError(f"classes must name at least two different classes, got {list(classes)}")
    test = None if dataset.test is None else _keep(dataset.test, positions, dataset.classes)
    names = tuple(dataset.class_names[c] for c in positions)
    return replace(dataset, train=_keep(dataset.train, positions, dataset.classes), test=test, class_names=names)


def _keep(samples: Samples, positions: Sequence[int], classes: int) -> Samples:
    new_label = np.full(classes, -1)
    new_label[list(positions)] = np.arange(len(positions))
    labels = new_label[samples.y.numpy()]
    of_these_classes = samples.subset(np.flatnonzero(labels >= 0))
    return replace(of_these_classes, y=torch.from_numpy(labels[labels >= 0].astype(np.int64)))
