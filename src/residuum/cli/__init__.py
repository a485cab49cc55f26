"""The command line: parse, call, print."""

import gc
import os
import sys
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Annotated

import typer

from residuum.cli.boundary import Commands, GroupedCommand, debugging, exit_code, flushed
from residuum.cli.options import with_options

# none of these modules loads torch: a command does so when it runs, not to say what its options are
COMMANDS = {
    "run": "residuum.cli.run:run_scenario",
    "init": "residuum.cli.own:init_file",
    "split": "residuum.cli.own:split_data",
    "unlearn": "residuum.cli.own:unlearn_model",
    "audit": "residuum.cli.own:audit_model",
    "report": "residuum.cli.report:report_runs",
    "tune": "residuum.cli.tune:tune_method",
    "list": "residuum.cli.listing:list_names",
    "check": "residuum.cli.listing:check_target",
    "pack": "residuum.cli.report:pack_run",
    "verify": "residuum.cli.report:verify_pack",
    "forget": "residuum.cli.store:forget_ids",
    "store ls": "residuum.cli.store:list_store",
    "store verify": "residuum.cli.store:verify_store",
    "store gc": "residuum.cli.store:clean_store",
    "export card": "residuum.cli.export:write_card",
    "export tensorboard": "residuum.cli.export:log_to_tensorboard",
    "export mlflow": "residuum.cli.export:log_to_mlflow",
    "export wandb": "residuum.cli.export:log_to_wandb",
}
GROUPS = {
    "store": "List, verify and clean finished stages.",
    "export": "Export a run: model card or experiment tracker.",
}
DEBUG = "--debug"
COMPLETION = "_RESIDUUM_COMPLETE"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with 0 done, 1 gate or something else failed, 2 bad input, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if COMPLETION in os.environ or arguments[:1] in (["--install-completion"], ["--show-completion"]):
        make_app()(arguments, prog_name="residuum")  # typer answers the shell and exits
    gc.set_threshold(200_000)  # libraries make many objects that stay alive, so collecting more often frees nothing
    sys.exit(flushed(run_command(arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error becomes one line on standard error."""
    others = [argument for argument in arguments if argument != DEBUG]  # at any position
    with debugging(len(others) < len(arguments)):
        return exit_code(lambda: make_app()(others, standalone_mode=False))


def make_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="residuum",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_about,
    )
    groups = {"": app} | {name: typer.Typer(no_args_is_help=True, help=text) for name, text in GROUPS.items()}
    for words, path in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        groups[group].command(name, cls=GroupedCommand)(with_options(resolve_name(path)))
    for name in GROUPS:
        app.add_typer(groups[name], name=name)
    return app


def _print_version(asked_for: bool) -> None:
    if asked_for:
        typer.echo(f"residuum {version('residuum')}")
        raise typer.Exit


def _about(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Print the traceback of an error that was not foreseen.")] = False,
) -> None:
    """Make a classifier forget chosen training samples, and measure what it still remembers."""
