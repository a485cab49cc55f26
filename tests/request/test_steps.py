"""`residuum run deletion.toml`: unlearn once, audit, report, pack; what to try where the audit does not pass."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from tests.request.test_file import home  # noqa: F401 (a fixture)

from residuum.cli import run_command
from residuum.core.files import file_sha256
from residuum.record import Results, Verdict

NAMES = ("net.py", "w.pt", "held.npz", "ids.txt", "deletion.toml")


@pytest.fixture
def folder(home, tmp_path, monkeypatch):  # noqa: F811 (the fixture)
    for name in NAMES:
        shutil.copy(home / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(monkeypatch, verdict):
    """Let every row that gets a verdict get this one."""
    from residuum.judging import verdict as rule

    judge = rule.judged_record

    def judged_record(record):
        done = judge(record)
        changed = {
            label: one.model_copy(update={"verdict": verdict, "reasons": []}) if one.verdict else one
            for label, one in done.judgments.items()
        }
        return done.model_copy(update={"judgments": changed})

    monkeypatch.setattr("residuum.studies.results.judged_record", judged_record)


def test_a_request_that_passes_is_packed(folder, monkeypatch, capsys):
    judged(monkeypatch, Verdict.NOT_DETECTED)
    with (folder / "deletion.toml").open("a") as file:
        file.write('[request]\nnumber = "2026-117"\n')
    assert run_command(["run", "deletion.toml"]) == 0
    said = capsys.readouterr()
    assert "soft_reset: retain accuracy" in said.err
    assert "evidence.zip: evidence that others can check" in said.out
    there = {path.name for path in (folder / "runs" / "deletion").iterdir()}
    assert {"results.json", "report.html", "unlearned.safetensors", "evidence.zip", "evidence.key"} <= there
    record = Results.load(folder / "runs" / "deletion")
    assert record.methods["soft_reset"].method == "soft_reset"
    statement = (folder / "runs" / "deletion" / "statement.html").read_text()
    for name in ("w.pt", "runs/deletion/unlearned.safetensors"):
        assert file_sha256(folder / name) in statement
    assert "request 2026-117" in statement
    assert re.search(r"seal (\w+)", said.out)[1] in statement
    assert (folder / ".residuum" / "store").is_dir()


def test_a_request_that_does_not_pass_stops_with_what_to_try(folder, monkeypatch, capsys):
    judged(monkeypatch, Verdict.FOUND)
    assert run_command(["run", "deletion.toml"]) == 1
    said = capsys.readouterr().err
    assert "residuum: not passed: soft_reset is judged 'residual knowledge found'" in said
    assert "try: keep less of the original: residuum run deletion.toml --set unlearn.method=soft_reset:keep=0.1" in said
    assert f"try: or use the reference, which never saw the samples: {folder / 'runs'}" in said
    assert not (folder / "runs" / "deletion" / "evidence.zip").exists()


@pytest.mark.parametrize(("options", "words"), [
    (["--fail-if", "soft_reset.verdit"], "unknown policy in the condition 'soft_reset.verdit'"),
    (["--set", "data.held_out="], "expected held-out samples for an audit"),
    (["--set", "audit.measures=recovry"], "recovry"),
    (["--set", "retrain.reference=w.pt"], "got the original's weights"),
])  # fmt: skip
@pytest.mark.parametrize("row", [False, True])
def test_what_the_audit_would_refuse_is_refused_before_anything_is_unlearned(options, words, row, folder, capsys):
    (folder / "tickets").mkdir()
    (folder / "tickets" / "1.txt").write_text("3\n7\n")
    requests = ["--requests", "tickets"] if row else []
    assert run_command(["run", "deletion.toml", *requests, *options]) == 2
    assert words in capsys.readouterr().err
    assert not list((folder / "runs").rglob("*.safetensors"))


@pytest.mark.parametrize(("verdict", "words"), [
    (Verdict.OVER_FORGOTTEN, "soft_reset:keep=0.5"),
    (Verdict.INCONCLUSIVE, "--set retrain.controls=4"),
    (Verdict.NOT_COMPARABLE, "must be trained as your model was"),
])  # fmt: skip
def test_what_to_try_depends_on_the_verdict(verdict, words, folder, monkeypatch, capsys):
    judged(monkeypatch, verdict)
    assert run_command(["run", "deletion.toml"]) == 1
    assert words in capsys.readouterr().err


def test_options_of_scenarios_are_refused_and_others_are_settings(folder, capsys):
    for options, words in {
        ("--seeds", "3"): "--seeds is an option of scenarios; a request file takes --set section.key=value",
        ("--methods", "gd"): "--methods is an option of scenarios",
        ("--references", "3"): "--references is an option of scenarios",
        ("--draws", "5", "--set", "audit.draws=6"): "expected --draws or --set audit.draws=, got both",
        ("--set", "rurk.tau=1"): "unknown setting 'rurk.tau'",
    }.items():
        assert run_command(["run", "deletion.toml", *options]) == 2
        assert words in capsys.readouterr().err
    assert run_command(["run", "deletion.toml", "--dry-run", "--draws", "7", "--out", "elsewhere"]) == 1
    assert "2 samples to forget" in capsys.readouterr().out
    assert not (folder / "elsewhere").exists()


def test_unlearning_is_not_repeated_unless_something_changed(folder, capsys):
    weights = folder / "runs" / "deletion" / "unlearned.safetensors"
    assert run_command(["unlearn"]) == 0
    first = weights.stat().st_mtime_ns
    assert run_command(["unlearn"]) == 0
    assert weights.stat().st_mtime_ns == first
    assert run_command(["unlearn", "--set", "unlearn.seed=2"]) == 0
    second = weights.stat().st_mtime_ns
    assert second > first
    assert run_command(["unlearn", "--set", "unlearn.seed=2", "--set", "unlearn.budget=0.9"]) == 0
    assert weights.stat().st_mtime_ns > second
    second = weights.stat().st_mtime_ns
    (folder / "net.py").write_text((folder / "net.py").read_text().replace("lr=0.05", "lr=0.04"))
    assert run_command(["unlearn", "--set", "unlearn.seed=2"]) == 0
    assert weights.stat().st_mtime_ns > second


KILLED = """
import os, signal, sys
from residuum.cli import run_command
from residuum.core.files import file_sha256
place, command = sys.argv[1], sys.argv[2:]
def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)
import residuum.request.models, residuum.studies.execution, residuum.request.study, residuum.pack.writing
import residuum.core.files
module, _, name = place.rpartition(".")
setattr(sys.modules[module], name, die)
run_command(command)
"""


@pytest.mark.parametrize(("command", "place"), [
    (["init", "new.toml"], "residuum.core.files.write_whole"),
    (["check"], "residuum.request.study.trained_roles"),
    (["unlearn"], "residuum.request.models.write_note"),
    (["audit"], "residuum.studies.execution.write_run"),
    (["run"], "residuum.studies.execution.write_run"),
])  # fmt: skip
def test_a_killed_command_is_given_again(command, place, folder, capsys):
    whole = [*command, *(["deletion.toml"] if command == ["run"] else [])]
    if command == ["audit"]:
        assert run_command(["unlearn"]) == 0
    done = subprocess.run(
        [sys.executable, "-c", KILLED, place, *whole], check=False, capture_output=True, env=os.environ
    )
    assert done.returncode == -9
    assert run_command(whole) in (0, 1)  # 1: two samples of a tiny table prove nothing
    capsys.readouterr()
    if command == ["run"]:
        assert Results.load(folder / "runs" / "deletion").methods
        log = (folder / ".residuum" / "store" / "log.txt").read_text()
        trained = [line for line in log.splitlines() if " retrain " in line]
        assert len(trained) == len(set(trained))
