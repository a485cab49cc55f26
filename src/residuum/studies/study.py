"""A study: everything needed to compute a comparison, from a scenario or from the user's own model and data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field, InstanceOf, ValidationError
from torch import nn

from residuum.auditing.probes import probe_kind
from residuum.core.devices import Compute
from residuum.core.errors import InputError, MethodError, plural, unknown_name
from residuum.core.registry import described_plugins, split_specs
from residuum.core.roles import Role, is_reserved, refuse_reserved, trained_roles
from residuum.core.samples import Splits
from residuum.data import DATASETS, Dataset
from residuum.data.loaders import loaded_dataset
from residuum.metrics import Relearning
from residuum.models import build_model, check_model, init_from, private_copy
from residuum.record import ScenarioRecord, refuse_no_file_name
from residuum.studies.parsing import build_perturbation, parse_request, read_fields, split_spec
from residuum.studies.pretrained import KnownFile, Pretrained, find_manifest
from residuum.studies.scenario_files import load_scenario, refuse_code
from residuum.studies.settings import DEFAULT_PROFILE, AuditSettings, ForgetSettings, Scenario, Strict, split_data
from residuum.studies.subjects import LiveSubject, NamedSubject, Subject
from residuum.unlearning import METHODS, Method, first_problem, make_method, why_refused

MOST_REQUESTS = 100  # each is a retraining and a deeper graph; a stage 200 deep can no longer be sent to a worker


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


class RowSpec(Strict):
    """One line of the results: label, role, the method's name, its hyper-parameters, and which were left open."""

    label: str
    method: str
    settings: dict[str, Any]
    left_open: list[str] = Field(default_factory=list)
    role: Role = Role.METHOD

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
    rows: list[RowSpec]
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
        `manifest` says which samples these weights have seen (default: the .json file of the same name, if it is one).
        `import_code=False` refuses a scenario file that names code; what the other arguments name is imported.
        """
        changes = {**(overrides or {}), **({"seeds": list(seeds)} if seeds is not None else {})}
        settings = load_scenario(scenario, changes, profile=profile, import_code=import_code)
        if requests is not None:
            settings = settings.after(_checked_requests(requests, changes))
        specs = split_specs(methods) if isinstance(methods, str) else methods
        if specs is None:
            specs = settings.rows
            if not import_code and "rows" not in changes:
                refuse_code(scenario, {"rows": [_labeled(spec)[1] for spec in specs]})
        rows = [parse_row(spec, settings.methods, settings.left_open) for spec in specs]
        root, weights, seen = (Path(path) if path else None for path in (data_root, init_from, manifest))
        study = cls(scenario=settings, rows=rows, data_root=root, init_from=weights)
        for label in (labels := study.labels):
            if labels.count(label) > 1:
                raise InputError(f"two rows are called {label!r}; put LABEL= before one of them")
            refuse_no_file_name(label, "a row label")
        return study.model_copy(update={"manifest": find_manifest(weights, seen)})

    @property
    def labels(self) -> list[str]:
        """All row labels, the trained models first."""
        return [*trained_roles(self.scenario.controls), *(row.label for row in self.rows)]

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every row, by its label."""
        return trained_roles(self.scenario.controls) | {row.label: row.role for row in self.rows}

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
    def notes(self) -> list[str]:
        """What the record says of every run."""
        if self.live is None:
            return ["original: re-learn time is null because the original has nothing to re-learn"]
        notes = ["re-learn time was not measured"]
        decoys = max((audit.decoys for audit in self.live.decoys.values()), default=0)
        if decoys:
            number = plural(decoys, "decoy")
            notes.append(
                f"{number}: unlearned with the request; no retrained model saw them, and they are judged apart"
            )
        if earlier := len(self.live.samples.train) - len(self.live.parts.train) - decoys:
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
            return [*(weaker if self.live.training.surrogates else []), *self.live.all_warnings]
        source = self.scenario.pretrained_on
        if source is None or self.init_from is not None:
            return []
        missing = f"weights pre-trained on {source}, and none were given (--init-from): all start at random"
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

    def all_rows(self) -> list[RowSpec]:
        """Return every row with its settings, the trained models first."""
        left_open, trained = self.scenario.left_open.get("train", []), []
        for label, role in trained_roles(self.scenario.controls).items():
            if self.live is None:
                settings = asdict(self.scenario.training(label))
            else:
                models = self.live.supplied
                settings = dict(models[label].settings if label in models else self.live.training.settings)
            trained.append(RowSpec(label=label, method=label, settings=settings, left_open=left_open, role=role))
        return [*trained, *self.rows]

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
            return private_copy(self.live.supplied["original"].model)
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
            *earlier, last = self.live.listed or (len(splits.forget),)
            settings = {"data": {"name": scenario.name}, "forget": {"listed": last}}
            settings |= {"earlier": [{"listed": number} for number in earlier]} if earlier else {}
            settings |= {"model": {"name": scenario.model.name}}
            settings |= {"surrogates": True} if self.live.training.surrogates else {}
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
                "public_data": self.live is None and scenario.data.name in DATASETS.built_in,
                "settings": settings,
                **({"interface": "file" if self.live.build else "python"} if self.live else {}),
                **({"left_out": dict(self.live.left_out)} if self.live and self.live.left_out else {}),
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

    def splits(self, *, combined: bool = True) -> Splits:
        """Return the splits, the same for every seed: of all requests together, or of the last one alone."""
        if self.live is not None:
            return self.live.parts
        return split_data(self.dataset(), self.scenario.data, self.scenario.requests, combined=combined)


def probes_of(study: Study, reads: str | None = None) -> list[str]:
    """Return the probes among the measures, all or those that read "models" or "margins"."""
    kinds = {spec: probe_kind(spec) for spec in study.scenario.measures}
    return [spec for spec, kind in kinds.items() if kind is not None and reads in (None, kind.reads)]


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
    fields = [parse_request(request) if isinstance(request, str) else request for request in requests]
    for number, request in enumerate(fields, start=1):
        if (unknown := next((name for name in request if name not in ForgetSettings.model_fields), None)) is not None:
            raise unknown_name(f"field of request {number}", unknown, ForgetSettings.model_fields)
    try:
        return [ForgetSettings.model_validate(request) for request in fields]
    except ValidationError as error:
        raise InputError(f"request: {first_problem(error)}") from None


def parse_row(
    spec: str,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    left_open: Mapping[str, Sequence[str]] | None = None,
) -> RowSpec:
    """Return the row of `[LABEL=]NAME[:key=value...]`; without a label the text itself with keys sorted.

    >>> parse_row("rurk:v=2:tau=0.1").label
    'rurk:tau=0.1:v=2'
    """
    label, text = _labeled(spec)
    name, texts = split_spec(METHODS.named(text))
    if is_reserved(name):
        raise InputError(f"{name} always runs; remove it from --methods. Known: {', '.join(sorted(METHODS))}")
    method = make_method(name, {**(defaults or {}).get(name, {}), **read_fields(METHODS.get(name), texts)})
    label = refuse_reserved(label or ":".join([name, *(f"{key}={value}" for key, value in texts.items())]))
    unpublished = list((left_open or {}).get(name, []))
    return RowSpec(label=label, method=name, settings=method.settings, left_open=unpublished)


def _labeled(spec: str) -> tuple[str | None, str]:
    """Return the label, if there is one, and the rest of `[LABEL=]NAME[:key=value...]`."""
    head, equals, tail = spec.strip().partition("=")
    return (head, tail) if equals and ":" not in head else (None, spec.strip())
