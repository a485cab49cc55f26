"""The command line: parse, call, print."""

from __future__ import annotations

import gc
import os
import sys

import typer

from residuum.errors import RANK, InputError, LostProcessError

# typer keeps a private copy of click in some releases, so its base error is found through a public name
COMMAND_LINE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

LOST = 1
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with 0 done, 1 gate failed or a process lost, 2 bad input, 130 interrupted."""
    code = run_command(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the process ends: nobody needs it searched for garbage
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code; bad input becomes one line on standard error."""
    from residuum.cli.app import make_app

    try:
        code = make_app(arguments[0] if arguments else None)(arguments, standalone_mode=False) or 0
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except InputError as error:
        return _refuse(str(error))
    except LostProcessError as error:
        return _refuse(str(error), code=LOST)
    except COMMAND_LINE_ERROR as error:
        return _refuse(error.format_message())  # type: ignore[attr-defined]
    if code == INTERRUPTED and os.environ.get(RANK, "0") == "0":
        print("residuum: interrupted; the same command resumes", file=sys.stderr)  # noqa: T201
    return int(code)


def _refuse(message: str, code: int = 2) -> int:
    line, rank = " ".join(message.split()), os.environ.get(RANK)
    who = "residuum" if rank is None else f"residuum rank {rank}"
    print(f"{who}: error: {line}", file=sys.stderr)  # noqa: T201
    return code
