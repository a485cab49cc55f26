"""Plan the stages of an experiment, and say before it starts what there is to do."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from residuum.auditing.probes import FURTHER
from residuum.core.errors import InputError, MethodError, plural, unknown_name
from residuum.core.inputs import InputSpace
from residuum.core.parallel import Compute
from residuum.core.registry import added_plugins
from residuum.core.roles import Role
from residuum.core.samples import Splits
from residuum.models import build_model, check_model, init_from
from residuum.perturbations import Perturbation
from residuum.studies.experiment import Experiment
from residuum.studies.parsing import build_perturbation, build_probe
from residuum.studies.pretrained import Pretrained
from residuum.studies.settings import (
    AuditStageSettings,
    EnsembleSettings,
    EvaluateSettings,
    MarginsSettings,
    ProbeSettings,
    TrainSettings,
    UnlearnSettings,
)
from residuum.studies.stages import EARLIER
from residuum.studies.store import Stage, Store
from residuum.unlearning import why_refused

Fields = dict[str, Any]  # of settings, that several stages have in common


@dataclass(frozen=True)
class SeedPlan:
    """The stages of one seed, by row label and by perturbation; `before` are the models of earlier requests.

    `of_references` has, by probe and number, what probes that read models measure of the further references.
    """

    seed: int
    models: dict[str, Stage]
    evaluations: dict[str, Stage]
    audits: dict[str, Stage]
    before: tuple[Stage, ...] = ()
    probes: dict[str, Stage] = field(default_factory=dict)
    margins: dict[str, Stage] = field(default_factory=dict)
    ensembles: dict[str, Stage] = field(default_factory=dict)
    of_references: dict[str, dict[int, Stage]] = field(default_factory=dict)

    @property
    def stages(self) -> list[Stage]:
        """All stages, parents before children."""
        first = [*self.before, *self.models.values(), *self.evaluations.values(), *self.audits.values()]
        others: list[Mapping[Any, Stage]] = [self.probes, self.margins, *self.of_references.values(), self.ensembles]
        asked = [stage for stages in others for stage in stages.values()]
        trained = [parent for stage in asked for parent in stage.parents.values() if parent.kind == "train"]
        return [*first, *trained, *asked]  # further references among the trained


Plans = Sequence[Sequence[SeedPlan]]
Undecided = Mapping[str, tuple[Sequence[str], Sequence[float]]]  # by perturbation: rows and radii that go on


def plan(experiment: Experiment) -> list[SeedPlan]:
    """Return the stages of every seed, after checking that data, splits and network fit together."""
    dataset, splits, scenario = experiment.dataset(), experiment.splits(), experiment.scenario
    model = network(experiment, splits)
    if experiment.init_from is not None:
        model = init_from(model, experiment.init_from)
    check_model(model, splits.retain, splits.classes)
    for spec in scenario.audit.perturbations:
        _check_perturbation(*build_perturbation(spec), model, splits)
    for row in experiment.rows:
        with row_named(row.label):
            if reason := why_refused(row.build(), splits):
                raise InputError(reason)
    pretrained = experiment.pretrained
    weights = pretrained.weights if pretrained else None
    start = {"model": scenario.model, "mean": dataset.mean, "std": dataset.std, "init_from": weights}
    shared = {"data": scenario.data, "fingerprint": dataset.fingerprint, "root": experiment.data_root}
    shared |= {"threads": scenario.threads, "compute": experiment.compute, "plugins": added_plugins()}
    plans = [_plan_seed(experiment, {**shared, "seed": seed}, start, pretrained) for seed in scenario.seeds]
    return with_references(experiment, plans, {**shared, "requests": scenario.requests}, start)


def _check_perturbation(perturbation: Perturbation, space: InputSpace, model: nn.Module, splits: Splits) -> None:
    """Refuse a layer that the network does not have, and inputs that the perturbation cannot move."""
    if space.at is not None:
        layers = [name for name, _ in model.named_modules() if name]
        if space.at not in layers:
            raise unknown_name(f"layer for {perturbation.name}:at=", space.at, layers)
    else:
        few = splits.forget.subset(range(min(16, len(splits.forget))))
        perturbation.check(few.batch(torch.arange(len(few)))[0], space, few.ids)


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


def all_stages(plans: Plans) -> list[Stage]:
    """Return every stage of several plans once, parents before children."""
    return list({stage.key: stage for own in plans for seed_plan in own for stage in seed_plan.stages}.values())


def network(experiment: Experiment, splits: Splits, seed: int = 0) -> nn.Module:
    """Return the scenario's network with fresh weights."""
    spec = experiment.scenario.model
    return build_model(spec.name, splits.train.shape, splits.classes, width=spec.width, seed=seed)


def _plan_seed(experiment: Experiment, shared: Fields, start: Fields, pretrained: Pretrained | None) -> SeedPlan:
    models, before = _plan_models(experiment, shared, start, pretrained)
    shared = {**shared, "requests": experiment.scenario.requests}
    # the original has nothing to re-learn, CR has no trainable body
    without = {"original", *(row.label for row in experiment.rows if row.method == "cr")}
    evaluations = {}
    for label, stage in models.items():
        relearn = None if label in without else experiment.scenario.relearn
        parents = {"model": stage, "original": models["original"]}
        evaluations[label] = Stage(EvaluateSettings(**shared, name=label, relearn=relearn), parents)
    asked = {**shared, "labels": tuple(models), "pretrained": pretrained}
    audits = {spec: _audit_stage(experiment, spec, asked, models) for spec in experiment.scenario.audit.perturbations}
    roles = {label: experiment.roles[label] for label in models}
    probes = {spec: _probe_stage(experiment, spec, shared, models, roles) for spec in experiment.probes("models")}
    return SeedPlan(shared["seed"], models, evaluations, audits, before, probes)


def _plan_models(
    experiment: Experiment, shared: Fields, start: Fields, pretrained: Pretrained | None
) -> tuple[dict[str, Stage], tuple[Stage, ...]]:
    """Return the models of the last request by label, and those that earlier requests left on the way to them."""
    labels = {row.label for row in experiment.rows}
    before: list[Stage] = []
    models: dict[str, Stage] = {}
    for step in experiment.steps:
        asked, previous = {**shared, "requests": step.scenario.requests}, models
        recipes = {role: step.scenario.training(role) for role in step.labels if role not in labels}
        models = {role: Stage(TrainSettings(**asked, **start, name=role, recipe=own)) for role, own in recipes.items()}
        if previous:  # every step starts with the one model that saw everything
            models["original"] = previous["original"]
            before += [stage for label, stage in previous.items() if label in labels | {"original"}]
        for row in step.rows:
            known = {**asked, "recipe": step.scenario.training("original"), "pretrained": pretrained}
            settings = UnlearnSettings(**known, name=row.label, method=row.method, settings=row.settings)
            last = {"previous": previous[row.label]} if previous else {}
            models[row.label] = Stage(settings, {"original": models["original"], **last})
    return models, tuple(before)


def _audit_stage(experiment: Experiment, spec: str, shared: Fields, models: Mapping[str, Stage]) -> Stage:
    """Return the audit, whose counts depend on the accelerator but not on the number of processes or the precision."""
    compute = Compute(accelerator=experiment.compute.accelerator)
    settings = {**shared, "compute": compute, "name": spec, "audit": experiment.scenario.audit.of_one(spec)}
    return Stage(AuditStageSettings(**settings), models)


def _probe_stage(
    experiment: Experiment, spec: str, shared: Fields, models: Mapping[str, Stage], roles: Mapping[str, Role]
) -> Stage:
    """Return the stage of a probe that reads these models, of one seed."""
    audit = experiment.scenario.audit
    fields = {"roles": roles, "perturbation": audit.perturbations[0], "radii": audit.search_radii}
    return Stage(ProbeSettings(**shared, **fields, name=spec), models)


def with_references(experiment: Experiment, plans: Sequence[SeedPlan], shared: Fields, start: Fields) -> list[SeedPlan]:
    """Return the plans, the last with the margins of all models, what they are compared for, and further references.

    These are trained from seeds of their own: all rows and seeds, and other runs, share them.
    """
    specs, scenario = experiment.probes("margins"), experiment.scenario
    recipe = scenario.training(FURTHER)
    references = {
        number: Stage(TrainSettings(**shared, **start, seed=number, name=FURTHER, recipe=recipe))
        for number in range(scenario.references)
    }
    further = {FURTHER: Role.CONTROL}
    of_references = {
        spec: {
            number: _probe_stage(experiment, spec, {**shared, "seed": number}, {FURTHER: stage}, further)
            for number, stage in references.items()
        }
        for spec in experiment.probes("models")
        if not build_probe(spec).relative
    }
    last = replace(plans[-1], of_references=of_references)
    if not specs:
        return [*plans[:-1], last]
    models = {f"{own.seed}/{label}": stage for own in plans for label, stage in own.models.items()}
    models |= {f"{number}/{FURTHER}": stage for number, stage in references.items()}
    margins = {
        name: Stage(MarginsSettings(**shared, seed=stage.settings.seed, name=stage.name), {"model": stage})
        for name, stage in models.items()
    }
    fields = {**shared, "seed": scenario.seeds[0], "roles": experiment.roles | further}
    ensembles = {spec: Stage(EnsembleSettings(**fields, name=spec), margins) for spec in specs}
    return [*plans[:-1], replace(last, margins=margins, ensembles=ensembles)]


def continued(seed_plan: SeedPlan, undecided: Undecided, draws: int) -> SeedPlan:
    """Return the plan in which the audits of undecided rows go on to so many draws, at the radii at stake."""
    further = {spec: _next_round(seed_plan.audits[spec], rows, taus, draws) for spec, (rows, taus) in undecided.items()}
    return replace(seed_plan, audits=seed_plan.audits | further)


def _next_round(before: Stage, rows: Sequence[str], taus: Sequence[float], draws: int) -> Stage:
    last = cast(AuditStageSettings, before.settings)
    first = last.first_draw + (last.audit.draws or 0)
    changes = {
        "audit": last.audit.model_copy(update={"taus": {last.name: list(taus)}, "draws": draws - first}),
        "first_draw": first,
        "decided": tuple(label for label in last.labels if label not in rows),
    }
    return Stage(last.model_copy(update=changes), {**before.parents, EARLIER: before})


@dataclass(frozen=True)
class Outline:
    """What a run has to do: stages in all, and how many are finished; `kinds` has both for each kind of stage."""

    total: int
    finished: int
    kinds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Say it in one line.

        >>> str(Outline(45, 30))
        '45 stages: 30 finished, 15 to run'
        """
        return f"{plural(self.total, 'stage')}: {self.finished} finished, {self.total - self.finished} to run"

    @property
    def lines(self) -> list[str]:
        """What the store has of each kind of stage.

        >>> Outline(3, 2, {"train": (3, 2)}).lines
        ['train: 2 of 3 stages in the store']
        """
        return [f"{kind}: {done} of {plural(n, 'stage')} in the store" for kind, (n, done) in self.kinds.items()]


def outline(plans: Plans, store: Path | str) -> Outline:
    """Return what `run_all` would find in the store and what it would still have to do."""
    found, stages = Store(Path(store)), all_stages(plans)
    has = {kind: [found.has(each) for each in stages if each.kind == kind] for kind in (s.kind for s in stages)}
    kinds = {kind: (len(known), sum(known)) for kind, known in has.items()}
    return Outline(len(stages), sum(done for _, done in kinds.values()), kinds)


def forget_lines(experiments: Sequence[Experiment]) -> list[str]:
    """Return for each request how many training samples it forgets, and of which class, by its name."""
    words = [f"forgets {_forget_words(experiment)}" for experiment in experiments]
    return words if len(words) == 1 else [f"request {number} {text}" for number, text in enumerate(words, start=1)]


def _forget_words(experiment: Experiment) -> str:
    splits = experiment.splits(combined=False)
    if splits.forget_class is None:
        return f"{len(splits.forget)} of {len(splits.train)} training samples"
    of_class = int((splits.train.y == splits.forget_class).sum())
    return f"{len(splits.forget)} of {of_class} training samples of class {splits.class_names[splits.forget_class]!r}"
