"""The verdict's rule: its error by simulation, its figures by hand, by scipy and by plain loops."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_ind
from tests.judging.plain_rule import Plain
from tests.judging.records import record_of

from residuum.core.errors import InputError
from residuum.judging import judged_record
from residuum.judging.findings import comparisons_of
from residuum.judging.rule import ERROR, Columns, counts_upwards, error_shares, half_sample, ratio_of, scores
from residuum.record import Results, Verdict

GOLDEN = Path(__file__).parents[1] / "golden"
TRIALS = 1500
RADII = 6
SHARES = np.array([0.2, 0.7, *[0.1 / RADII] * RADII, 0.3])  # level, radius 0, radii, M
UPWARDS = np.array([False, True, *[False] * RADII, True])
DOWNWARDS = np.array([True, True, *[True] * RADII, False])


def drawn(rng, *shape):
    """Scores of retrained models: level, radius 0, radii that move together, M."""
    radii = (rng.normal(size=(*shape, 1)) + 0.5 * rng.normal(size=(*shape, RADII))) * np.linspace(0.03, 0.06, RADII)
    others = rng.normal(size=(*shape, 2)) * 0.04 + radii[..., :1]
    return np.concatenate([radii.mean(-1, keepdims=True), others[..., :1], radii, others[..., 1:]], axis=-1)


def columns_of(models, seeds):
    """The columns of retrained models, (S, k + 1, C)."""
    spread = models.reshape(-1, models.shape[-1]).std(axis=0, ddof=1)
    number = np.full(len(spread), models.shape[1])
    return Columns(seeds, number, models.mean((0, 1)), spread, SHARES, upwards=UPWARDS, downwards=DOWNWARDS)


def judged(rng, seeds, controls, shift=0.0):
    columns = columns_of(drawn(rng, seeds, controls + 1), seeds)
    return columns, columns.judge(drawn(rng, seeds).mean(0) + shift)


@pytest.mark.parametrize(("seeds", "controls"), [(1, 2), (1, 4), (3, 1), (3, 4), (5, 2)])
def test_a_retrained_row_meets_evidence_in_at_most_its_error(seeds, controls):
    rng, alarms = np.random.default_rng([seeds, controls]), 0
    for _ in range(TRIALS):
        _, judgment = judged(rng, seeds, controls)
        alarms += bool(judgment.above.any() or judgment.below.any())
    assert binomtest(alarms, TRIALS, ERROR, alternative="greater").pvalue > 0.001
    assert alarms > 0.015 * TRIALS  # the error is spent, not hoarded


def test_every_column_alone_has_exactly_its_share_of_the_error():
    rng, beyond = np.random.default_rng(5), np.zeros(len(SHARES))
    for _ in range(TRIALS):
        _, judgment = judged(rng, 3, 1)
        beyond += judgment.above | judgment.below
    shares = SHARES * ERROR * (UPWARDS.astype(int) + DOWNWARDS) / 2
    for column in (0, 1, -1):
        assert binomtest(int(beyond[column]), TRIALS, shares[column]).pvalue > 0.001


@pytest.mark.parametrize(("seeds", "controls"), [(1, 4), (3, 1), (3, 4)])
def test_what_is_called_detectable_is_found_in_about_four_of_five(seeds, controls):
    spread = drawn(np.random.default_rng(1), 100_000).std(axis=0)
    wanted = Columns(seeds, np.full(len(spread), controls + 1), 0 * spread, spread, SHARES).detectable
    rng, found = np.random.default_rng(9), np.zeros(len(SHARES))
    for _ in range(1000):
        _, judgment = judged(rng, seeds, controls, shift=wanted)
        found += judgment.above
    assert (found[[1, -1]] / 1000 > 0.7).all()
    assert (found[[1, -1]] / 1000 < 0.9).all()
    assert not found[0]  # the level counts downwards only


def test_hand_example():
    # retrained scores 0, 2, 0, 2 and a row of 5, 7: shift 5, s = 2/sqrt(3), N = 4, S = 2
    columns = Columns(2, np.array([2]), np.array([1.0]), np.array([2 / math.sqrt(3)]), np.array([0.35]))
    judgment = columns.judge([6.0])
    assert columns.standard_error == pytest.approx([1.0])
    assert judgment.statistic == pytest.approx([5.0])
    assert columns.half_floor == pytest.approx([5.431336], abs=1e-5)  # t_{3, 1 - 0.035 * 0.35 / 2}
    assert columns.detectable - columns.half_floor == pytest.approx([0.978472], abs=1e-6)  # t_{3, 0.8}
    assert judgment.p_values == pytest.approx([2 * 0.0076962 / 0.35], rel=1e-4)
    assert not judgment.above.any()
    assert columns.judge([9.0]).above.all()
    assert columns.judge([-7.0]).below.all()


def test_p_is_students_where_the_row_has_one_seed():
    rng = np.random.default_rng(2)
    models, row = rng.normal(size=(1, 5, 1)), rng.normal(size=1)
    columns = Columns(1, np.array([5]), models.mean((0, 1)), models.std(axis=1, ddof=1)[0], np.ones(1))
    wanted = ttest_ind(row, models[0, :, 0])
    assert columns.judge(row).p_values == pytest.approx([wanted.pvalue])
    assert columns.judge(row).statistic == pytest.approx([wanted.statistic])


def test_memory_counts_upwards_only():
    columns = Columns(3, np.array([2]), np.zeros(1), np.ones(1), np.array([0.15]), downwards=False)
    assert columns.judge([100.0]).above.all()
    assert not columns.judge([-100.0]).below.any()
    assert columns.judge([-100.0]).p_values == pytest.approx([1.0])


def test_a_column_counts_on_its_side_only_and_says_where_a_row_lies():
    columns = Columns(3, np.array([2]), np.zeros(1), np.ones(1), np.array([0.2]), upwards=False)
    judgment = columns.judge([100.0])
    assert judgment.outside.tolist() == [1]
    assert not judgment.above.any()
    assert judgment.p_values == pytest.approx([1.0])
    assert columns.detectable.tolist() == [math.inf]
    assert columns.judge([-100.0]).below.all()


@pytest.mark.parametrize("seeds", [1, 5, 50])
def test_a_standard_error_is_never_smaller_than_half_a_sample(seeds):
    columns = Columns(seeds, np.array([4]), np.zeros(1), np.zeros(1), np.array([0.7]), least_error=np.array([0.1]))
    assert columns.standard_error == pytest.approx([0.1])
    assert columns.half_interval > 0.1
    wide = Columns(seeds, np.array([4]), np.zeros(1), np.ones(1), np.array([0.7]), least_error=np.array([0.1]))
    assert wide.standard_error == pytest.approx([math.sqrt(1 / seeds + 1 / (4 * seeds))])


def test_with_two_retrained_models_nothing_is_evidence():
    columns = Columns(1, np.array([2]), np.zeros(1), np.ones(1), np.array([0.35]))
    judgment = columns.judge([100.0])
    assert not (judgment.above | judgment.below | columns.reached([100.0])).any()
    assert judgment.p_values == 1
    assert columns.with_more(controls=1).judge([100.0]).above.all()
    assert columns.with_more(seeds=1).judge([100.0]).above.all()


def test_a_column_without_a_share_is_shown_and_not_judged():
    columns = Columns(3, np.array([2]), np.zeros(1), np.ones(1), np.zeros(1))
    judgment = columns.judge([100.0])
    assert judgment.statistic[0] > 50
    assert not judgment.above.any()
    assert judgment.p_values == 1


SCALES = ("angle", "log", "share")


@pytest.mark.parametrize("scale", SCALES)
def test_never_right_has_a_finite_score_and_a_larger_share_a_larger_one(scale):
    assert np.isfinite(scores(np.zeros(3), [0, 1, 2], 44, scale=scale)).all()
    found = scores(np.linspace(0, 1, 20)[:, None], [1], 44, scale=scale)
    assert (np.diff(found, axis=0) > 0).all()


def test_chance_has_the_same_width_on_the_angles_scale_wherever_a_share_lies():
    """The angle of a share of n samples has variance 1/(4n) whatever the chance of one, but for the very ends."""
    rng, n = np.random.default_rng(11), 200
    for chance in (0.1, 0.5, 0.95):
        shares = rng.binomial(n, chance, 20_000)[:, None] / n
        assert scores(shares, [1], n).std(axis=0)[0] == pytest.approx(1 / math.sqrt(4 * n), rel=0.05)


def test_large_sets_have_the_pooled_ratio_on_both_scales_of_ratios():
    own, reference, many, taus = np.array([0.6, 0.4]), np.array([0.5, 0.2]), 10**9, [1, 2]
    expected = pytest.approx([1.0 / 0.7, 1.2, 2.0])
    assert np.exp(scores(own, taus, many, scale="log") - scores(reference, taus, many, scale="log")) == expected
    assert ratio_of(scores(own, taus, many), scores(reference, taus, many), many) == expected


def test_a_ratio_has_the_ceiling_of_a_model_that_is_always_right():
    assert ratio_of(3.0, scores([0.8], [1], 10**9), 10**9) == pytest.approx([1.25] * 2)
    assert ratio_of(-1.0, scores([0.8], [1], 50), 50) == pytest.approx([0.01 / 0.81] * 2)


@pytest.mark.parametrize("scale", SCALES)
def test_half_a_sample_is_the_larger_distance_of_two_scores(scale):
    def score(share):
        return scores([share], [1], 50, scale=scale)

    for share in (0.25, 0.75):
        wanted = np.maximum(score(share + 0.01) - score(share), score(share) - score(share - 0.01))
        assert half_sample([share], [1], 50, scale=scale) == pytest.approx(wanted)
    assert half_sample([1.0], [1], 50, scale=scale) == pytest.approx(score(1.0) - score(0.99))


@pytest.mark.parametrize("form", ["sample", "class"])
@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("radius_0", [True, False])
@pytest.mark.parametrize("perturbations", [1, 2, 5])
def test_the_shares_of_the_error_add_up_on_both_sides(form, memory, radius_0, perturbations):
    given, many = {"form": form, "memory": memory}, perturbations * memory
    share = error_shares(RADII, perturbations, form=form, memory=many, radius_0=radius_0)
    level, radius = (counts_upwards(tau, RADII, **given) for tau in (None, 0.1))
    above = share.level * level + RADII * share.radius * radius + share.memory
    below = share.level + RADII * share.radius
    for of_one in (above, below):
        assert perturbations * of_one + share.radius_0 == pytest.approx(1)
    single = error_shares(1, perturbations, form=form, memory=many, radius_0=radius_0)
    level, radius = (counts_upwards(tau, 1, **given) for tau in (None, 0.1))
    assert (single.level, level) == (single.radius, radius)  # the same test
    assert perturbations * (single.level * level + single.memory) + single.radius_0 == pytest.approx(1)
    assert perturbations * single.level + single.radius_0 <= 1 + 1e-9


@pytest.mark.parametrize("shares", [0.5, [], [1.2], [math.nan]])
def test_what_is_no_share_is_refused(shares):
    with pytest.raises(InputError, match="between 0 and 1"):
        scores(shares, [1], 44)


def test_columns_of_different_shapes_are_refused():
    with pytest.raises(InputError, match="columns of one shape"):
        Columns(3, np.array([2]), np.zeros(2), np.ones(2), np.ones(2))


def assert_same_as_plain_loops(record):
    """T, floor, share, power, p and verdict of every row, column by column."""
    judged, plain = judged_record(Results.model_validate(record)), Plain(record)
    comparisons = comparisons_of(judged)
    judged_places = 0
    for label, judgment in judged.judgments.items():
        assert judgment.p_value == pytest.approx(plain.p_value(label), rel=1e-9)
        if judgment.verdict is not None:
            assert judgment.verdict.name == plain.verdict(label)
        for name, findings in judgment.findings.items():
            for quantity in ("r", "M"):
                if quantity not in findings:
                    continue
                part = comparisons.of(name, quantity)
                for k, column in enumerate(findings[quantity].columns):
                    place = (name, quantity, column.tau)
                    assert column.share == pytest.approx(plain.shares.get(place, 0))
                    if not column.share:
                        assert column.floor is None
                        continue
                    judged_places += 1
                    number, _, s, statistic, half, det = plain.judged(record["methods"][label], place)
                    assert column.retrained == number
                    assert column.statistic == pytest.approx(statistic, rel=1e-9, abs=1e-9)
                    assert part.columns.spread[k] == pytest.approx(s)
                    upwards = plain.one_sided.get(place) != "below"
                    assert part.columns.detectable[k] == (pytest.approx(det) if upwards else math.inf)
                    assert part.columns.half_floor[k] == pytest.approx(half)
                    assert column.side == plain.beyond(record["methods"][label], place)
    return judged, judged_places


@pytest.mark.parametrize("name", ["digits", "tiny"])
def test_plain_loops_give_the_same_numbers_on_the_golden_records(name):
    record = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    if len(record["seeds"]) == 1:  # two retrained models
        assert {j["verdict"] for j in record["judgments"].values()} == {"INCONCLUSIVE", None}
    else:
        assert_same_as_plain_loops(record)


@pytest.mark.parametrize("form", ["sample", "class"])
@pytest.mark.parametrize("crafted", [None, "unlearned", "reference"])
@pytest.mark.parametrize("heldout", [True, False])
@pytest.mark.parametrize(("seeds", "controls"), [(3, 1), (1, 4), (2, 3)])
def test_plain_loops_give_the_same_numbers_on_random_records(form, crafted, heldout, seeds, controls):
    rng = np.random.default_rng([seeds, controls, heldout, form == "class"])
    seen = set()
    for trial in range(3):
        names = ("gaussian", "pgd", "shift")[: 1 + trial % 3]
        record = record_of(rng, names, form=form, crafted=crafted, heldout=heldout, seeds=seeds, controls=controls)
        judged, places = assert_same_as_plain_loops(record)
        assert places
        seen |= {judgment.verdict for judgment in judged.verdicts.values()}
    assert len(seen) > 1  # records of every kind
    assert Verdict.NOT_COMPARABLE not in seen
