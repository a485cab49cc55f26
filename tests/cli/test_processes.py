"""With several processes, what is wrong is said once, and nobody waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = [sys.executable, "-m", "residuum", "run", "tiny"]


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
