"""A22-A24: the band against closed forms."""

import numpy as np
import pytest
from scipy.stats import beta, norm

from residuum.auditing.witnesses.from_records import certified_band, shifted_share
from residuum.types import InputError


def counts_with(counts_of, m, a, draws=100, taus=(0.5,)):
    joint = np.zeros((len(m), len(taus), 8), int)
    for i, (own, other) in enumerate(zip(m, a, strict=True)):
        joint[i, :, 3], joint[i, :, 2] = min(own, other), max(own - other, 0)
        joint[i, :, 1], joint[i, :, 0] = max(other - own, 0), draws - max(own, other)
    return counts_of(joint, taus=list(taus))


def test_a22_a_linear_model_reaches_the_bound_exactly():
    w, b, sigma, x = np.array([3.0, -4.0]), 0.7, 0.5, np.array([0.2, 0.3])
    p = norm.cdf((w @ x + b) / (sigma * np.linalg.norm(w)))
    for rho in (0.05, 0.2):
        best = x + rho * w / np.linalg.norm(w)
        moved = norm.cdf((w @ best + b) / (sigma * np.linalg.norm(w)))
        assert shifted_share(np.array([p]), rho / sigma)[0] == pytest.approx(moved, abs=1e-12)


def test_a23_random_shifts_of_a_clamped_net_stay_inside(counts_of):
    rng, sigma, shift = np.random.default_rng(0), 0.3, 0.5
    first, second = rng.normal(0, 2, (8, 4)), rng.normal(0, 2, 8)

    def right(centres, seed):
        noise = np.random.default_rng(seed).normal(0, sigma, (4000, *centres.shape))
        return np.tanh(np.clip(centres + noise, 0, 1) @ first.T) @ second > 0.2

    x = rng.random((12, 4))
    m, a = right(x, 1).sum(0), np.full(12, 2400)
    band = certified_band(counts_with(counts_of, m, a, 4000, (sigma,)), shift=shift)
    for _ in range(18):
        moved = rng.normal(size=x.shape)
        moved *= shift * sigma / np.linalg.norm(moved, axis=1, keepdims=True)
        r = right(x + moved, 2).mean() / 0.6
        assert band.low[0] <= r <= band.high[0]


def test_a24_without_a_shift_it_is_the_ratio_of_clopper_pearson_limits_and_it_widens(counts_of):
    counts = counts_with(counts_of, [90, 80], [70, 75])
    band = certified_band(counts, shift=0)
    m_low, a_high = beta.ppf(0.0125, 170, 31), beta.ppf(1 - 0.0125, 146, 55)
    m_high, a_low = beta.ppf(1 - 0.0125, 171, 30), beta.ppf(0.0125, 145, 56)
    assert band.low[0] == pytest.approx(m_low / a_high, rel=1e-9)
    assert band.high[0] == pytest.approx(m_high / a_low, rel=1e-9)
    bands = [certified_band(counts, shift=k) for k in (0, 0.1, 0.3)]
    assert bands[0].low[0] > bands[1].low[0] > bands[2].low[0]
    assert bands[0].high[0] < bands[1].high[0] < bands[2].high[0]


def test_the_figures_of_the_guide():
    m, a = np.array([0.95]), np.array([0.90])
    for k, low, high in ((0.1, 1.024, 1.089), (1 / 3, 0.956, 1.178)):
        assert (shifted_share(m, -k) / shifted_share(a, k))[0] == pytest.approx(low, abs=6e-4)
        assert (shifted_share(m, k) / shifted_share(a, -k))[0] == pytest.approx(high, abs=6e-4)


def test_no_band_at_radius_0_no_upper_end_without_hits_and_unequal_draws_are_refused(counts_of):
    band = certified_band(counts_with(counts_of, [50], [0], taus=(0.0, 0.5)), shift=0.1)
    assert np.isnan(band.low[0])
    assert np.isnan(band.high).all()
    assert band.low[1] > 0
    two = counts_with(counts_of, [50], [40])
    more = counts_with(counts_of, [50, 60], [40, 40])
    joint = more.joint.copy()
    joint[1] = 2 * two.joint[0]
    with pytest.raises(InputError, match="same number of draws"):
        certified_band(counts_of(joint), shift=0.1)
    with pytest.raises(InputError, match="shift of 0 or more"):
        certified_band(two, shift=-1)
