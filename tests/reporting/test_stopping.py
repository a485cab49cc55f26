"""When draws may stop: the bound against simulated draws, and what it says of rows near and far from an edge."""

from __future__ import annotations

import numpy as np
import pytest

from residuum.judging.findings import Comparison
from residuum.judging.rule import Columns, error_shares, half_sample, scores
from residuum.judging.stopping import Reach, draw_error, draw_reach, edges, undecided, value_error
from residuum.record import Audit

N, T, DONE, MOST = 44, 3, 20, 100
TAUS = (0.1, 0.2, 0.3)
SHARES = error_shares(T, 1, memory=0, radius_0=False)


def comparison(columns, **more):
    settings = {"quantity": "r", "crafted_on": None, "form": "sample", "taus": TAUS, "attacked": None, **more}
    return Comparison(perturbation="gaussian", samples=N, base=np.zeros(4), columns=columns, **settings)


def judged(row, reference, controls):
    """Columns of the retrained models, and the shift of the row, from rates."""
    models = scores(np.concatenate([reference[:, None], controls], axis=1), TAUS, N)
    spread = np.maximum(models.reshape(-1, T + 1).std(axis=0, ddof=1), half_sample(controls, TAUS, N))
    shares = np.array([SHARES.level, *[SHARES.radius] * T])
    columns = Columns(len(row), np.full(T + 1, models.shape[1]), models.mean((0, 1)), spread, shares)
    return columns, columns.judge(scores(row, TAUS, N).mean(0)).shift


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
        columns, shift = judged(mean[0], mean[1], mean[2:].swapaxes(0, 1))
        return np.stack([shift - columns.half_floor, -shift - columns.half_floor])

    moved = []
    for _ in range(400):
        first, rest = shares(DONE), shares(MOST - DONE)
        whole = (DONE * first + (MOST - DONE) * rest) / MOST
        moved.append(edges(whole) - edges(first))
    seen = np.std(moved, axis=0).max(0)
    variance = (truth * (1 - truth)).sum(2) / DONE / N**2 * (1 - DONE / MOST)
    mean = truth.mean(2)
    errors = np.sqrt(variance + variance[1])
    columns, _ = judged(mean[0], mean[1], mean[2:].swapaxes(0, 1))
    bound = value_error(comparison(columns), errors, np.minimum(mean, mean[1]))
    reach = draw_reach(bound[0], bound[2:].swapaxes(0, 1), columns)
    assert (reach > 0.95 * seen).all()
    assert (reach < 3 * seen).all()


COLUMNS = Columns(1, np.full(4, 4), np.zeros(4), np.full(4, 0.02), np.array([SHARES.level, *[SHARES.radius] * T]))
HALF = COLUMNS.half_floor


def near(shift, reach, half=HALF):
    """The radii at which a shift may cross the upper edge."""
    part = comparison(COLUMNS)
    return edges([(part, np.array(shift) - half, np.full(4, reach))]).get("gaussian", [])


def test_a_row_far_beyond_an_edge_is_decided_whatever_its_other_columns_do():
    assert near([HALF[0] + 0.05, HALF[1], 0, 0], 0.01) == []
    assert near([0.005, 0, HALF[2] - 0.005, 0], 0.01) == [0.2]
    assert near([0.005, 0, HALF[2] + 0.005, 0], 0.01) == [0.2]
    assert near([0.005, 0, HALF[2] + 0.005, 0], 0.001) == []
    assert near([HALF[0] - 0.005, 0, 0, 0], 0.01) == list(TAUS)  # the level needs all radii


def test_radius_0_never_waits_for_draws():
    columns = Columns(1, np.full(2, 4), np.zeros(2), np.full(2, 0.02), np.array([0.0, 0.35]))
    part = comparison(columns, taus=(0.0,))
    for shift in (0.0, columns.half_floor[1], columns.half_floor[1] + 1e-6):
        assert (
            edges([(part, np.array([-np.inf, shift - columns.half_floor[1]]), np.zeros(2))]).get("gaussian", []) == []
        )


def test_memory_is_near_an_edge_upwards_only():
    columns = Columns(1, np.full(1, 4), np.zeros(1), np.full(1, 0.02), np.array([0.3]), downwards=False)
    part = comparison(columns, quantity="M")
    half = columns.half_floor
    up, down = Reach(part, half - 0.001, np.full(1, 0.01)).beyond()
    assert edges([(part, up, np.full(1, 0.01))])["gaussian"] == list(TAUS)
    assert edges([(part, down, np.full(1, 0.01))]).get("gaussian", []) == []
    assert np.isneginf(Reach(part, -half + 0.001, np.full(1, 0.01)).beyond()[1]).all()


def test_too_few_retrained_models_are_not_mended_by_draws(make_run):
    record = make_run(seeds=(1,)).record
    assert undecided(with_width(record, 0.2), 10_000) == {}


def test_an_exact_attack_has_nothing_left_to_draw():
    part = comparison(COLUMNS)
    assert value_error(part, np.zeros((2, 3)), np.full((2, 3), 0.5)).tolist() == np.zeros((2, 4)).tolist()


def attacked_audit(share, error, draws=20):
    """An audit at one radius above 0: a share right with this standard error, on inputs crafted on the model."""
    half = 1.959964 * error
    ends = {"value": [0.0, 1 - share], "low": [0.0, 1 - share - half], "high": [0.0, 1 - share + half]}
    known = {"pooled": [1.0, 1.0], "low": [1.0, 1.0], "high": [1.0, 1.0]}
    return Audit(
        taus=[0.0, 0.1], draws=[1, draws], samples=N, residual_knowledge=known, difference={"value": [0.0, 0.0]},
        unlearn_accuracy=ends, settings={"crafted_on": "unlearned"},
    )  # fmt: skip


class OneRow:
    def __init__(self, audit):
        self.audit = audit

    def audits(self, perturbation):
        return [self.audit]


def test_models_that_are_attacked_themselves_are_moved_by_draws_of_their_own():
    """Each meets inputs of its own, and an angle moves by e / (2 sqrt(p(1-p))) times sqrt(1 - d/D)."""
    row, reference = attacked_audit(0.6, 0.02), attacked_audit(0.4, 0.03)
    columns = Columns(1, np.full(3, 4), np.zeros(3), np.full(3, 0.02), np.full(3, 0.3))
    part = comparison(columns, attacked=[reference], taus=(0.0, 0.1), crafted_on="unlearned")
    expected = np.hypot(0.02, 0.03) / (2 * np.sqrt(0.24)) * np.sqrt(1 - 20 / MOST)
    assert draw_error(part, OneRow(row), MOST) == pytest.approx(np.array([[expected, 0.0, expected]]), rel=1e-4)
    in_class_form = np.hypot(0.02, 0.03) * np.sqrt(1 - 20 / MOST)
    by_class = comparison(columns, attacked=[reference], taus=(0.0, 0.1), crafted_on="unlearned", form="class")
    assert draw_error(by_class, OneRow(row), MOST) == pytest.approx(
        np.array([[in_class_form, 0.0, in_class_form]]), rel=1e-4
    )
    done = comparison(columns, attacked=[attacked_audit(0.4, 0.03, MOST)], taus=(0.0, 0.1), crafted_on="unlearned")
    assert (draw_error(done, OneRow(attacked_audit(0.6, 0.02, MOST)), MOST) == 0).all()


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
