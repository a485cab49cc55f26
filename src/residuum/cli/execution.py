"""Run an experiment from the command line: say what is to do, show progress, write the run's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from residuum.experiments import (
    Experiment,
    Stage,
    audit_cost,
    claim_folder,
    engine,
    is_short,
    outline,
    plan,
    run,
    write_run,
)

Report = Callable[[Stage, int, int], None]


def execute(experiment: Experiment, folder: Path, store: Path, workers: int, cluster: str | None) -> dict[str, Any]:
    """Run what is missing, write results.json with its counts, weights and pictures, and return the record."""
    plans = plan(experiment)
    todo = outline(experiment, store, plans)
    claim_folder(folder)
    _say(str(todo))
    cost = audit_cost(experiment, store, plans)
    if cost:
        most = "at most " if experiment.scenario.audit.draws is None else ""
        _say(f"audits: {most}{cost}, on one core")
    enough = 1 if is_short(experiment, store, plans, cost) else workers
    with engine(enough, cluster) as executor, progress() as report:
        results = run(experiment, store=store, executor=executor, report=report, plans=plans)
    return write_run(experiment, results, folder)


@contextmanager
def progress() -> Iterator[Report]:
    """Yield a reporter of finished stages: a bar on a terminal, plain lines otherwise, on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda stage, done, total: bar.update(task, description=stage.title, completed=done, total=total)


def _say(text: str) -> None:
    print(f"residuum: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _plain_line(stage: Stage, done: int, total: int) -> None:
    print(f"[{done}/{total}] {stage.title}", file=sys.stderr, flush=True)  # noqa: T201
