"""Completeness and the relative test: between the original and re-train."""

import numpy as np
import pytest

from residuum.auditing.memory import (
    _distances,
    _resampled_differences,
    completeness,
    match_classes,
    relative_distance_test,
)

Z = 1.959963984540054
PATTERNS = np.array([[pattern >> bit & 1 for bit in (2, 1, 0)] for pattern in range(8)])  # original, model, reference


@pytest.fixture
def random_table(drawn):
    def make(seed, n=40, draws=20, T=3, low=(0.8, 0.5, 0.2)):
        rng = np.random.default_rng(seed)
        return drawn(rng, rng.uniform(low, np.array(low) + 0.15, (n, 3)), draws, T)

    return make


def posing(table, **who):
    """Return the table with one model's answers replaced by another's, e.g. m="o"."""
    (place, source), at = next(iter(who.items())), dict(zip("oma", range(3), strict=True))
    patterns = PATTERNS.copy()
    patterns[:, at[place]] = PATTERNS[:, at[source]]
    found = np.zeros_like(table)
    np.add.at(found, (..., patterns @ [4, 2, 1]), table)
    return found


def exchanged(table):
    """Return the table with original and reference exchanged."""
    found = np.empty_like(table)
    found[..., PATTERNS[:, ::-1] @ [4, 2, 1]] = table
    return found


def test_the_original_is_at_0_and_the_reference_at_1_with_zero_width(counts_of, random_table):  # A4
    table = random_table(1)
    for who, value in (("o", 0.0), ("a", 1.0)):
        found = completeness(counts_of(posing(table, m=who)))
        assert found["value"] == found["low"] == found["high"] == [value] * 3
        assert all(low <= value <= high for low, high in zip(found["draw_low"], found["draw_high"], strict=True))


def test_nothing_where_original_and_reference_are_the_same(counts_of, random_table):  # A5
    found = completeness(counts_of(posing(random_table(2), o="a")))
    for end in ("value", "low", "high", "draw_low", "draw_high"):
        assert found[end] == [None] * 3
    assert max(found["gap_low"]) < 0


def test_intervals_contain_the_value(counts_of, random_table):  # A6
    found = {end: np.array(value, float) for end, value in completeness(counts_of(random_table(3))).items()}
    assert (found["low"] < found["value"]).all()
    assert (found["value"] < found["high"]).all()
    assert (found["draw_low"] < found["value"]).all()
    assert (found["value"] < found["draw_high"]).all()
    assert (found["gap_low"] > 0.3).all()


def test_a_hand_example(counts_of):  # A6: shares right of (o, m, a) are (1, .7, .5), (.8, .6, .4), (.9, .8, .3)
    table = [[[0, 0, 0, 0, 3, 0, 2, 5]], [[2, 0, 0, 0, 2, 0, 2, 4]], [[1, 0, 0, 0, 1, 0, 5, 3]]]
    found = completeness(counts_of(table))
    N, D = np.array([0.3, 0.2, 0.1]), np.array([0.5, 0.4, 0.6])
    v, c, w = N.var(ddof=1) / 3, np.cov(N, D)[0, 1] / 3, D.var(ddof=1) / 3
    A, B, K = 0.25 - Z**2 * w, 0.1 - Z**2 * c, 0.04 - Z**2 * v
    assert found["value"] == pytest.approx([0.4])
    assert found["low"] == pytest.approx([(B - np.sqrt(B**2 - A * K)) / A])
    assert found["high"] == pytest.approx([(B + np.sqrt(B**2 - A * K)) / A])


def test_draw_intervals_agree_with_a_slow_loop(counts_of, random_table):
    counts = counts_of(random_table(4, n=12))
    found = completeness(counts)
    for t in range(3):
        covariance, difference = np.zeros((2, 2)), np.zeros(2)
        for row in counts.joint[:, t]:
            share = (row + 1 / 40) / (row.sum() + 0.2)
            events = np.array([PATTERNS[:, 0] - PATTERNS[:, 1], PATTERNS[:, 0] - PATTERNS[:, 2]])
            mean = events @ share
            spread = (events * share) @ events.T - np.outer(mean, mean)
            covariance += spread * (row.sum() + 0.2) / (row.sum() + 0.2 - 1) / row.sum() / 12**2
            difference += events @ row / row.sum() / 12
        A = difference[1] ** 2 - Z**2 * covariance[1, 1]
        B = difference[0] * difference[1] - Z**2 * covariance[0, 1]
        K = difference[0] ** 2 - Z**2 * covariance[0, 0]
        ends = [(B + sign * np.sqrt(B**2 - A * K)) / A for sign in (-1, 1)]
        assert [found["draw_low"][t], found["draw_high"][t]] == pytest.approx(ends, rel=1e-9)
        assert found["gap_low"][t] == pytest.approx(difference[1] - Z * np.sqrt(covariance[1, 1]))


def test_the_reference_is_as_far_from_the_original_as_can_be(counts_of, random_table):  # A25
    table, held = posing(random_table(5), m="a"), posing(random_table(6), m="a")
    found = relative_distance_test(counts_of(table), counts_of(held, prefix="h"), bootstrap_seed=7)
    p_o, p_a = (table @ PATTERNS[:, who] / table.sum(2) for who in (0, 2))
    assert found["forgotten"] == pytest.approx((-np.abs(p_a - p_o)).mean(0), rel=1e-12)


def test_exchanging_reference_and_original_flips_the_sign(counts_of, random_table):  # A26
    table, held = random_table(7), random_table(8, low=(0.7, 0.6, 0.5))
    one = relative_distance_test(counts_of(table), counts_of(held, prefix="h"), bootstrap_seed=7)
    other = relative_distance_test(
        counts_of(exchanged(table)), counts_of(exchanged(held), prefix="h"), bootstrap_seed=7
    )
    for name in ("value", "forgotten", "heldout"):
        assert other[name] == [-value for value in one[name]]
    assert all(low < value < high for low, value, high in zip(one["low"], one["value"], one["high"], strict=True))


def test_the_relative_interval_agrees_with_resampling_in_a_loop(counts_of, random_table):
    labels, held_labels = np.arange(40) % 3, np.arange(60) % 3
    table, held = random_table(9), random_table(10, n=60)
    found = relative_distance_test(counts_of(table, labels), counts_of(held, held_labels, prefix="h"), bootstrap_seed=7)
    p = [[each @ PATTERNS[:, who] / each.sum(2) for who in (1, 2, 0)] for each in (table, held)]
    d_forgotten, d_held = (np.abs(m - a) - np.abs(m - o) for m, a, o in p)
    rng, differences = np.random.default_rng(1), []
    for _ in range(2000):
        drawn = rng.integers(40, size=40)
        means = [d_held[rng.choice(np.flatnonzero(held_labels == c), 20)].mean(0) for c in range(3)]
        mix = [(labels[drawn] == c).mean() for c in range(3)]
        differences.append(d_forgotten[drawn].mean(0) - mix @ np.array(means))
    low, high = np.quantile(differences, [0.025, 0.975], axis=0)
    assert np.abs(np.array(found["low"]) - low).max() < 0.1 * (high - low).min()
    assert np.abs(np.array(found["high"]) - high).max() < 0.1 * (high - low).min()


def test_distances_agree_with_a_slow_loop(counts_of, random_table):
    labels, held_labels = np.arange(40) % 3, np.arange(50) % 3
    forgotten = counts_of(random_table(9), labels)
    heldout = counts_of(random_table(10, n=50), held_labels, prefix="h")
    found = relative_distance_test(forgotten, heldout, bootstrap_seed=7)

    def distance(row):
        o, m, a = row @ PATTERNS / row.sum()
        return abs(m - a) - abs(m - o)

    of_forgotten = [distance(row) for row in forgotten.joint[:, 1]]
    of_heldout = [distance(row) for row in heldout.joint[:, 1]]
    mixed = sum(
        np.mean([d for d, own in zip(of_heldout, held_labels, strict=True) if own == label]) * np.mean(labels == label)
        for label in range(3)
    )
    assert found["forgotten"][1] == pytest.approx(np.mean(of_forgotten))
    assert found["heldout"][1] == pytest.approx(mixed)
    assert found["value"][1] == pytest.approx(np.mean(of_forgotten) - mixed)
    assert relative_distance_test(forgotten, heldout.rows(np.arange(9)), bootstrap_seed=7) is None
    assert match_classes(forgotten, heldout).weights.sum() == pytest.approx(1)


def test_the_ends_are_the_25th_lowest_and_25th_highest_of_1000_resamples(counts_of, random_table):
    table, held = counts_of(random_table(9)), counts_of(random_table(10), prefix="h")
    twins = match_classes(table, held)
    resampled = _resampled_differences(twins, *(_distances(part) for part in (twins.forgotten, twins.heldout)), 7)
    ranked = np.sort(resampled, axis=0)
    found = relative_distance_test(table, held, bootstrap_seed=7)
    assert found["low"] == ranked[24].tolist()
    assert found["high"] == ranked[974].tolist()
