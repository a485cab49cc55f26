"""`residuum run`: train, unlearn, audit, and say what came out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from residuum.experiments import Experiment, Stage, claim_folder, engine, outline, run, write_run
from residuum.reporting.sentences import sentences
from residuum.reporting.tables import metrics_table, prevalence_table, residual_table
from residuum.reporting.tutorial import write_picture
from residuum.types import InputError


def run_scenario(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario; see `residuum list scenarios`.")] = "digits",
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated [LABEL=]NAME[:key=value...]; default: the scenario's.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated run seeds.")] = None,
    perturbations: Annotated[str | None, typer.Option(help="Comma-separated perturbations of the audit.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws per forgotten sample and radius.")] = None,
    half_width: Annotated[
        float | None, typer.Option(help="Instead of draws: make as many as bring every interval of r to +-this.")
    ] = None,
    max_draws: Annotated[int | None, typer.Option(help="At most this many draws with --half-width.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/SCENARIO.")] = None,
    store: Annotated[Path, typer.Option(help="Folder of finished stages.")] = Path(".residuum/store"),
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds data sets.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value with a dotted key, e.g. rurk.tau=0.02; repeatable.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; results do not depend on it.")] = os.cpu_count() or 1,
    cluster: Annotated[str | None, typer.Option(help="tcp://host:port of a dask scheduler; see docs/scale.md.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results.json instead of tables.")] = False,
) -> None:
    """Train, unlearn, evaluate and audit a scenario, and write results.json with its counts."""
    overrides: dict[str, Any] = dict(parse_setting(text) for text in settings or [])
    overrides |= {"audit.perturbations": perturbations.split(",")} if perturbations is not None else {}
    overrides |= draw_overrides(draws, half_width, max_draws)
    experiment = Experiment.create(
        scenario, methods=methods, seeds=parse_seeds(seeds), overrides=overrides, data_root=data_root
    )
    folder = out or Path("runs") / scenario
    todo = outline(experiment, store)
    claim_folder(folder)
    start = time.perf_counter()
    print(f"residuum: {todo}", file=sys.stderr, flush=True)  # noqa: T201
    with engine(workers, cluster) as executor, progress() as report:
        results = run(experiment, store=store, executor=executor, report=report)
    record = write_run(experiment, results, folder)
    caption = write_picture(record, folder)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
    else:
        print_results(record, folder, time.perf_counter() - start, caption)


def draw_overrides(draws: int | None, half_width: float | None, max_draws: int | None) -> dict[str, Any]:
    """Return the audit settings that these options mean; draws and a half-width exclude each other."""
    if draws is not None and half_width is not None:
        raise InputError("expected --draws or --half-width, got both; a half-width chooses the draws")
    changes: dict[str, Any] = {"audit.draws": draws} if draws is not None else {}
    if half_width is not None:
        changes |= {"audit.draws": None, "audit.half_width": half_width}
    return changes | ({"audit.max_draws": max_draws} if max_draws is not None else {})


def parse_setting(text: str) -> tuple[str, str]:
    """Return key and value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"expected key=value after --set, got {text!r}")
    return key.strip(), value.strip()


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a comma-separated list."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected whole numbers separated by commas for --seeds, got {text!r}") from None


@contextmanager
def progress() -> Iterator[Any]:
    """Yield a reporter of finished stages: a bar on a terminal, plain lines otherwise, on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda stage, done, total: bar.update(task, description=stage.title, completed=done, total=total)


def _plain_line(stage: Stage, done: int, total: int) -> None:
    print(f"[{done}/{total}] {stage.title}", file=sys.stderr, flush=True)  # noqa: T201


def print_results(record: dict[str, Any], folder: Path, seconds: float, caption: str | None = None) -> None:
    """Print the tables, the sentences, the caption of the picture if there is one, and where the files are."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(metrics_table(record))
    for perturbation in record["noise_floor"]:
        console.print(residual_table(record, perturbation))
        console.print(prevalence_table(record, perturbation))
        for sentence in sentences(record, perturbation):
            console.print(f"- {sentence}", soft_wrap=True)
    for warning in record["warnings"]:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    if caption:
        console.print(f"picture: {caption}", soft_wrap=True, markup=False, highlight=False)
        console.print(f"{folder / 'figures'}: {record['scenario']['name']}.svg, .png and .html", soft_wrap=True)
    console.print(f"{folder / 'results.json'} written after {seconds:.0f} s", soft_wrap=True)
