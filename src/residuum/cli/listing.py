"""`residuum list` and `residuum check`: list components, and check that a plug-in behaves as built-in ones do."""

import dataclasses
import inspect
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from residuum.cli import options
from residuum.cli.options import option
from residuum.cli.own import SET, RequestOptions, check_request
from residuum.core.console import tell
from residuum.core.errors import InputError, unknown_name

NOTE = "Settings with their defaults, for --set NAME.key=value and --methods NAME:key=value."
SHARED = "All but ssd, fisher, ntk and cr also have the settings of gd; the table lists only what differs."
SHARING = "gd"
MORE = "`residuum list KIND` describes each name of one kind, with its settings."


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, scenarios, datasets, models, perturbations or measures",
            autocompletion=lambda incomplete: [kind for kind in options.REGISTRIES if kind.startswith(incomplete)],
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List components and their settings.

    Components are methods, scenarios, data sets, models, perturbations and measures. Name one kind to see settings.
    """
    if kind is not None and kind not in options.REGISTRIES:
        raise unknown_name("list", kind, options.REGISTRIES)
    kinds = list(options.REGISTRIES) if kind is None else [kind]
    if as_json:
        options.print_json({kind: as_plain(kind, described(kind)) for kind in kinds})
        return
    console = Console(markup=False, emoji=False)
    if kind is None:
        table = Table(show_header=False, show_lines=True, caption=MORE)
        for title in options.REGISTRIES:
            table.add_row(Text(title), Text(", ".join(options.names(title))))
        console.print(table)
        return
    entries = described(kind)
    console.print(names_table(kind, entries) if entries else f"{kind}: none installed; see docs/guides/plug-ins.md")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line about a component, and its settings with their defaults."""

    about: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def described(kind: str) -> dict[str, Entry]:
    """Return the entries of all components of one kind by name; this imports them."""
    return {name: _entry(kind, registry[name]) for registry in options.REGISTRIES[kind] for name in registry}


def _entry(kind: str, component: Any) -> Entry:  # noqa: ANN401 (a class, a function, a file or a measure)
    if kind == "scenarios":
        return Entry(tomllib.loads(component.read_text(encoding="utf-8")).get("description", ""))
    if hasattr(component, "words"):  # a measure of the user's own
        return Entry(component.words["meaning"])
    about = (inspect.getdoc(component) or "").partition("\n")[0]
    if kind == "methods":
        return Entry(about, component().settings)
    if kind == "perturbations":
        from residuum.studies.parsing import perturbation_defaults

        return Entry(about, perturbation_defaults(component))
    fields = dataclasses.fields(component) if dataclasses.is_dataclass(component) else ()
    return Entry(about, {field.name: field.default for field in fields})


def as_plain(kind: str, entries: Mapping[str, Entry]) -> dict[str, object]:
    """Return the entries of one kind as plain values; methods and perturbations with all settings."""
    if kind not in ("methods", "perturbations"):
        return {name: entry.about for name, entry in entries.items()}
    return {name: {"about": entry.about, "settings": dict(entry.settings)} for name, entry in entries.items()}


def names_table(kind: str, entries: Mapping[str, Entry]) -> Table:
    """Return the table of names, descriptions and settings; methods other than gd show only what differs from gd."""
    shared = entries[SHARING].settings if kind == "methods" else {}
    caption = f"{NOTE} {SHARED}" if shared else NOTE if any(entry.settings for entry in entries.values()) else None
    table = Table(title=kind, show_header=False, show_lines=True, caption=caption)
    for name, entry in entries.items():
        settings = {
            key: value
            for key, value in entry.settings.items()
            if name == SHARING or key not in shared or shared[key] != value
        }
        table.add_row(Text(name), Text("\n".join(filter(None, [entry.about, written(settings)]))))
    return table


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as a command takes them.

    >>> written({"lr": 1e-5, "cap": None, "augment": False, "decay_epochs": (3, 5)})
    'lr=1e-05 cap=none augment=false decay_epochs=3,5'
    """
    return " ".join(f"{key}={_text(value)}" for key, value in settings.items())


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return as_short(value) if isinstance(value, float) else str(value)


def as_short(value: float) -> str:
    """Return a number in as few digits as read back exactly.

    >>> as_short(0.5), as_short(2 / 255)
    ('0.5', '0.00784313725490196')
    """
    return short if float(short := f"{value:g}") == value else repr(value)


TARGET = "Request file (.toml); or a plug-in: FILE.py:NAME, PACKAGE.MODULE:NAME or a known name."


def check_target(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGET)] = "deletion.toml",
    settings: Annotated[list[str] | None, option(SET, "--set")] = None,
    kind: Annotated[str | None, option("Kind of a plug-in that is a function: perturbation or dataset.")] = None,
    as_json: options.Json = False,
) -> None:
    """Check a request file or your own plug-in.

    Says before anything is computed whether model and data fit and what an audit costs, or whether a plug-in behaves as
    built-in components do. Exits with 1 if something is wrong.
    """
    if target.endswith(".toml"):
        from residuum.request.file import is_scenario_file

        if is_scenario_file(target):
            raise InputError(f"{target} is a scenario; `residuum run {target} --dry-run` checks it")
        check_request(target, RequestOptions(file=Path(target), settings=settings).read(), as_json)
    else:
        check_plug_in(target, kind, as_json)


def check_plug_in(target: str, kind: str | None, as_json: bool) -> None:
    """Print which promises a plug-in keeps; exit with 1 if it breaks one."""
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
