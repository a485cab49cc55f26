"""Options that several commands share, and what they mean together."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Collection, Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residuum.cli.catalogue import catalogue
from residuum.engines import worker_context
from residuum.errors import InputError, tell

if TYPE_CHECKING:
    from residuum.reporting import Run


def names_like(kind: str) -> Callable[[str], list[str]]:
    """Return what a shell completes with: the names of one kind that go on from what is typed, after the last comma.

    >>> names_like("methods")("gd,ru")
    ['gd,rurk']
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in catalogue(kind) if name.startswith(last)]

    return complete


Scenario = Annotated[
    str,
    typer.Argument(
        help="Name of a scenario (see `residuum list scenarios`), or the path of your own .toml file.",
        autocompletion=names_like("scenarios"),
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated [LABEL=]NAME[:key=value...]; default: the scenario's.",
        autocompletion=names_like("methods"),
    ),
]
Seeds = Annotated[str | None, typer.Option(help="Comma-separated run seeds.")]
Perturbations = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated perturbations of the audit, NAME[:key=value...].",
        autocompletion=names_like("perturbations"),
    ),
]
Measures = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated NAME[:key=value...] of `residuum list measures`, or FILE.py:FUNCTION of your own."
    ),
]
Draws = Annotated[int | None, typer.Option(help="Draws per forgotten sample and radius.")]
HalfWidth = Annotated[
    float | None, typer.Option(help="Instead of draws: make as many as bring every interval of r to +-this.")
]
Until = Annotated[
    str | None, typer.Option(help="verdict: stop drawing where more draws could not change one; --draws are the most.")
]
References = Annotated[
    int | None, typer.Option(min=0, help="Innocent models to train for the measures that compare many models.")
]
MaxDraws = Annotated[int | None, typer.Option(help="At most this many draws with --half-width.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the run; default runs/SCENARIO.")]
Store = Annotated[Path, typer.Option(help="Folder of finished stages.")]
Profile = Annotated[str, typer.Option(help="cpu: what two cores can do; paper: the published settings.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder that holds data sets.")]
InitFrom = Annotated[Path | None, typer.Option(help="Weights that every model starts from, but for its head.")]
Manifest = Annotated[Path | None, typer.Option(help="Which samples those weights have seen.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value with a dotted key, e.g. rurk.tau=0.02; repeatable.")
]
AcceptReference = Annotated[
    bool, typer.Option("--accept-reference", help="Judge by a reference that is not comparable, and say so.")
]
FORGET = "What to forget: class=, fraction=, id= or ids=FILE, comma-separated; repeat for one more request."
Request = Annotated[list[str] | None, typer.Option(help=FORGET)]
Requests = Annotated[
    Path | None, typer.Option(help="File with one request a line, carried out one after the other before --request.")
]
Workers = Annotated[int, typer.Option(min=1, max=1024, help="Processes; results do not depend on it.")]
Cluster = Annotated[str | None, typer.Option(help="tcp://host:port of a dask scheduler; see docs/scale.md.")]
Devices = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="Processes that share each stage, one per GPU if any; see docs/scale.md."),
]
Nodes = Annotated[
    int, typer.Option(min=1, max=1024, help="Machines that share each stage; start the command on all of them.")
]
Precision = Annotated[str, typer.Option(help="Of training and unlearning: 32-true or bf16-mixed.")]
Yes = Annotated[bool, typer.Option("--yes", help="Start work that is estimated to take more than a month, too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what there is to do and what it costs, do nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print results.json instead of tables.")]
PlainJson = Annotated[bool, typer.Option("--json", help="Print machine-readable output.")]
PICTURES = "Show pictures of forgotten samples; default: public data sets only."
SampleList = Annotated[
    bool | None, typer.Option("--samples/--no-samples", help="List forgotten samples by id; default: public data only.")
]
Gallery = Annotated[bool | None, typer.Option("--gallery/--no-gallery", help=PICTURES)]

FAIL_IF = "Exit with 1 if this holds: residual, unproven, ROW.residual, r>1.1, ROW.test_accuracy<90, ...; repeatable."
FailIf = Annotated[list[str] | None, typer.Option(help=FAIL_IF)]

DEFAULT_STORE = Path(".residuum/store")
RUNS = Path("runs")
ALL_CORES = os.cpu_count() or 1
MANY = 10_000  # samples times epochs of training: fewer are done before other processes are there


def start_workers(scenario: str, workers: int, cluster: str | None) -> None:
    """Let the server of local workers, if it will be wanted, load the libraries while this process does so too."""
    if workers > 1 and cluster is None and looks_long(scenario):
        worker_context()


def looks_long(scenario: str) -> bool:
    """Tell from a scenario's file alone whether workers will be wanted, before there is code to say it better.

    >>> looks_long("digits"), looks_long("tiny"), looks_long("no such scenario")
    (True, False, False)
    """
    scenarios = files("residuum") / "experiments" / "scenarios"
    file = next((entry for entry in scenarios.iterdir() if entry.name == f"{scenario}.toml"), None)
    if file is None:
        return False
    tree = tomllib.loads(file.read_text(encoding="utf-8"))
    if "based_on" in tree:
        return looks_long(tree["based_on"])
    seeds, samples = len(tree.get("seeds", (131, 42, 7))), tree["data"].get("train_size", MANY)
    return bool(seeds * tree["train"].get("epochs", 10) * samples > MANY)


def gathered_overrides(
    settings: list[str] | None,
    perturbations: str | None,
    draws: int | None,
    half_width: float | None,
    max_draws: int | None,
    until: str | None = None,
    measures: str | None = None,
    references: int | None = None,
) -> dict[str, Any]:
    """Return the scenario overrides that these options mean; draws and a half-width exclude each other."""
    if draws is not None and half_width is not None:
        raise InputError("expected --draws or --half-width, got both; a half-width chooses the draws")
    if until is not None and half_width is not None:
        raise InputError("expected --until or --half-width, got both; each says how many draws are made")
    changes: dict[str, Any] = dict(parse_setting(text) for text in settings or [])
    if max_draws is not None and half_width is None and "audit.half_width" not in changes:
        raise InputError("expected --half-width with --max-draws: without one, --draws says how many are made")
    if half_width is not None:
        changes["audit.draws"] = None
    changes |= {} if measures is None else {"measures": measures.split(",")}
    kinds = None if perturbations is None else perturbations.split(",")
    given = {"perturbations": kinds, "draws": draws, "half_width": half_width, "max_draws": max_draws, "until": until}
    changes |= {} if references is None else {"references": references}
    return changes | {f"audit.{key}": value for key, value in given.items() if value is not None}


def gathered_requests(request: list[str] | None, file: Path | None) -> list[dict[str, Any]] | None:
    """Return the deletion requests of the file, then those given one by one; None without any."""
    from residuum.experiments.parsing import parse_request, read_requests

    if request is None and file is None:
        return None
    return [*([] if file is None else read_requests(file)), *(parse_request(text) for text in request or [])]


def most_days(yes: bool) -> float:
    """Return how many days the work of a run may be estimated to take."""
    from residuum.execution import MOST_DAYS

    return math.inf if yes else MOST_DAYS


def check_conditions(conditions: list[str] | None, rows: Collection[str] | None = None) -> None:
    """Refuse conditions of --fail-if that cannot be read or name no row, before anything is computed."""
    if not conditions:
        return
    from residuum.reporting.policy import parse_condition

    for text in conditions:
        parse_condition(text).check_row(rows)


def exit_for_failed_gate(runs: Iterable[Run], conditions: list[str] | None) -> None:
    """Exit with 1 and the reasons if a condition of --fail-if holds."""
    from residuum.reporting.policy import gate_failures

    reasons = gate_failures(runs, conditions) if conditions else []
    for reason in reasons:
        tell(f"residuum: gate failed: {reason}", err=True)
    if reasons:
        raise typer.Exit(1)


def exit_for_failed_rows(failed: Collection[str]) -> None:
    """Exit with 1 if a row has no results."""
    if failed:
        raise typer.Exit(1)


def parse_setting(text: str) -> tuple[str, str]:
    """Return key and value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"expected key=value, got {text!r}")
    return key.strip(), value.strip()


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a comma-separated list."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected whole numbers separated by commas for --seeds, got {text!r}") from None
