"""Requests in a row on an own model: cumulative forget sets, one page with a chart, and when to retrain."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.request.test_file import home  # noqa: F401 (a fixture)
from tests.request.test_steps import KILLED

from residuum import InputError, Recipe, Request, wrap
from residuum.cli import run_command
from residuum.cli.printing import print_requests, print_run
from residuum.judging import controls_missing
from residuum.record import UtilityChip, Verdict
from residuum.record.run import load_runs
from residuum.reporting import report
from residuum.reporting.request_chart import cost, panels, retraining
from residuum.request import AuditOptions, audit_requests
from residuum.request.file import RequestFile, in_file_words
from residuum.request.steps import next_steps

TICKETS = {"2026-09.txt": "3\n7\n", "2026-10.txt": "11\n20\n21\n", "2026-11.txt": "30\n"}


@pytest.fixture(scope="module")
def row(home, tmp_path_factory):  # noqa: F811 (the fixture)
    """Three requests that were carried out in a row from the command line."""
    folder = tmp_path_factory.mktemp("row")
    for name in ("net.py", "w.pt", "held.npz", "deletion.toml"):
        shutil.copy(home / name, folder)
    (folder / "tickets").mkdir()
    for name, ids in TICKETS.items():
        (folder / "tickets" / name).write_text(ids)
    command = ["run", str(folder / "deletion.toml"), "--requests", str(folder / "tickets")]
    assert run_command([*command, "--set", "retrain.controls=2"]) in (0, 1)
    return folder


def runs_of(folder):
    return load_runs([folder / "runs" / "deletion" / f"request-{number}" for number in (1, 2, 3)])


def test_each_request_is_audited_on_everything_forgotten_so_far(row):
    runs = runs_of(row)
    assert [run.record.scenario.sizes["forget"] for run in runs] == [2, 5, 6]
    assert [run.record.scenario.sizes["retain"] for run in runs] == [58, 55, 54]
    assert [request.listed for request in runs[-1].record.scenario.settings.requests] == [2, 3, 1]
    assert [(run.record.sequence.number, run.record.sequence.of) for run in runs] == [(1, 3), (2, 3), (3, 3)]
    assert all(list(run.rows) == ["original", "retrain", "control", "control_2", "soft_reset"] for run in runs)
    assert all(cost(run.record, "soft_reset") > 0 for run in runs)
    weights = [row / "runs" / "deletion" / f"unlearned-{number}.safetensors" for number in (1, 2, 3)]
    assert len({path.read_bytes() for path in weights}) == 3


def test_the_page_has_a_chart_of_each_method_and_says_when_to_retrain(row):
    page = (row / "runs" / "deletion" / "index.html").read_text()
    runs = runs_of(row)
    titles = [panel.title for panel in panels(runs, "soft_reset")]
    assert titles[0] == "Residual knowledge r"
    assert titles[-2:] == ["Test accuracy, %", "Cost so far, % of one retraining"]
    assert all(f"<figcaption>{title}</figcaption>" in page for title in titles)
    answer = retraining(runs)["soft_reset"]
    assert (answer.after is not None) == ('class="retrain"' in page)
    assert page.index('<span class="name">soft_reset</span>') < page.index('<span class="name">original</span>')


def judged(runs, verdicts, utility="kept"):
    changed = []
    for run, verdict in zip(runs, verdicts, strict=True):
        judgment = run.record.judgments["soft_reset"]
        chips = judgment.chips.model_copy(update={"utility": UtilityChip(state=utility, points=9.0)})
        judgment = judgment.model_copy(update={"verdict": verdict, "chips": chips})
        record = run.record.model_copy(update={"judgments": run.record.judgments | {"soft_reset": judgment}})
        changed.append(replace(run, record=record))
    return changed


def priced(run, share):
    """The run, as if unlearning had taken this share of what retraining took."""
    full = run.record.reference.per_seed["1"].seconds
    made = run.rows["soft_reset"]
    seed = made.per_seed["1"].model_copy(update={"seconds": share * full, "passes": 0})
    rows = run.rows | {"soft_reset": made.model_copy(update={"per_seed": {"1": seed}})}
    return replace(run, record=run.record.model_copy(update={"methods": rows}))


@pytest.mark.parametrize(("verdicts", "shares", "after", "words"), [
    ("NOT_DETECTED NOT_DETECTED NOT_DETECTED", (0.3, 0.4, 0.5), None, "the last request cost 50 % of retraining"),
    ("NOT_DETECTED FOUND NOT_DETECTED", (0.3, 0.4, 0.5), 2, "left the noise floor (residual knowledge found)"),
    ("NOT_DETECTED NOT_DETECTED OVER_FORGOTTEN", (0.3, 0.4, 0.5), 3, "left the noise floor (over-forgotten)"),
    ("NOT_DETECTED NOT_DETECTED NOT_DETECTED", (0.3, 1.2, 0.5), 2, "expected to cost as much as this one, 120 % of"),
    ("INCONCLUSIVE NOT_DETECTED NOT_DETECTED", (0.3, 0.4, 0.5), None, "the audit of request 1 could not tell"),
])  # fmt: skip
def test_retrain_once_a_request_costs_more_or_the_result_left_the_floor(verdicts, shares, after, words, row):
    runs = judged(runs_of(row), [Verdict(name) for name in verdicts.split()])
    runs = [priced(run, share) for run, share in zip(runs, shares, strict=True)]
    answer = retraining(runs)["soft_reset"]
    assert answer.after == after
    assert words in str(answer)
    lost = judged(runs_of(row), [Verdict.NOT_DETECTED] * 3, "lost")
    assert "9.0 points of test accuracy" in str(retraining(lost)["soft_reset"])
    assert retraining(lost)["soft_reset"].after == 1
    spent = panels(runs, "soft_reset")[-1]
    assert spent.values == pytest.approx([100 * sum(shares[: k + 1]) for k in range(3)])


def test_requests_in_python_are_the_same_machinery(tmp_path):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(90, 4, generator=generator)
    y = x[:, :3].argmax(1)
    recipe = Recipe(epochs=8, lr=0.05, optimizer="adamw", batch_size=32)
    first = Request((x[:60], y[:60]), ["3", "7"], held_out=(x[60:], y[60:]), recipe=recipe)
    second = first.then(["11"])
    assert (second.forget_ids, second.earlier_ids, len(second.splits.retain)) == (("11",), ("3", "7"), 57)
    assert (first.forget_ids, len(first.splits.retain)) == (("3", "7"), 58)
    model = wrap(torch.nn.Linear(4, 3))
    one = first.unlearn(model, "gd:epochs=1")
    two = second.unlearn(one.model, "gd:epochs=1")
    options = AuditOptions(draws=5, taus=[0, 0.1])
    place = {"out": tmp_path / "runs", "store": tmp_path / "store"}
    runs = audit_requests([first, second], model, [one, two], options, controls=1, **place)
    assert [run.record.scenario.sizes["forget"] for run in runs] == [2, 3]
    report(tmp_path / "runs")
    assert (tmp_path / "runs" / "index.html").is_file()
    for wrong, words in ((["3"], "'3' was forgotten by an earlier request"), (["zz"], "not among the 60")):
        with pytest.raises(InputError, match=words):
            second.then(wrong)
    with pytest.raises(InputError, match="this and earlier requests ask for all 60"):
        second.then([str(k) for k in range(60) if k not in (3, 7, 11)])
    with pytest.raises(InputError, match="an unlearned model each, got 2 with 1"):
        audit_requests([first, second], model, [one], options)


def test_each_request_gets_the_controls_that_it_needs(tmp_path, capsys):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(90, 4, generator=generator)
    y = x[:, :3].argmax(1)
    recipe = Recipe(epochs=2, lr=0.05, optimizer="adamw", batch_size=32)
    first = Request((x[:60], y[:60]), ["3", "7"], held_out=(x[60:], y[60:]), recipe=recipe)
    requests = [first, first.then(["11"])]
    model = wrap(torch.nn.Linear(4, 3))
    one = first.unlearn(model, "gd:epochs=1")
    two = requests[1].unlearn(one.model, "gd:epochs=1")
    place = {"out": tmp_path / "runs", "store": tmp_path / "store", "progress": True}
    runs = audit_requests(requests, model, [one, two], AuditOptions(draws=5, taus=[0, 0.1]), **place)
    made = [len(run.record.controls) for run in runs]
    assert min(made) == 3  # where retrained models are told from the original, no more are made
    assert max(made) == 8
    assert [controls_missing(run.record, 8 - number) for run, number in zip(runs, made, strict=True)] == [0, 0]
    number = 1 + made.index(8)
    words = f"request {number}: 4 retrained models do not tell even the original from a retrained one: 5 controls more"
    assert words in capsys.readouterr().err
    report(tmp_path / "runs")
    assert (tmp_path / "runs" / "index.html").is_file()


def test_warnings_are_printed_in_the_words_of_the_request_file(row, capsys):
    warned = ["soft_reset: soft_reset lost 2.5 points of retain accuracy; try budget=0.75"]
    runs = [replace(run, record=run.record.model_copy(update={"warnings": warned})) for run in runs_of(row)]
    print_requests(runs, row, 0.0, as_json=False, words=in_file_words)
    print_run(runs[0], 0.0, as_json=False, words=in_file_words)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("retain accuracy; try unlearn.budget=0.75") == 4


def test_more_controls_are_advised_only_where_they_would_do(row, monkeypatch):
    file, run = RequestFile.read(row / "deletion.toml"), runs_of(row)[-1]
    steps = list(next_steps(file, run, "deletion.toml"))
    assert any("not even 50 more controls would do" in step for step in steps)
    assert not any("more retrained models" in step for step in steps)
    assert steps[-1].startswith("or use the reference")
    monkeypatch.setattr("residuum.request.steps.controls_missing", lambda record, most: 3)
    advised = "more retrained models: residuum run deletion.toml --set retrain.controls=5"  # there are two
    assert advised in list(next_steps(file, run, "deletion.toml"))


def test_a_killed_sequence_goes_on(row, tmp_path):
    for name in ("net.py", "w.pt", "held.npz", "deletion.toml"):
        shutil.copy(row / name, tmp_path)
    shutil.copytree(row / "tickets", tmp_path / "tickets")
    (tmp_path / "tickets" / "2026-11.txt").unlink()
    command = ["run", str(tmp_path / "deletion.toml"), "--requests", str(tmp_path / "tickets")]
    killed = [sys.executable, "-c", KILLED, "residuum.studies.execution.write_requests", *command]
    assert subprocess.run(killed, check=False, capture_output=True, env=os.environ).returncode == -9
    weights = [tmp_path / "runs" / "deletion" / f"unlearned-{number}.safetensors" for number in (1, 2)]
    before = [path.stat().st_mtime_ns for path in weights]
    again = subprocess.run([sys.executable, "-m", "residuum", *command], check=False, capture_output=True, text=True)
    assert again.returncode == 1  # one sample proves nothing
    assert "residuum: request 2: soft_reset: retain accuracy" in again.stderr
    assert "try: more retrained models: residuum run" in again.stderr
    assert f"--requests {tmp_path / 'tickets'} --set retrain.controls=" in again.stderr
    assert "18 stages: 18 finished, 0 to run" in again.stderr
    assert [path.stat().st_mtime_ns for path in weights] == before
    assert (tmp_path / "runs" / "deletion" / "index.html").is_file()


@pytest.mark.parametrize(("made", "words"), [
    (lambda place: None, "expected a folder of lists of ids"),
    (lambda place: place.mkdir(), "expected 1 to 100 lists of ids"),
    (lambda place: (place / "a").mkdir(parents=True), "expected files with one id per line"),
    (lambda place: (place.mkdir(), (place / "a.txt").write_text("nobody\n")), "'nobody' is not among the 60"),
    (lambda place: [place.mkdir(), *((place / name).write_text("3\n") for name in "ab")], "an earlier request"),
])  # fmt: skip
def test_wrong_lists_are_one_line(made, words, home, tmp_path, capsys):  # noqa: F811 (the fixture)
    made(tmp_path / "tickets")
    file, out = str(home / "deletion.toml"), f"output.folder={tmp_path / 'out'}"
    assert run_command(["run", file, "--requests", str(tmp_path / "tickets"), "--set", out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not list(Path(tmp_path / "out").rglob("*.html"))
