"""`residuum check`: run our promises on a plug-in of your own."""

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options
from residuum.errors import tell


def check_target(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="FILE.py:NAME, PACKAGE.MODULE:NAME, FILE.toml, or a known name.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(help="method, perturbation, dataset, model, measure or scenario, where it is not clear."),
    ] = None,
    as_json: options.PlainJson = False,
) -> None:
    """Run the promises that everything of its kind keeps on something of your own; exit with 1 if one is broken."""
    from residuum.plugin_checks import check_plugin

    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    faults = check_plugin(target, kind)
    if as_json:
        typer.echo(json.dumps({promise.__name__: fault for promise, fault in faults.items()}, indent=1))
    else:
        for promise, fault in faults.items():
            how, why = ("kept   ", "") if fault is None else ("BROKEN ", f" ({' '.join(fault.split())})")
            tell(f"{how} {inspect.getdoc(promise)}{why}")
    broken = sum(fault is not None for fault in faults.values())
    if broken:
        tell(f"{target}: {broken} of {len(faults)} promises broken", err=True)
        raise typer.Exit(1)
