"""Run an experiment from the command line: say what is to do, show progress, write the run's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import typer
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
    is_short,
    outline,
    plan,
    run_all,
    write_requests,
    write_run,
)
from residuum.parallel import SINGLE_PROCESS, Team, make_team
from residuum.types import InputError

Report = Callable[[Stage, int, int], None]


@dataclass(frozen=True)
class Means:
    """What a run is carried out with: where finished stages are, and who computes the others."""

    store: Path
    workers: int
    cluster: str | None = None
    devices: int | None = None
    nodes: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.cluster is not None and not self.alone:
            raise InputError("expected --cluster or --devices, --nodes and --precision, got both")

    @property
    def alone(self) -> bool:
        """Whether every stage is computed by one process, on the CPU and in 32 bits."""
        return self.team is SINGLE_PROCESS

    @cached_property
    def team(self) -> Team:
        """The processes that share each stage."""
        return make_team(self.devices, self.nodes, self.precision)


def execute(experiment: Experiment, folder: Path, means: Means) -> dict[str, Any]:
    """Run what is missing, write results.json with its counts, weights and pictures, and return the record."""
    steps, results = _finished([experiment], lambda: claim_folder(folder), means)
    return write_run(steps[0], results[0], folder)


def execute_requests(experiment: Experiment, folder: Path, means: Means) -> dict[str, Any]:
    """Carry out all requests of an experiment, write a run for each and requests.json, and return its content."""
    claim = partial(claim_folder, folder, apart_from="results.json")
    return write_requests(*_finished(experiment.steps, claim, means), folder)


def _finished(
    experiments: Sequence[Experiment], claim: Callable[[], None], means: Means
) -> tuple[list[Experiment], list[list[Result]]]:
    """Return the experiments as they were computed, and their results.

    Of a team, the leader does all that; the others do their share of the stages, and the command ends here for them.
    """
    store, team = means.store, means.team
    team.launch()
    steps = [experiment.model_copy(update={"compute": team.compute}) for experiment in experiments]
    if not team.leads:
        run_all(steps, store=store, team=team)
        team.end()
        raise typer.Exit
    plans = [plan(step) for step in steps]
    todo = outline(steps, store, plans)
    claim()
    _say(str(todo))
    costs = [audit_cost(step, store, own) for step, own in zip(steps, plans, strict=True)]
    total = Cost(sum(cost.passes for cost in costs), sum(cost.seconds for cost in costs))
    if total.passes:
        most = "at most " if steps[0].scenario.audit.draws is None else ""
        _say(f"audits: {most}{total}, on one core")
    one = not means.alone or is_short(steps, store, plans, total)
    with engine(1 if one else means.workers, means.cluster) as executor, progress() as report:
        results = run_all(steps, store=store, executor=executor, report=report, plans=plans, team=team)
    team.end()
    return steps, results


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
