"""With several processes, what is wrong is said once, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = [sys.executable, "-m", "residuum", "run", "tiny"]
TINY = ["--seeds", "1", "--draws", "2", "--set", "train.epochs=1", "--set", "relearn.epochs=1"]
METHODS = """
from typing import ClassVar
from residuum.core import devices
from residuum.unlearning import Method

class Raises(Method):
    name: ClassVar[str] = "raises"
    title: ClassVar[str] = "Raises"
    def edit(self, model, splits, context):
        raise ZeroDivisionError("mine")

class RaisesInTheSecond(Method):
    name: ClassVar[str] = "second"
    title: ClassVar[str] = "Second"
    def edit(self, model, splits, context):
        if devices.rank() == 1:
            raise ZeroDivisionError("mine")
        return model
"""


def test_bad_input_is_said_once_before_other_processes_start(tmp_path):
    arguments = [*PROGRAM, "--devices", "2", "--set", "forget.forget_class=99"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "unknown class '99'" in done.stderr


def test_a_node_that_never_comes_is_waited_for_only_so_long(tmp_path):
    place = {"RESIDUUM_CONNECTION": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29765"}
    arguments = [*PROGRAM, "--devices", "1", "--nodes", "2"]
    options = {"capture_output": True, "text": True, "timeout": 120, "env": os.environ | place}
    done = subprocess.run(arguments, cwd=tmp_path, check=False, **options)
    assert done.returncode == 1
    assert "waited 2 s for 2 processes at 127.0.0.1:29765" in done.stderr.splitlines()[-1]
    assert not any(tmp_path.iterdir())


def test_a_row_that_fails_in_one_of_two_processes_is_left_out_by_all(tmp_path):
    (tmp_path / "bad.py").write_text(METHODS)
    rows = "bad.py:Raises,bad.py:RaisesInTheSecond,gd"
    arguments = [*PROGRAM, "--methods", rows, *TINY, "--devices", "2"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 1
    failures = [line for line in done.stderr.splitlines() if "residuum: row" in line]
    assert len(failures) == 2
    assert "row raises: method raises of bad.py failed (ZeroDivisionError: mine)" in failures[0]
    record = json.loads((tmp_path / "runs/tiny/results.json").read_text())
    assert list(record["failed"]) == ["raises", "second"]
    assert list(record["methods"]) == ["original", "retrain", "control", "gd"]
