"""`residuum report`: page, tables and figures again from stored results."""

import json
from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options


def report_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs; several are compared.")
    ],
    paper: Annotated[bool, typer.Option("--paper", help="Show the literature's values beside ours.")] = False,
    paper_file: Annotated[Path | None, typer.Option(help="JSON file of other published values.")] = None,
    gallery: options.Gallery = None,
    samples: options.SampleList = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: the run's own.")] = None,
    fail_if: options.FailIf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the written files as JSON.")] = False,
) -> None:
    """Write report.html, table.tex, table.csv, samples.csv and figures from stored results; no model is loaded."""
    from residuum.reporting import write_report
    from residuum.reporting.writing import loaded_runs

    options.check_conditions(fail_if)
    found = write_report(list(runs), paper=paper_file or paper, gallery=gallery, samples=samples, out=out)
    files = [str(path) for path in found]
    typer.echo(json.dumps(files, indent=1) if as_json else "\n".join(files))
    options.exit_for_failed_gate(loaded_runs(list(runs)) if fail_if else [], fail_if)
