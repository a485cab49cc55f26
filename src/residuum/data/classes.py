"""Classes by name or number, and data sets cut down to some of them."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

import numpy as np
import torch

from residuum.data.dataset import Dataset
from residuum.types import InputError, Samples, unknown_name


def class_index(wanted: int | str, class_names: Sequence[str]) -> int:
    """Return the position of a class given by its name or by its position.

    A text is a name; only if no class has that name, it may be a position. A number is a position or a name that reads
    like it, and is refused where these are two classes.

    >>> class_index("dog", ["cat", "dog"]), class_index(0, ["cat", "dog"]), class_index("1", ["1", "2", "3"])
    (1, 0, 0)
    >>> class_index(1, ["1", "2", "3"])
    Traceback (most recent call last):
        ...
    residuum.errors.InputError: class 1 can mean two classes: '1', or '2', which is at position 1 counted from 0; \
give the name as a text, '1' or '2'
    """
    positions = [str(position) for position in range(len(class_names))]
    if isinstance(wanted, str):
        if wanted in class_names or wanted in positions:
            return (class_names if wanted in class_names else positions).index(wanted)
        hint = "; to name no class, leave it empty" if wanted.lower() in {"none", "null"} else ""
        raise InputError(f"{unknown_name('class', wanted, class_names)}{hint}")
    text = _whole_number(wanted)
    if text not in class_names and text not in positions:
        raise InputError(f"class {text} does not exist; classes are 0..{len(class_names) - 1}")
    if text in class_names and text in positions and class_names.index(text) != int(text):
        other = class_names[int(text)]
        raise InputError(
            f"class {text} can mean two classes: {text!r}, or {other!r}, which is at position {text} counted from 0; "
            f"give the name as a text, {text!r} or {other!r}"
        )
    return class_index(text, class_names)


def _whole_number(wanted: object) -> str:
    """Return a whole number as its text; a truth value is none."""
    if isinstance(wanted, bool | np.bool_) or not hasattr(wanted, "__index__"):
        raise InputError(f"a class is given by name or number, got {wanted!r}")
    return str(operator.index(wanted))


def keep_classes(dataset: Dataset, classes: Sequence[int | str]) -> Dataset:
    """Return the data set with these classes only, renumbered 0..k-1 in the order given."""
    if isinstance(classes, str):
        raise InputError(f"classes must be a list of names or numbers, got the text {classes!r}")
    chosen = [class_index(wanted, dataset.class_names) for wanted in classes]
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise InputError(f"classes must name at least two different classes, got {list(classes)}")
    test = None if dataset.test is None else _keep(dataset.test, chosen, dataset.classes)
    names = tuple(dataset.class_names[c] for c in chosen)
    return dataclasses.replace(
        dataset, train=_keep(dataset.train, chosen, dataset.classes), test=test, class_names=names
    )


def _keep(samples: Samples, chosen: Sequence[int], classes: int) -> Samples:
    new_label = np.full(classes, -1)
    new_label[list(chosen)] = np.arange(len(chosen))
    labels = new_label[samples.y.numpy()]
    kept = samples.subset(np.flatnonzero(labels >= 0))
    return dataclasses.replace(kept, y=torch.from_numpy(labels[labels >= 0].astype(np.int64)))
