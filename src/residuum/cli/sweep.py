"""`residuum sweep`: one method over a grid of settings."""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from residuum.cli import options
from residuum.errors import InputError
from residuum.reporting import write_report
from residuum.reporting.tables import metrics_table, residual_table

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
    as_json: options.Json = False,
) -> None:
    """Run one method over a grid of settings; write its table and the plot's data beside the usual results."""
    points = grid_points(method, grid)
    options.start_workers(scenario, workers if devices is None else 1, cluster)
    from residuum.cli.execution import Means, execute
    from residuum.experiments import Experiment

    means = Means(store, workers, cluster, devices, nodes, precision)
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
    folder = out or Path("runs") / f"{scenario}-{method}-sweep"
    record = execute(experiment, folder, means)
    labels = [row.label for row in experiment.rows]
    write_rows(folder / "sweep.csv", list(sweep_rows(record, labels, points)))
    write_report(folder)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
        return
    console = Console(width=160)
    console.print(metrics_table(record))
    for perturbation in record["noise_floor"]:
        console.print(residual_table(record, perturbation))
    console.print(f"{folder}: results.json, sweep.csv (one line per setting, perturbation and radius), report.html")


def grid_points(method: str, grid: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the grid's values.

    >>> grid_points("rurk", ["tau=0,0.1", "v=1,2"])[1]
    {'tau': '0', 'v': '2'}
    """
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


def sweep_rows(
    record: Mapping[str, Any], labels: Sequence[str], points: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield one line per setting, perturbation and radius, with means over the seeds."""
    for label, point in zip(labels, points, strict=True):
        row = record["methods"][label]
        means = {name: value["mean"] for name, value in row["summary"].items() if name.endswith("accuracy")}
        for perturbation, floor in record["noise_floor"].items():
            audits = [seed["audits"][perturbation]["residual_knowledge"] for seed in row["per_seed"].values()]
            for k, tau in enumerate(floor["taus"]):
                pooled = [audit["pooled"][k] for audit in audits]
                r = None if None in pooled else statistics.fmean(pooled)
                yield {
                    **{f"setting {field}": value for field, value in point.items()},
                    **means,
                    "average_gap": row["summary"]["average_gap"],
                    "perturbation": perturbation,
                    "radius": tau,
                    "residual_knowledge": r,
                }


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the lines as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
