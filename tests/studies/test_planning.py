"""What is said before and during long work."""

from __future__ import annotations

import time

import pytest
import torch

from residuum.core.devices import Compute
from residuum.studies import Experiment, estimates, plan
from residuum.studies.estimates import WorkLeft, seconds_to_the_end, work_left
from residuum.studies.stages import printed_progress
from residuum.unlearning import GD


def work_of(experiment, store):
    return work_left([experiment], store, [plan(experiment)])


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
    attacked = Experiment(scenario=scenario.model_copy(update={"audit": audit}), rows=quick.rows)
    shown, draws, models, seeds = len(quick.splits().forget) + 12, 5, 3, 2
    assert work_of(attacked, tmp_path / "empty").passes == shown * draws * models * len(quick.labels) * seeds


@pytest.mark.parametrize(
    "changes", [{"train.epochs": 2000}, {"gd.epochs": 5000}, {"audit.draws": 50_000}, {"relearn.epochs": 200_000}]
)
def test_long_work_of_every_kind_is_foreseen(changes, tmp_path):
    experiment = Experiment.create("tiny", methods="gd", seeds=[1], overrides=changes)
    assert not work_of(experiment, tmp_path).short


@pytest.mark.parametrize("size", [1, 10])
def test_the_time_to_the_end_is_the_steps_that_were_measured_times_all_steps(size):
    done = []

    def work(progress):
        for step in range(1, 1001):
            time.sleep(0.005)
            done.append(step)
            progress(size * step, size * 1000)

    assert 5 <= seconds_to_the_end(work) < 15
    assert len(done) < 50


def test_work_that_ends_at_once_is_measured_whole():
    assert seconds_to_the_end(lambda progress: progress(1, 1)) < 0.05


def test_a_network_with_slow_steps_is_shown_few_samples_in_small_batches(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(estimates, "STEP", 0.0)
    monkeypatch.setattr(estimates, "unlearn", lambda model, splits, method, **options: seen.append((splits, method)))
    experiment = Experiment.create("tiny", methods="gd,scrub", seeds=[1], overrides={"gd.max_iters": 90})
    work_of(experiment, tmp_path)
    (few, gd), (_, scrub) = seen
    whole, probed = experiment.splits(), estimates.FEW * estimates.PROBED
    assert len(few.train) == probed < len(whole.train)
    assert len(few.forget) == max(2, round(len(whole.forget) * probed / len(whole.train)))
    assert {few.train.ids[0], few.train.ids[-1]} == {whole.train.ids[0], whole.train.ids[-1]}
    assert gd.recipe.batch_size == scrub.recipe.batch_size == estimates.FEW
    assert gd.recipe.max_iters == round(90 * GD().recipe.batch_size / estimates.FEW * probed / len(whole.train))


def test_methods_without_steps_are_tried_twice_on_single_samples_in_32_bits(monkeypatch, tmp_path):
    seen = []

    def tried(model, splits, method, **options):
        seen.append((method.name, len(splits.train), torch.is_autocast_enabled("cpu"), method))

    monkeypatch.setattr(estimates, "STEP", 0.0)
    monkeypatch.setattr(estimates, "unlearn", tried)
    plain = Experiment.create("tiny", methods="gd,fisher,ntk:memory_mib=8,early=ntk:max_iterations=3", seeds=[1])
    mixed = plain.model_copy(update={"compute": Compute(precision="bf16-mixed")})
    work_of(mixed, tmp_path)
    assert [name for name, *_ in seen] == ["gd", *2 * ["fisher"], *4 * ["ntk"]]
    assert [autocast for _, _, autocast, _ in seen] == [True, *6 * [False]]
    assert seen[0][1] == estimates.PROBED * estimates.FEW > seen[1][1] == max(2, estimates.FEW // estimates.PIECES)
    share = estimates.FEW / estimates.PIECES / len(plain.splits().train)
    assert [method.max_iterations for *_, method in seen[3:]] == [estimates.ITERATIONS] * 2 + [3] * 2
    assert seen[3][-1].memory_mib == pytest.approx(8 * share)  # as much too little as for all samples


def test_a_method_that_fresh_weights_do_not_allow_is_estimated_all_the_same(tmp_path):
    known = {"rurk.lr": 1e30}
    experiment = Experiment.create("tiny", methods="rurk", seeds=[1], overrides=known)
    assert work_of(experiment, tmp_path).seconds["unlearn"] > 0


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
