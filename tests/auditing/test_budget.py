"""The pilot's choice of draws, and what its intervals are worth on tables with known truth."""

import numpy as np
import pytest

from residuum.auditing import Counts, Draws, audit, measure
from residuum.auditing.budget import draws_needed, pilot_draws
from residuum.auditing.measures import pooled_ratio
from residuum.core.errors import InputError

REPEATS = 2000


def table(rng, cells, draws, repeats=1):
    """Counts of `repeats` studies (as columns) with these cell probabilities, shape (n, 4)."""
    drawn = [rng.multinomial(draws[t], cells) for t in range(repeats)]
    k11, k10, k01, k00 = np.moveaxis(np.stack(drawn, axis=1), -1, 0)
    return Counts.of(
        [f"{i:04d}" for i in range(len(cells))],
        np.zeros(len(cells)),
        np.linspace(0.1, 1, repeats),
        draws=k11 + k10 + k01 + k00,
        method_right=k11 + k10,
        reference_right=k11 + k01,
        both_right=k11,
        same_prediction=k11 + k00,
    )


def truth(rng, n, low, high, sharing):
    p_m, p_a = rng.uniform(low, high, (2, n))
    both = sharing * np.minimum(p_m, p_a) + (1 - sharing) * p_m * p_a
    cells = np.stack([both, p_m - both, p_a - both, 1 - p_m - p_a + both], axis=1).clip(0)
    return cells / cells.sum(1, keepdims=True), p_m.sum() / p_a.sum()


def adaptive_repeats(seed, n, low, high, sharing, half_width, max_draws=2000):
    """Return the truth and the final counts of many adaptive audits of one table."""
    rng = np.random.default_rng(seed)
    cells, r = truth(rng, n, low, high, sharing)
    pilot = table(rng, cells, [pilot_draws(n)] * REPEATS, REPEATS)
    needed = draws_needed([pilot], half_width=half_width, max_draws=max_draws)
    return r, pilot + table(rng, cells, needed - pilot_draws(n), REPEATS)


def share_covered(r, counts):
    _, low, high = pooled_ratio(counts)
    return np.mean((low <= r) & (r <= high))


@pytest.mark.parametrize("half_width", [0.02, 0.05])
@pytest.mark.parametrize("sharing", [0.0, 0.9])
def test_adaptive_intervals_cover_where_p_is_moderate(half_width, sharing):
    assert 0.935 <= share_covered(*adaptive_repeats(1, 60, 0.05, 0.95, sharing, half_width)) <= 0.97


@pytest.mark.parametrize(("low", "high"), [(0.9, 0.999), (0.999, 0.999), (0.05, 0.999)])
def test_adaptive_intervals_cover_where_nearly_everything_is_right(low, high):
    assert share_covered(*adaptive_repeats(2, 60, low, high, 0.0, 0.01)) >= 0.935


def test_most_adaptive_intervals_are_as_narrow_as_asked():
    _, counts = adaptive_repeats(3, 60, 0.05, 0.95, 0.5, 0.02)
    _, low, high = pooled_ratio(counts)
    assert np.mean((high - low) / 2 <= 0.02) >= 0.88
    assert np.max((high - low) / 2) < 0.023
    assert np.median((high - low) / 2) > 0.017  # not by waste


def counts_of(k):
    """Counts of one study from cells of shape (n, 4)."""
    columns = (k.sum(1), k[:, 0] + k[:, 1], k[:, 0] + k[:, 2], k[:, 0], k[:, 0] + k[:, 3])
    fields = ("draws", "method_right", "reference_right", "both_right", "same_prediction")
    names = [f"{i:04d}" for i in range(len(k))]
    arrays = {field: column[:, None] for field, column in zip(fields, columns, strict=True)}
    return Counts.of(names, np.zeros(len(k)), [0.1], **arrays)


def test_allocating_sample_by_sample_with_repeated_looks_under_covers():
    """Why the audit looks once: ten looks, each spending draws where the last one was uncertain, are biased."""
    rng = np.random.default_rng(4)
    p_m, p_a = rng.uniform(0.8, 0.98, 30), rng.uniform(0.995, 0.999, 30)
    both = p_m * p_a
    cells, r = np.stack([both, p_m - both, p_a - both, 1 - p_m - p_a + both], axis=1), p_m.sum() / p_a.sum()
    covered = {"many looks": 0, "one look": 0}
    for _ in range(200):
        k = rng.multinomial(4, cells)
        for _ in range(10):
            right = np.stack([k[:, 0] + k[:, 1], k[:, 0] + k[:, 2]]) / k.sum(1)
            variance = (right * (1 - right)).sum(0) / k.sum(1)
            k = k + rng.multinomial(np.where(variance >= np.quantile(variance, 0.7), 8, 0), cells)
        covered["many looks"] += share_covered(r, counts_of(k))
        covered["one look"] += share_covered(r, counts_of(rng.multinomial(int(k.sum() / 30), cells)))
    assert covered["many looks"] / 200 < 0.2
    assert covered["one look"] / 200 > 0.9


def test_the_number_needed_is_the_textbook_formula():
    p, n, pilot = 0.5, 40, 5000
    cells = np.tile([p * p, p * (1 - p), (1 - p) * p, (1 - p) ** 2], (n, 1))
    counts = table(np.random.default_rng(0), cells, [pilot])
    wanted = 1.1 * 1.959964**2 * (2 * p * (1 - p)) / n / p**2 / 0.002**2
    assert draws_needed([counts], half_width=0.002, max_draws=10**7)[0] == pytest.approx(wanted, rel=0.03)


def test_pilot_cap_and_widest_model():
    rng = np.random.default_rng(0)
    wide, _ = truth(rng, 50, 0.4, 0.6, 0.0)
    narrow, _ = truth(rng, 50, 0.98, 0.99, 0.0)
    pilots = [table(rng, cells, [20]) for cells in (wide, narrow)]
    each = [draws_needed([pilot], half_width=0.03, max_draws=10**6)[0] for pilot in pilots]
    assert each[0] > 2 * each[1]
    assert draws_needed(pilots, half_width=0.03, max_draws=10**6)[0] == each[0]
    assert draws_needed(pilots, half_width=0.03, max_draws=30)[0] == 30
    assert draws_needed(pilots, half_width=5, max_draws=30)[0] == 20  # the pilot was enough
    assert (pilot_draws(10), pilot_draws(999), pilot_draws(1000)) == (100, 4, 4)


def test_class_form_uses_the_difference():
    rng = np.random.default_rng(0)
    cells = np.tile([0, 0.3, 0, 0.7], (50, 1))
    needed = draws_needed([table(rng, cells, [400])], half_width=0.004, max_draws=10**6)[0]
    assert needed == pytest.approx(1.1 * 1.96**2 * 0.21 / 50 / 0.004**2, rel=0.06)


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_an_adaptive_audit_is_the_fixed_one_with_the_chosen_draws(networks, reference, samples):
    taus = [0.0, 0.02, 0.2]
    adaptive = audit(
        networks, reference, samples, "gaussian", taus=taus, draws=Draws(half_width=0.08, maximum=400), seed=5
    )
    chosen = adaptive.counts["m"].draws[0].tolist()
    assert chosen[0] == 1
    assert 112 <= chosen[1] < chosen[2] <= 400
    for t in (1, 2):
        fixed = audit(networks, reference, samples, "gaussian", taus=[taus[t]], draws=chosen[t], seed=5)
        for name in networks:
            assert np.array_equal(fixed.counts[name].method_right[:, 0], adaptive.counts[name].method_right[:, t])
    assert adaptive.counts["m"].draws.tolist() == adaptive.counts["n"].draws.tolist()
    assert measure(adaptive.counts["m"], bootstrap_seed=0)["draws"] == chosen


def test_draws_or_half_width_but_not_both():
    for wrong in ({}, {"number": 5, "half_width": 0.1}, {"half_width": -1}, {"half_width": 0.1, "first": 3}):
        with pytest.raises(InputError, match="half_width"):
            Draws(**wrong)
