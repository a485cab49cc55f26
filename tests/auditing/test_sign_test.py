from pathlib import Path

import numpy as np
import pytest

from residuum.auditing import Counts, first_radius
from residuum.auditing.gallery import most_suspicious
from residuum.auditing.statistics import discoveries, sign_test


def counts(method, reference, taus, draws=40, ids=None):
    method, reference = np.array(method), np.array(reference)
    both = np.minimum(method, reference)
    rows = [f"s{i}" for i in range(len(method))] if ids is None else ids
    return Counts.of(
        rows,
        np.zeros(len(method)),
        taus,
        draws=np.full(method.shape, draws),
        method_right=method,
        reference_right=reference,
        both_right=both,
        same_prediction=both,
    )


def test_first_radius_is_the_smallest_significant_one():
    table = counts([[40, 30, 40], [10, 12, 11], [10, 40, 40]], [[10, 10, 10]] * 3, [0.3, 0.1, 0.2])
    assert first_radius(table) == {"s0": 0.1, "s1": None, "s2": 0.1}


def test_radius_zero_and_enumerated_attacks_compare_plainly():
    table = counts([[1, 0], [0, 1]], [[0, 0], [0, 0]], [0.0, 0.1], draws=1)
    assert first_radius(table) == {"s0": 0.0, "s1": None}
    assert first_radius(table, exact=True) == {"s0": 0.0, "s1": 0.1}


def test_most_suspicious_samples_of_all_rows():
    one = counts([[40], [12], [10]], [[10]] * 3, [0.1])
    two = counts([[10], [10], [30]], [[10]] * 3, [0.1])
    assert most_suspicious({"one": one, "two": two}, 2) == ("s0", "s2")
    assert most_suspicious({"two": two}, 2) == ("s2", "s0")


def swapped_at_random(rng, table):
    """Exchange both models' outcomes per (sample, draw): every discordant draw favors either with chance 1/2."""
    n10 = table.method_right - table.both_right
    n01 = table.reference_right - table.both_right
    kept = rng.binomial(n10, 0.5) + rng.binomial(n01, 0.5)
    return Counts.of(
        table.ids,
        table.labels,
        table.taus,
        draws=table.draws,
        method_right=table.both_right + kept,
        reference_right=table.both_right + n10 + n01 - kept,
        both_right=table.both_right,
        same_prediction=table.same_prediction,
    )


def share_of_swaps_with_a_discovery(rng, control):
    return np.mean([discoveries(sign_test(swapped_at_random(rng, control))).any(0) for _ in range(500)], axis=0)


@pytest.mark.parametrize("draws", [30, 100])
def test_the_sign_test_finds_nothing_where_there_is_nothing(draws):
    """Two different but equally good models; outcomes swapped at random 500 times."""
    rng = np.random.default_rng(draws)
    p_m, p_a = rng.uniform(0.2, 1, (2, 45))
    control = counts(rng.binomial(draws, p_m)[:, None], rng.binomial(draws, p_a)[:, None], [0.1], draws=draws)
    assert share_of_swaps_with_a_discovery(rng, control).max() <= 0.07


def test_the_sign_test_on_a_real_control():
    """Counts of the digits scenario's control (seed 131), swapped: nothing. As they are: the noise floor."""
    control = Counts.load(Path(__file__).with_name("control_counts.npz"))
    assert share_of_swaps_with_a_discovery(np.random.default_rng(0), control).max() <= 0.07
    assert discoveries(sign_test(control))[:, control.taus > 0].mean(0).min() > 0.1
