"""Code that dies below Python, where nothing can be caught: a line that names it, exit code 1, others unharmed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from residuum.engines import engine

PROGRAM = [sys.executable, "-m", "residuum"]
TINY = ["--seeds", "1", "--draws", "2", "--set", "train.epochs=1", "--set", "relearn.epochs=1"]
WHY = "it crashed, left without a word, or took too much memory"
METHODS = """
import ctypes
from typing import ClassVar
from residuum.methods import Method

class Crashes(Method):
    name: ClassVar[str] = "crashes"
    title: ClassVar[str] = "Crashes"
    def edit(self, model, splits, context):
        ctypes.string_at(0)

class Leaves(Method):
    name: ClassVar[str] = "leaves"
    title: ClassVar[str] = "Leaves"
    def edit(self, model, splits, context):
        ctypes.CDLL(None)._exit(0)

class Raises(Method):
    name: ClassVar[str] = "raises"
    title: ClassVar[str] = "Raises"
    def edit(self, model, splits, context):
        raise ZeroDivisionError("mine")

class RaisesInTheSecond(Method):
    name: ClassVar[str] = "second"
    title: ClassVar[str] = "Second"
    def edit(self, model, splits, context):
        if context.team.rank == 1:
            raise ZeroDivisionError("mine")
        return model
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bad.py").write_text(METHODS)
    (tmp_path / "crashing.py").write_text("import ctypes\nctypes.string_at(0)\n")
    return tmp_path


def answer(folder, *arguments):
    done = subprocess.run([*PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=500)
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith(("[", "W", "\t"))]


def record_of(folder):
    return json.loads((folder / "runs/tiny/results.json").read_text())


def test_methods_that_kill_their_process_fail_alone(folder):
    code, said = answer(folder, "run", "tiny", "--methods", "bad.py:Crashes,bad.py:Leaves,gd", *TINY)
    assert code == 1
    assert [line.split(";")[0] for line in said if "row" in line] == [
        f"residuum: row {name}: the process of method {name} died: {WHY}" for name in ("crashes", "leaves")
    ]
    record = record_of(folder)
    assert list(record["failed"]) == ["crashes", "leaves"]
    assert list(record["methods"]) == ["original", "retrain", "control", "gd"]


@pytest.mark.parametrize(("target", "how"), [("bad.py:Leaves", "exit code 0"), ("crashing.py:X", "SIGSEGV")])
def test_check_never_passes_what_kills_it(target, how, folder):
    code, said = answer(folder, "check", target)
    assert code == 1
    assert said == [
        f"residuum: error: check {target}: ended before it was done ({how}), from outside or by code that is not ours"
    ]


def test_a_row_that_fails_in_one_process_of_a_team_is_left_out_by_all(folder):
    rows = "bad.py:Raises,bad.py:RaisesInTheSecond,gd"
    code, said = answer(folder, "run", "tiny", "--methods", rows, *TINY, "--devices", "2")
    assert code == 1
    failures = [line for line in said if "residuum: row" in line]
    assert len(failures) == 2
    assert "row raises: method raises of bad.py failed (ZeroDivisionError: mine)" in failures[0]
    assert list(record_of(folder)["failed"]) == ["raises", "second"]
    assert list(record_of(folder)["methods"]) == ["original", "retrain", "control", "gd"]


def crash():
    ctypes.string_at(0)


def test_a_call_apart_leaves_the_pool_alone():
    with engine(workers=1, apart=True) as pool:
        died = pool.submit_apart(crash)
        assert pool.submit(len, "abc").result(timeout=100) == 3
        assert isinstance(died.exception(timeout=100), BrokenExecutor)
        assert pool.submit_apart(len, "ab").result(timeout=100) == 2


SLEEPS = """
import os, sys, time
from residuum.cli.boundary import supervised
def command():
    print(os.getpid(), flush=True)
    time.sleep(100)
sys.exit(supervised(command, "sleep"))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_supervised_command_ends_with_its_parent(how):
    parent = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    os.kill(parent.pid, how)
    said = parent.communicate(timeout=60)[1]
    assert parent.returncode == (1 if how == signal.SIGTERM else -signal.SIGKILL)
    assert said.count("SIGTERM") == (how == signal.SIGTERM)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
