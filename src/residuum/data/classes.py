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
    """Return the number of a class given by name or number.

    >>> class_index("dog", ["cat", "dog"]), class_index(0, ["cat", "dog"])
    (1, 0)
    """
    if isinstance(wanted, str):
        if wanted in class_names:
            return list(class_names).index(wanted)
        raise unknown_name("class", wanted, class_names)
    try:
        index = operator.index(wanted)
    except TypeError:
        raise InputError(f"a class is given by name or number, got {wanted!r}") from None
    if isinstance(wanted, bool) or not 0 <= index < len(class_names):
        raise InputError(f"class {wanted} does not exist; classes are 0..{len(class_names) - 1}")
    return index


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
