"""`residuum list` and `residuum check`: what there is to choose from, and whether your own keeps our promises."""

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from residuum.cli import options
from residuum.cli.catalogue import KINDS, Entry, catalogue
from residuum.cli.options import option
from residuum.errors import tell, unknown_name

NOTE = "Settings with their defaults, for --set NAME.key=value and --methods NAME:key=value."
SHARED = "All but ssd, fisher, ntk and cr have the settings of gd too; listed is what is not the same."
SHARING = "gd"


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, scenarios, datasets, models, perturbations or measures",
            autocompletion=lambda incomplete: [each for each in KINDS if each.startswith(incomplete)],
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List methods with their settings, scenarios, data sets, models, perturbations and measures."""
    if kind is not None and kind not in KINDS:
        raise unknown_name("list", kind, KINDS)
    chosen = {each: catalogue(each) for each in (KINDS if kind is None else [kind])}
    if as_json:
        options.print_json({each: as_plain(each, rows) for each, rows in chosen.items()})
        return
    console = Console(markup=False, emoji=False)
    for title, rows in chosen.items():
        table = names_table(title, rows, detailed=kind is not None)
        console.print(table if rows else f"{title}: none installed; see docs/plug-ins.md")


def as_plain(kind: str, rows: dict[str, Entry]) -> dict[str, object]:
    """Return the lines of one kind as plain values; methods and perturbations with all settings."""
    if kind not in ("methods", "perturbations"):
        return {name: entry.about for name, entry in rows.items()}
    return {name: {"about": entry.about, "settings": _given(kind, entry.settings)} for name, entry in rows.items()}


def _given(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a command takes; the radius of a perturbation is one of the audit's."""
    return {key: value for key, value in settings.items() if kind != "perturbations" or key != "tau"}


def names_table(title: str, rows: dict[str, Entry], *, detailed: bool) -> Table:
    """Return a list of names and what they are, in detail with settings: of gd all, of other methods what differs."""
    shared = rows[SHARING].settings if title == "methods" else {}
    lines = {name: written(_given(title, entry.settings_beside(shared))) for name, entry in rows.items()}
    lines = lines if detailed else {}
    if shared and detailed:
        lines[SHARING] = written(shared)
    note = f"{NOTE} {SHARED}" if shared else NOTE
    table = Table(title=title, show_header=False, show_lines=detailed, caption=note if any(lines.values()) else None)
    for name, entry in rows.items():
        table.add_row(Text(name), Text("\n".join(filter(None, [entry.about, lines.get(name)]))))
    return table


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as a command takes them.

    >>> written({"lr": 1e-5, "cap": None, "augment": False, "decay_epochs": (3, 5)})
    'lr=1e-05 cap=none augment=false decay_epochs=3,5'
    """
    return " ".join(f"{key}={_text(value)}" for key, value in settings.items())


def _text(value: Any) -> str:  # noqa: ANN401 (a setting is of any type)
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return as_short(value) if isinstance(value, float) else str(value)


def as_short(value: float) -> str:
    """Return a number in few digits, but so many that it is read back as it is.

    >>> as_short(0.5), as_short(2 / 255)
    ('0.5', '0.00784313725490196')
    """
    return short if float(short := f"{value:g}") == value else repr(value)


def check_target(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="FILE.py:NAME, PACKAGE.MODULE:NAME or a known name.")],
    kind: Annotated[str | None, option("method, perturbation, dataset or model; needed for functions.")] = None,
    as_json: options.Json = False,
) -> None:
    """Check that your plug-in behaves as built-in components do; exit with 1 if it breaks a promise."""
    from residuum.testing import check_plugin

    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    faults = check_plugin(target, kind)
    if as_json:
        options.print_json({promise.__name__: fault for promise, fault in faults.items()})
    else:
        for promise, fault in faults.items():
            how, why = ("kept   ", "") if fault is None else ("BROKEN ", f" ({' '.join(fault.split())})")
            tell(f"{how} {inspect.getdoc(promise)}{why}")
    broken = sum(fault is not None for fault in faults.values())
    if broken:
        tell(f"{target}: {broken} of {len(faults)} promises broken", err=True)
        raise typer.Exit(1)
