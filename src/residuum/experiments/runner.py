"""Plan the stages of an experiment, run them on any executor, and gather what they left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from residuum.experiments.order import longest_path_first
from residuum.experiments.settings import Experiment, ForgetSettings, Row
from residuum.experiments.stages import GALLERY, MODEL, PICTURE, read_record
from residuum.experiments.store import Stage, Store
from residuum.models import build_model, check_model, init_from
from residuum.parallel import SINGLE_PROCESS, Compute, Team
from residuum.types import InputError, Splits

Report = Callable[[Stage, int, int], None]


@dataclass(frozen=True)
class Result:
    """What is known of one row and one seed."""

    label: str
    seed: int
    metrics: dict[str, Any]
    audits: dict[str, dict[str, Any]]
    seconds: float
    passes: int
    warnings: list[str]
    model: Path
    counts: dict[str, Path]
    gallery: Path | None
    notes: dict[str, Any]
    picture: Path | None = None


@dataclass(frozen=True)
class SeedPlan:
    """The stages of one seed, by row label and by perturbation; `before` are the models of earlier requests."""

    seed: int
    models: dict[str, Stage]
    evaluations: dict[str, Stage]
    audits: dict[str, Stage]
    picture: Stage | None = None
    before: tuple[Stage, ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """All stages, parents before children."""
        last = [self.picture] if self.picture else []
        return [*self.before, *self.models.values(), *self.evaluations.values(), *self.audits.values(), *last]


Plans = Sequence[Sequence[SeedPlan]]


def plan(experiment: Experiment) -> list[SeedPlan]:
    """Return the stages of every seed, after checking that data, splits and network fit together."""
    dataset = experiment.dataset()
    splits = experiment.splits(dataset)
    _check_network(experiment, splits)
    for row in experiment.rows:
        if reason := row.build().refusal(splits):
            raise InputError(reason)
    common = {
        "data": experiment.scenario.data.model_dump(),
        "root": str(experiment.data_root) if experiment.data_root else None,
        "fingerprint": dataset.fingerprint,
        "threads": experiment.scenario.threads,
        **_computed_on(experiment.compute),
    }
    pretrained = experiment.pretrained
    network = {
        **experiment.scenario.model.model_dump(),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "init_from": pretrained["weights"] if pretrained else None,
    }
    return [_plan_seed(experiment, {**common, "seed": seed}, network, pretrained) for seed in experiment.scenario.seeds]


def _computed_on(compute: Compute) -> dict[str, Any]:
    """Return what the key says of the hardware: nothing for one process on the CPU, the usual case."""
    return {} if compute == Compute() else {"compute": asdict(compute)}


def _counted_on(common: dict[str, Any]) -> dict[str, Any]:
    """Return the same for audits, whose counts do not depend on the number of processes and the precision."""
    return _computed_on(Compute(accelerator=common["compute"]["accelerator"])) if "compute" in common else {}


def _check_network(experiment: Experiment, splits: Splits) -> None:
    spec = experiment.scenario.model
    model = build_model(spec.name, splits.train.shape, splits.classes, width=spec.width, seed=0)
    if experiment.init_from is not None:
        model = init_from(model, experiment.init_from)
    check_model(model, splits.retain, splits.classes)


def _plan_seed(
    experiment: Experiment, common: dict[str, Any], network: dict[str, Any], pretrained: dict[str, Any] | None
) -> SeedPlan:
    scenario = experiment.scenario.model_dump(mode="json")
    models, before = _plan_models(experiment, common, network)
    common = {**common, **_requests(experiment)}
    evaluations = {
        label: Stage("evaluate", {**common, "label": label, "relearn": relearn}, {"model": stage, "original": original})
        for original in [models["original"]]
        for label, stage in models.items()
        for relearn in [scenario["relearn"] if has_relearn_time(experiment, label) else None]
    }
    chosen = experiment.scenario.audit
    options = chosen.model_dump(exclude={"perturbations", "taus"})
    plain = {name: value for name, value in common.items() if name != "compute"}
    asked = {**plain, **_counted_on(common), "labels": list(models), "pretrained": pretrained}
    audits = {
        spec: Stage("audit", {**asked, "perturbation": spec, "audit": {"taus": chosen.radii(spec), **options}}, models)
        for spec in chosen.perturbations
    }
    return SeedPlan(common["seed"], models, evaluations, audits, _picture_stage(experiment, common, models), before)


def _plan_models(
    experiment: Experiment, common: dict[str, Any], network: dict[str, Any]
) -> tuple[dict[str, Stage], tuple[Stage, ...]]:
    """Return the models of the last request by label, and those that earlier requests left on the way to them."""
    labels = {row.label for row in experiment.rows}
    before: list[Stage] = []
    models: dict[str, Stage] = {}
    for step in experiment.steps:
        asked, previous = {**common, **_requests(step)}, models
        models = {
            role: Stage("train", {**asked, "role": role, "model": network, "train": step.scenario.training(role)})
            for role in step.labels
            if role not in labels
        }
        if previous:  # every step starts with the one model that saw everything
            models["original"] = previous["original"]
            before += [stage for label, stage in previous.items() if label in labels | {"original"}]
        for row in step.rows:
            models[row.label] = _unlearn_stage(row, asked, models["original"], previous.get(row.label))
    return models, tuple(before)


def _requests(experiment: Experiment) -> dict[str, Any]:
    forget, *earlier = map(_as_asked, (experiment.scenario.forget, *experiment.scenario.earlier))
    return {"forget": forget, **({"earlier": earlier} if earlier else {})}


def _as_asked(request: ForgetSettings) -> dict[str, Any]:
    """Return the request with its class as a text: 8 and "8" are the same class, so that they share their stages."""
    fields = request.model_dump()
    return fields if request.forget_class is None else {**fields, "forget_class": str(request.forget_class)}


def _picture_stage(experiment: Experiment, common: dict[str, Any], models: Mapping[str, Stage]) -> Stage | None:
    if experiment.scenario.picture is None:
        return None
    row = experiment.rows[0].label
    labels = ["retrain", row, "control"]
    settings = {**common, "label": row, "models": labels, "picture": experiment.scenario.picture.model_dump()}
    return Stage("picture", settings, {label: models[label] for label in labels})


def _unlearn_stage(row: Row, common: dict[str, Any], original: Stage, previous: Stage | None) -> Stage:
    return Stage(
        "unlearn",
        {**common, "label": row.label, "method": row.method, "settings": row.settings},
        {"original": original, **({"previous": previous} if previous else {})},
    )


def has_relearn_time(experiment: Experiment, label: str) -> bool:
    """Tell whether re-learn time is defined: the original has nothing to re-learn, CR has no trainable body."""
    return label != "original" and all(row.method != "cr" for row in experiment.rows if row.label == label)


def run(
    experiment: Experiment,
    *,
    store: Path | str,
    executor: Executor | None = None,
    report: Report | None = None,
    team: Team = SINGLE_PROCESS,
) -> list[Result]:
    """Train, unlearn, evaluate and audit; return one result per row and seed.

    Finished stages are taken from `store`, so the same call again resumes. `executor` is any
    `concurrent.futures.Executor`; without one, stages run one after the other in this process. `report` is
    called with each finished stage, the number done and the number in all. The processes of a `team` share each stage;
    all of them call this function, and the experiment's `compute` is the team's.
    """
    return run_all([experiment], store=store, executor=executor, report=report, team=team)[0]


def run_all(
    experiments: Sequence[Experiment],
    *,
    store: Path | str,
    executor: Executor | None = None,
    report: Report | None = None,
    plans: Plans | None = None,
    team: Team = SINGLE_PROCESS,
) -> list[list[Result]]:
    """Run several experiments as one graph of stages, as `run` does one; what they share is computed once.

    `run_all(experiment.steps, store=...)` carries out a sequence of deletion requests. `plans` are those of `plan`, one
    for each experiment, if made before.
    """
    if other := next((each.compute for each in experiments if each.compute != team.compute), None):
        raise InputError(f"expected an experiment for {team.compute}, got one for {other}")
    if executor is not None and team.size > 1:
        raise InputError("expected an executor or a team, got both: a team runs one stage after the other")
    plans, place = [plan(experiment) for experiment in experiments] if plans is None else plans, Store(Path(store))
    stages = list({stage.key: stage for each in plans for seed_plan in each for stage in seed_plan.stages}.values())
    if executor is None:
        _run_here(stages, place, report, team)
    else:
        _run_on(executor, stages, place, report)
    return [[result for seed_plan in each for result in _gather(seed_plan, place)] for each in plans]


def _run_here(stages: list[Stage], place: Store, report: Report | None, team: Team) -> None:
    for done, stage in enumerate(stages, start=1):
        place.compute(stage, team)
        if report:
            report(stage, done, len(stages))
    team.broadcast(None)  # the others may read what the leader has written


def _run_on(executor: Executor, stages: list[Stage], place: Store, report: Report | None) -> None:
    seconds = place.known_seconds()
    left = {stage.key: 0.0 if place.has(stage) else seconds.get((stage.kind, stage.name)) for stage in stages}
    waiting = {stage.key: stage for stage in longest_path_first(stages, left)}
    finished: set[str] = set()
    running: dict[Future[Path], Stage] = {}
    total = len(waiting)
    # a local pool starts what it gets in the order it gets it: one stage more than it has workers keeps all of them
    # busy and the choice open; a cluster has a scheduler of its own
    room = getattr(executor, "workers", total) + 1
    try:
        while waiting or running:
            for stage in _ready(waiting, finished)[: room - len(running)]:
                running[executor.submit(place.compute, stage)] = waiting.pop(stage.key)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                stage = running.pop(future)
                future.result()
                finished.add(stage.key)
                if report:
                    report(stage, len(finished), total)
    finally:
        for future in running:
            future.cancel()


def _ready(waiting: Mapping[str, Stage], finished: set[str]) -> list[Stage]:
    return [stage for stage in waiting.values() if all(parent.key in finished for parent in stage.parents.values())]


def _gather(seed_plan: SeedPlan, place: Store) -> Iterable[Result]:
    audits = {name: read_record(place.folder(stage)) for name, stage in seed_plan.audits.items()}
    first_audit = next(iter(seed_plan.audits.values()))
    gallery = place.folder(first_audit) / GALLERY
    picture = place.folder(seed_plan.picture) / PICTURE if seed_plan.picture else None
    audit_warnings = [text for name, record in audits.items() for text in _named(f"audit {name}", record)]
    for label, stage in seed_plan.models.items():
        made = read_record(place.folder(stage))
        evaluated = read_record(place.folder(seed_plan.evaluations[label]))
        yield Result(
            label=label,
            seed=seed_plan.seed,
            metrics=evaluated["metrics"],
            audits={name: record["audits"][label] for name, record in audits.items()},
            seconds=made["seconds"],
            passes=made["passes"],
            warnings=[*_named(label, made, evaluated), *audit_warnings],
            model=place.folder(stage) / MODEL,
            counts={name: place.folder(stage) / "counts" / f"{label}.npz" for name, stage in seed_plan.audits.items()},
            gallery=gallery if gallery.is_file() else None,
            notes=made.get("notes", {}),
            picture=picture,
        )


def _named(label: str, *records: Mapping[str, Any]) -> list[str]:
    return [f"{label}: {text}" for record in records for text in record["warnings"]]
