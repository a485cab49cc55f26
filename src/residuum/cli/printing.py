"""What commands print about finished runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.cli import options
from residuum.core.errors import plural

if TYPE_CHECKING:
    from residuum.record.run import Run


def print_run(run: Run, start: float, *, as_json: bool, words: Callable[[str], str] = str) -> None:
    """Print the record, or verdicts, tables, warnings in the words of this interface, and where the files are."""
    if as_json:
        options.print_json(run.record.as_dict())
        return
    from residuum.reporting.terminal import print_lines, print_tables, run_tables

    print_tables(partial(run_tables, run))
    print_lines(f"warning: {words(text)}" for text in run.record.warnings)
    print_lines(
        [f"{run.folder}: results.json, report.html, table.tex and table.csv after {time.perf_counter() - start:.0f} s"]
    )


def print_requests(
    runs: list[Run], folder: Path, start: float, *, as_json: bool, words: Callable[[str], str] = str
) -> None:
    """Print the records, or the verdicts over all requests, when to retrain, the warnings, and where the files are."""
    if as_json:
        options.print_json([run.record.as_dict() for run in runs])
        return
    from residuum.reporting.request_chart import retraining
    from residuum.reporting.request_report import requests_tables
    from residuum.reporting.terminal import print_lines, print_tables

    print_tables(partial(requests_tables, runs))
    for number, run in enumerate(runs, start=1):
        print_lines(f"warning: request {number}: {words(text)}" for text in run.record.warnings)
    print_lines(f"failed: row {label}: {reason}" for label, reason in runs[-1].record.failed.items())
    files = f"index.html, requests.csv and a run for each of {plural(len(runs), 'request')}"
    print_lines([f"{folder}: {files} after {time.perf_counter() - start:.0f} s", *map(str, retraining(runs).values())])
