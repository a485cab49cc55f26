"""What the README says works: its Python runs, its commands run, its make targets exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from residuum.cli import run_command

ROOT = Path(__file__).parents[1]


def blocks(file):
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / file).read_text(encoding="utf-8"), re.M | re.S)


BLOCKS = blocks("README.md")
PYTHON = [block for language, block in [*BLOCKS, *blocks("docs/report.md")] if language == "python"]
COMMANDS = [
    shlex.split(line, comments=True)
    for language, block in BLOCKS
    if language == "sh"
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]


def commands(program):
    found = [command[1:] for command in COMMANDS if command[0] == program]
    assert found
    return found


def test_every_command_is_known_to_these_tests():
    assert {command[0] for command in COMMANDS} <= {"make", "residuum"}


@pytest.mark.parametrize("block", PYTHON)
def test_python_examples_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("arguments", commands("residuum"), ids=" ".join)
def test_residuum_commands_run(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(arguments) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("arguments", commands("make"), ids=" ".join)
def test_make_targets_exist(arguments):
    planned = subprocess.check_output(["make", "-n", *arguments], cwd=ROOT, text=True)
    assert "residuum run digits" in planned or "pytest" in planned


def test_the_first_example_has_at_most_twelve_lines():
    first = next(block for language, block in BLOCKS if language == "python")
    assert len(first.strip().splitlines()) <= 12


def test_links_to_files_resolve():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target
