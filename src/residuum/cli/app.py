"""All commands of `residuum`, each loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer

COMMANDS = {
    "run": "residuum.cli.run:run_scenario",
    "report": "residuum.cli.report:report_runs",
    "sweep": "residuum.cli.sweep:sweep_method",
    "list": "residuum.cli.listing:list_names",
    "check": "residuum.cli.check:check_method",
}
GROUPS = {"bound": "residuum.cli.bound:app", "store": "residuum.cli.store:app"}


def make_app(wanted: str | None = None) -> typer.Typer:
    """Return the command line with one command or group, or with all where `wanted` is none of them.

    A report is made in seconds: it should not wait for what only training needs.
    """
    app = typer.Typer(
        name="residuum",
        help="Make a classifier forget chosen training samples, and measure what it still remembers.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_about,
    )
    known = [wanted] if wanted in COMMANDS or wanted in GROUPS else [*COMMANDS, *GROUPS]
    for name in known:
        if name in COMMANDS:
            app.command(name)(_loaded(COMMANDS[name]))
        else:
            app.add_typer(_loaded(GROUPS[str(name)]), name=name)
    return app


def _loaded(place: str) -> Any:  # noqa: ANN401 (a function or a group)
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


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
