"""Random choices that depend on a seed and on ids only: not on order, platform or library version."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


def shuffled(ids: Sequence[str], seed: int, role: str) -> Positions:
    """Return the positions of the ids sorted by blake2b("seed/role/id"): a random order keyed by content.

    >>> shuffled(["a", "b", "c", "d"], 7, "split").tolist() == shuffled(["a", "b", "c", "d"], 7, "split").tolist()
    True
    """
    keys = [blake2b(f"{seed}/{role}/{name}".encode(), digest_size=16).digest() for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def shares(counts: Sequence[int], size: int) -> list[int]:
    """Return how many of each class a stratified cut of `size` takes: largest remainders, ties to the lower class.

    >>> shares([5, 3, 2], 5)
    [3, 1, 1]
    """
    total = max(sum(counts), 1)
    whole = [size * count // total for count in counts]
    remainders = [size * count % total for count in counts]
    largest_first = sorted(range(len(counts)), key=lambda c: (-remainders[c], c))
    for c in largest_first[: size - sum(whole)]:
        whole[c] += 1
    return whole


def stratified(order: Positions, labels: NDArray[np.int64], classes: int, size: int) -> tuple[Positions, Positions]:
    """Return the first positions of each class in `order`, `size` in all, and the rest, both in the order given."""
    own = labels[order]
    counts = np.bincount(own, minlength=classes)
    rank = np.zeros(len(order), dtype=np.int64)
    for c in range(classes):
        rank[own == c] = np.arange(counts[c])
    chosen = rank < np.array(shares(counts.tolist(), size))[own]
    return order[chosen], order[~chosen]
