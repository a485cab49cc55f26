"""`residuum run`: train, unlearn, audit, and say what came out."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residuum.cli import options
from residuum.errors import InputError, plural, tell

if TYPE_CHECKING:
    from residuum.execution import RequestsRun
    from residuum.reporting import Run


def run_scenario(
    scenario: options.Scenario = "digits",
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    perturbations: options.Perturbations = None,
    draws: options.Draws = None,
    half_width: options.HalfWidth = None,
    max_draws: options.MaxDraws = None,
    until: options.Until = None,
    measures: options.Measures = None,
    references: options.References = None,
    out: options.Out = None,
    store: options.Store = options.DEFAULT_STORE,
    profile: options.Profile = "cpu",
    data_root: options.DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch CIFAR-10 into the data root first.")] = False,
    init_from: options.InitFrom = None,
    manifest: options.Manifest = None,
    accept_reference: options.AcceptReference = False,
    settings: options.Settings = None,
    request: options.Request = None,
    requests: options.Requests = None,
    workers: options.Workers = options.ALL_CORES,
    cluster: options.Cluster = None,
    devices: options.Devices = None,
    nodes: options.Nodes = 1,
    precision: options.Precision = "32-true",
    yes: options.Yes = False,
    gallery: options.Gallery = None,
    samples: options.SampleList = None,
    dry_run: options.DryRun = False,
    fail_if: options.FailIf = None,
    as_json: options.Json = False,
) -> None:
    """Train, unlearn, evaluate and audit a scenario; write results.json with its counts, and the report."""
    start = time.perf_counter()
    options.start_workers(scenario, workers if devices is None and not dry_run else 1, cluster)
    from residuum.execution import Resources, plan_lines, run, run_requests
    from residuum.experiments import Experiment

    resources = Resources(workers, cluster, devices, nodes, precision, options.most_days(yes), apart=True)
    if download and not resources.one_process:
        raise InputError("expected --download without --devices, --nodes and --precision; fetch CIFAR-10 first")
    if download:
        fetch_cifar10(data_root)
    experiment = Experiment.create(
        scenario,
        methods=methods,
        seeds=options.parse_seeds(seeds),
        overrides=options.gathered_overrides(
            settings, perturbations, draws, half_width, max_draws, until, measures, references
        )
        | ({"accept_reference": True} if accept_reference else {}),
        requests=(asked := options.gathered_requests(request, requests)),
        profile=profile,
        data_root=data_root,
        init_from=init_from,
        manifest=manifest,
    )
    options.check_conditions(fail_if, experiment.labels)
    name = experiment.scenario.name
    if dry_run:
        lines = plan_lines(experiment, store=store, requests=bool(asked))
        if as_json:
            typer.echo(json.dumps({"scenario": name, "plan": lines}, indent=1))
        else:
            tell("\n".join(lines))
        return
    carry_out, folder = (run_requests, f"{name}-requests") if asked else (run, name)
    where: Any = {"store": store, "out": out or options.RUNS / folder, "gallery": gallery}
    done: Any = carry_out(experiment, **where, resources=resources, progress=True)
    done.report(gallery=gallery, samples=samples)
    if as_json:
        typer.echo(json.dumps(done.record.as_dict(), indent=1))
    else:
        (print_requests if asked else print_run)(done, time.perf_counter() - start)
    options.exit_for_failed_rows(done.record.failed)
    options.exit_for_failed_gate(done.runs if asked else [done], fail_if)


def print_run(run: Run, seconds: float) -> None:
    """Print verdicts, tables, warnings, the caption of the picture if there is one, and where the files are."""
    from residuum.reporting.terminal import print_lines, print_tables, run_tables

    name, figures = run.record.scenario.name, run.folder / "figures"
    print_tables(partial(run_tables, run))
    print_lines(f"warning: {text}" for text in run.record.warnings)
    if run.record.scenario.settings.picture:
        print_lines([f"picture: {(figures / f'{name}.txt').read_text(encoding='utf-8').strip()}"])
        print_lines([f"{figures}: {name}.svg, .png and .html"])
    print_lines([f"{run.folder}: results.json, report.html, table.tex and table.csv after {seconds:.0f} s"])


def print_requests(done: RequestsRun, seconds: float) -> None:
    """Print the table over all requests, the warnings, and where the files are."""
    from residuum.reporting.request_report import requests_tables
    from residuum.reporting.terminal import print_lines, print_tables

    print_tables(partial(requests_tables, done.record))
    requests = done.record.requests
    print_lines(f"warning: request {r.number}: {text}" for r in requests for text in r.warnings)
    print_lines(f"failed: row {label}: {reason}" for label, reason in done.record.failed.items())
    files = f"index.html, requests.json, requests.csv and a run for each of {plural(len(requests), 'request')}"
    print_lines([f"{done.folder}: {files} after {seconds:.0f} s"])


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
