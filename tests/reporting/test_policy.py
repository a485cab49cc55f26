"""Gates: every condition on a run whose verdicts are known, and the command line's exit codes."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from tests.reporting.conftest import ROWS, Row

from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.judging.conditions import POLICIES, QUANTITIES, gate_failures, parse_condition, values

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "ci-gate.md").read_text(encoding="utf-8")


@pytest.fixture
def run(make_run):
    return make_run(rows={**ROWS, "ga": Row(0.3, test=80.0)})


def test_the_run_has_the_verdicts_that_the_tests_rest_on(run):
    words = {label: verdict.verdict.label for label, verdict in run.verdicts.items()}
    assert words["gd"] == "residual knowledge found"
    assert words["ga"] == "over-forgotten"
    assert words["rurk"].startswith("not detected")


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("residual", ["gd"]),
        ("over-forgotten", ["ga"]),
        ("unproven", ["gd", "ga"]),
        ("inconclusive", []),
        ("not-comparable", []),
        ("rurk.residual", []),
        ("gd.residual", ["gd"]),
        ("original.residual", ["original"]),
        ("r>1.1", ["gd"]),
        ("r<0.9", ["ga"]),
        ("rurk.r > 1.1", []),
        ("gd.r>=1.1", ["gd"]),
        ("test_accuracy<90", ["ga"]),
        ("cost==25", ["gd"]),
        ("cost!=25", ["rurk", "ga"]),
        ("cost<=25", ["gd"]),
        ("cost>1e2", []),
        ("smallest>1.5", []),
        ("original.relearn_epochs<1", ["original"]),
        ("retrain.residual", ["retrain"]),
    ],
)
def test_conditions_name_the_rows_that_fail(run, condition, rows):
    found = gate_failures([run], [condition])
    assert [re.sub(rf"^{re.escape(condition)}: (\w+) .*", r"\1", reason) for reason in found] == rows


def test_reasons_say_value_and_verdict(run):
    assert gate_failures([run], ["residual"]) == ["residual: gd is judged 'residual knowledge found'"]
    ((where, value),) = values(run.record, "gd", "r")
    assert value == pytest.approx(run.verdicts["gd"].finding.value())
    assert gate_failures([run], ["r>1.1"]) == [f"r>1.1: gd has r = {value:.4g}{where}"]
    assert gate_failures([run], ["warnings"]) == ["warnings: gd: a warning"]
    (missing,) = gate_failures([run], ["gd.G>1"])
    assert "has no value of G" in missing


def test_several_conditions_and_runs_give_all_reasons(run, make_run):
    other = make_run(name="other")
    reasons = gate_failures([run, other], ["residual", "test_accuracy<90"])
    assert [reason.partition(":")[0] for reason in reasons] == [run.name, run.name, other.name]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("resdual", "did you mean residual"),
        ("tests_accuracy<3", "did you mean test_accuracy"),
        ("r>1.1.1", "expected a finite number"),
        ("r>>1", "unknown policy"),
        ("gd.warnings", "unknown policy"),
        ("", "unknown policy"),
    ],
)
def test_what_is_no_condition_is_refused(condition, message):
    with pytest.raises(InputError, match=message):
        parse_condition(condition)


def test_report_exits_with_1_and_the_reason(run, capsys, tmp_path):
    report = ["report", str(run.folder), "--out", str(tmp_path / "out")]
    assert run_command([*report, "--fail-if", "rurk.unproven"]) == 0
    assert run_command([*report, "--fail-if", "rurk.unproven", "--fail-if", "residual"]) == 1
    assert "residuum: gate failed: residual: gd is judged" in capsys.readouterr().err
    assert (tmp_path / "out" / "report.html").is_file()
    assert run_command([*report, "--fail-if", "ruk.residual"]) == 2
    assert "did you mean rurk" in capsys.readouterr().err


def test_run_refuses_an_unknown_row_before_anything_is_computed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "tiny", "--methods", "gd", "--fail-if", "ga.residual"]) == 2
    assert "unknown row in the condition 'ga.residual'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_guides_commands_end_as_it_says(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = [line for line in GUIDE.replace("\\\n", " ").splitlines() if line.startswith("residuum ")]
    quick = ["--seeds", "1", "--draws", "5", "--workers", "1", "--set", "relearn.epochs=1"]
    assert run_command([*shlex.split(first)[1:], *quick]) in (0, 1)
    assert run_command([*shlex.split(first)[1:], *quick, "--fail-if", "retain_accuracy>=0"]) == 1
    assert "gate failed: retain_accuracy>=0: gd has retain_accuracy" in capsys.readouterr().err
    assert run_command(shlex.split(second)[1:]) == 1
    assert "gate failed: unproven: rurk is judged 'inconclusive'" in capsys.readouterr().err


def test_the_workflow_is_valid_and_its_conditions_exist():
    (text,) = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.M | re.S)
    steps = yaml.safe_load(text)["jobs"]["audit"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if "residuum run" in step.get("run", "")]
    given = [word for command in commands for flag, word in pairwise(command) if flag == "--fail-if"]
    assert [parse_condition(condition).name for condition in given] == ["not-comparable", "unproven", "smallest"]


def test_the_guide_names_every_policy_and_quantity():
    assert all(f"`{name}`" in GUIDE for name in POLICIES)
    assert all(re.search(rf"`{name}[<>=`]", GUIDE) for name in QUANTITIES)
