"""`residuum sweep`: one method over a grid of settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residuum.cli import options
from residuum.errors import InputError

if TYPE_CHECKING:
    from residuum.reporting import Run

ALIASES = {"rurk": {"lambda": ("lambda_f", "lambda_a")}}  # the ablations of the literature vary both at once


def sweep_method(
    scenario: options.Scenario,
    method: Annotated[str, typer.Option(help="Name of the method.")],
    grid: Annotated[list[str], typer.Option(help="field=value,value,...; repeat for a product of fields.")],
    seeds: options.Seeds = None,
    perturbations: options.Perturbations = None,
    draws: options.Draws = None,
    half_width: options.HalfWidth = None,
    max_draws: options.MaxDraws = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default runs/SCENARIO-METHOD-sweep.")] = None,
    store: options.Store = options.DEFAULT_STORE,
    profile: options.Profile = "cpu",
    data_root: options.DataRoot = None,
    init_from: options.InitFrom = None,
    manifest: options.Manifest = None,
    settings: options.Settings = None,
    workers: options.Workers = options.ALL_CORES,
    cluster: options.Cluster = None,
    devices: options.Devices = None,
    nodes: options.Nodes = 1,
    precision: options.Precision = "32-true",
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Run one method over a grid of settings; write its table and the plot's data beside the usual results."""
    points = grid_points(method, grid)
    options.start_workers(scenario, workers if devices is None else 1, cluster)
    from residuum.execution import Resources, run
    from residuum.experiments import Experiment
    from residuum.reporting.exports import csv_text
    from residuum.reporting.terminal import print_lines, print_tables, run_tables

    experiment = Experiment.create(
        scenario,
        methods=[row_text(method, point) for point in points],
        seeds=options.parse_seeds(seeds),
        overrides=options.gathered_overrides(settings, perturbations, draws, half_width, max_draws),
        profile=profile,
        data_root=data_root,
        init_from=init_from,
        manifest=manifest,
    )
    folder = out or options.RUNS / f"{experiment.scenario.name}-{method}-sweep"
    resources = Resources(workers, cluster, devices, nodes, precision, options.most_days(yes), apart=True)
    done = run(experiment, store=store, out=folder, resources=resources, progress=True)
    labelled = dict(zip((row.label for row in experiment.rows), points, strict=True))
    lines = sweep_lines(done, [(label, labelled[label]) for label in labelled if label not in done.record.failed])
    (folder / "sweep.csv").write_text(csv_text(lines), encoding="utf-8")
    done.report()
    if as_json:
        typer.echo(json.dumps(done.record.as_dict(), indent=1))
    else:
        print_tables(partial(run_tables, done))
        print_lines([f"{folder}: results.json, sweep.csv (one line per setting, perturbation and radius), report.html"])
    options.exit_for_failed_rows(done.record.failed)


def grid_points(method: str, grid: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the grid's values."""
    fields = dict(options.parse_setting(text) for text in grid)
    if len(fields) < len(grid):
        raise InputError(f"expected each field once in --grid, got {', '.join(grid)}")
    values = [[value.strip() for value in text.split(",") if value.strip()] for text in fields.values()]
    if not all(values):
        raise InputError(f"expected field=value,value,... for --grid, got {', '.join(grid)}")
    return [dict(zip(fields, point, strict=True)) for point in itertools.product(*values)]


def row_text(method: str, point: Mapping[str, str]) -> str:
    """Return the row that a grid point means, under a label of its own.

    >>> row_text("rurk", {"lambda": "0.1"})
    'rurk lambda 0.1=rurk:lambda_f=0.1:lambda_a=0.1'
    """
    label = " ".join([method, *(f"{field} {value}" for field, value in point.items())])
    aliases = ALIASES.get(method, {})
    pairs = [f"{name}={value}" for field, value in point.items() for name in aliases.get(field, (field,))]
    return f"{label}={':'.join([method, *pairs])}"


def sweep_lines(run: Run, labelled: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[dict[str, Any]]:
    """Yield one line per setting, perturbation and radius, with means over the seeds."""
    from residuum.record import METRICS

    rows = {row.label: row for row in run.summary.rows}
    for label, point in labelled:
        row = rows[label]
        for perturbation, taus in run.summary.taus.items():
            for tau, r in zip(taus, row.curve(perturbation, "pooled").value, strict=True):
                yield {
                    **{f"setting {field}": value for field, value in point.items()},
                    **{name: row.cells[name].value for name in METRICS},
                    "average_gap": row.cells["average_gap"].value,
                    "perturbation": perturbation,
                    "radius": tau,
                    "residual_knowledge": r,
                }
