"""Ids of image collections: class name and rank within the class in file order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residuum.types import InputError, Samples


def ids_by_rank(labels: Sequence[int] | NDArray[np.integer], class_names: Sequence[str], split: str) -> list[str]:
    """Return `split/class/rank` for every label.

    >>> ids_by_rank([1, 0, 1], ["cat", "dog"], "train")
    ['train/dog/0000', 'train/cat/0000', 'train/dog/0001']
    """
    seen = [0] * len(class_names)
    ids = []
    for label in map(int, labels):
        ids.append(f"{split}/{class_names[label]}/{seen[label]:04d}")
        seen[label] += 1
    return ids


def ids_of_ranks(samples: Samples, first: int, last: int) -> list[str]:
    """Return the ids whose rank within their class, in the order of the data, is first..last.

    >>> import torch
    >>> points = Samples(torch.zeros(4, 1), torch.tensor([1, 0, 1, 1]), ("a", "b", "c", "d"))
    >>> ids_of_ranks(points, 1, 2)
    ['c', 'd']
    """
    if not 0 <= first <= last:
        raise InputError(f"ranks must be 0 or more, the first not above the last, got {first} to {last}")
    seen: Counter[int] = Counter()
    ids = []
    for name, label in zip(samples.ids, samples.y.tolist(), strict=True):
        if first <= seen[label] <= last:
            ids.append(name)
        seen[label] += 1
    if not ids:
        raise InputError(f"no class has a sample of rank {first}; the largest has {max(seen.values())} samples")
    return ids
