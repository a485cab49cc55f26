"""`residuum report`: page, tables and figures again from stored results."""

import json
from pathlib import Path
from typing import Annotated

import typer


def report_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs; several are compared.")
    ],
    paper: Annotated[Path | None, typer.Option(help="JSON file of published values to show beside ours.")] = None,
    gallery: Annotated[
        bool | None,
        typer.Option(
            "--gallery/--no-gallery", help="Show pictures of forgotten samples; default: public data sets only."
        ),
    ] = None,
    samples: Annotated[
        bool | None,
        typer.Option("--samples/--no-samples", help="List forgotten samples by id; default: public data sets only."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: the run's own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the written files as JSON.")] = False,
) -> None:
    """Write report.html, table.tex, table.csv, samples.csv and figures from stored results; no model is loaded."""
    from residuum.reporting import write_report

    files = write_report(list(runs), paper=paper, gallery=gallery, samples=samples, out=out)
    if as_json:
        typer.echo(json.dumps([str(path) for path in files], indent=1))
        return
    for path in files:
        typer.echo(str(path))
