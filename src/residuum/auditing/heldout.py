"""Held-out samples of the forgotten classes, which no model ever saw, shown the same perturbations.

A model may recognize forgotten samples because it knows their class, or because it remembers these very samples. On
held-out samples only the first is possible.
"""

import numpy as np

from residuum.core.errors import InputError
from residuum.core.samples import Samples

FEWEST_OF_CLASS = 10  # a class with fewer held-out samples leaves both sets
AFFECTED = 0.1  # of its training samples: a class that lost more is not what it was
LEAST, MOST = 100, 1000  # held-out samples shown: twice the forgotten ones, but within these


def shown_at_most(forgotten: int) -> int:
    """Return how many held-out samples an audit of so many forgotten ones shows, if every class has enough.

    >>> shown_at_most(45), shown_at_most(80)
    (100, 160)
    """
    return min(max(2 * forgotten, LEAST), MOST)


def choose_heldout(pool: Samples, forgotten: Samples) -> Samples:
    """Return the samples of the pool to show: those of the forgotten classes, in their mix, the first by id.

    Twice as many as were forgotten, at least 100 and at most 1,000, and at least 10 of each class; all where there are
    no more. Classes with fewer than 10 are left out.

    >>> import torch
    >>> pool = Samples(torch.rand(40, 2), torch.arange(40) % 4, tuple(f"test/{i:02d}" for i in range(40)))
    >>> choose_heldout(pool, Samples(torch.rand(3, 2), torch.tensor([1, 1, 3]), ("a", "b", "c"))).y.bincount().tolist()
    [0, 10, 0, 10]
    """
    if pool.shape != forgotten.shape:
        raise InputError(f"expected held-out inputs of shape {forgotten.shape}, got {pool.shape}")
    if shared := sorted(set(pool.ids) & set(forgotten.ids)):
        raise InputError(f"expected held-out samples that were not forgotten, got {shared[0]!r} in both")
    total = shown_at_most(len(forgotten))
    order = np.array(sorted(range(len(pool)), key=pool.ids.__getitem__), dtype=np.int64)
    labels, rows = pool.y.numpy()[order], []
    for label, number in zip(*np.unique(forgotten.y.numpy(), return_counts=True), strict=True):
        of_class = order[labels == label]
        if len(of_class) >= FEWEST_OF_CLASS:
            rows.append(of_class[: max(FEWEST_OF_CLASS, -(-total * int(number) // len(forgotten)))])
    return pool.subset(np.sort(np.concatenate([*rows, order[:0]])))


def of_unaffected_classes(pool: Samples, train: Samples, forgotten: Samples) -> Samples:
    """Return the samples of the pool whose class lost at most a tenth of its training samples; at most 1,000, by id.

    >>> import torch
    >>> train = Samples(torch.rand(20, 2), torch.arange(20) % 2, tuple(f"train/{i:02d}" for i in range(20)))
    >>> pool = Samples(torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), ("a", "b", "c", "d"))
    >>> of_unaffected_classes(pool, train, train.subset(np.array([0, 2, 1]))).ids
    ('b', 'd')
    """
    before, lost = (np.bincount(part.y.numpy(), minlength=int(train.y.max()) + 1) for part in (train, forgotten))
    labels = np.flatnonzero(lost <= AFFECTED * before)
    rows = np.flatnonzero(np.isin(pool.y.numpy(), labels))
    return pool.subset(np.sort(sorted(rows, key=lambda row: pool.ids[row])[:MOST]).astype(np.int64))
