import numpy as np
import pytest
from scipy import stats

from residuum.auditing.statistics import (
    bootstrap_ratio,
    discoveries,
    paired_variance,
    ratio_interval,
    share_variance,
    sign_test,
    wilson_interval,
)
from residuum.core.counts import Counts
from residuum.theory import binomial_limits

rng = np.random.default_rng(5)


def paired(k11, k10, k01, k00, taus=None):
    k11, k10, k01, k00 = (np.asarray(k, dtype=np.int32) for k in (k11, k10, k01, k00))
    n, T = k11.shape
    return Counts.of(
        [str(i) for i in range(n)],
        np.zeros(n),
        np.linspace(0.1, 1, T) if taus is None else taus,
        draws=k11 + k10 + k01 + k00,
        method_right=k11 + k10,
        reference_right=k11 + k01,
        both_right=k11,
        same_prediction=k11 + k00,
    )


def random_counts(n=6, T=4, draws=30):
    cells = rng.multinomial(draws, rng.dirichlet(np.ones(4)), size=(n, T))
    return paired(*np.moveaxis(cells, -1, 0))


def test_paired_variance_is_the_unbiased_variance_of_the_smoothed_cells():
    counts, r = random_counts(), 1.3
    for column in range(4):
        expected = 0.0
        for i in range(len(counts)):
            m, a, both = (
                counts.method_right[i, column],
                counts.reference_right[i, column],
                counts.both_right[i, column],
            )
            weights = [both + 0.05, m - both + 0.05, a - both + 0.05, counts.draws[i, column] - m - a + both + 0.05]
            mean = np.average([1 - r, 1, -r, 0], weights=weights)
            squares = np.dot(weights, (np.array([1 - r, 1, -r, 0]) - mean) ** 2)
            expected += squares / (sum(weights) - 1) / counts.draws[i, column]
        assert paired_variance(counts, r)[column] == pytest.approx(expected, rel=1e-12)


def test_paired_variance_matches_simulated_repeats():
    shares = np.array([0.5, 0.2, 0.1, 0.2])
    cells = rng.multinomial(50, shares, size=(8, 4000))
    counts = paired(*np.moveaxis(cells, -1, 0))
    sums = ((counts.method_right - 1.2 * counts.reference_right) / 50).sum(0)
    assert paired_variance(counts, 1.2).mean() == pytest.approx(sums.var(), rel=0.08)


def test_share_variance_matches_simulated_repeats():
    cells = rng.multinomial(50, [0.3, 0.2, 0.2, 0.3], size=(8, 4000))
    counts = paired(*np.moveaxis(cells, -1, 0))
    assert share_variance(counts.method_right, counts)[1].mean() == pytest.approx(
        (counts.method_right / 50).mean(0).var(), rel=0.08
    )


def test_log_interval_is_symmetric_in_ratios_and_finite_at_zero():
    low, high = ratio_interval(np.array([2.0, 0.0]), np.array([0.04, 0.04]), 1.96, scale=4.0)
    assert low[0] * high[0] == pytest.approx(4)
    assert np.log(high[0] / low[0]) == pytest.approx(2 * 1.96 * (0.2 / 4) / 2)
    assert (low[1], high[1]) == (0, pytest.approx(1.96 * 0.05))


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (3, 20), (20, 20), (50, 100)])
def test_wilson_and_clopper_pearson_agree_with_scipy(hits, n):
    share, size = np.array([hits / n]), np.array([float(n)])
    test = stats.binomtest(hits, n)
    for ours, method in ((wilson_interval(share, n, 1.959963985), "wilson"), (None, "exact")):
        low, high = ours or binomial_limits(share * size, size, 0.95)
        expected = test.proportion_ci(0.95, method=method)
        assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_sign_test_agrees_with_scipy():
    k10, k01 = rng.integers(0, 15, (2, 5, 6))
    counts = paired(np.full((5, 6), 3), k10, k01, np.full((5, 6), 2))
    for i in range(5):
        for t in range(6):
            discordant = int(k10[i, t] + k01[i, t])
            expected = stats.binomtest(int(k10[i, t]), discordant, alternative="greater").pvalue if discordant else 1
            assert sign_test(counts)[i, t] == pytest.approx(expected, rel=1e-9)


def test_discoveries_agree_with_scipy():
    p = np.concatenate([rng.random((30, 3)), rng.random((10, 3)) * 0.01])
    expected = np.stack([stats.false_discovery_control(p[:, t]) <= 0.05 for t in range(3)], axis=1)
    found = discoveries(p)
    assert np.array_equal(found, expected)
    assert found.any()
    assert not found.all()
    assert not discoveries(np.full((4, 1), 0.9)).any()


@pytest.mark.parametrize(("confidence", "z", "tail"), [(0.9, 1.645, 50), (0.95, 1.96, 25), (0.99, 2.576, 5)])
def test_bootstrap_agrees_with_a_slow_loop_and_with_theory(confidence, z, tail):
    p_m, p_a = rng.random((60, 2)), rng.random((60, 2)) + 0.2
    low, high = bootstrap_ratio(p_m, p_a, confidence=confidence, seed=3)
    again = np.random.default_rng(3)
    slow = []
    for _ in range(1000):
        rows = again.integers(60, size=60)
        slow.append(p_m[rows].sum(0) / p_a[rows].sum(0))
    slow = np.sort(slow, axis=0)
    assert np.allclose(low, slow[tail - 1], rtol=1e-12)  # the rank of that share of 1000, counted from one
    assert np.allclose(high, slow[1000 - tail - 1], rtol=1e-12)
    r = p_m.sum(0) / p_a.sum(0)
    se = np.sqrt(((p_m - r * p_a) ** 2).sum(0)) / p_a.sum(0)
    assert np.allclose(high - low, 2 * z * se, rtol=0.2)


def test_bootstrap_is_undefined_where_the_reference_is_never_right():
    low, high = bootstrap_ratio(np.ones((5, 1)), np.zeros((5, 1)), confidence=0.95, seed=0)
    assert np.isnan(low).all()
    assert np.isnan(high).all()
