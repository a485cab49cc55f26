"""Commands that may run code of the user's: a parent that loads none of it answers however they end."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from residuum.cli.boundary import FAILED
from residuum.errors import say

FORWARDED = {signal.SIGINT, signal.SIGTERM}
WATCHED = FORWARDED | {signal.SIGCHLD}
DIE_WITH_THE_PARENT = 1  # PR_SET_PDEATHSIG of Linux
FROM_THE_TERMINAL = 128  # SI_KERNEL: the whole group of processes gets that one


def may_bring_code(arguments: Sequence[str]) -> bool:
    """Tell whether a command line may name code that is not ours, and whether this system lets us wait for it.

    >>> may_bring_code(["run", "tiny", "--methods", "gd,mine.py:Mine"]), may_bring_code(["run", "tiny"])
    (True, False)
    """
    named = any(":" in argument or argument.endswith(".toml") for argument in arguments)
    return (named or "check" in arguments[:1]) and sys.platform == "linux" and "LOCAL_RANK" not in os.environ


def supervised(command: Callable[[], int], what: str) -> int:
    """Return the exit code of a command, run in a child; ended without one, by a crash or `_exit`, it has failed.

    Python's own ways to leave are answered where the code runs, by the name of what left; below Python there are more.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        _end_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = command()
        os.write(writer, bytes([code]))
        sys.exit(code)
    os.close(writer)
    status = _waited(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if said := os.read(reader, 1):
        return said[0]
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    say(f"error: {what}: ended before it was done ({how}), from outside or by code that is not ours")
    return FAILED


def _waited(child: int) -> int:
    """Return how a child ended, its signal as a negative number; pass on what this process is told meanwhile."""
    while True:
        got = signal.sigwaitinfo(WATCHED)
        if got.si_signo in FORWARDED and got.si_code != FROM_THE_TERMINAL:
            os.kill(child, got.si_signo)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent is killed."""
    import ctypes

    ctypes.CDLL(None).prctl(DIE_WITH_THE_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)
