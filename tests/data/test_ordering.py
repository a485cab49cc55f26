"""Keyed order and stratified shares, proved against slow or exact forms."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.data.ordering import shares, shuffled, stratified

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


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


@given(COUNTS, st.data())
def test_shares_add_up_and_stay_within_one_of_the_exact_share(counts, data):
    size = data.draw(st.integers(0, sum(counts)))
    taken = shares(counts, size)
    assert sum(taken) == size
    for share, count in zip(taken, counts, strict=True):
        assert 0 <= share <= count
        assert abs(share * max(sum(counts), 1) - size * count) < max(sum(counts), 1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
@settings(max_examples=50)
def test_stratified_takes_the_first_of_each_class(labels, data):
    y = np.array(labels)
    size = data.draw(st.integers(0, len(y)))
    order = shuffled([str(i) for i in range(len(y))], data.draw(st.integers(0, 99)), "split")
    chosen, rest = stratified(order, y, 4, size)
    left = shares(np.bincount(y, minlength=4).tolist(), size)
    slow = []
    for i in order:
        if left[y[i]]:
            left[y[i]] -= 1
            slow.append(i)
    assert chosen.tolist() == slow
    assert rest.tolist() == [i for i in order if i not in set(slow)]
