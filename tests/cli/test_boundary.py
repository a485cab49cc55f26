"""Whatever a command raises becomes one line and an exit code; what nobody foresaw is written whole to a log."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from residuum.cli import run_command
from residuum.cli.listing import Entry
from residuum.core.console import DEBUG, RANK
from residuum.core.errors import InputError, LostProcessError, MethodError


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def raising(monkeypatch, error):
    def names(kind):
        raise error

    monkeypatch.setattr("residuum.cli.options.names", names)


CODES = {
    "foreseen": (InputError("expected 1,\n got 2"), 2, "error: expected 1, got 2", False),
    "unforeseen": (TypeError("one line\nand another"), 1, "error: TypeError: one line; the traceback is in", True),
    "without words": (RecursionError(), 1, "error: RecursionError; the traceback is in", True),
    "a lost process": (LostProcessError("rank 1 is gone"), 1, "error: rank 1 is gone", False),
    "a method": (MethodError("method bad: it left"), 1, "error: method bad: it left", False),
    "a false end": (SystemExit(0), 1, "error: the program ended before it was done", True),
    "an end of file": (EOFError("cut"), 1, "unexpected end of a file or connection: cut", True),
    "an interrupt": (KeyboardInterrupt(), 130, "interrupted; the same command resumes", False),
    "another user's file": (
        PermissionError(13, "Permission denied", "s/x"),
        2,
        "error: you may not use s/x; ask",
        False,
    ),
    "a closed pipe": (BrokenPipeError(32, "Broken pipe"), 1, "output closed", False),
}


@pytest.mark.parametrize("case", CODES)
def test_every_error_is_one_line_with_its_code(case, logs, monkeypatch, capsys):
    error, code, line, logged = CODES[case]
    raising(monkeypatch, error)
    assert run_command(["list"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("residuum: ")
    assert line in captured.err
    written = list(logs.iterdir())
    assert len(written) == logged
    if logged:
        assert str(written[0]) in captured.err
        assert "Traceback (most recent call last)" in written[0].read_text()
        assert "in names" in written[0].read_text()


@pytest.mark.parametrize("arguments", [["--debug", "list"], ["list", "--debug"]])
def test_debug_prints_the_traceback_and_writes_no_log(arguments, logs, monkeypatch, capsys):
    raising(monkeypatch, TypeError("odd"))
    assert run_command(arguments) == 1
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert said.splitlines()[-1] == "residuum: error: TypeError: odd; the traceback is above"
    assert list(logs.iterdir()) == []
    assert DEBUG not in os.environ


def test_a_log_that_cannot_be_written_is_said(monkeypatch, capsys):
    raising(monkeypatch, TypeError("odd"))
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    assert run_command(["list"]) == 1
    assert "--debug shows the traceback" in capsys.readouterr().err


def test_the_cause_of_a_methods_failure_is_in_the_log(logs, monkeypatch, capsys):
    error = MethodError("method bad: ZeroDivisionError")
    error.__cause__ = ZeroDivisionError("the cause")
    raising(monkeypatch, error)
    assert run_command(["list"]) == 1
    assert "the traceback is in" in capsys.readouterr().err
    assert "the cause" in next(logs.iterdir()).read_text()


def test_only_a_follower_may_leave_with_0(monkeypatch):
    raising(monkeypatch, SystemExit(0))
    monkeypatch.setenv(RANK, "1")
    assert run_command(["list"]) == 0
    raising(monkeypatch, SystemExit(3))
    assert run_command(["list"]) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_no_success(tmp_path):
    with open("/dev/full", "w") as full:
        program = [sys.executable, "-m", "residuum", "list", "methods"]
        options = {"text": True, "env": os.environ | {"TMPDIR": str(tmp_path)}}
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False, **options)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_markup_in_a_name_is_printed_as_it_is(monkeypatch, capsys):
    monkeypatch.setattr("residuum.cli.listing.described", lambda kind: {"[/x]": Entry(":smile: [/i]")})
    assert run_command(["list", "models"]) == 0
    assert ":smile: [/i]" in capsys.readouterr().out


WINDOWS = """
import signal, sys, os
for name in ("SIGCHLD", "SIGKILL", "pthread_sigmask", "sigwaitinfo", "SIG_BLOCK"):
    delattr(signal, name)
for name in ("fork", "sched_getaffinity", "getuid"):
    delattr(os, name)
sys.modules |= {"fcntl": None, "pwd": None, "resource": None}
from residuum.cli import run_command
sys.exit(run_command(["list", "models"]))
"""


def test_the_command_line_needs_nothing_that_windows_lacks():
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "cnn" in done.stdout


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_what_the_system_refuses_is_one_line_without_a_traceback(number, logs, monkeypatch, capsys):
    raising(monkeypatch, OSError(number, os.strerror(number), "/there/file"))
    assert run_command(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"residuum: error: {os.strerror(number)} (/there/file): ")
    assert "the same command resumes" in said
    assert list(logs.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_as_many_workers_as_the_process_may_use():
    one = sorted(os.sched_getaffinity(0))[:1]
    asked = "from residuum.cli.options import StudyOptions; print(StudyOptions().resources().workers)"
    code = f"import os; os.sched_setaffinity(0, {one}); {asked}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "1\n"
