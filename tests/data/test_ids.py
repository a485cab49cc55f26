"""Ids: their ranks within a class, and the random order that they alone give."""

import numpy as np
import pytest
import torch

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data import ids_of_ranks
from residuum.data.ids import ids_by_rank, shuffled


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


def test_golden_order():
    assert shuffled([f"digits/{i:04d}" for i in range(8)], 7, "split").tolist() == [7, 5, 4, 6, 1, 0, 3, 2]


def test_order_follows_the_id_not_the_position():
    ids = [f"s{i}" for i in range(50)]
    forward = [ids[i] for i in shuffled(ids, 3, "split")]
    backward = [ids[::-1][i] for i in shuffled(ids[::-1], 3, "split")]
    assert forward == backward
    fewer = [name for name in forward if name != "s7"]
    assert fewer == [ids[i] for i in np.array([i for i in shuffled(ids, 3, "split") if i != 7])]


def test_seed_and_role_change_the_order():
    ids = [f"s{i}" for i in range(50)]
    orders = {tuple(shuffled(ids, seed, role)) for seed in range(5) for role in ("split", "forget")}
    assert len(orders) == 10


def test_order_is_uniform_over_permutations():
    """4 ids, 24 orders, 4,800 seeds: chi-square with 23 degrees of freedom stays below its 99.9 % point, 49.7."""
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        order = tuple(shuffled(["a", "b", "c", "d"], seed, "split").tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert sum((n - 200) ** 2 / 200 for n in seen.values()) < 49.7
