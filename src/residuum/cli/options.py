"""Options that several commands share, each declared once, and what they mean together."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from residuum.core import components
from residuum.core.console import tell
from residuum.core.errors import InputError
from residuum.core.registry import Registry, split_specs

if TYPE_CHECKING:
    from residuum.record.run import Run
    from residuum.studies import Study
    from residuum.studies.execution import Resources

REGISTRIES: dict[str, tuple[Registry[Any], ...]] = {
    "methods": (components.METHODS,),
    "scenarios": (components.SCENARIOS,),
    "datasets": (components.DATASETS,),
    "models": (components.MODELS,),
    "perturbations": (components.PERTURBATIONS,),
    "measures": (components.PROBES, components.OWN_MEASURES),
}
DEFAULT_STORE = Path(".residuum/store")
RUNS = Path("runs")
PATH_TYPES = (Path, Path | None, list[Path], list[Path] | None)
AUDIT, RESOURCES, OUTPUT = "Audit", "Resources", "Output"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer reads it: one option per field of a dataclass, and no path that is empty."""
    kinds = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    for group in groups.values():
        kinds |= get_type_hints(group, include_extras=True)

    @wraps(command)
    def grouped(**values: Any) -> None:  # noqa: ANN401 (whatever the options are)
        objects = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**objects, **values)

    shown = [
        option.replace(annotation=kinds[option.name], kind=option.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        for option in (inspect.signature(groups[name]).parameters.values() if name in groups else [parameter])
    ]
    for parameter in shown:
        declared_type, declaration = get_args(parameter.annotation)
        if declared_type in PATH_TYPES:
            declaration.parser = path
    grouped.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    grouped.__annotations__ = {p.name: p.annotation for p in shown}
    return grouped


def path(text: Path | str) -> Path:
    """Return the path that a text names; an empty text would name the current folder."""
    if text == "":
        raise typer.BadParameter("expected the path of a file or folder, got an empty text")
    return Path(text)


def names(kind: str) -> list[str]:
    """Return the names of one kind; this imports plug-ins of installed packages, but no built-in component.

    >>> names("datasets")[:2]
    ['digits', 'iris']
    """
    return [name for registry in REGISTRIES[kind] for name in registry]


def names_like(kind: str) -> Callable[[str], list[str]]:
    """Return a shell completion: the names of one kind that begin with the text after the last comma.

    >>> names_like("methods")("gd,ru")
    ['gd,rurk']
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names(kind) if name.startswith(last)]

    return complete


def option(text: str, *names: str, group: str | None = None, **more: Any) -> Any:  # noqa: ANN401 (typer's settings)
    """Return an option with its help text and help group; `names` replace the parameter's name."""
    return typer.Option(*names, help=text, rich_help_panel=group, **more)


SCENARIO = "Name of a scenario (see `residuum list scenarios`), or the path of your own .toml file."
PERTURBATIONS = "Comma-separated perturbations of the audit, NAME[:key=value...]."
MEASURES = "Comma-separated NAME[:key=value...] of `residuum list measures`, or FILE.py:FUNCTION of your own."
DRAWS = "Perturbed copies of each forgotten sample at each radius."
UNTIL = "Give `verdict` to stop drawing once more draws could not change a verdict; --draws is the maximum."
ACCEPT = "Judge by a reference that is not comparable; the report says so."
FORGET = "What to forget: class=, fraction=, id= or ids=FILE, comma-separated; repeat for one more request."
WORKERS = "Number of worker processes; results do not depend on it."
ALL_CORES = f"{WORKERS} Default: all cores, for a request file 1."
DEVICES = "Processes that share each stage, one per GPU if any; see docs/guides/long-runs.md."
PICTURES = "Show pictures of forgotten samples. Default: only for public data sets."
IDS = "List forgotten samples by id. Default: only for public data sets."
FAIL_IF = "Exit with 1 if this holds: residual, unproven, ROW.residual, r>1.1, ROW.test_accuracy<90, ...; repeatable."

Scenario = Annotated[str, typer.Argument(help=SCENARIO, autocompletion=names_like("scenarios"))]
Perturbations = Annotated[str | None, option(PERTURBATIONS, group=AUDIT, autocompletion=names_like("perturbations"))]
Measures = Annotated[str | None, option(MEASURES, group=AUDIT)]
Until = Annotated[str | None, option(UNTIL, group=AUDIT)]
AcceptReference = Annotated[bool, option(ACCEPT, "--accept-reference", group=AUDIT)]
Store = Annotated[Path, option("Folder of finished stages.", "--store", group=RESOURCES)]
DataRoot = Annotated[Path | None, option("Folder that holds data sets.", group=RESOURCES)]
Workers = Annotated[int, option(WORKERS, group=RESOURCES, min=1, max=1024)]
Yes = Annotated[bool, option("Start even if the estimate is more than a month.", "--yes", group=RESOURCES)]
Json = Annotated[bool, option("Print machine-readable output.", "--json", group=OUTPUT)]


# a batch system often gives a process fewer cores than the machine has
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of `run` and `tune`: how to audit, where data and finished stages are, how many workers."""

    perturbations: Perturbations = None
    draws: Annotated[int | None, option(DRAWS, group=AUDIT)] = None
    store: Store = DEFAULT_STORE
    profile: Annotated[str, option("cpu: what two cores can do; paper: the published settings.")] = "cpu"
    data_root: DataRoot = None
    init_from: Annotated[Path | None, option("Weights that every model starts from; the head is fresh.")] = None
    manifest: Annotated[Path | None, option("JSON file that lists the samples those weights have seen.")] = None
    settings: Annotated[
        list[str] | None, option("key=value with a dotted key, e.g. rurk.tau=0.02; repeatable.", "--set")
    ] = None
    workers: Annotated[int | None, option(ALL_CORES, group=RESOURCES, min=1, max=1024)] = None
    cluster: Annotated[
        str | None, option("tcp://host:port of a dask scheduler; see docs/guides/long-runs.md.", group=RESOURCES)
    ] = None
    precision: Annotated[
        str,
        option("Precision: 32-true, or bf16-mixed for speed; an audit's counts do not depend on it.", group=RESOURCES),
    ] = "32-true"

    def overrides(self) -> dict[str, Any]:
        """Return the scenario's settings that these options change; a setting that is given twice is refused."""
        changes: dict[str, Any] = dict(parse_setting(text) for text in self.settings or [])
        for key, value in self.changed().items():
            if key in changes:
                raise twice_error(key)
            changes[key] = value
        return changes

    def changed(self) -> dict[str, Any]:
        """Return the settings that the options other than --set change."""
        perturbations = None if self.perturbations is None else split_specs(self.perturbations)
        return without_none({"audit.perturbations": perturbations, "audit.draws": self.draws})

    def study(self, scenario: str, methods: Any, seeds: str | None, **more: Any) -> Study:  # noqa: ANN401 (as Study.create)
        """Return the study that these options describe."""
        from residuum.studies import Study

        return Study.create(
            scenario,
            methods=methods,
            seeds=parse_seeds(seeds),
            profile=self.profile,
            data_root=self.data_root,
            init_from=self.init_from,
            manifest=self.manifest,
            overrides=self.overrides(),
            **more,
        )

    def resources(self) -> Resources:
        """Return what stages are computed with."""
        from residuum.studies.execution import Resources

        return Resources(self.workers or CORES, self.cluster, precision=self.precision)

    def start_workers(self) -> None:
        """Start the server of local workers early, so that it loads the libraries while this process does."""
        if (self.workers or CORES) > 1 and self.cluster is None:
            from residuum.studies.engines import worker_context

            worker_context()


@dataclass(frozen=True, kw_only=True)
class RunOptions(StudyOptions):
    """Further options of `run`: seeds, measures, when to stop drawing, and processes that share a stage."""

    seeds: Annotated[str | None, option("Comma-separated run seeds.")] = None
    half_width: Annotated[
        float | None,
        option("Instead of --draws: draw until every interval of r is this narrow (half-width).", group=AUDIT),
    ] = None
    max_draws: Annotated[int | None, option("Maximum number of draws with --half-width.", group=AUDIT)] = None
    until: Until = None
    measures: Measures = None
    references: Annotated[
        int | None, option("Retrained models to add for the probes that compare many models.", group=AUDIT, min=0)
    ] = None
    accept_reference: AcceptReference = False
    devices: Annotated[int | None, option(DEVICES, group=RESOURCES, min=1, max=1024)] = None
    nodes: Annotated[
        int,
        option("Machines that share each stage; start the command on all of them.", group=RESOURCES, min=1, max=1024),
    ] = 1
    yes: Yes = False

    def overrides(self) -> dict[str, Any]:
        """Return the scenario's settings that these options change; only one option may decide how many draws."""
        changes = super().overrides()
        if self.draws is not None and self.half_width is not None:
            raise InputError("expected --draws or --half-width, got both; a half-width decides the number of draws")
        if self.max_draws is not None and "audit.half_width" not in changes:
            raise InputError("expected --half-width with --max-draws: without one, --draws says how many are made")
        if self.until is not None and self.half_width is not None:
            raise InputError("expected --until or --half-width, got both; each says how many draws are made")
        if self.seeds is not None and "seeds" in changes:
            raise twice_error("seeds")
        return changes if self.half_width is None else changes | {"audit.draws": None}

    def changed(self) -> dict[str, Any]:
        """Return the settings that the options other than --set change."""
        options = {
            "audit.half_width": self.half_width,
            "audit.max_draws": self.max_draws,
            "audit.until": self.until,
            "measures": None if self.measures is None else split_specs(self.measures),
            "references": self.references,
            "accept_reference": self.accept_reference or None,
        }
        return super().changed() | without_none(options)

    def request_changes(self, out: Path | None) -> dict[str, Any]:
        """Return the settings of a request file that these options change; options of scenarios are refused."""
        shared = (
            "settings",
            "perturbations",
            "draws",
            "until",
            "measures",
            "accept_reference",
            "store",
            "workers",
            "yes",
        )
        for field in fields(self):
            if field.name not in shared and getattr(self, field.name) != field.default:
                name = f"--{field.name.replace('_', '-')}"
                raise InputError(f"{name} is an option of scenarios; a request file takes --set section.key=value")
        changes = {key if "." in key else f"audit.{key}": value for key, value in self.overrides().items()}
        places = {"output.folder": out, "output.store": None if self.store == DEFAULT_STORE else self.store}
        return changes | {key: str(place) for key, place in places.items() if place is not None}

    def resources(self) -> Resources:
        """Return what stages are computed with, and how many days they may be estimated to take."""
        from residuum.studies.execution import MOST_DAYS, Resources

        days = math.inf if self.yes else MOST_DAYS
        return Resources(self.workers or CORES, self.cluster, self.devices, self.nodes, self.precision, days)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of `run`, `audit` and `report`: what the report shows, and when the command fails."""

    gallery: Annotated[bool | None, option(PICTURES, "--gallery/--no-gallery", group=OUTPUT)] = None
    samples: Annotated[bool | None, option(IDS, "--samples/--no-samples", group=OUTPUT)] = None
    fail_if: Annotated[list[str] | None, option(FAIL_IF, group=OUTPUT)] = None
    as_json: Json = False

    def check_conditions(self, rows: Collection[str]) -> None:
        """Refuse conditions of --fail-if that cannot be read or name no row, before anything is computed."""
        if self.fail_if:
            from residuum.judging import parse_condition

            for text in self.fail_if:
                parse_condition(text).check_row(rows)

    def exit_if_failed(self, runs: Iterable[Run], failed_rows: Collection[str] = ()) -> None:
        """Exit with 1 if rows failed, or with the reasons if a condition of --fail-if holds."""
        from residuum.judging import gate_failures

        reasons = gate_failures(runs, self.fail_if) if self.fail_if and not failed_rows else []
        for reason in reasons:
            tell(f"residuum: gate failed: {reason}", err=True)
        if reasons or failed_rows:
            raise typer.Exit(1)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def twice_error(key: str) -> InputError:
    """Return the error of a setting that an option and --set both change."""
    name = key.rpartition(".")[2].replace("_", "-")
    return InputError(f"expected --{name} or --set {key}=, got both; leave one out")


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=1))


def request_resources(workers: int, yes: bool) -> Resources:
    """Return what the audit of a request file is computed with."""
    from residuum.studies.execution import MOST_DAYS, Resources

    return Resources(workers, most_days=math.inf if yes else MOST_DAYS)


def parse_setting(text: str) -> tuple[str, str]:
    """Return key and value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"expected key=value, got {text!r}")
    return key.strip(), value.strip()


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a comma-separated list."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected whole numbers separated by commas for --seeds, got {text!r}") from None


def split(text: str | None) -> list[str] | None:
    """Return the parts of a comma-separated list.

    >>> split("a, b"), split(None)
    (['a', 'b'], None)
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
