"""Print on a terminal that may show a progress bar, and write tracebacks to a log file."""

import os
import shutil
import sys
import tempfile
import textwrap
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

RANK = "RESIDUUM_RANK"  # set in each of several processes that share the work
DEBUG = "RESIDUUM_DEBUG"  # set where tracebacks are to be printed


def say(text: str) -> None:
    """Print a line on standard error, from any process; on a terminal it replaces a progress bar's line.

    The bar is drawn again below it.
    """
    cleared = "\r\033[2K" if sys.stderr.isatty() else ""
    print(f"{cleared}{fitted(f'residuum: {text}', sys.stderr)}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def said_if_slow(text: str) -> Iterator[None]:
    """Say what is being done if the body takes longer than a second."""
    timer = threading.Timer(1.0, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell(text: str, *, err: bool = False) -> None:
    """Print a command's output; a terminal wraps it between words."""
    stream = sys.stderr if err else sys.stdout
    print(fitted(text, stream), file=stream, flush=True)


def fitted(text: str, stream: TextIO) -> str:
    """Return a text wrapped between words for a terminal, or unchanged for another stream."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    layout: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    lines = [textwrap.fill(line, width, subsequent_indent="  ", **layout) for line in text.splitlines()]
    return "\n".join(lines)


def traceback_kept(error: BaseException) -> str:
    """Write the traceback to a log file and say where it is; with debugging on, print it instead."""
    text = "".join(traceback.format_exception(error))
    if os.environ.get(DEBUG):
        print(text, file=sys.stderr)  # noqa: T201
        return "the traceback is above"
    try:
        handle, name = tempfile.mkstemp(prefix="residuum-", suffix=".log")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(text)
    except OSError as full:
        return f"--debug shows the traceback, which no log could take ({full.strerror})"
    return f"the traceback is in {name}"
