"""`residuum check`: run our promises on your own method."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residuum.cli import options
from residuum.errors import InputError, unknown_name

if TYPE_CHECKING:
    from residuum.methods import Method


def check_method(
    target: Annotated[str, typer.Argument(metavar="PKG:METHOD", help="A method class, or the name of a known method.")],
    as_json: options.PlainJson = False,
) -> None:
    """Run the promises that every method keeps on a method of your own; exit with 1 if one is broken."""
    from residuum.checks import PROMISES, check_promises

    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    faults = check_promises(load_method(target))
    if as_json:
        typer.echo(json.dumps(faults, indent=1))
    else:
        for promise in PROMISES:
            fault = faults[promise.__name__]
            how, why = ("kept   ", "") if fault is None else ("BROKEN ", f" ({' '.join(fault.split())})")
            typer.echo(f"{how} {inspect.getdoc(promise)}{why}")
    broken = sum(fault is not None for fault in faults.values())
    if broken:
        typer.echo(f"{target}: {broken} of {len(faults)} promises broken", err=True)
        raise typer.Exit(1)


def load_method(target: str) -> type[Method]:
    """Return the method class of `package.module:Class`, or of a registered name."""
    from residuum.methods import Method, methods

    module, colon, name = target.partition(":")
    if not colon:
        if target not in methods():
            raise unknown_name("method", target, methods())
        return methods()[target]
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise InputError(f"cannot import {module!r}: {error}; install the package or run from its folder") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"expected PACKAGE:METHOD with a subclass of residuum.methods.Method, got {target!r}")
    return found
