"""Ids of image collections: class name and rank within the class in file order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
