"""Plan the stages of a study, and say before it starts what there is to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from residuum.auditing.probes import FURTHER
from residuum.core.devices import Compute
from residuum.core.errors import plural
from residuum.core.registry import added_plugins
from residuum.core.roles import Role
from residuum.studies.parsing import build_probe
from residuum.studies.settings import (
    AuditStageSettings,
    EnsembleSettings,
    EvaluateSettings,
    MarginsSettings,
    ProbeSettings,
)
from residuum.studies.stages import EARLIER
from residuum.studies.store import Stage, Store
from residuum.studies.study import Fields, Study, probes_of


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


def plan(study: Study) -> list[SeedPlan]:
    """Return the stages of every seed, after checking that data, splits and network fit together."""
    study.check()
    shared = {"subject": study.subject(), "threads": study.scenario.threads, "compute": study.compute}
    shared |= {"plugins": added_plugins()}
    return with_references(study, [_plan_seed(study, {**shared, "seed": seed}) for seed in study.seeds], shared)


def all_stages(plans: Plans) -> list[Stage]:
    """Return every stage of several plans once, parents before children."""
    return list({stage.key: stage for own in plans for seed_plan in own for stage in seed_plan.stages}.values())


def _plan_seed(study: Study, shared: Fields) -> SeedPlan:
    models, before = study.model_stages(shared)
    evaluations = {}
    for label, stage in models.items():
        settings = EvaluateSettings(**shared, name=label, relearn=study.relearning(label))
        evaluations[label] = Stage(settings, {"model": stage, "original": models["original"]})
    audits = {}
    # counts depend on the accelerator, but neither on the number of processes nor on the precision
    compute = Compute(accelerator=study.compute.accelerator)
    for spec in study.audit.perturbations:
        fields = {**shared, "compute": compute, "name": spec, "audit": study.audit.of_one(spec)}
        audits[spec] = Stage(AuditStageSettings(**fields, labels=tuple(models), pretrained=study.pretrained), models)
    probes = {spec: _probe_stage(study, spec, shared, models) for spec in probes_of(study, "models")}
    return SeedPlan(shared["seed"], models, evaluations, audits, before, probes)


def _roles(study: Study) -> dict[str, Role]:
    return {label: facts.role for label, facts in study.rows_by_label().items()}


def _probe_stage(study: Study, spec: str, shared: Fields, models: Mapping[str, Stage]) -> Stage:
    """Return the stage of a probe that reads these models, of one seed."""
    audit = study.audit
    roles = {label: role for label, role in (_roles(study) | {FURTHER: Role.CONTROL}).items() if label in models}
    fields = {"roles": roles, "perturbation": audit.perturbations[0], "radii": audit.search_radii}
    return Stage(ProbeSettings(**shared, **fields, name=spec), models)


def with_references(study: Study, plans: Sequence[SeedPlan], shared: Fields) -> list[SeedPlan]:
    """Return the plans, the last with the margins of all models, what they are compared for, and further references.

    These are trained from seeds of their own: all rows and seeds, and other runs, share them.
    """
    references = study.further_references(shared)
    of_references = {
        spec: {
            number: _probe_stage(study, spec, {**shared, "seed": number}, {FURTHER: stage})
            for number, stage in references.items()
        }
        for spec in probes_of(study, "models")
        if not build_probe(spec).relative
    }
    last = replace(plans[-1], of_references=of_references)
    specs = probes_of(study, "margins")
    if not specs:
        return [*plans[:-1], last]
    models = {f"{one.seed}/{label}": stage for one in plans for label, stage in one.models.items()}
    models |= {f"{number}/{FURTHER}": stage for number, stage in references.items()}
    margins = {
        name: Stage(MarginsSettings(**shared, seed=stage.settings.seed, name=stage.name), {"model": stage})
        for name, stage in models.items()
    }
    fields = {**shared, "seed": study.seeds[0], "roles": _roles(study) | {FURTHER: Role.CONTROL}}
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


def forget_lines(studies: Sequence[Study]) -> list[str]:
    """Return for each request how many training samples it forgets, and of which class, by its name."""
    words = [f"forgets {_forget_words(study)}" for study in studies]
    return words if len(words) == 1 else [f"request {number} {text}" for number, text in enumerate(words, start=1)]


def _forget_words(study: Study) -> str:
    splits = study.splits(combined=False)
    if splits.forget_class is None:
        return f"{len(splits.forget)} of {len(splits.train)} training samples"
    of_class = int((splits.train.y == splits.forget_class).sum())
    return f"{len(splits.forget)} of {of_class} training samples of class {splits.class_names[splits.forget_class]!r}"
