"""Scenarios and experiments: every number that decides a run, validated before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError

from residuum.data import Dataset, ids_of_ranks, load_dataset, make_splits
from residuum.experiments.parsing import (
    build_perturbation,
    override,
    parse_request,
    parse_value,
    split_label,
    split_spec,
)
from residuum.experiments.pretrained import find_manifest, identified
from residuum.experiments.profiles import DEFAULT, scenario_tree
from residuum.methods import Method, first_problem, make_method, methods
from residuum.metrics import Relearning
from residuum.models import MODELS
from residuum.parallel import Compute
from residuum.training import Recipe
from residuum.types import InputError, Splits, unknown_name

BASELINES = ("original", "retrain", "control")
MOST_REQUESTS = 100  # each is a re-train and a deeper graph; a stage 200 deep can no longer be sent to a worker


def _as_list(value: Any) -> Any:  # noqa: ANN401 (whatever the user wrote)
    return value if isinstance(value, list | tuple | None) else [value]


Texts = Annotated[list[str], BeforeValidator(_as_list)]
Radii = Annotated[list[Annotated[float, Field(ge=0)]], BeforeValidator(_as_list)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(_Strict):
    """Which data, and how they are cut; everything random about the cut comes from `split_seed`.

    `size` is the side that the images of a folder are scaled to. `train_ranks` (first, last) restricts training and
    validation to the samples of these ranks within their class, for instance those that pre-training left out.
    """

    name: str = "digits"
    size: Annotated[int, Field(ge=1)] | None = None
    classes: Texts | None = None
    train_ranks: tuple[int, int] | None = None
    train_size: Annotated[int, Field(ge=2)] | None = None
    validation_size: Annotated[int, Field(ge=0)] = 0
    test_size: Annotated[int, Field(ge=1)] | None = None
    split_seed: int = 7


class ForgetSettings(_Strict):
    """What is forgotten: a class or a fraction of it, a random fraction, or a list of ids."""

    forget_class: str | StrictInt | None = None
    forget_fraction: float | None = None
    forget_ids: Texts | None = None


class ModelSettings(_Strict):
    """Which network."""

    name: str = "cnn"
    width: Annotated[int, Field(ge=1)] | None = None


class AuditSettings(_Strict):
    """Perturbations as NAME[:key=value...], radii by name, and how many draws of each sample are made.

    Either `draws` at every radius, or as many (at most `max_draws`) as bring every interval of r to +-`half_width`.
    """

    perturbations: Texts = ["gaussian"]
    taus: dict[str, Radii] = {}
    draws: Annotated[int, Field(ge=1)] | None = 100
    half_width: Annotated[float, Field(gt=0)] | None = None
    max_draws: Annotated[int, Field(ge=1)] = 1000
    crafted_on: Literal["unlearned", "reference"] = "unlearned"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95

    def radii(self, spec: str) -> list[float]:
        """Return the radii of a perturbation: those given for the text itself, else for its name."""
        return self.taus.get(spec) or self.taus.get(spec.partition(":")[0], [])


class PictureSettings(_Strict):
    """The tutorial picture of the first row: all seeds are counted, the first one is drawn.

    A sample shows a contrast if both models agree on it and differ on at least the share `least` of its `copies` with
    Gaussian noise of this `radius`; the drawing has the first `shown` of them. `resolution` is points along a side.
    """

    radius: Annotated[float, Field(gt=0)] = 0.1
    copies: Annotated[int, Field(ge=1, le=1000)] = 100
    shown: Annotated[int, Field(ge=1)] = 20
    least: Annotated[float, Field(gt=0, le=1)] = 0.1
    resolution: Annotated[int, Field(ge=5, le=200)] = 31


class Scenario(_Strict):
    """A data set, a deletion request, a network, and how everything is trained, unlearned and audited.

    `earlier` are requests that were unlearned before `forget`, in order; each method goes on from its own last result.
    `retrain_epochs` are those of re-train and controls if they differ from the original's. `left_open` lists, by method
    ("train" for the models trained), the fields for which the publication a profile follows gives no value.
    """

    name: str
    profile: str = DEFAULT
    description: str = ""
    data: DataSettings
    forget: ForgetSettings
    earlier: list[ForgetSettings] = []
    model: ModelSettings
    train: Recipe
    retrain_epochs: Annotated[int, Field(ge=0)] | None = None
    relearn: Relearning = Relearning()
    audit: AuditSettings = AuditSettings()
    picture: PictureSettings | None = None
    methods: dict[str, dict[str, Any]] = {}
    left_open: dict[str, list[str]] = {}
    rows: Texts = []
    seeds: Annotated[list[int], BeforeValidator(_as_list)] = [131, 42, 7]
    controls: Annotated[int, Field(ge=1)] = 1
    accept_reference: bool = False
    threads: Annotated[int, Field(ge=1)] = 1

    def training(self, role: str) -> dict[str, Any]:
        """Return the recipe of original, re-train or a control as plain values."""
        recipe: dict[str, Any] = self.model_dump(mode="json")["train"]
        differs = role != "original" and self.retrain_epochs is not None
        return recipe | ({"epochs": self.retrain_epochs} if differs else {})

    def after(self, requests: Sequence[ForgetSettings]) -> Scenario:
        """Return the same scenario for these requests, the last of which is the one to unlearn."""
        return self.model_copy(update={"earlier": list(requests[:-1]), "forget": requests[-1]})


class Row(_Strict):
    """One line of the results: a label, the method's name, its complete hyper-parameters, and which were left open."""

    label: str
    method: str
    settings: dict[str, Any]
    left_open: list[str] = []

    def build(self) -> Method:
        """Return the configured method."""
        return make_method(self.method, self.settings)


class Experiment(_Strict):
    """A scenario with the rows to compare; the argument of `run`.

    >>> Experiment.create("digits", methods="rurk,ga_strong=ga:lr=0.1").labels
    ['original', 'retrain', 'control', 'rurk', 'ga_strong']
    """

    scenario: Scenario
    rows: list[Row]
    data_root: Path | None = None
    init_from: Path | None = None
    manifest: Path | None = None
    compute: Compute = Compute()

    @classmethod
    def create(
        cls,
        scenario: str = "digits",
        *,
        methods: str | Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        overrides: Mapping[str, Any] | None = None,
        requests: Sequence[str | Mapping[str, Any]] | None = None,
        profile: str = DEFAULT,
        data_root: Path | str | None = None,
        init_from: Path | str | None = None,
        manifest: Path | str | None = None,
    ) -> Experiment:
        """Return the experiment of a named scenario; `overrides` has dotted keys such as "rurk.tau".

        `requests` are deletion requests to carry out one after the other, instead of the scenario's: texts such as
        "class=8,fraction=0.5" or the fields of `ForgetSettings`; the experiment is that of the last, `steps` has all.
        `init_from` is a weights file: all models start from it, but for the head, which is fresh from the seed.
        `manifest` says which samples these weights have seen (default: the .json beside them, if it is one).
        """
        given = {**(overrides or {}), **({"seeds": list(seeds)} if seeds is not None else {})}
        chosen = load_scenario(scenario, given, profile=profile)
        if requests is not None:
            chosen = chosen.after(_checked_requests(requests, given))
        specs = methods.split(",") if isinstance(methods, str) else methods
        rows = [parse_row(spec, chosen.methods, chosen.left_open) for spec in (chosen.rows if specs is None else specs)]
        _check_labels([*_baseline_labels(chosen), *(row.label for row in rows)])
        if chosen.picture and not rows:
            raise InputError("expected at least one method for the picture, got none; give --methods gd")
        root, weights, seen = (Path(path) if path else None for path in (data_root, init_from, manifest))
        found = find_manifest(weights, seen)
        return cls(scenario=chosen, rows=rows, data_root=root, init_from=weights, manifest=found)

    @property
    def labels(self) -> list[str]:
        """All row labels, the baselines first."""
        return [*_baseline_labels(self.scenario), *(row.label for row in self.rows)]

    @property
    def steps(self) -> list[Experiment]:
        """One experiment per request, in order; this one is the last.

        >>> chain = Experiment.create("digits", requests=["class=8,fraction=0.5", "fraction=0.02"])
        >>> [len(step.scenario.earlier) for step in chain.steps], chain.steps[-1] == chain
        ([0, 1], True)
        """
        requests = [*self.scenario.earlier, self.scenario.forget]
        scenarios = [self.scenario.after(requests[:number]) for number in range(1, len(requests) + 1)]
        return [self.model_copy(update={"scenario": scenario}) for scenario in scenarios]

    def dataset(self) -> Dataset:
        """Return the scenario's data set."""
        return load_dataset(self.scenario.data.name, root=self.data_root, size=self.scenario.data.size)

    @property
    def pretrained(self) -> dict[str, Any] | None:
        """The weights to start from and their manifest, each with path and hash; None without them."""
        if self.init_from is None:
            return None
        seen = None if self.manifest is None else identified(self.manifest)
        return {"weights": identified(self.init_from), "manifest": seen}

    def splits(self, dataset: Dataset | None = None) -> Splits:
        """Return the scenario's splits, all requests so far forgotten: the same for every seed."""
        chosen = self.scenario
        return split_data(dataset or self.dataset(), chosen.data, chosen.forget, chosen.earlier)


def split_data(
    dataset: Dataset,
    data: DataSettings,
    forget: ForgetSettings,
    earlier: Sequence[ForgetSettings] = (),
    *,
    so_far: bool = True,
) -> Splits:
    """Return the splits that these settings describe: of all requests so far, or of the last one alone."""
    return make_splits(
        dataset,
        **forget.model_dump(),
        earlier=[request.model_dump() for request in earlier],
        cumulative=so_far,
        classes=data.classes,
        train_ids=None if data.train_ranks is None else ids_of_ranks(dataset.train, *data.train_ranks),
        train_size=data.train_size,
        validation_size=data.validation_size,
        test_size=data.test_size,
        seed=data.split_seed,
    )


def load_scenario(name: str, overrides: Mapping[str, Any] | None = None, *, profile: str = DEFAULT) -> Scenario:
    """Return a named scenario in one of its profiles, with overrides such as {"train.epochs": 5, "rurk.tau": 0.02}."""
    complete = _validated(scenario_tree(name, profile)).model_dump()
    for key, value in (overrides or {}).items():
        override(complete, key, value)
    scenario = _validated(complete)
    _check_names(scenario)
    return scenario


def _checked_requests(
    requests: Sequence[str | Mapping[str, Any]], overrides: Mapping[str, Any]
) -> list[ForgetSettings]:
    if not requests:
        raise InputError("expected at least one request, got none")
    if len(requests) > MOST_REQUESTS:
        many = f"expected at most {MOST_REQUESTS} requests, got {len(requests)}"
        raise InputError(f"{many}; each needs a re-train: gather several in one list of ids")
    if clash := next((key for key in overrides if key.partition(".")[0] in ("forget", "earlier")), None):
        raise InputError(f"expected requests or the setting {clash}, got both; put it into the requests")
    fields = [parse_request(request) if isinstance(request, str) else request for request in requests]
    for number, given in enumerate(fields, start=1):
        for field in given:
            if field not in ForgetSettings.model_fields:
                raise unknown_name(f"field of request {number}", field, ForgetSettings.model_fields)
    try:
        return [ForgetSettings.model_validate(given) for given in fields]
    except ValidationError as error:
        raise InputError(f"request: {first_problem(error)}") from None


def _validated(tree: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(tree)
    except ValidationError as error:
        raise InputError(first_problem(error)) from None


def parse_row(
    spec: str,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    left_open: Mapping[str, Sequence[str]] | None = None,
) -> Row:
    """Return the row of `[LABEL=]NAME[:key=value...]`; without a label the text itself with keys sorted.

    >>> parse_row("rurk:v=2:tau=0.1").label
    'rurk:tau=0.1:v=2'
    """
    label, spec = split_label(spec.strip())
    name, given = split_spec(spec)
    if name in (*BASELINES, "control_2"):
        raise InputError(f"{name} always runs; name it in --methods no more. Known: {', '.join(sorted(methods()))}")
    values = {key: parse_value(value) for key, value in given.items()}
    method = make_method(name, {**(defaults or {}).get(name, {}), **values})
    own_label = ":".join([name, *(f"{key}={value}" for key, value in given.items())])
    unpublished = list((left_open or {}).get(name, []))
    return Row(label=label or own_label, method=name, settings=method.settings, left_open=unpublished)


def _baseline_labels(scenario: Scenario) -> list[str]:
    return [*BASELINES, *(f"control_{k}" for k in range(2, scenario.controls + 1))]


def _check_labels(labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two rows are called {label!r}; put LABEL= before one of them")
        if not label or "/" in label or label.startswith("."):
            raise InputError(f"expected a row label that can name a file, got {label!r}")


def _check_names(scenario: Scenario) -> None:
    if scenario.model.name not in MODELS:
        raise unknown_name("model", scenario.model.name, MODELS)
    for name, values in scenario.methods.items():
        make_method(name, values)
    for spec in scenario.audit.perturbations:
        build_perturbation(spec)
        if not scenario.audit.radii(spec):
            name = spec.partition(":")[0]
            raise InputError(f"expected radii for {name}; give --set audit.taus.{name}=0,0.01,...")
    if (scenario.audit.draws is None) == (scenario.audit.half_width is None):
        raise InputError("expected either draws or a half-width for the audit; set the other to none")
    if not scenario.seeds or len(set(scenario.seeds)) != len(scenario.seeds):
        raise InputError(f"expected at least one seed and none twice, got {scenario.seeds}")
