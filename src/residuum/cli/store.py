"""`residuum store`: look after the folder of finished stages."""

import json
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from residuum.cli import options
from residuum.cli.options import DEFAULT_STORE, Json, Store, option
from residuum.core.console import tell
from residuum.core.errors import plural

DryRun = Annotated[bool, option("Show what would be removed, and remove nothing.", "--dry-run")]


def list_store(store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """List finished stages, oldest first, and whether the installed code would still use them."""
    from residuum.reporting.terminal import console
    from residuum.studies import maintenance

    records = [artifact.record() for artifact in maintenance.artifacts(store)]
    if as_json:
        options.print_json(records)
        return
    table = Table(title=f"{store}: {plural(len(records), 'stage')}, {sum(r['bytes'] for r in records) / 2**20:.1f} MiB")
    for title in ("stage", "key", "KiB", "made", "current"):
        table.add_column(title)
    for r in records:
        current = "yes" if r["current"] else "no: other code"
        table.add_row(r["title"], r["key"], f"{r['bytes'] / 1024:.0f}", r["made"], current)
    console().print(table)


def verify_store(store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """Check every artifact against its hashes; exit with 1 if one is not what was written."""
    from residuum.studies import maintenance

    broken = maintenance.verify(store)
    if as_json:
        options.print_json(broken)
    else:
        for key, files in broken.items():
            tell(f"broken: {key} ({', '.join(files)})")
        checked = f"{plural(len(maintenance.artifacts(store)), 'stage')} checked, {len(broken)} broken"
        tell(f"{checked}{'; a run that needs one of them computes it again' if broken else ''}")
    if broken:
        raise typer.Exit(1)


def clean_store(store: Store = DEFAULT_STORE, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove half-written folders, checkpoints, and stages that the installed code would never use again."""
    from residuum.studies import maintenance

    _say_removed(maintenance.collect_garbage(store, dry_run=dry_run), dry_run, as_json)


def forget_ids(
    ids: Annotated[list[str] | None, typer.Argument(help="Sample ids.")] = None,
    id_file: Annotated[Path | None, option("Text file with one id per line.", "--ids")] = None,
    request: Annotated[list[str] | None, option(options.FORGET)] = None,
    runs: Annotated[bool, option("Clean the folders of known runs too.", "--runs")] = False,
    store: Annotated[Path | None, option("This store alone; default: every store that is known.", "--store")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove everything made with given samples.

    Removes models, counts, galleries and checkpoints from every known store, names what is out of reach, and prints
    what you may tell the person.
    """
    from residuum.data.ids import read_ids
    from residuum.studies import maintenance
    from residuum.studies.parsing import parse_request

    stores = maintenance.known_stores(DEFAULT_STORE) if store is None else [store]
    sample_ids = {*(ids or []), *(read_ids(id_file) if id_file else [])}
    sample_ids = sample_ids.union(*(maintenance.requested_ids(stores, parse_request(text)) for text in request or []))
    result = maintenance.forget(stores, sample_ids, runs=runs, dry_run=dry_run, place=options.RUNS)
    statement = [] if dry_run else result.statement(date.today(), cleaned=runs)
    where = {"runs": result.runs, "unreachable": result.unreachable, "unknown": result.unknown, "statement": statement}
    _say_removed(result.removed, dry_run, as_json, **where)
    if not as_json:
        done = f"{'would clean' if dry_run else 'cleaned'} the run" if runs else "holds such samples (--runs cleans it)"
        lines = [f"{done}: {folder}" for folder in result.runs]
        lines += [f"not known, but some of the above cannot tell its samples: {name}" for name in result.unknown]
        lines += [f"out of reach: {what}" for what in result.unreachable]
        lines += ["", "You may tell the person:", *(f"  {sentence}" for sentence in statement)] if statement else []
        tell("\n".join(lines))


def _say_removed(titles: list[str], dry_run: bool, as_json: bool, **more: list[str]) -> None:
    if as_json:
        removed = {"removed": [] if dry_run else titles, "would_remove": titles if dry_run else []}
        typer.echo(json.dumps(removed | more))
        return
    for title in titles:
        tell(f"{'would remove' if dry_run else 'removed'}: {title}")
    tell(f"{len(titles)} {'to remove' if dry_run else 'removed'}")
