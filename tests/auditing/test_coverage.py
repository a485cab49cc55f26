"""Nominal 95 % intervals cover the truth of known probability tables as often as they say."""

import numpy as np
import pytest

from residuum.auditing import Counts, measure

REPEATS = 2000


def simulate(seed, n, draws, low, high, sharing):
    """Return the truth and the counts of REPEATS studies (as columns) on one random probability table."""
    rng = np.random.default_rng(seed)
    p_m, p_a = rng.uniform(low, high, (2, n))
    both = sharing * np.minimum(p_m, p_a) + (1 - sharing) * p_m * p_a
    cells = np.stack([both, p_m - both, p_a - both, 1 - p_m - p_a + both], axis=1).clip(0)
    k11, k10, k01, k00 = np.moveaxis(rng.multinomial(draws, cells, size=(REPEATS, n)), (2, 1), (0, 1))
    counts = Counts.of(
        [f"{i:03d}" for i in range(n)],
        np.zeros(n),
        np.linspace(0.1, 1, REPEATS),
        draws=k11 + k10 + k01 + k00,
        method_right=k11 + k10,
        reference_right=k11 + k01,
        both_right=k11,
        same_prediction=k11 + k00,
    )
    truth = {
        "residual_knowledge": p_m.sum() / p_a.sum(),
        "difference": (p_m - p_a).mean(),
        "disagreement": (p_m + p_a - 2 * both).mean(),
        "unlearn_accuracy": 1 - p_m.mean(),
    }
    return truth, counts


def coverage(truth, counts):
    found = measure(counts, bootstrap_seed=1)
    return {
        name: np.mean((np.array(found[name]["low"]) <= value) & (value <= np.array(found[name]["high"])))
        for name, value in truth.items()
    }


@pytest.mark.parametrize("sharing", [0.0, 0.9])
@pytest.mark.parametrize("draws", [10, 100])
def test_intervals_cover_where_p_is_moderate(draws, sharing):
    for name, share in coverage(*simulate(11, 50, draws, 0.05, 0.95, sharing)).items():
        assert 0.935 <= share <= 0.97, name


@pytest.mark.parametrize(("low", "high"), [(0.9, 0.999), (0.99, 0.99), (0.999, 0.999), (0.05, 0.999)])
def test_intervals_cover_where_nearly_everything_is_right(low, high):
    for name, share in coverage(*simulate(12, 50, 100, low, high, 0.0)).items():
        assert share >= 0.935, name
