"""The end of a command: whatever it raises becomes one line on standard error and an exit code."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from residuum.core.console import DEBUG, RANK, tell, traceback_kept
from residuum.core.errors import InputError, LostProcessError, MethodError, first_line

# typer keeps a private copy of click in some releases, so its base error is found through a public name
COMMAND_LINE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
# errors of the system with what to do about them; the program is not at fault, so no traceback is needed
OUTSIDE = {
    errno.ENOSPC: "make room there, or in the temporary folder (TMPDIR)",
    errno.EDQUOT: "your quota is used up, make room",
    errno.EROFS: "give a folder that can be written",
    errno.EACCES: "ask its owner for the right to read and write, or give another folder",
    errno.EPERM: "ask its owner for the right to read and write, or give another folder",
}


class GroupedCommand(TyperCommand):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Write one section for each group, those without one first."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                argument = parameter.param_type_name == "argument"
                group = "Arguments" if argument else getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(group, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Commands(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command; typer itself takes an end of file for an interrupt, and ignores a closed pipe."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError(f"unexpected end of a file or connection: {error}") from error
        except BrokenPipeError as error:
            raise RuntimeError("output closed (broken pipe)") from error


def exit_code(command: Callable[[], object]) -> int:
    """Run a command and return 0 for done, 1 for failed, 2 for bad input, 130 for interrupted.

    Expected errors are `InputError`s. Anything else is a fault of Residuum or of a plug-in: its traceback goes to a log
    file, and the line names it. Where several processes share the work, all but the leader leave by `SystemExit`.
    """
    try:
        code = command() or 0
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BaseException as error:  # whatever it is, the user gets one line
        return _answered(error)
    if code == INTERRUPTED and os.environ.get(RANK, "0") == "0":
        _say("interrupted; the same command resumes")
    return int(code)  # type: ignore[call-overload, no-any-return]


def _answered(error: BaseException) -> int:
    if isinstance(error, SystemExit) and os.environ.get(RANK, "0") != "0" and not error.code:
        return 0
    if isinstance(error, InputError | COMMAND_LINE_ERROR):
        _say(f"error: {error.format_message() if isinstance(error, COMMAND_LINE_ERROR) else error}")  # type: ignore[attr-defined]
        return REFUSED
    if isinstance(error, PermissionError) and error.filename:
        _say(f"error: you may not use {error.filename}; ask its owner for the permission, or choose another folder")
        return REFUSED
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        _say(f"error: {error.strerror}: {str(error.filename)[:80]!r}; give the path of a file or folder")
        return REFUSED
    _say(f"error: {_what_failed(error)}")
    return FAILED


def _what_failed(error: BaseException) -> str:
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        return "output closed (broken pipe)"
    if isinstance(error, OSError) and error.errno in OUTSIDE:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}: {OUTSIDE[error.errno]}; the same command resumes"
    if isinstance(error, LostProcessError | MethodError):
        return str(error) if error.__cause__ is None else f"{error}; {traceback_kept(error)}"
    ended = isinstance(error, SystemExit)
    return f"{'the program ended before it was done' if ended else first_line(error)}; {traceback_kept(error)}"


def flushed(code: int) -> int:
    """Return the exit code, or 1 if the output could not be written (full disk, closed pipe)."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter tries again when it ends
        _say(f"error: cannot print to standard output: {error.strerror}")
        return FAILED
    return code


@contextmanager
def debugging(enabled: bool) -> Iterator[None]:
    """Print tracebacks, here and in processes that start meanwhile."""
    before = os.environ.get(DEBUG)
    if enabled:
        os.environ[DEBUG] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DEBUG, None)


def _say(message: str) -> None:
    rank = os.environ.get(RANK)
    who = "residuum" if rank is None else f"residuum rank {rank}"
    shown = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()  # a path may hold any bytes
    tell(f"{who}: {shown}", err=True)
