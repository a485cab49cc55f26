"""When draws may stop: the bound against simulated draws, and what it says of rows near and far from an edge."""

from __future__ import annotations

import numpy as np
import pytest

from residuum.judging.rule import half_sample, judge_scores, scores
from residuum.judging.stopping import at_stake, draw_error, draw_reach, undecided, value_error
from residuum.record import Audit, Verdict

N, T, DONE, MOST = 44, 3, 20, 100


def judged(row, reference, controls):
    known = scores(reference, N)
    value, against = scores(row, N) - known, scores(controls, N) - known[:, None]
    return judge_scores(value, against, reference=known, least_spread=half_sample(controls, N))


@pytest.mark.parametrize(("seeds", "controls"), [(3, 1), (1, 4), (3, 3)])
def test_the_reach_bounds_what_further_draws_move_and_not_by_far(seeds, controls):
    """Row, reference and controls have known chances of being right; a draw is shared by all radii, as in an audit."""
    rng = np.random.default_rng(5)
    shape = (2 + controls, seeds, N)  # row, reference, controls
    chance = np.clip(rng.normal(1.0, 0.15, shape) - rng.uniform(0, 0.1, (2 + controls, seeds, 1)), 0.02, 0.98)
    truth = chance[..., None] * np.array([1.0, 0.9, 0.8])

    def shares(draws, before=0):
        noise = rng.random((*shape, draws))
        return np.stack([(noise < truth[..., t, None]).mean(-1) for t in range(T)], -1)

    def edges(right):
        mean = right.mean(2)
        j = judged(mean[0], mean[1], mean[2:].swapaxes(0, 1))
        return np.stack([j.value - j.high, j.low - j.value])

    moved = []
    for _ in range(400):
        first, rest = shares(DONE), shares(MOST - DONE)
        whole = (DONE * first + (MOST - DONE) * rest) / MOST
        moved.append(edges(whole) - edges(first))
    seen = np.std(moved, axis=0).max(0)
    variance = (truth * (1 - truth)).sum(2) / DONE / N**2 * (1 - DONE / MOST)
    mean = truth.mean(2)
    errors = np.sqrt(variance + variance[1])
    bound = value_error(errors, np.minimum(mean, mean[1]), N)
    reach = draw_reach(bound[0], bound[2:].swapaxes(0, 1), judged(mean[0], mean[1], mean[2:].swapaxes(0, 1)), 0.05)
    assert (reach > 0.95 * seen).all()
    assert (reach < 3 * seen).all()


CONTROLS = np.array([[[0.02, 0.03, 0.01], [-0.01, 0.0, 0.02], [0.01, -0.02, -0.01]]])
REFERENCE = [[-0.1, -0.1, -0.1]]


def columns(value, reach, wanted=None):
    judgment = judge_scores([value], CONTROLS, reference=REFERENCE, must_detect=wanted)
    return judgment.verdict.name, at_stake(judgment, np.full(3, reach), wanted).tolist()


def test_a_row_far_beyond_an_edge_is_decided_whatever_its_other_columns_do():
    edge = judge_scores([[0.0, 0.0, 0.0]], CONTROLS, reference=REFERENCE).high
    assert columns([edge[0] + 0.05, edge[1], 0.0], 0.01) == ("FOUND", [False, False, False])
    assert columns([0.005, 0.0, edge[2] - 0.005], 0.01) == ("NONE_FOUND", [False, False, True])
    assert columns([0.005, 0.0, edge[2] + 0.005], 0.01) == ("FOUND", [False, False, True])
    assert columns([0.005, 0.0, edge[2] + 0.005], 0.001) == ("FOUND", [False, False, False])


def test_a_row_found_above_may_still_turn_out_mixed():
    j = judge_scores([[0.0, 0.0, 0.0]], CONTROLS, reference=REFERENCE)
    assert columns([j.high[0] + 0.05, j.low[1] + 0.005, 0.0], 0.01) == ("FOUND", [False, True, False])


def test_nothing_found_is_at_stake_where_the_original_is_only_just_detectable():
    j = judge_scores([[0.0, 0.0, 0.0]], CONTROLS, reference=REFERENCE)
    just = float(j.detectable[0])
    assert columns([0.005, 0.0, 0.0], 0.01, just + 0.005) == ("NONE_FOUND", [True, False, False])
    assert columns([0.005, 0.0, 0.0], 0.01, just - 0.005) == ("INCONCLUSIVE", [True, False, False])
    assert columns([0.005, 0.0, 0.0], 0.01, just + 0.05) == ("NONE_FOUND", [False, False, False])


def test_too_few_retrained_models_are_not_mended_by_draws():
    judgment = judge_scores([[0.3, 0.3]], np.zeros((1, 1, 2)), reference=[[0.0, 0.0]])
    assert judgment.verdict is Verdict.INCONCLUSIVE
    assert not at_stake(judgment, np.full(2, 10.0)).any()


def test_an_exact_attack_has_nothing_left_to_draw():
    assert value_error(np.zeros((2, 3)), np.full((2, 3), 0.5), N).tolist() == np.zeros((2, 4)).tolist()


def attacked_audit(share, error, draws=20):
    """An audit at one radius above 0: a share right with this standard error, on inputs crafted on the model."""
    half = 1.959964 * error
    ends = {"value": [0.0, 1 - share], "low": [0.0, 1 - share - half], "high": [0.0, 1 - share + half]}
    known = {"pooled": [1.0, 1.0], "low": [1.0, 1.0], "high": [1.0, 1.0]}
    return Audit(
        taus=[0.0, 0.1], draws=[1, draws], samples=N, residual_knowledge=known, difference={"value": [0.0, 0.0]},
        unlearn_accuracy=ends, settings={"crafted_on": "unlearned"},
    )  # fmt: skip


def test_models_that_are_attacked_themselves_are_moved_by_draws_of_their_own():
    """Each meets inputs of its own, and an angle moves by e / (2 sqrt(p(1-p))) times sqrt(1 - d/D)."""
    row, reference = attacked_audit(0.6, 0.02), attacked_audit(0.4, 0.03)
    expected = np.hypot(0.02, 0.03) / (2 * np.sqrt(0.24)) * np.sqrt(1 - 20 / MOST)
    assert draw_error([row], [reference], "sample", MOST) == pytest.approx(np.full((1, 2), expected), rel=1e-4)
    in_class_form = np.hypot(0.02, 0.03) * np.sqrt(1 - 20 / MOST)
    assert draw_error([row], [reference], "class", MOST) == pytest.approx(np.full((1, 2), in_class_form), rel=1e-4)
    assert (draw_error([attacked_audit(0.6, 0.02, MOST)], [attacked_audit(0.4, 0.03, MOST)], "sample", MOST) == 0).all()


def with_width(record, half):
    """The record with intervals of this half-width."""
    content = record.as_dict()
    for row in content["methods"].values():
        for seed in row["per_seed"].values():
            for found in seed["audits"].values():
                for name in ("difference", "unlearn_accuracy"):
                    middle = np.array(found[name]["value"])
                    found[name] |= {"low": (middle - half).tolist(), "high": (middle + half).tolist()}
    return type(record).model_validate(content)


def test_an_enumerated_attack_is_exact_and_has_nothing_to_draw(make_run):
    """Where intervals have no width no word can change; with some width the same run goes on."""
    record = make_run().record
    assert undecided(with_width(record, 0.2), 10_000)["gaussian"][1]
    assert undecided(with_width(record, 0.0), 10_000) == {}
