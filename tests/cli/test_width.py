"""On a terminal of 80 columns no line is longer, and no word is broken, in anything that a command prints."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys

import pytest
import typer.main

from residuum.cli import make_app, run_command

WIDTH = 80
LOOKS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A small run with a measure, and its pack."""
    folder = tmp_path_factory.mktemp("home")
    quick = ["--methods", "gd,rurk", "--seeds", "1", "--draws", "5", "--workers", "1", "--no-gallery"]
    more = ["--measures", "depth,rmia", "--set", "relearn.epochs=1"]
    assert run_command(["run", "tiny", *quick, *more, "--out", f"{folder}/run", "--store", f"{folder}/store"]) == 0
    assert run_command(["pack", f"{folder}/run", "--output", f"{folder}/e.zip"]) == 0
    return folder


def printed(arguments, columns, monkeypatch):
    """Return what a command prints on a terminal of so many columns, without colors."""
    screens = Terminal(), Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", screens[0])
        patch.setattr(sys, "stderr", screens[1])
        run_command(arguments)
    text = "".join(screen.getvalue() for screen in screens)
    return LOOKS.sub("", text).replace("\r", "\n")  # a bar is drawn over itself


def words(text):
    """Return all words but those that differ each time: numbers, hashes."""
    return {word for word in re.findall(r"\w+", text) if word.isalpha()} - {"continued"}


RUN = "run tiny --methods gd,rurk --seeds 1 --draws 5 --workers 1 --no-gallery --measures depth,rmia"
LINES = [
    f"{RUN} --set relearn.epochs=1 --out again --store store",
    f"{RUN} --set relearn.epochs=1 --out other --store store --dry-run",
    "list", "list methods", "list scenarios", "list datasets", "list models", "list perturbations", "list measures",
    "tune tiny --method gd --grid epochs=1 --seeds 1 --surrogate-models 1 --draws 5 --workers 1 --store store",
    "verify e.zip", "verify e.zip --models run", "verify e.zip --models nowhere", "pack run --output two.zip",
    "report run --fail-if rurk.retain_accuracy>=0", "check gd --json", "store list --store store",
    "run tiny --methods rukr", "verify nothing.zip", "run tiny --set train.epochs=many",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_lines_fit_and_words_stay_whole(line, home, monkeypatch):
    monkeypatch.chdir(home)
    wide = printed(shlex.split(line), 1000, monkeypatch)
    shutil.rmtree("again", ignore_errors=True)
    narrow = printed(shlex.split(line), WIDTH, monkeypatch)
    assert len(narrow) > 40
    assert words(narrow) <= words(wide)
    for text in narrow.splitlines():
        assert len(text) <= WIDTH or " " not in text.strip(), text


def commands():
    """Yield every command with its path, those of groups included."""
    app = typer.main.get_command(make_app())
    yield "residuum", app
    for name, command in app.commands.items():
        yield name, command
        yield from ((f"{name} {inner}", part) for inner, part in getattr(command, "commands", {}).items())


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_help_fits_and_its_words_stay_whole(name, command):
    narrow, wide = (
        command.get_help(
            command.context_class(command, info_name=name, terminal_width=columns, max_content_width=columns)
        )
        for columns in (WIDTH, 1000)
    )
    assert words(narrow) <= words(wide)
    assert max(map(len, narrow.splitlines())) <= WIDTH
