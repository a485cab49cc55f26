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
from residuum.models.weights import state_hash
from residuum.studies.parsing import build_probe
from residuum.studies.stages import (
    EARLIER,
    AuditStage,
    EnsembleStage,
    EvaluateStage,
    GivenStage,
    MarginsStage,
    ProbeStage,
    RetrainStage,
    Setup,
    Stage,
    TrainStage,
    UnlearnStage,
)
from residuum.studies.store import Store
from residuum.studies.study import Study, probes_of
from residuum.studies.subjects import LiveSubject


@dataclass(frozen=True)
class SeedPlan:
    """The stages of one seed, by row label and by perturbation; `before` are the models of earlier requests.

    `of_references` holds the stages of probes that read models on further references, by probe and number.
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
        measuring = [stage for stages in others for stage in stages.values()]
        trained = [parent for stage in measuring for parent in stage.parents.values() if parent.kind == "train"]
        return [*first, *trained, *measuring]  # further references among the trained


Plans = Sequence[Sequence[SeedPlan]]
Undecided = Mapping[str, tuple[Sequence[str], Sequence[float]]]  # by perturbation: rows and radii that go on


def plan(study: Study) -> list[SeedPlan]:
    """Return the stages of every seed, after checking that data, splits and network fit together."""
    study.check()
    setup = Setup(study.subject(), 0, study.scenario.threads, study.compute, added_plugins())
    # counts depend on the accelerator, but neither on the number of processes nor on the precision
    counted = Compute(accelerator=study.compute.accelerator)
    plans = []
    for seed in study.seeds:
        of_seed = replace(setup, seed=seed)
        models, before = _model_stages(study, of_seed)
        evaluations: dict[str, Stage] = {
            label: EvaluateStage(
                setup=of_seed,
                name=label,
                relearn=study.relearning(label),
                parents={"model": stage, "original": models["original"]},
            )
            for label, stage in models.items()
        }
        audits: dict[str, Stage] = {
            spec: AuditStage(
                setup=replace(of_seed, compute=counted),
                name=spec,
                labels=tuple(models),
                audit=study.audit.of_one(spec),
                pretrained=study.pretrained,
                parents=models,
            )
            for spec in study.audit.perturbations
        }
        probes = {spec: _probe_stage(study, spec, of_seed, models) for spec in probes_of(study, "models")}
        plans.append(SeedPlan(seed, models, evaluations, audits, before, probes))
    return _with_references(study, plans, setup)


def all_stages(plans: Plans) -> list[Stage]:
    """Return every stage of several plans once, parents before children."""
    stages = [stage for of_study in plans for of_seed in of_study for stage in of_seed.stages]
    return list({stage.key: stage for stage in stages}.values())


def _model_stages(study: Study, setup: Setup) -> tuple[dict[str, Stage], tuple[Stage, ...]]:
    """Return the models of the last request by label, and those that earlier requests left on the way to them."""
    if isinstance(setup.subject, LiveSubject):
        subject, by_user = setup.subject, dict[str, Stage]()
        recipe = None if subject.training.by_function else study.scenario.train
        for label, role in study.roles.items():
            if label in subject.supplied:
                weights = state_hash(subject.supplied[label].model.state_dict())
                by_user[label] = GivenStage(setup=setup, name=label, weights=weights, retrained=role.retrained)
            else:
                by_user[label] = RetrainStage(setup=setup, name=label, how=subject.training.identity, recipe=recipe)
        return by_user, ()
    labels = {row.label for row in study.rows}
    before: list[Stage] = []
    models: dict[str, Stage] = {}
    for step in study.steps:
        of_step, previous = replace(setup, subject=setup.subject.after(step.scenario.requests)), models
        models = {role: _training(step, role, of_step) for role in step.labels if role not in labels}
        if previous:  # every step starts with the one model that saw everything
            models["original"] = previous["original"]
            before += [stage for label, stage in previous.items() if label in labels | {"original"}]
        for row in step.rows:
            last = {"previous": previous[row.label]} if previous else {}
            models[row.label] = UnlearnStage(
                setup=of_step,
                name=row.label,
                method=row.method,
                settings=row.settings,
                recipe=step.scenario.training("original"),
                pretrained=study.pretrained,
                parents={"original": models["original"], **last},
            )
    return models, tuple(before)


def _training(study: Study, role: str, setup: Setup) -> Stage:
    """Return the stage that trains the model of a role."""
    dataset, pretrained = study.dataset(), study.pretrained
    return TrainStage(
        setup=setup,
        name=role,
        model=study.scenario.model,
        mean=dataset.mean,
        std=dataset.std,
        init_from=pretrained.weights if pretrained else None,
        recipe=study.scenario.training(role),
    )


def _probe_stage(study: Study, spec: str, setup: Setup, models: Mapping[str, Stage]) -> Stage:
    """Return the stage of a probe that reads these models, of one seed."""
    audit, roles = study.audit, study.roles | {FURTHER: Role.CONTROL}
    return ProbeStage(
        setup=setup,
        name=spec,
        roles={label: role for label, role in roles.items() if label in models},
        radii=audit.search_radii,
        perturbation=audit.perturbations[0],
        taus=tuple(audit.radii(audit.perturbations[0])),
        recipe=study.scenario.train,
        parents=models,
    )


def _with_references(study: Study, plans: Sequence[SeedPlan], setup: Setup) -> list[SeedPlan]:
    """Return the plans, the last with the margins of all models, what they are compared for, and further references.

    Each of these has a seed that is only its own number: all rows and seeds, and other runs, share them.
    """
    setups = {number: replace(setup, seed=number) for number in range(study.scenario.references)}
    references = {number: _training(study, FURTHER, of_number) for number, of_number in setups.items()}
    of_references = {
        spec: {
            number: _probe_stage(study, spec, setups[number], {FURTHER: stage}) for number, stage in references.items()
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
    margins: dict[str, Stage] = {
        name: MarginsStage(setup=replace(setup, seed=stage.setup.seed), name=stage.name, parents={"model": stage})
        for name, stage in models.items()
    }
    roles, first = study.roles | {FURTHER: Role.CONTROL}, replace(setup, seed=study.seeds[0])
    ensembles: dict[str, Stage] = {
        spec: EnsembleStage(setup=first, name=spec, roles=roles, parents=margins) for spec in specs
    }
    return [*plans[:-1], replace(last, margins=margins, ensembles=ensembles)]


def continued(seed_plan: SeedPlan, undecided: Undecided, draws: int) -> SeedPlan:
    """Return the plan whose audits of undecided rows go on to this number of draws, at the radii at stake."""
    further: dict[str, Stage] = {}
    for spec, (rows, taus) in undecided.items():
        before = cast(AuditStage, seed_plan.audits[spec])
        first = before.first_draw + (before.audit.draws or 0)
        further[spec] = replace(
            before,
            audit=before.audit.model_copy(update={"taus": {spec: list(taus)}, "draws": draws - first}),
            first_draw=first,
            decided=tuple(label for label in before.labels if label not in rows),
            parents={**before.parents, EARLIER: before},
        )
    return replace(seed_plan, audits=seed_plan.audits | further)


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
    kinds: dict[str, tuple[int, int]] = {}
    for stage in all_stages(plans):
        total, finished = kinds.get(stage.kind, (0, 0))
        kinds[stage.kind] = total + 1, finished + Store(Path(store)).has(stage)
    return Outline(sum(total for total, _ in kinds.values()), sum(finished for _, finished in kinds.values()), kinds)


def forget_lines(studies: Sequence[Study]) -> list[str]:
    """Return for each request how many training samples it forgets, and of which class, by its name."""
    lines = []
    for number, study in enumerate(studies, start=1):
        splits, label = study.splits(combined=False), ""
        forgotten, whole = len(splits.forget), len(splits.train)
        if splits.forget_class is not None:
            whole = int((splits.train.y == splits.forget_class).sum())
            label = f" of class {splits.class_names[splits.forget_class]!r}"
        elif study.live and study.live.listed:
            forgotten = study.live.listed[-1]
        request = f"request {number} " if len(studies) > 1 else ""
        lines.append(f"{request}forgets {forgotten} of {whole} training samples{label}")
    return lines
