"""Ranks within a class, against a plain count."""

import numpy as np
import pytest
import torch

from residuum.data import ids_of_ranks
from residuum.data.ranks import ids_by_rank
from residuum.types import InputError, Samples


def test_ids_carry_the_ranks_they_are_chosen_by():
    labels = np.random.default_rng(3).integers(0, 4, 200)
    ids = tuple(ids_by_rank(labels, "abcd", "train"))
    samples = Samples(torch.zeros(200, 1), torch.from_numpy(labels), ids)
    chosen = ids_of_ranks(samples, 10, 19)
    assert chosen == [name for name in ids if 10 <= int(name.rsplit("/")[-1]) <= 19]
    assert len(chosen) == 40


def test_ranks_that_no_class_has_are_refused():
    samples = Samples(torch.zeros(3, 1), torch.tensor([0, 0, 1]), ("a", "b", "c"))
    assert ids_of_ranks(samples, 1, 9) == ["b"]
    with pytest.raises(InputError, match="no class has a sample of rank 2; the largest has 2 samples"):
        ids_of_ranks(samples, 2, 9)
    for first, last in ((-1, 3), (5, 4)):
        with pytest.raises(InputError, match="ranks must be 0 or more"):
            ids_of_ranks(samples, first, last)
