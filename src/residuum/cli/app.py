"""All commands of `residuum`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from residuum.cli.bound import app as bound
from residuum.cli.check import check_method
from residuum.cli.listing import list_names
from residuum.cli.report import report_runs
from residuum.cli.run import run_scenario
from residuum.cli.store import app as store
from residuum.cli.sweep import sweep_method

app = typer.Typer(
    name="residuum",
    help="Make a classifier forget chosen training samples, and measure what it still remembers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run_scenario)
app.command("report")(report_runs)
app.command("sweep")(sweep_method)
app.command("list")(list_names)
app.command("check")(check_method)
app.add_typer(bound, name="bound")
app.add_typer(store, name="store")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"residuum {version('residuum')}")
        raise typer.Exit


@app.callback()
def residuum(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make a classifier forget chosen training samples, and measure what it still remembers."""
