"""Run an experiment from the command line: say what is to do, show progress, write the run's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from residuum.auditing import Cost
from residuum.experiments import (
    Experiment,
    Result,
    Stage,
    audit_cost,
    claim_folder,
    engine,
    outline,
    run_all,
    write_requests,
    write_run,
)

Report = Callable[[Stage, int, int], None]


def execute(experiment: Experiment, folder: Path, store: Path, workers: int, cluster: str | None) -> dict[str, Any]:
    """Run what is missing, write results.json with its counts, weights and pictures, and return the record."""
    results = _finished([experiment], lambda: claim_folder(folder), store, workers, cluster)
    return write_run(experiment, results[0], folder)


def execute_requests(
    experiment: Experiment, folder: Path, store: Path, workers: int, cluster: str | None
) -> dict[str, Any]:
    """Carry out all requests of an experiment, write a run for each and requests.json, and return its content."""
    steps, claim = experiment.steps, lambda: claim_folder(folder, apart_from="results.json")
    return write_requests(steps, _finished(steps, claim, store, workers, cluster), folder)


def _finished(
    experiments: Sequence[Experiment], claim: Callable[[], None], store: Path, workers: int, cluster: str | None
) -> list[list[Result]]:
    todo = outline(experiments, store)
    claim()
    _say(str(todo))
    if costs := [cost for experiment in experiments if (cost := audit_cost(experiment, store))]:
        most = "at most " if experiments[0].scenario.audit.draws is None else ""
        total = Cost(sum(cost.passes for cost in costs), sum(cost.seconds for cost in costs))
        _say(f"audits: {most}{total}, on one core")
    with engine(workers, cluster) as executor, progress() as report:
        return run_all(experiments, store=store, executor=executor, report=report)


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
