"""The command line: parse, call, print."""

import gc
import os
import sys
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Annotated

import typer

from residuum.errors import RANK, InputError, LostProcessError

# typer keeps a private copy of click in some releases, so its base error is found through a public name
COMMAND_LINE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

LOST = 1
INTERRUPTED = 130

# none of these modules loads torch: a command does so when it runs, not to say what its options are
COMMANDS = {
    "run": "residuum.cli.run:run_scenario",
    "report": "residuum.cli.report:report_runs",
    "sweep": "residuum.cli.sweep:sweep_method",
    "list": "residuum.cli.listing:list_names",
    "check": "residuum.cli.check:check_method",
}
GROUPS = {"bound": "residuum.cli.bound:app", "store": "residuum.cli.store:app"}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with 0 done, 1 gate failed or a process lost, 2 bad input, 130 interrupted."""
    gc.set_threshold(200_000)  # libraries make many objects and keep them: looking for garbage among them finds none
    code = run_command(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the process ends: nobody needs it searched for garbage
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code; bad input becomes one line on standard error."""
    try:
        code = make_app()(arguments, standalone_mode=False) or 0
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


def make_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="residuum",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_about,
    )
    for name, path in COMMANDS.items():
        app.command(name)(resolve_name(path))
    for name, path in GROUPS.items():
        app.add_typer(resolve_name(path), name=name)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"residuum {version('residuum')}")
        raise typer.Exit


def _about(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make a classifier forget chosen training samples, and measure what it still remembers."""


def _refuse(message: str, code: int = 2) -> int:
    line, rank = " ".join(message.split()), os.environ.get(RANK)
    who = "residuum" if rank is None else f"residuum rank {rank}"
    print(f"{who}: error: {line}", file=sys.stderr)  # noqa: T201
    return code
