"""`residuum store`: look after the folder of finished stages."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from residuum.cli.options import DEFAULT_STORE
from residuum.cli.options import PlainJson as Json

app = typer.Typer(help="List, verify, clean and forget finished stages.", no_args_is_help=True)

Root = Annotated[Path, typer.Option("--store", help="Folder of finished stages.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")]


@app.command("ls")
def list_store(store: Root = DEFAULT_STORE, as_json: Json = False) -> None:
    """List finished stages, oldest first, and whether the installed code would still use them."""
    from residuum.experiments import maintenance
    from residuum.reporting.terminal import console

    records = [artefact.record() for artefact in maintenance.artefacts(store)]
    if as_json:
        typer.echo(json.dumps(records, indent=1))
        return
    table = Table(title=f"{store}: {len(records)} stages, {sum(r['bytes'] for r in records) / 2**20:.1f} MiB")
    for title in ("stage", "key", "KiB", "made", "current"):
        table.add_column(title)
    for r in records:
        current = "yes" if r["current"] else "no: other code"
        table.add_row(r["title"], r["key"], f"{r['bytes'] / 1024:.0f}", r["made"], current)
    console().print(table)


@app.command("verify")
def verify_store(store: Root = DEFAULT_STORE, as_json: Json = False) -> None:
    """Check every artefact against its hashes; exit with 1 if one is not what was written."""
    from residuum.experiments import maintenance

    broken = maintenance.verify(store)
    if as_json:
        typer.echo(json.dumps(broken, indent=1))
    else:
        for key, files in broken.items():
            typer.echo(f"broken: {key} ({', '.join(files)}); the next run that needs it computes it again")
        typer.echo(f"{len(maintenance.artefacts(store))} stages checked, {len(broken)} broken")
    if broken:
        raise typer.Exit(1)


@app.command("gc")
def clean_store(store: Root = DEFAULT_STORE, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove half-written folders and stages that the installed code would never use again."""
    from residuum.experiments import maintenance

    _say_removed(maintenance.collect_garbage(store, dry_run=dry_run), dry_run, as_json)


@app.command("forget")
def forget_ids(
    ids: Annotated[list[str], typer.Argument(help="Sample ids, or a text file with one id a line.")],
    store: Root = DEFAULT_STORE,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """List and remove everything made with given samples: models trained on them, counts and pictures of them."""
    from residuum.data.ids import read_ids
    from residuum.experiments import maintenance

    wanted = [sample_id for entry in ids for sample_id in (read_ids(Path(entry)) if Path(entry).is_file() else [entry])]
    removed = maintenance.forget(store, wanted, dry_run=dry_run)
    _say_removed([artefact.title for artefact in removed], dry_run, as_json)


def _say_removed(titles: list[str], dry_run: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"removed": [] if dry_run else titles, "would_remove": titles if dry_run else []}))
        return
    for title in titles:
        typer.echo(f"{'would remove' if dry_run else 'removed'}: {title}")
    typer.echo(f"{len(titles)} {'to remove' if dry_run else 'removed'}")
