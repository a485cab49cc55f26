"""What is said before and during long work."""

from __future__ import annotations

import pytest

from residuum.auditing import Cost
from residuum.experiments import Experiment, plan
from residuum.experiments.planning import audit_cost, is_short
from residuum.experiments.stages import printed_progress


def test_the_cost_of_missing_audits_counts_every_prediction(quick, finished, tmp_path):
    splits = quick.splits()
    rows, seeds, draws = len(quick.labels), 2, 5
    shown = len(splits.forget) + 12  # and as many held-out eights
    per_model = shown * (1 + 2 * draws)  # one draw at radius 0, then two radii
    cost = audit_cost(quick, tmp_path / "empty", plan(quick))
    assert cost.passes == per_model * rows * seeds
    assert cost.seconds > 0
    assert audit_cost(quick, finished[1] / "store", plan(quick)) == Cost(0, 0.0)


def test_attacks_crafted_on_each_model_show_every_copy_to_reference_and_original_too(quick, tmp_path):
    scenario = quick.scenario
    audit = scenario.audit.model_copy(update={"perturbations": ["pgd"], "taus": {"pgd": [0.1]}})
    attacked = Experiment(scenario=scenario.model_copy(update={"audit": audit}), rows=quick.rows)
    cost = audit_cost(attacked, tmp_path / "empty", plan(attacked))
    shown, draws, models, seeds = len(quick.splits().forget) + 12, 5, 3, 2
    assert cost.passes == shown * draws * models * len(quick.labels) * seeds


@pytest.mark.parametrize(
    ("scenario", "changes", "cost", "short"),
    [
        ("tiny", {}, Cost(1100, 0.1), True),
        ("tiny", {}, Cost(10**6, 60.0), False),  # long audits
        ("tiny", {"train.epochs": 200}, Cost(1100, 0.1), False),  # long trainings
        ("digits", {}, Cost(0, 0.0), False),
    ],
)
def test_work_is_short_if_neither_trainings_nor_audits_are_long(scenario, changes, cost, short, tmp_path):
    experiment = Experiment.create(scenario, overrides=changes)
    assert is_short([experiment], tmp_path, [plan(experiment)], cost) == short


def test_finished_trainings_are_no_work(quick, finished):
    assert is_short([quick], finished[1] / "store", [plan(quick)], Cost(0, 0.0))


@pytest.mark.parametrize(("every", "lines"), [(0.0, 2), (1000.0, 0)])
def test_progress_is_printed_at_most_so_often_with_the_time_left(every, lines, capsys):
    speak = printed_progress("audit gaussian (seed 7)", every=every)
    for done in (1, 2, 3):
        speak(done, 3)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(line.startswith("residuum: audit gaussian (seed 7): ") and "s left" in line for line in said)
