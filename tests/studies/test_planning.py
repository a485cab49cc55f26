"""What is said before and during long work."""

from __future__ import annotations

import time

import pytest
import torch

from residuum import InputError, Recipe, Request, wrap
from residuum.core.samples import Samples
from residuum.perturbations import UserPerturbation
from residuum.request.study import AuditOptions
from residuum.studies import Study, plan
from residuum.studies.estimates import WorkLeft, work_left
from residuum.studies.execution import plan_lines
from residuum.studies.stages import printed_progress


def work_of(study, store):
    return work_left([study], store, [plan(study)])


def test_the_work_left_counts_every_prediction_and_names_every_kind_of_stage(quick, finished, tmp_path):
    rows, seeds, draws = len(quick.labels), 2, 5
    shown = len(quick.splits().forget) + 12  # and as many held-out eights
    per_model = shown * (1 + 2 * draws)  # one draw at radius 0, then two radii
    work = work_of(quick, tmp_path / "empty")
    assert work.passes == per_model * rows * seeds
    assert list(work.seconds) == ["train", "unlearn", "evaluate", "audit"]
    assert all(seconds > 0 for seconds in work.seconds.values())
    assert WorkLeft({"train": 1.0, "audit": 1.9}, 0, at_most=False).short
    assert work_of(quick, finished[1] / "store") == WorkLeft({}, 0, at_most=False)


def test_attacks_crafted_on_each_model_show_every_copy_to_reference_and_original_too(quick, tmp_path):
    scenario = quick.scenario
    audit = scenario.audit.model_copy(update={"perturbations": ["pgd"], "taus": {"pgd": [0.1]}})
    attacked = Study(scenario=scenario.model_copy(update={"audit": audit}), rows=quick.rows)
    shown, draws, models, seeds = len(quick.splits().forget) + 12, 5, 3, 2
    assert work_of(attacked, tmp_path / "empty").passes == shown * draws * models * len(quick.labels) * seeds


@pytest.mark.parametrize(
    "changes", [{"train.epochs": 20_000}, {"gd.epochs": 50_000}, {"audit.draws": 500_000}, {"relearn.epochs": 200_000}]
)
def test_long_work_of_every_kind_is_foreseen(changes, tmp_path):
    study = Study.create("tiny", methods="gd", seeds=[1], overrides=changes)
    assert not work_of(study, tmp_path).short


def test_a_method_that_fresh_weights_do_not_allow_is_estimated_all_the_same(tmp_path):
    known = {"rurk.lr": 1e30}
    study = Study.create("tiny", methods="rurk", seeds=[1], overrides=known)
    assert work_of(study, tmp_path).seconds["unlearn"] > 0


def test_planning_that_takes_long_says_at_once_what_is_done(tmp_path, monkeypatch, capsys):
    study = Study.create("tiny", methods="gd", seeds=[1])
    monkeypatch.setattr(Study, "check", lambda study: time.sleep(1.2))
    plan_lines(study, store=tmp_path)
    said = capsys.readouterr().err
    assert said == "residuum: planning: reading the data, building the network and timing a training step\n"


@pytest.mark.parametrize(("every", "lines"), [(0.0, 2), (1000.0, 0)])
def test_progress_is_printed_at_most_so_often_with_the_time_left(every, lines, capsys):
    speak = printed_progress("audit gaussian (seed 7)", every=every)
    for done in (1, 2, 3, 4):
        speak(done, 4)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(line.startswith("residuum: audit gaussian (seed 7): ") and "s left" in line for line in said)


def test_the_time_left_of_a_resumed_stage_is_that_of_its_present_pace(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 40.0, 41.0, 71.0])
    monkeypatch.setattr("residuum.studies.stages.time.monotonic", lambda: next(clock))
    speak = printed_progress("audit gaussian (seed 7)")
    speak(9001, 10_000)  # 9,000 were made before
    speak(9036, 10_000)
    assert capsys.readouterr().err == "residuum: audit gaussian (seed 7): 90 %, about 964 s left\n"
    speak(1, 100)  # the next of several counts
    speak(4, 100)
    assert capsys.readouterr().err == "residuum: audit gaussian (seed 7): 4 %, about 960 s left\n"


def test_a_perturbation_that_fails_is_refused_before_anything_is_computed(tmp_path):
    def half(model, x, y, generator, tau):
        return x[..., :4]

    one = Samples(torch.rand(8, 6), torch.arange(8) % 2, tuple("abcdefgh"))
    others = Samples(torch.rand(8, 6), torch.arange(8) % 2, tuple("abcdefgh"))
    request = Request(one, forget=["a"], held_out=others, recipe=Recipe(epochs=1))
    model = wrap(torch.nn.Linear(6, 2))
    options = AuditOptions(perturbations=[UserPerturbation(function=half)], taus=[0, 0.1])
    with pytest.raises(InputError, match=r"^half: expected a tensor of shape \(1, 6\) without NaN, got \(1, 4\)$"):
        request.audit(model, model, options, out=tmp_path / "run", store=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
