"""A study: everything needed to compute a comparison, from a scenario or from the user's own model and data."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from pydantic import Field, InstanceOf, ValidationError
from torch import nn

from residuum.auditing.measures import OWN_MEASURES
from residuum.auditing.probes import probe_kind
from residuum.core.components import SCENARIOS
from residuum.core.devices import Compute
from residuum.core.errors import InputError, MethodError, plural, unknown_name
from residuum.core.files import regular_file
from residuum.core.registry import Registry, described_plugins, split_specs
from residuum.core.roles import Role, is_reserved, refuse_reserved, trained_roles
from residuum.core.samples import Splits
from residuum.data import DATASETS, Dataset
from residuum.data.loaders import loaded_dataset
from residuum.metrics import Relearning
from residuum.models import MODELS, build_model, check_model, init_from, private_copy
from residuum.perturbations import PERTURBATIONS
from residuum.record import ScenarioRecord, refuse_no_file_name
from residuum.studies.parsing import build_perturbation, check_measure, override, parse_request, read_fields, split_spec
from residuum.studies.pretrained import KnownFile, Pretrained, find_manifest
from residuum.studies.settings import DEFAULT_PROFILE, AuditSettings, ForgetSettings, Scenario, Strict, split_data
from residuum.studies.subjects import LiveSubject, NamedSubject, Subject
from residuum.unlearning import METHODS, Method, first_problem, make_method, why_refused

MOST_REQUESTS = 100  # each is a retraining and a deeper graph; a stage 200 deep can no longer be sent to a worker


class RowFacts(NamedTuple):
    """What a row is, beside what was measured: role, method, hyper-parameters, and which of them were left open."""

    role: Role
    method: str
    settings: Mapping[str, Any]
    left_open: Sequence[str] = ()


class RowError(MethodError):
    """A row's method failed; the other rows can do without it."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"row {label}: {reason}")
        self.label, self.reason = label, reason


@contextmanager
def row_named(label: str) -> Iterator[None]:
    """Say in a method's error which row it was."""
    try:
        yield
    except MethodError as error:
        raise RowError(label, str(error)) from error


class Row(Strict):
    """One line of the results: a label, the method's name, its complete hyper-parameters, and which were left open."""

    label: str
    method: str
    settings: dict[str, Any]
    left_open: list[str] = Field(default_factory=list)

    def build(self) -> Method:
        """Return the configured method."""
        return make_method(self.method, self.settings)


class Study(Strict):
    """Everything needed to compute a comparison: a scenario and the rows of methods; the argument of `run`.

    The scenario names data and network, unless `live` holds those of a request. `failed` says why rows that were asked
    for are gone.

    >>> Study.create("digits", methods="rurk,ga_strong=ga:lr=0.1").labels
    ['original', 'retrain', 'control', 'rurk', 'ga_strong']
    """

    scenario: Scenario
    rows: list[Row]
    data_root: Path | None = None
    init_from: Path | None = None
    manifest: Path | None = None
    compute: Compute = Compute()
    failed: dict[str, str] = Field(default_factory=dict)
    live: InstanceOf[LiveSubject] | None = None

    @classmethod
    def create(
        cls,
        scenario: str = "digits",
        *,
        methods: str | Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        overrides: Mapping[str, Any] | None = None,
        requests: Sequence[str | Mapping[str, Any]] | None = None,
        profile: str = DEFAULT_PROFILE,
        data_root: Path | str | None = None,
        init_from: Path | str | None = None,
        manifest: Path | str | None = None,
        import_code: bool = True,
    ) -> Self:
        """Return the study of a named scenario; `overrides` has dotted keys such as "rurk.tau".

        `requests` are deletion requests to carry out one after the other, instead of the scenario's: texts such as
        "class=8,fraction=0.5" or the fields of `ForgetSettings`; the study is that of the last, `steps` has all.
        `init_from` is a weights file: all models start from it, but for the head, which is fresh from the seed.
        `manifest` says which samples these weights have seen (default: the .json beside them, if it is one).
        `import_code=False` refuses a scenario file that names code; what the other arguments name is imported.
        """
        given = {**(overrides or {}), **({"seeds": list(seeds)} if seeds is not None else {})}
        chosen = load_scenario(scenario, given, profile=profile, import_code=import_code)
        if requests is not None:
            chosen = chosen.after(_checked_requests(requests, given))
        specs = split_specs(methods) if isinstance(methods, str) else methods
        if specs is None and not import_code and "rows" not in given:
            _refuse_code(scenario, {"rows": [_labeled(spec)[1] for spec in chosen.rows]})
        rows = [parse_row(spec, chosen.methods, chosen.left_open) for spec in (chosen.rows if specs is None else specs)]
        root, weights, seen = (Path(path) if path else None for path in (data_root, init_from, manifest))
        created = cls(scenario=chosen, rows=rows, data_root=root, init_from=weights)
        _check_labels(created.labels)
        return created.model_copy(update={"manifest": find_manifest(weights, seen)})

    @property
    def labels(self) -> list[str]:
        """All row labels, the trained models first."""
        return [*trained_roles(self.scenario.controls), *(row.label for row in self.rows)]

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every row, by its label."""
        return trained_roles(self.scenario.controls) | {row.label: Role.METHOD for row in self.rows}

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        return self.scenario.seeds

    @property
    def audit(self) -> AuditSettings:
        """How models are audited."""
        return self.scenario.audit

    @property
    def measures(self) -> tuple[str, ...]:
        """Probes and measures of the user's own."""
        return self.scenario.measures

    @property
    def notes(self) -> list[str]:
        """What the record says of every run."""
        if self.live is None:
            return ["original: re-learn time is null because the original has nothing to re-learn"]
        notes = ["re-learn time was not measured"]
        if earlier := len(self.live.samples.train) - len(self.live.parts.train):
            number = plural(earlier, "sample")
            notes.append(
                f"{number} of earlier requests: no retrained model saw them, and this audit does not judge them"
            )
        return notes

    @property
    def warnings(self) -> list[str]:
        """What may mislead before anything is computed.

        >>> Study.create("vgg11", profile="paper").warnings[0]
        'vgg11 is meant for weights pre-trained on CIFAR-10, and none were given (--init-from): all start at random'
        """
        if self.live is not None:
            number = plural(self.scenario.controls + 1, "briefly trained surrogate")
            weaker = [f"no retrained model: {number} took its place; all of this is weaker"]
            return [*(weaker if self.live.training.surrogates else []), *self.live.warnings]
        wanted = self.scenario.pretrained_on
        if wanted is None or self.init_from is not None:
            return []
        missing = f"weights pre-trained on {wanted}, and none were given (--init-from): all start at random"
        return [f"{self.scenario.name} is meant for {missing}"]

    @property
    def steps(self) -> list[Self]:
        """One study per request, in order; this one is the last.

        >>> chain = Study.create("digits", requests=["class=8,fraction=0.5", "fraction=0.02"])
        >>> [len(step.scenario.earlier) for step in chain.steps], chain.steps[-1] == chain
        ([0, 1], True)
        """
        requests = self.scenario.requests
        scenarios = [self.scenario.after(requests[:number]) for number in range(1, len(requests) + 1)]
        return [self.model_copy(update={"scenario": scenario}) for scenario in scenarios]

    def without(self, label: str, reason: str) -> Self:
        """Return the study without a row that failed.

        >>> Study.create("digits", methods="gd,ga").without("ga", "no loss").labels
        ['original', 'retrain', 'control', 'gd']
        """
        rows = [row for row in self.rows if row.label != label]
        return self.model_copy(update={"rows": rows, "failed": {**self.failed, label: reason}})

    def model_post_init(self, context: object) -> None:
        """Let a new study see the data as they are now; until the next one, they are read once."""
        for row in self.rows:
            refuse_reserved(row.label)
            refuse_reserved(row.method, "the name of a method")
        loaded_dataset.cache_clear()

    def computed_on(self, compute: Compute) -> Self:
        """Return the study for these devices."""
        return self.model_copy(update={"compute": compute})

    def rows_by_label(self) -> dict[str, RowFacts]:
        """Return what is known of every row before anything is computed, the trained models first."""
        scenario, left_open = self.scenario, self.scenario.left_open.get("train", [])
        trained = {}
        for label, role in trained_roles(scenario.controls).items():
            settings = self.live.trained_settings(label) if self.live else asdict(scenario.training(label))
            trained[label] = RowFacts(role, label, settings, left_open)
        rows = {row.label: RowFacts(Role.METHOD, row.method, row.settings, row.left_open) for row in self.rows}
        return trained | rows

    def check(self) -> None:
        """Raise an error if data, splits, network, perturbations and rows do not fit together.

        Those of a request were checked when its study was made.
        """
        if self.live is not None:
            return
        splits, model = self.splits(), self.network()
        if self.init_from is not None:
            model = init_from(model, self.init_from)
        check_model(model, splits.retain, splits.classes)
        for spec in self.audit.perturbations:
            perturbation, space = build_perturbation(spec)
            if space.at is None:
                few = splits.forget.subset(range(min(16, len(splits.forget))))
                perturbation.check(few.batch(torch.arange(len(few)))[0], space, few.ids)
            elif space.at not in (layers := [name for name, _ in model.named_modules() if name]):
                raise unknown_name(f"layer for {perturbation.name}:at=", space.at, layers)
        for row in self.rows:
            with row_named(row.label):
                if reason := why_refused(row.build(), splits):
                    raise InputError(reason)

    def subject(self) -> Subject:
        """Return the data set by its fingerprint and the requests, or the user's samples and models."""
        if self.live is not None:
            return self.live
        return NamedSubject(
            data=self.scenario.data,
            fingerprint=self.dataset().fingerprint,
            root=self.data_root,
            requests=self.scenario.requests,
        )

    def network(self, seed: int = 0) -> nn.Module:
        """Return the scenario's network with fresh weights, or a copy of the user's original."""
        if self.live is not None:
            return private_copy(self.live.given["original"].model)
        splits, spec = self.splits(), self.scenario.model
        return build_model(spec.name, splits.train.shape, splits.classes, width=spec.width, seed=seed)

    def relearning(self, label: str) -> Relearning | None:
        """Return how re-learn time is measured; the original has nothing to re-learn, CR has no trainable body."""
        without = {"original", *(row.label for row in self.rows if row.method == "cr")}
        return None if self.live is not None or label in without else self.scenario.relearn

    def facts(self) -> ScenarioRecord:
        """Return what the record says of data, request and settings."""
        scenario, splits, start = self.scenario, self.splits(), self.pretrained
        used = {*scenario.measures, *(spec.partition(":")[0] for spec in scenario.audit.perturbations)}
        optional = ("earlier", "pretrained_on", "measures", "references", "accept_reference")
        if self.live is None:
            used |= {scenario.data.name, scenario.model.name, *(row.method for row in self.rows)}
            unused = {field for field in optional[:-1] if not getattr(scenario, field)}
            settings = scenario.model_dump(mode="json", exclude={"name", "rows", *unused})
        else:
            settings = {
                "data": {"name": scenario.name},
                "forget": {"listed": len(splits.forget)},
                "model": {"name": scenario.model.name},
                **({"surrogates": True} if self.live.training.surrogates else {}),
            }
            used_fields = {"audit", *(field for field in optional if getattr(scenario, field))}
            settings |= scenario.model_dump(mode="json", include=used_fields)
        plugins = described_plugins(used)
        weights = {} if start is None else {"init_from": {what: file and file.named() for what, file in start}}
        return ScenarioRecord.model_validate(
            {
                "name": scenario.name,
                "form": splits.form,
                "class_names": list(splits.class_names),
                "sizes": {part: len(getattr(splits, part)) for part in ("retain", "forget", "validation", "test")},
                "public_data": self.live is None and scenario.data.name in DATASETS.ours,
                "settings": settings,
                **weights,
                **({"plugins": plugins} if plugins else {}),
            }
        )

    def dataset(self) -> Dataset:
        """Return the scenario's data set."""
        return loaded_dataset(self.scenario.data.name, self.data_root, self.scenario.data.size)

    @property
    def pretrained(self) -> Pretrained | None:
        """The weights to start from and their manifest, each with path and hash; None without them."""
        if self.init_from is None:
            return None
        seen = None if self.manifest is None else KnownFile.read(self.manifest)
        return Pretrained(weights=KnownFile.read(self.init_from), manifest=seen)

    def splits(self, dataset: Dataset | None = None, *, combined: bool = True) -> Splits:
        """Return the splits, the same for every seed: of all requests together, or of the last one alone."""
        if self.live is not None:
            return self.live.parts
        return split_data(dataset or self.dataset(), self.scenario.data, self.scenario.requests, combined=combined)


def probes_of(study: Study, reads: str | None = None) -> list[str]:
    """Return the probes among the measures, all or those that read "models" or "margins"."""
    kinds = {spec: probe_kind(spec) for spec in study.measures}
    return [spec for spec, kind in kinds.items() if kind is not None and reads in (None, kind.reads)]


def load_scenario(
    name: str, overrides: Mapping[str, Any] | None = None, *, profile: str = DEFAULT_PROFILE, import_code: bool = True
) -> Scenario:
    """Return a named scenario in one of its profiles, with overrides such as {"train.epochs": 5, "rurk.tau": 0.02}.

    With `import_code=False`, code that the file names is refused, and code that the overrides name is imported.
    """
    complete = _validated(scenario_tree(name, profile)).model_dump()
    usual = complete["data"]["name"]
    for key, value in (overrides or {}).items():
        override(complete, key, value)
    scenario = _validated(complete)
    if not import_code:
        named = {key: specs for key, specs in _specs(scenario).items() if key not in (overrides or {})}
        _refuse_code(name, named)
    scenario = _with_plugins(scenario)
    _check_names(scenario)
    return scenario if complete["data"]["name"] == usual else _named_by_data(scenario)


def _named_by_data(scenario: Scenario) -> Scenario:
    """Return the scenario under a name that says that its data are not the usual ones."""
    data = scenario.data.name
    name = f"{scenario.name}-on-{re.sub(r'[^A-Za-z0-9._-]+', '_', Path(data).stem)}"
    return scenario.model_copy(update={"name": name, "description": f"settings of {scenario.name} on {data}"})


def _specs(scenario: Scenario) -> dict[str, Sequence[str]]:
    """Return by setting the texts of a scenario that `_with_plugins` may import."""
    data, model, audit = scenario.data, scenario.model, scenario.audit
    of_data = [data.name] if ".py:" in data.name else []
    names = {"data.name": of_data, "model.name": [model.name], "audit.perturbations": audit.perturbations}
    return {**names, "measures": scenario.measures}


def _refuse_code(file: str, named: Mapping[str, Sequence[str]]) -> None:
    """Refuse a scenario file of the user's own that names code; an installed one may, as its package may."""
    if file in SCENARIOS:
        return
    registries: dict[str, Registry[Any]] = {"data.name": DATASETS, "model.name": MODELS, "rows": METHODS}
    registries |= {"audit.perturbations": PERTURBATIONS, "measures": OWN_MEASURES}
    for key, specs in named.items():
        if source := next(filter(None, map(registries[key].source_in, specs)), None):
            how = f"--methods {source}" if key == "rows" else f"--set {key}={source}"
            text = f"{file}: {key} names code, {source}, which a dry run does not import from a file"
            raise InputError(f"{text}; if you trust it, leave --dry-run out or add {how}")


def _with_plugins(scenario: Scenario) -> Scenario:
    """Return the scenario with everything that it has by its source, FILE.py:NAME, by its name in the tables."""
    data, model, audit = scenario.data, scenario.model, scenario.audit
    names: dict[str, Any] = {
        "data": data.model_copy(update={"name": DATASETS.add(data.name)}) if ".py:" in data.name else data,
        "model": model.model_copy(update={"name": MODELS.named(model.name)}),
        "audit": audit.model_copy(update={"perturbations": tuple(map(PERTURBATIONS.named, audit.perturbations))}),
        "measures": tuple(map(OWN_MEASURES.named, scenario.measures)),
    }
    return scenario.model_copy(update=names)


def scenario_tree(name: str, profile: str = DEFAULT_PROFILE) -> dict[str, Any]:
    """Return the values of a scenario's file with those of one of its profiles; every file has the profile `cpu`.

    `name` is one of `SCENARIOS`, or the path of a .toml file, which is called by its stem.
    """
    tree = _file_tree(name)
    name = name if name in SCENARIOS else Path(name).stem
    own = tree.pop("profiles", {})
    if not isinstance(own, dict) or not all(isinstance(values, dict) for values in own.values()):
        raise InputError(f"{name}: profiles: expected tables such as [profiles.paper], got {own!r}")
    profiles = {DEFAULT_PROFILE: {}, **own}
    if profile not in profiles:
        raise unknown_name(f"profile of {name}", profile, profiles)
    return {"name": name, "profile": profile, **merged(tree, profiles[profile])}


def _file_tree(name: str, after: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a file's values; `based_on` takes those of another scenario first, but for what that one forgets."""
    own = name.endswith(".toml") and name not in SCENARIOS
    try:
        file = regular_file(name) if own else SCENARIOS.find(name)
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}; expected a scenario's .toml file") from None
    except (ValueError, RecursionError) as error:  # neither TOML nor UTF-8
        raise InputError(f"{name}: expected a scenario in TOML, got {error}") from None
    base = tree.pop("based_on", None)
    if base is None:
        return tree
    if not isinstance(base, str) or base in (name, *after):
        raise InputError(f"{name}: based_on: expected the name of another scenario, got {base!r}")
    return merged(_file_tree(base, (name, *after)) | {"forget": {}}, tree)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the changes: tables are merged, other values replaced, dotted keys reach inside."""
    tree = dict(base)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        new = {rest: value} if rest else value
        old = tree.get(head)
        tree[head] = merged(old if isinstance(old, Mapping) else {}, new) if isinstance(new, Mapping) else new
    return tree


def _checked_requests(
    requests: Sequence[str | Mapping[str, Any]], overrides: Mapping[str, Any]
) -> list[ForgetSettings]:
    if not requests:
        raise InputError("expected at least one request, got none")
    if len(requests) > MOST_REQUESTS:
        many = f"expected at most {MOST_REQUESTS} requests, got {len(requests)}"
        raise InputError(f"{many}; each needs a retrained model: gather several in one list of ids")
    if clash := next((key for key in overrides if key.partition(".")[0] in ("forget", "earlier")), None):
        raise InputError(f"expected requests or the setting {clash}, got both; put it into the requests")
    fields, known = [parse_request(r) if isinstance(r, str) else r for r in requests], ForgetSettings.model_fields
    for number, given in enumerate(fields, start=1):
        if (unknown := next((field for field in given if field not in known), None)) is not None:
            raise unknown_name(f"field of request {number}", unknown, known)
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
    label, text = _labeled(spec)
    name, given = split_spec(METHODS.named(text))
    if is_reserved(name):
        raise InputError(f"{name} always runs; remove it from --methods. Known: {', '.join(sorted(METHODS))}")
    method = make_method(name, {**(defaults or {}).get(name, {}), **read_fields(METHODS.get(name), given)})
    own_label = ":".join([name, *(f"{key}={value}" for key, value in given.items())])
    unpublished = list((left_open or {}).get(name, []))
    return Row(label=refuse_reserved(label or own_label), method=name, settings=method.settings, left_open=unpublished)


def _labeled(spec: str) -> tuple[str | None, str]:
    """Return the label, if there is one, and the rest of `[LABEL=]NAME[:key=value...]`."""
    head, equals, tail = spec.strip().partition("=")
    return (head, tail) if equals and ":" not in head else (None, spec.strip())


def _check_labels(labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two rows are called {label!r}; put LABEL= before one of them")
        refuse_no_file_name(label, "a row label")


def _check_names(scenario: Scenario) -> None:
    refuse_no_file_name(scenario.name, "a scenario's name")
    MODELS.find(scenario.model.name)
    for name, values in scenario.methods.items():
        make_method(name, values)
    if scenario.train.epochs < 1:
        raise InputError("train.epochs: expected 1 or more, got 0: what was never trained has nothing to forget")
    if scenario.controls < 1:
        raise InputError("controls: expected 1 or more, got 0: a control says how far retrained models are apart")
    _check_audit(scenario.audit)
    for spec in scenario.measures:
        check_measure(spec, scenario.audit)
    if not scenario.seeds or len(set(scenario.seeds)) != len(scenario.seeds):
        raise InputError(f"expected at least one seed and none twice, got {scenario.seeds}")


def _check_audit(audit: AuditSettings) -> None:
    if len(set(audit.perturbations)) < len(audit.perturbations):
        raise InputError(f"expected each perturbation once, got {', '.join(audit.perturbations)}")
    for spec in {**audit.taus, **dict.fromkeys(audit.perturbations)}:
        build_perturbation(spec)
    for spec in audit.perturbations:
        if not audit.radii(spec):
            name = spec.partition(":")[0]
            raise InputError(f"expected radii for {name}; give --set audit.taus.{name}=0,0.01,...")
    if (audit.draws is None) == (audit.half_width is None):
        raise InputError("expected either draws or a half-width for the audit; set the other to none")
    if audit.until is not None and audit.draws is None:
        raise InputError("expected draws with audit.until=verdict, got a half-width; the draws are the most it makes")
