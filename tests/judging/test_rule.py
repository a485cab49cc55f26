"""The verdict's rule: its error by simulation, its figures by hand and by scipy, and what may not change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_ind

from residuum.core.errors import InputError
from residuum.judging.rule import (
    ERROR,
    FEWEST_RETRAINED,
    LEVEL_SHARE,
    Design,
    error_shares,
    half_sample,
    judge_scores,
    ratio_of,
    scores,
)

TRIALS = 2000
RADII = 6


def curves(rng, *shape):
    """Scores of re-trained models: level first, radii that move together, standard deviation 0.03 to 0.06."""
    steps = rng.normal(size=(*shape, RADII)) * 0.5
    radii = (rng.normal(size=(*shape, 1)) + steps) * np.linspace(0.03, 0.06, RADII)
    return np.concatenate([radii.mean(-1, keepdims=True), radii], axis=-1)


def run_of(rng, seeds, controls, crafted, shift=0.0):
    """One run of a row that is re-trained (or lies `shift` above): row, controls, reference for `judge_scores`."""
    own, reference = curves(rng, seeds, controls + 1), curves(rng, seeds)
    values = own - reference[:, None]
    return values[:, 0] + shift, values[:, 1:], None if crafted else reference


def words(seeds, controls, crafted, shift=0.0, trials=TRIALS, **settings):
    rng = np.random.default_rng([seeds, controls, crafted])
    runs = (run_of(rng, seeds, controls, crafted, shift) for _ in range(trials))
    return [judge_scores(row, others, reference=known, **settings).verdict.name for row, others, known in runs]


@pytest.mark.parametrize(("seeds", "controls"), [(1, 2), (1, 4), (3, 1), (3, 4), (5, 2)])
def test_a_re_trained_row_meets_evidence_in_at_most_five_percent(seeds, controls):
    alarms = sum(word != "NONE_FOUND" for word in words(seeds, controls, crafted=False))
    assert binomtest(alarms, TRIALS, ERROR, alternative="greater").pvalue > 0.001
    assert alarms > 0.025 * TRIALS  # the error is spent, not hoarded


@pytest.mark.parametrize(("seeds", "controls"), [(1, 4), (3, 1), (3, 2), (5, 2)])
def test_crafted_attacks_leave_the_reference_out_and_are_on_the_safe_side(seeds, controls):
    # the reference of a seed moves the values of all its controls, which widens s and can only quieten the rule
    alarms = sum(word != "NONE_FOUND" for word in words(seeds, controls, crafted=True))
    assert binomtest(alarms, TRIALS, ERROR, alternative="greater").pvalue > 0.001


def test_the_level_alone_has_exactly_its_share_of_the_error():
    rng = np.random.default_rng(5)
    beyond = 0
    for _ in range(TRIALS):
        row, others, known = run_of(rng, 3, 1, crafted=False)
        result = judge_scores(row, others, reference=known)
        beyond += not result.low[0] <= result.value[0] <= result.high[0]
    assert binomtest(beyond, TRIALS, LEVEL_SHARE * ERROR).pvalue > 0.001


@pytest.mark.parametrize(("seeds", "controls"), [(1, 4), (3, 1), (3, 4)])
def test_what_is_called_detectable_is_found_in_about_four_of_five(seeds, controls):
    retrained = controls + 1
    spread = curves(np.random.default_rng(1), 100_000).std(axis=0)[0]
    reach = Design(seeds, retrained).detectable(spread, LEVEL_SHARE * ERROR)
    rng, found = np.random.default_rng(9), 0
    for _ in range(1000):
        row, others, known = run_of(rng, seeds, controls, crafted=False, shift=float(reach))
        result = judge_scores(row, others, reference=known)
        found += result.value[0] > result.high[0]
    assert 0.74 < found / 1000 < 0.9


def test_hand_example():
    # re-trained scores 0, 2, 0, 2 and a row of 5, 7: D = 5, s = 2/sqrt(3), N = 4, S = 2
    reference, controls = np.array([[0.0] * 2, [2.0] * 2]), np.array([[[2.0] * 2], [[-2.0] * 2]])
    result = judge_scores([[5.0] * 2, [5.0] * 2], controls, reference=reference, error=0.05)
    assert result.retrained == 4
    assert result.statistic == pytest.approx([5 / (2 / math.sqrt(3) * math.sqrt(3 / 4))] * 2)
    assert result.high == pytest.approx([3.182446] * 2)  # t_{3, 0.975} times a standard error of 1, around 0
    assert result.low == pytest.approx([-3.182446] * 2)
    assert result.verdict.name == "FOUND"


def test_with_one_radius_p_is_students_when_both_samples_have_the_spread_of_the_re_trained():
    # scipy pools the spread of both samples; a row of one seed has none, so both tests are the same
    rng = np.random.default_rng(2)
    controls, row = rng.normal(size=(1, 5, 1)), rng.normal(size=(1, 1))
    result = judge_scores(row.repeat(2, 1), controls.repeat(2, 2), reference=None)
    wanted = ttest_ind(row[:, 0], controls[0, :, 0])
    assert result.p_value == pytest.approx(wanted.pvalue)
    assert result.statistic[0] == pytest.approx(wanted.statistic)


def test_order_of_seeds_and_controls_and_the_sign_do_not_matter():
    rng = np.random.default_rng(3)
    row, others, known = run_of(rng, 3, 4, crafted=False, shift=0.2)
    result = judge_scores(row, others, reference=known)
    mixed = judge_scores(row[::-1], others[::-1, ::-1], reference=known[::-1])
    mirrored = judge_scores(-row, -others, reference=-known)
    assert mixed.p_value == pytest.approx(result.p_value)
    assert mixed.high == pytest.approx(result.high)
    assert mirrored.low == pytest.approx(-result.high)
    assert (result.verdict.name, mirrored.verdict.name) == ("FOUND", "OVER_FORGOTTEN")


def test_another_unit_and_another_neutral_value_change_nothing():
    row, others, _ = run_of(np.random.default_rng(4), 3, 2, crafted=True)
    plain = judge_scores(row, others, reference=None)
    moved = judge_scores(10 * row - 1, 10 * others - 1, reference=None)
    assert moved.statistic == pytest.approx(plain.statistic)
    assert moved.high == pytest.approx(10 * plain.high - 1)


def test_a_larger_shift_never_makes_evidence_weaker():
    row, others, known = run_of(np.random.default_rng(6), 3, 1, crafted=False)
    results = [judge_scores(row + shift, others, reference=known) for shift in np.linspace(0.2, 1, 9)]
    p = [result.p_value for result in results]
    assert p == sorted(p, reverse=True)
    assert results[-1].verdict.name == "FOUND"


def test_one_radius_alone_is_evidence_and_two_sides_are_mixed():
    rng = np.random.default_rng(7)
    _, others, known = run_of(rng, 3, 4, crafted=False)
    row = np.zeros((3, RADII + 1))
    row[:, 2] += 1.0
    one = judge_scores(row, others, reference=known)
    assert (one.verdict.name, one.radius) == ("FOUND", 1)
    assert one.low[0] <= one.value[0] <= one.high[0]  # the level alone says nothing
    row[:, 5] -= 1.0
    assert judge_scores(row, others, reference=known).verdict.name == "MIXED"


@pytest.mark.parametrize(
    ("seeds", "controls", "crafted", "more"), [(1, 1, False, (1, 1)), (1, 1, True, (2, 2)), (2, 0, True, (2, None))]
)
def test_too_few_re_trained_models_are_inconclusive_and_say_what_would_do(seeds, controls, crafted, more):
    row, others, known = run_of(np.random.default_rng(8), seeds, controls, crafted, shift=100.0)
    result = judge_scores(row, others, reference=known)
    assert result.verdict.name == "INCONCLUSIVE"
    assert (result.more_controls, result.more_seeds) == more
    assert result.retrained < FEWEST_RETRAINED


def test_references_alone_are_re_trained_models_too():
    row, others, known = run_of(np.random.default_rng(8), 5, 0, crafted=False)
    assert judge_scores(row, others, reference=known).retrained == 5


def test_none_is_not_said_where_the_original_would_have_been_missed():
    row, others, known = run_of(np.random.default_rng(10), 1, 2, crafted=False)
    near = judge_scores(row, others, reference=known, must_detect=0.3)
    assert near.verdict.name == "INCONCLUSIVE"
    assert near.more_controls is not None
    spread = (near.high[0] - near.low[0]) / 2 / Design(1, 3).half_floor(1.0, LEVEL_SHARE * ERROR)
    assert Design(1, 3 + near.more_controls).detectable(spread, LEVEL_SHARE * ERROR) <= 0.3
    assert Design(1, 2 + near.more_controls).detectable(spread, LEVEL_SHARE * ERROR) > 0.3
    assert Design(1 + near.more_seeds, 3).detectable(spread, LEVEL_SHARE * ERROR) <= 0.3
    assert judge_scores(row, others, reference=known, must_detect=10.0).verdict.name == "NONE_FOUND"
    assert judge_scores(row + 10, others, reference=known, must_detect=0.3).verdict.name == "FOUND"


def test_controls_that_agree_by_chance_do_not_make_a_trifle_evidence():
    shares = np.zeros((1, 4, RADII))  # class form: no re-trained model is ever right
    controls, least = scores(shares, 44, scale="share"), half_sample(shares, 44, scale="share")
    trifle, much = (scores(np.full((1, RADII), share), 44, scale="share") for share in (0.01, 0.2))
    judged = [judge_scores(row, controls, reference=None, least_spread=least).verdict.name for row in (trifle, much)]
    assert judged == ["NONE_FOUND", "FOUND"]


SCALES = ("angle", "log", "share")


@pytest.mark.parametrize("scale", SCALES)
def test_never_right_has_a_finite_score_and_a_larger_share_a_larger_one(scale):
    assert np.isfinite(scores(np.zeros(3), 44, scale=scale)).all()
    found = scores(np.linspace(0, 1, 20)[:, None], 44, scale=scale)
    assert (np.diff(found, axis=0) > 0).all()


def test_chance_has_the_same_width_on_the_angles_scale_wherever_a_share_lies():
    """The angle of a share of n samples has variance 1/(4n) whatever the chance of one, but for the very ends."""
    rng, n = np.random.default_rng(11), 200
    for chance in (0.1, 0.5, 0.95):
        shares = rng.binomial(n, chance, 20_000)[:, None] / n
        assert scores(shares, n).std(axis=0)[0] == pytest.approx(1 / math.sqrt(4 * n), rel=0.05)


def test_large_sets_have_the_pooled_ratio_on_both_scales_of_ratios():
    own, reference, many = np.array([0.6, 0.4]), np.array([0.5, 0.2]), 10**9
    expected = pytest.approx([1.0 / 0.7, 1.2, 2.0])
    assert np.exp(scores(own, many, scale="log") - scores(reference, many, scale="log")) == expected
    assert ratio_of(scores(own, many), scores(reference, many), many) == expected


def test_a_ratio_has_the_ceiling_of_a_model_that_is_always_right():
    assert ratio_of(3.0, scores([0.8], 10**9), 10**9) == pytest.approx([1.25] * 2)
    assert ratio_of(-1.0, scores([0.8], 50), 50) == pytest.approx([0.01 / 0.81] * 2)


@pytest.mark.parametrize("scale", SCALES)
def test_half_a_sample_is_the_larger_distance_of_two_scores(scale):
    def score(share):
        return scores([share], 50, scale=scale)

    for share in (0.25, 0.75):
        wanted = np.maximum(score(share + 0.01) - score(share), score(share) - score(share - 0.01))
        assert half_sample([share], 50, scale=scale) == pytest.approx(wanted)
    assert half_sample([1.0], 50, scale=scale) == pytest.approx(score(1.0) - score(0.99))


def test_the_shares_of_the_error_add_up():
    assert error_shares(RADII + 1).sum() == pytest.approx(1)
    assert error_shares(2).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("row", "controls", "reference", "said"),
    [
        (np.zeros(3), np.zeros((1, 1, 3)), None, "one or more seeds"),
        (np.zeros((1, 3)), np.zeros((2, 1, 3)), None, "controls of shape"),
        (np.zeros((1, 3)), np.zeros((1, 3, 3)), np.zeros((1, 2)), "scores of the references"),
        (np.full((1, 3), np.nan), np.zeros((1, 3, 3)), None, "finite values"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(row, controls, reference, said):
    with pytest.raises(InputError, match=said):
        judge_scores(row, controls, reference=reference)


@pytest.mark.parametrize("shares", [0.5, [], [1.2], [math.nan]])
def test_what_is_no_share_is_refused(shares):
    with pytest.raises(InputError, match="between 0 and 1"):
        scores(shares, 44)
