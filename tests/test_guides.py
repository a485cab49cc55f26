"""The guides run as they stand, print what they show, and end in a success on a model that remembered."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from residuum.cli import run_command

DOCS = Path(__file__).parents[1] / "docs"
NUMBER = re.compile(r"\d+(?:\.\d+)?")
PERCENT = 3.0  # points by which numbers may differ on another machine, or this share of larger ones in per cent
FENCE = re.compile(r"^```(python|sh|text)\n(.*?)^```", re.M | re.S)


def run_block(kind, block, space):
    """Run a block of a page: Python, a file that its first line names, or commands."""
    file = re.match(r"# (\w+\.py)\n", block)
    if kind == "python" and file:
        Path(file[1]).write_text(block, encoding="utf-8")
    elif kind == "python":
        exec(compile(block, "guide", "exec"), space)
    for line in block.replace("\\\n", " ").splitlines() if kind == "sh" else ():
        command = shlex.split(line)
        assert command[0] in ("residuum", "pip")
        assert command[0] == "pip" or run_command(command[1:]) == 0


def same_line(shown, printed):
    """Whether two lines have the same words, and numbers that are as near as two machines give them."""
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (shown, printed)]
    near = [abs(a - b) <= PERCENT * max(1, a / 100) for a, b in zip(*numbers, strict=False)]
    return NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split() and all(near)


def missing_lines(shown, printed):
    """Return the lines that a page shows and a run did not print, in this order; ... stands for any lines."""
    left, missing = printed.splitlines(), []
    for line in shown.strip().splitlines():
        place = next((row for row, other in enumerate(left) if same_line(line.strip(), other.strip())), None)
        if line.strip() != "..." and place is None:
            missing.append(line)
        left = left[place + 1 :] if place is not None else left
    return missing


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize(("name", "made"), [
    pytest.param(
        "get-started/quickstart",
        ["evidence.zip", "unlearned.safetensors", "runs/deletion/report.html"],
        marks=pytest.mark.long,
    ),
    pytest.param("guides/text", ["runs/request/results.json"], marks=pytest.mark.long),
    pytest.param("guides/tables", ["runs/request/results.json", "runs/customers/report.html"], marks=pytest.mark.long),
    ("guides/classifiers", ["runs/request/results.json"]),
])  # fmt: skip
def test_a_guide_prints_what_it_shows_and_ends_in_a_success(name, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "78")
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    space, printed, compared = {"__name__": "guide"}, "", 0
    for kind, block in FENCE.findall((DOCS / f"{name}.md").read_text(encoding="utf-8")):
        if kind == "text":
            assert missing_lines(block, printed) == [], printed
            compared += 1
        else:
            run_block(kind, block, space)
            printed = capsys.readouterr().out
    assert compared
    assert all(Path(file).exists() for file in made)
    verdicts = [judgment.verdict.name for judgment in space["proof"].verdicts.values()]
    assert verdicts[0] == "FOUND"
    assert set(verdicts[1:]) == {"NOT_DETECTED"}


def test_a_line_may_differ_in_numbers_by_little_and_in_no_word():
    shown = "r 1.54 in 900 s: found"
    assert missing_lines(shown, "first\n r 1.61 in 910 s: found\nlast") == []
    assert missing_lines(shown, "r 1.54 in 1900 s: found") == [shown]
    assert missing_lines(shown, "r 1.54 in 900 s: clean") == [shown]
    assert missing_lines("b\na", "a\nb") == ["a"]
