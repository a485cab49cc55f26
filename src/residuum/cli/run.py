"""`residuum run`: train, unlearn, audit, and say what came out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from residuum.cli import options
from residuum.errors import InputError
from residuum.reporting import write_report
from residuum.reporting.requests import requests_table
from residuum.reporting.sentences import sentences
from residuum.reporting.tables import metrics_table, prevalence_table, residual_table


def run_scenario(
    scenario: options.Scenario = "digits",
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated [LABEL=]NAME[:key=value...]; default: the scenario's.")
    ] = None,
    seeds: options.Seeds = None,
    perturbations: options.Perturbations = None,
    draws: options.Draws = None,
    half_width: options.HalfWidth = None,
    max_draws: options.MaxDraws = None,
    out: options.Out = None,
    store: options.Store = options.DEFAULT_STORE,
    profile: options.Profile = "cpu",
    data_root: options.DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch CIFAR-10 into the data root first.")] = False,
    init_from: options.InitFrom = None,
    manifest: options.Manifest = None,
    settings: options.Settings = None,
    request: options.Request = None,
    requests: options.Requests = None,
    workers: options.Workers = options.ALL_CORES,
    cluster: options.Cluster = None,
    devices: options.Devices = None,
    nodes: options.Nodes = 1,
    precision: options.Precision = "32-true",
    gallery: Annotated[
        bool | None,
        typer.Option("--gallery/--no-gallery", help="Pictures of forgotten samples in the page; default: public data."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train, unlearn, evaluate and audit a scenario; write results.json with its counts, and the report."""
    start = time.perf_counter()
    options.start_workers(scenario, workers if devices is None else 1, cluster)
    from residuum.cli.execution import Means, execute, execute_requests
    from residuum.experiments import Experiment
    from residuum.reporting.tutorial import write_picture

    means = Means(store, workers, cluster, devices, nodes, precision)
    if download and not means.alone:
        raise InputError("expected --download without --devices, --nodes and --precision; fetch CIFAR-10 first")
    if download:
        fetch_cifar10(data_root)
    experiment = Experiment.create(
        scenario,
        methods=methods,
        seeds=options.parse_seeds(seeds),
        overrides=options.gathered_overrides(settings, perturbations, draws, half_width, max_draws),
        requests=(asked := options.gathered_requests(request, requests)),
        profile=profile,
        data_root=data_root,
        init_from=init_from,
        manifest=manifest,
    )
    folder = out or Path("runs") / (f"{scenario}-requests" if asked else scenario)
    if asked:
        record = execute_requests(experiment, folder, means)
        write_report(folder, gallery=gallery)
        if as_json:
            typer.echo(json.dumps(record, indent=1))
        else:
            print_requests(record, folder, time.perf_counter() - start)
        return
    record = execute(experiment, folder, means)
    caption = write_picture(record, folder)
    write_report(folder, gallery=gallery)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
    else:
        print_results(record, folder, time.perf_counter() - start, caption)


def print_requests(record: dict[str, Any], folder: Path, seconds: float) -> None:
    """Print the table over all requests, the warnings, and where the files are."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(requests_table(record))
    for request in record["requests"]:
        for warning in request["warnings"]:
            console.print(f"warning: request {request['number']}: {warning}", soft_wrap=True, markup=False)
    files = f"index.html, requests.json, requests.csv and a run for each of {len(record['requests'])} requests"
    console.print(f"{folder}: {files} after {seconds:.0f} s", soft_wrap=True)


def fetch_cifar10(data_root: Path | None) -> None:
    """Fetch CIFAR-10 into the data root, with progress on standard error."""
    from residuum.data import download_cifar10

    if data_root is None:
        raise InputError("expected --data-root FOLDER with --download: that is where CIFAR-10 goes")
    shown = -1

    def progress(received: int, expected: int | None) -> None:
        nonlocal shown
        if expected and (share := 100 * received // expected) // 10 > shown // 10:
            shown = share
            print(f"residuum: CIFAR-10 {share} % of {expected / 2**20:.0f} MiB", file=sys.stderr)  # noqa: T201

    download_cifar10(data_root, progress=progress)


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
    console.print(f"{folder}: results.json, report.html, table.tex and table.csv after {seconds:.0f} s", soft_wrap=True)
