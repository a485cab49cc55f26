"""How commands speak: plans without doing, completion, plurals, and titles that name the data."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest

from residuum import Study
from residuum.cli import run_command
from residuum.core.console import say
from residuum.reporting.exports import caption
from residuum.studies.planning import Outline

TINY = ["run", "tiny", "--methods", "gd", "--seeds", "1", "--set", "train.epochs=1", "--draws", "5"]


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command([*TINY, "--dry-run"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0] == "9 stages: 0 finished, 9 to run"
    assert "train: 0 of 3 stages in the store" in first
    assert "unlearn: 0 of 1 stage in the store" in first
    assert any(line.startswith("forgets ") for line in first)
    assert any(line.startswith("work: ") for line in first)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("precision", [[], ["--precision", "bf16-mixed"]])
@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_a_dry_run_knows_what_the_store_has(tmp_path, monkeypatch, capsys, precision):
    monkeypatch.chdir(tmp_path)
    assert run_command([*TINY, "--workers", "1", *precision]) == 0
    capsys.readouterr()
    more = [*(text.replace("gd", "gd,ga") for text in TINY), *precision]
    assert run_command([*more, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert "train: 3 of 3 stages in the store" in plan
    assert "unlearn: 1 of 2 stages in the store" in plan
    assert "audit: 0 of 1 stage in the store" in plan


def test_a_dry_run_of_requests_plans_all_of_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command([*TINY, "--request", "fraction=0.1", "--request", "fraction=0.05", "--dry-run"]) == 0
    assert "request 2 forgets" in capsys.readouterr().out


def completed(words):
    line = {"_RESIDUUM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "residuum"], env=os.environ | line, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_shell_completes_commands_scenarios_methods_and_kinds():
    assert completed("residuum re") == ["report"]
    assert completed("residuum run digits-r") == ["digits-random"]
    assert completed("residuum run digits --methods gd,sof") == ["gd,soft_reset"]
    assert completed("residuum list p") == ["perturbations"]


def test_completion_can_be_shown_for_a_shell():
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "residuum", "--show-completion", "bash"]
    assert "_RESIDUUM_COMPLETE" in subprocess.check_output(command, env=named, text=True)


def test_one_is_singular():
    assert str(Outline(1, 0)) == "1 stage: 0 finished, 1 to run"
    run = type("Run", (), {"name": "tiny", "seeds": ["1"]})()
    assert "over 1 seed, " in caption([run])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(written):
    """Return the lines that a terminal shows: a return goes back to the start, and a clearing empties the line."""
    lines = [""]
    for part in re.split(r"(\r|\n|\x1b\[2K)", written):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part != "\r":
            lines[-1] += part
    return lines


def test_a_message_takes_the_line_of_the_bar_and_the_bar_goes_on_below(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    bar = "audit gaussian ----- 3/9"
    screen.write(f"\r\x1b[2K{bar}")  # as rich draws it
    say("audit gaussian: 50 %")
    screen.write(f"\r\x1b[2K{bar}")
    assert shown(screen.getvalue()) == ["residuum: audit gaussian: 50 %", bar]


def test_a_message_in_a_log_is_plain(capsys):
    say("50 %")
    assert capsys.readouterr().err == "residuum: 50 %\n"


def test_a_scenario_on_other_data_says_so():
    plain = Study.create("digits").scenario
    other = Study.create("digits", overrides={"data.name": "fashion-mnist"}).scenario
    mine = Study.create("digits", overrides={"data.name": "/data/my faces.npz"}).scenario
    assert plain.name == "digits"
    assert other.name == "digits-on-fashion-mnist"
    assert mine.name == "digits-on-my_faces"
    assert "digits bundled" not in other.description
