"""A row whose method fails is shown as failed, the others are finished as if it had not been there; exit code 1."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import ClassVar

import pytest
import torch
from torch import nn

from residuum.cli import run_command
from residuum.core.errors import MethodError
from residuum.unlearning import METHODS, Method, unlearn

TINY = ["--seeds", "1", "--workers", "1", "--draws", "2", "--set", "train.epochs=1", "--set", "relearn.epochs=1"]


class Broken(Method):
    name: ClassVar[str] = "broken"
    title: ClassVar[str] = "Broken"

    def edit(self, model, splits, context):
        return DOES[0](model, splits, context)


def raises(model, splits, context):
    raise ZeroDivisionError("a <b>stranger's</b> [/b] fault\nin two lines")


def exits(model, splits, context):
    sys.exit()


def returns_nothing(model, splits, context):
    return None


def returns_a_function(model, splits, context):
    return lambda x: x


def returns_another_network(model, splits, context):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, splits.classes))


def adds_a_layer(model, splits, context):
    model.fc = nn.Sequential(model.fc, nn.Linear(splits.classes, splits.classes))
    return model


def returns_nan(model, splits, context):
    model.fc.bias.data.fill_(float("nan"))
    return model


def notes_a_tensor(model, splits, context):
    context.notes["norm"] = torch.zeros(())
    return model


def loses_the_notes(model, splits, context):
    context.notes = None
    return model


def writes_into_the_data(model, splits, context):
    splits.retain.x.mul_(0.5)
    return model


def writes_through_numpy(model, splits, context):
    splits.forget.y.numpy()[0] += 1
    return model


DOES: list = [raises]
FAULTS = {
    raises: r"failed \(ZeroDivisionError: a <b>stranger's</b> \[/b\] fault\)",
    exits: r"tried to end the program \(SystemExit\)",
    returns_nothing: "must return an nn.Module, got NoneType",
    returns_a_function: "must return an nn.Module, got function",
    returns_another_network: "its layers are not those of its architecture",
    adds_a_layer: "its layers are not those of its architecture",
    returns_nan: "NaN or infinite logits",
    notes_a_tensor: "context.notes that JSON can hold",
    loses_the_notes: "context.notes that JSON can hold",
    writes_into_the_data: "changed its input: splits.retain.x",
    writes_through_numpy: "changed its input: splits.forget.y",
}


@pytest.fixture
def broken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "logs"))
    monkeypatch.setitem(METHODS, "broken", Broken)
    DOES[0] = raises
    return tmp_path


@pytest.fixture(scope="module")
def bench():
    from residuum.testing import Trial

    trial = Trial.of(Broken)
    return trial.original, trial.splits


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_no_method_may_do_is_an_error_that_names_it(fault, bench):
    DOES[0] = fault
    model, splits = bench
    before = [part.x.clone() for part in (splits.retain, splits.forget)]
    with pytest.raises(MethodError, match=f"^method broken of [a-z_]+:? ?.*{FAULTS[fault]}"):
        unlearn(model, splits, Broken(), seed=1)
    assert all(torch.equal(*pair) for pair in zip(before, (splits.retain.x, splits.forget.x), strict=True))


def test_two_good_rows_beside_a_broken_one(broken, capsys):
    assert run_command(["run", "tiny", "--methods", "gd", *TINY, "--out", "alone", "--store", "other"]) == 0
    capsys.readouterr()
    assert run_command(["run", "tiny", "--methods", "gd,broken,ga:epochs=1", *TINY]) == 1
    said = capsys.readouterr()
    (log,) = (broken / "logs").glob("residuum-*.log")
    package = Broken.__module__.partition(".")[0]
    reason = f"method broken of {package} failed (ZeroDivisionError: a <b>stranger's</b> [/b] fault)"
    assert f"residuum: row broken: {reason}; the traceback is in {log}" in said.err
    assert "in two lines" in log.read_text()
    assert "failed: no results" in said.out
    assert "stranger's</b> [/b] fault" in " ".join(said.out.replace("│", " ").split())
    record = json.loads((broken / "runs/tiny/results.json").read_text())
    alone = json.loads((broken / "alone/results.json").read_text())
    assert record["failed"] == {"broken": reason}
    assert list(record["methods"]) == ["original", "retrain", "control", "gd", "ga:epochs=1"]
    assert record["methods"]["gd"]["summary"] == alone["methods"]["gd"]["summary"]
    assert "failed" not in alone
    page = (broken / "runs/tiny/report.html").read_text()
    assert "Row <b>broken</b> failed and has no results" in page
    assert "&lt;b&gt;stranger&#39;s&lt;/b&gt;" in page
    assert run_command(["report", "runs/tiny"]) == 0


def test_what_a_method_writes_reaches_no_other_row(broken, capsys):
    DOES[0] = writes_into_the_data
    assert run_command(["run", "tiny", "--methods", "broken,gd", *TINY]) == 1
    assert run_command(["run", "tiny", "--methods", "gd", *TINY, "--out", "alone", "--store", "other"]) == 0
    records = [json.loads((broken / run / "results.json").read_text()) for run in ("runs/tiny", "alone")]
    assert records[0]["methods"]["gd"]["summary"] == records[1]["methods"]["gd"]["summary"]
    assert "changed its input: splits.retain.x" in capsys.readouterr().err


def test_a_method_that_cannot_even_be_asked_fails_alone(broken, monkeypatch):
    monkeypatch.setattr(Broken, "refusal", lambda self, splits: 1 / 0)
    assert run_command(["run", "tiny", "--methods", "broken,gd", *TINY]) == 1
    assert list(json.loads((broken / "runs/tiny/results.json").read_text())["failed"]) == ["broken"]


@pytest.mark.parametrize("line", ["sys.exit()", "1 / 0", "raise BaseException"])
def test_a_module_that_ends_the_program_when_it_is_imported_is_refused(line, broken, capsys):
    (broken / "leaving.py").write_text(f"import sys\n{line}\n")
    assert run_command(["check", "leaving.py:Method"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot load 'leaving.py:Method'" in said


def test_requests_and_grids_go_on_without_it(broken, capsys):
    asked = ["--request", "class=8,fraction=0.5", "--request", "fraction=0.1"]
    assert run_command(["run", "tiny", "--methods", "gd,broken", *TINY, *asked]) == 1
    assert "failed: row broken: method broken" in capsys.readouterr().out
    record = json.loads((broken / "runs/tiny-requests/request-2/results.json").read_text())
    assert list(record["failed"]) == ["broken"]
    assert list(record["methods"]) == ["original", "retrain", "control", "gd"]
    grid = [
        "run",
        "tiny",
        "--methods",
        "ga",
        "--grid",
        "lr=0.001,1e30",
        "--set",
        "ga.clip=none",
        "--set",
        "ga.epochs=9",
    ]
    assert run_command([*grid, *TINY]) == 1
    lines = (broken / "runs/tiny-ga-grid/table.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines if ",ga," in line] == ["ga lr 0.001"]
