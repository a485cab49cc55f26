"""`residuum run`: train, unlearn, audit and report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from residuum.cli import options
from residuum.cli.grid import grid_points, row_text
from residuum.cli.options import option
from residuum.cli.own import check_request, run_request, run_sequence
from residuum.cli.printing import print_requests, print_run
from residuum.core.console import tell
from residuum.core.errors import InputError

if TYPE_CHECKING:
    from residuum.request.file import RequestFile

METHODS = "Comma-separated [LABEL=]NAME[:key=value...]; default: the scenario's."
GRID = "field=value,value,... of the one method in --methods; repeat for a product of fields."
REQUESTS = "File with one request per line, carried out before --request; for a request file: folder of lists of ids."


def run_scenario(
    common: options.RunOptions,
    output: options.ReportOptions,
    scenario: options.Scenario = "digits-random",
    methods: Annotated[str | None, option(METHODS, autocompletion=options.names_like("methods"))] = None,
    grid: Annotated[list[str] | None, option(GRID)] = None,
    out: Annotated[Path | None, option("Folder of the run; default runs/SCENARIO.", group=options.OUTPUT)] = None,
    download: Annotated[bool, option("Fetch CIFAR-10 into the data root first.", "--download")] = False,
    request: Annotated[list[str] | None, option(options.FORGET)] = None,
    requests: Annotated[Path | None, option(REQUESTS)] = None,
    dry_run: Annotated[bool, option("Print the plan and its cost, and stop.", "--dry-run")] = False,
) -> None:
    """Run a request file or a scenario.

    A request is unlearned, audited, reported and packed as evidence. A scenario trains, unlearns, audits and reports.
    The folder of the run gets results.json with its counts and models, and report.html.
    """
    others = {"--methods": methods, "--grid": grid, "--download": download, "--request": request}
    if scenario.endswith(".toml") and (file := request_file(scenario, common, out, requests)) is not None:
        if other := next((name for name, value in others.items() if value), None):
            raise InputError(f"{other} is an option of scenarios; a request file takes --set section.key=value")
        resources = options.request_resources(common.workers or 1, common.yes)
        if dry_run:
            check_request(scenario, file, output.as_json)
        elif requests is not None:
            run_sequence(scenario, file, requests, output, resources)
        else:
            run_request(scenario, file, output, resources)
        return
    start = time.perf_counter()
    if common.devices is None and not dry_run:
        common.start_workers()
    from residuum.reporting import report
    from residuum.studies.execution import plan_lines, run, run_requests

    resources, sequence = common.resources(), deletion_requests(request, requests)
    if download:
        fetch_cifar10(common.data_root, one_process=resources.one_process)
    rows = [row_text(str(methods), point) for point in grid_points(methods, grid)] if grid else methods
    study = common.study(scenario, rows, common.seeds, requests=sequence, import_code=not dry_run)
    output.check_conditions(study.labels)
    name = study.scenario.name
    if dry_run:
        lines = plan_lines(study, store=common.store, requests=bool(sequence), resources=resources)
        if output.as_json:
            options.print_json({"scenario": name, "plan": lines})
        else:
            tell("\n".join(lines))
        return
    folder = out or options.RUNS / (f"{name}-requests" if sequence else f"{name}-{methods}-grid" if grid else name)
    runner = run_requests if sequence else run
    done = runner(study, store=common.store, out=folder, gallery=output.gallery, resources=resources, progress=True)
    runs = done if isinstance(done, list) else [done]
    report(folder if sequence else runs[0], gallery=output.gallery, samples=output.samples)
    failed = runs[-1].record.failed
    if sequence:
        print_requests(runs, folder, start, as_json=output.as_json)
    else:
        print_run(runs[0], start, as_json=output.as_json)
    output.exit_if_failed(runs, failed)


def request_file(name: str, common: options.RunOptions, out: Path | None, lists: Path | None) -> RequestFile | None:
    """Return the request that a .toml file and the options describe, the first of several; None if it is no request."""
    from residuum.request.file import RequestFile, is_request_file
    from residuum.request.sequence import ticket_files

    if not is_request_file(name):
        return None
    changes = common.request_changes(out)
    if lists is not None and "forget.ids" in changes:
        raise InputError("expected --requests or --set forget.ids=, got both; leave one out")
    first = {} if lists is None else {"forget.ids": str(ticket_files(lists)[0])}
    return RequestFile.read(name, changes | first)


def deletion_requests(request: list[str] | None, file: Path | None) -> list[dict[str, Any]] | None:
    """Return the deletion requests of the file, then those of --request; None without any."""
    from residuum.studies.parsing import parse_request, read_requests

    if request is None and file is None:
        return None
    return [*([] if file is None else read_requests(file)), *(parse_request(text) for text in request or [])]


def fetch_cifar10(data_root: Path | None, *, one_process: bool) -> None:
    """Fetch CIFAR-10 into the data root, with progress on standard error."""
    from residuum.data import download_cifar10

    if not one_process:
        raise InputError("expected --download without --devices, --nodes and --precision; fetch CIFAR-10 first")
    if data_root is None:
        raise InputError("expected --data-root FOLDER with --download: that is where CIFAR-10 goes")
    shown = -1

    def progress(received: int, expected: int | None) -> None:
        nonlocal shown
        if expected and (share := 100 * received // expected) // 10 > shown // 10:
            shown = share
            print(f"residuum: CIFAR-10 {share} % of {expected / 2**20:.0f} MiB", file=sys.stderr)  # noqa: T201

    download_cifar10(data_root, progress=progress)
