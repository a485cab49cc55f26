"""Run the stages of planned studies on any executor, and gather what they left."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing, nullcontext
from graphlib import TopologicalSorter
from pathlib import Path

from residuum.auditing.probes import FURTHER
from residuum.core import devices
from residuum.core.errors import InputError
from residuum.data.loaders import loaded_dataset
from residuum.judging import undecided
from residuum.studies.planning import Plans, SeedPlan, all_stages, continued, plan
from residuum.studies.results import AuditOutcome, Result, results_record
from residuum.studies.stages import GALLERY, Stage, read_record
from residuum.studies.store import Store
from residuum.studies.study import RowError, Study, row_named
from residuum.studies.subjects import MODEL

Report = Callable[[Stage, int, int], None]

LOOK_EVERY = 5.0  # seconds of waiting after which the executor is asked whether its workers are still there
LENGTHS = {"train": 4.0, "audit": 8.0}  # how long kinds of stages take, in times of the others


def run_all(
    studies: Sequence[Study],
    *,
    store: Path | str,
    executor: Executor | None = None,
    report: Report | None = None,
    plans: Plans | None = None,
) -> list[list[Result]]:
    """Train, unlearn, evaluate and audit, all studies as one graph; return of each one result per row and seed.

    Finished stages are taken from `store`, so the same call again resumes. `executor` is any
    `concurrent.futures.Executor`; without one, stages run one after the other in this process. `report` is called with
    each finished stage, the number done and the number in all; `plans` are those of `plan`. Processes that were
    launched together share each stage, and all of them call this function. After each round of audits until the
    verdict, those go on that it needs. A method that fails is a RowError that names its row.
    """
    compute = devices.compute_of(devices.current())
    if other := next((study.compute for study in studies if study.compute != compute), None):
        raise InputError(f"expected a study for {compute}, got one for {other}")
    if executor is not None and devices.world_size() > 1:
        raise InputError("expected an executor or several devices, got both: devices run one stage after the other")
    if plans is None:
        loaded_dataset.cache_clear()  # the data as they are now
        plans = [plan(study) for study in studies]
    shared, finished = Store(Path(store)), set[str]()

    def computed(plans: Plans) -> list[list[Result]]:
        stages = [stage for stage in all_stages(plans) if stage.key not in finished]
        finished.update(stage.key for stage in stages)
        run_stages(stages, shared, executor=executor, report=report)
        return [[result for of_seed in of_study for result in _gather(of_seed, shared)] for of_study in plans]

    with shared.in_use() if devices.leads() else nullcontext():
        results = computed(plans)
        for draws in studies[0].audit.rounds[1:]:
            pairs = zip(studies, results, strict=True)
            unfinished = [undecided(results_record(*pair), pair[0].audit.draws or 0) for pair in pairs]
            if not draws or not any(unfinished):
                break
            pending = zip(plans, unfinished, strict=True)
            plans = [[continued(of_seed, left, draws) for of_seed in of_study] for of_study, left in pending]
            results = computed(plans)
    return results


def run_stages(
    stages: Sequence[Stage], store: Store, *, executor: Executor | None = None, report: Report | None = None
) -> None:
    """Compute the stages that the store lacks, parents before children; `report` is called with each."""
    running = _run_here(stages, store) if executor is None else _run_on(executor, stages, store)
    with closing(running) as done:
        for number, stage in enumerate(done, start=1):
            if report:
                report(stage, number, len(stages))


def _run_here(stages: Sequence[Stage], store: Store) -> Generator[Stage, None, None]:
    for stage in stages:
        failed = None
        try:
            with row_named(stage.name):
                store.compute(stage)
        except RowError as error:
            failed = error
        # a row that fails in one process fails in every one: all of them go on without it
        for label, reason in filter(None, devices.gather((failed.label, failed.reason) if failed else None)):
            raise RowError(label, reason) from failed
        yield stage
    devices.broadcast(None)  # the others may read what the leader has written


def _run_on(executor: Executor, stages: Sequence[Stage], store: Store) -> Generator[Stage, None, None]:
    """Give stages whose parents are finished to the executor, those that the most work waits for first; yield them."""
    precision = devices.compute_of(devices.current()).precision
    store = Store(store.root.absolute())  # workers may have other working folders
    left = {stage.key: 0.0 if store.has(stage) else LENGTHS.get(stage.kind, 1.0) for stage in stages}
    ordered = {stage.key: stage for stage in longest_path_first(stages, left)}
    parents = {key: {parent.key: parent for parent in stage.parents.values()} for key, stage in ordered.items()}
    before = {key: parent for of_stage in parents.values() for key, parent in of_stage.items() if key not in ordered}
    if missing := next((key for key, parent in before.items() if not store.has(parent)), None):
        raise KeyError(missing)  # neither planned nor computed in an earlier round: it would be waited for for ever
    graph = TopologicalSorter({key: of_stage.keys() & ordered.keys() for key, of_stage in parents.items()})
    graph.prepare()
    ready: set[str] = set()
    running: dict[Future[Path], Stage] = {}
    # a local pool starts stages in the order in which it gets them: one more than it has workers keeps all of them
    # busy and the choice open; a cluster schedules them itself
    room = getattr(executor, "workers", len(stages)) + 1
    try:
        while graph.is_active():
            ready.update(graph.get_ready())
            for key in [key for key in ordered if key in ready][: room - len(running)]:
                running[executor.submit(compute_alone, store, ordered[key], precision)] = ordered[key]
                ready.remove(key)
            while not (done := wait(running, LOOK_EVERY, return_when=FIRST_COMPLETED).done):
                if check := getattr(executor, "check", None):  # an executor that can be left alone is asked meanwhile
                    check()
            for future in done:
                stage = running.pop(future)
                with row_named(stage.name):
                    future.result()
                graph.done(stage.key)
                yield stage
    finally:
        for future in running:
            future.cancel()


def compute_alone(store: Store, stage: Stage, precision: str) -> Path:
    """Compute a stage in this process, a worker's, in the precision of the run; return its folder."""
    with devices.launched(devices.make_fabric(None, precision=precision)):
        return store.compute(stage)


def longest_path_first(stages: Iterable[Stage], lengths: Mapping[str, float]) -> list[Stage]:
    """Return each stage once, sorted by the time from its start to the end of the longest chain that hangs on it.

    Equal ones stay in the order of `stages`, parents before children, so that early seeds are finished early. `lengths`
    says by key how long a stage will take.
    """
    unique, path = {stage.key: stage for stage in stages}, dict[str, float]()
    after = dict.fromkeys(unique, 0.0)
    for key, stage in reversed(unique.items()):
        path[key] = after[key] + lengths[key]
        for parent in stage.parents.values():
            after[parent.key] = max(after.get(parent.key, 0.0), path[key])
    return sorted(unique.values(), key=lambda stage: -path[stage.key])


def _gather(seed_plan: SeedPlan, store: Store) -> Iterable[Result]:
    audits = {name: store.folder(stage) for name, stage in seed_plan.audits.items()}
    audit_records = {name: read_record(folder) for name, folder in audits.items()}
    gallery = next(iter(audits.values())) / GALLERY
    probes = {spec: read_record(store.folder(stage))["values"] for spec, stage in seed_plan.probes.items()}
    ensembles = {spec: read_record(store.folder(stage)) for spec, stage in seed_plan.ensembles.items()}
    for spec, stages in seed_plan.of_references.items():
        values = {str(number): read_record(store.folder(stage))["values"] for number, stage in stages.items()}
        ensembles[spec] = {"models": {FURTHER: {number: of_model[FURTHER] for number, of_model in values.items()}}}
    for label, stage in seed_plan.models.items():
        model, evaluation = store.folder(stage), store.folder(seed_plan.evaluations[label])
        making, evaluated = read_record(model), read_record(evaluation)
        yield Result(
            label=label,
            seed=seed_plan.seed,
            metrics=evaluated["metrics"],
            audits={
                name: AuditOutcome(
                    measures=record["audits"][label],
                    counts=audits[name] / "counts" / f"{label}.npz",
                    heldout=audits[name] / "heldout" / f"{label}.npz",
                    warnings=record["warnings"],
                )
                for name, record in audit_records.items()
            },
            seconds=making["seconds"],
            passes=making["passes"],
            warnings=[*making["warnings"], *evaluated["warnings"]],
            weights=evaluated["weights"],
            unchanged=making.get("unchanged", False),
            model=model / MODEL,
            notes=making.get("notes", {}),
            gallery=gallery if gallery.is_file() else None,
            artifacts=(model, evaluation, *audits.values()),
            probes={spec: by_label[label] for spec, by_label in probes.items() if label in by_label},
            ensembles=ensembles,
        )
