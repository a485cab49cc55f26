"""Carry out a study, from its plan to the run's folder: what the command line and Python users call alike."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from residuum.core import devices
from residuum.core.console import said_if_slow, say, traceback_kept
from residuum.core.devices import Compute
from residuum.core.errors import InputError
from residuum.record.folder import OWN_STORE, note_written
from residuum.record.run import Run
from residuum.studies import Result, Stage, Study, claim_folder, plan, run_all, write_requests, write_run
from residuum.studies.engines import end_with_the_leader, engine
from residuum.studies.estimates import WorkLeft, work_left
from residuum.studies.planning import SeedPlan, forget_lines, outline
from residuum.studies.runner import Report
from residuum.studies.store import Store
from residuum.studies.study import RowError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

STORE = Path(".residuum/store")
RUNS = Path("runs")
PLANNING = "planning: reading the data, building the network and timing a training step"
SEARCHING = "looking for samples that are nearly equal to others"
MOST_DAYS = 30.0  # of one core; longer work needs --yes
T = TypeVar("T")


@dataclass(frozen=True)
class Resources:
    """What a run is carried out with: worker processes or a cluster, or processes that share each stage.

    Work that is estimated to take more than `most_days` on one core is refused before it begins.
    """

    workers: int = 1
    cluster: str | None = None
    devices: int | None = None
    nodes: int = 1
    precision: str = "32-true"
    most_days: float = MOST_DAYS

    def __post_init__(self) -> None:
        if self.cluster is not None and not self.one_process:
            raise InputError("expected --cluster or --devices, --nodes and --precision, got both")
        if self.cluster is not None and not re.fullmatch(r"(\w+://)?[^/\s]+:\d+", self.cluster):
            raise InputError(f"expected tcp://host:port of a dask scheduler for --cluster, got {self.cluster!r}")

    @property
    def one_process(self) -> bool:
        """Whether every stage is computed by one process, on the CPU and in 32 bits."""
        return self.fabric is None

    @property
    def side_by_side(self) -> bool:
        """Whether stages may run in parallel, each in another process without an accelerator."""
        return self.devices is None and self.nodes == 1 and self.compute.accelerator == "cpu"

    @cached_property
    def fabric(self) -> "Fabric | None":
        """What connects the processes that share each stage; None for one process, on the CPU and in 32 bits."""
        return devices.make_fabric(self.devices, self.nodes, self.precision)

    @property
    def compute(self) -> Compute:
        """What trainings run on."""
        return devices.compute_of(self.fabric)


def run(
    study: Study,
    *,
    store: Path | str = STORE,
    out: Path | str | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    progress: bool = False,
    gallery: bool | None = None,
) -> Run:
    """Train, unlearn, evaluate and audit; write results.json with counts and weights into a folder; return the run.

    Args:
        study: what to compare, for instance `Study.create("digits", methods="gd,rurk")`.
        store: folder of finished stages; the same call again takes them from there and computes what is missing.
        out: folder of the run; default runs/SCENARIO.
        executor: any `concurrent.futures.Executor` to compute stages on, instead of `resources`.
        resources: worker processes, a cluster, or devices that share each stage; default one process.
        progress: say on standard error what is to do, what it costs and what is done.
        gallery: write pictures of forgotten samples; default: of public data sets only.

    Returns:
        The run: `report(run)` writes the page, `run.verdicts` and `to_frame(run)` have what came out. A row whose
        method failed is in `.record.failed` with the reason; the others are finished without it.

    Example:
        >>> import tempfile
        >>> tiny = Study.create("tiny", methods="gd", seeds=[1], overrides={"train.epochs": 1})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     list(run(tiny, store=f"{folder}/store", out=f"{folder}/tiny").verdicts)
        ['original', 'gd']
    """
    folder = Path(out) if out is not None else RUNS / study.name
    steps, results = _computed([study], partial(claim_folder, folder), store, executor, resources, progress)
    record = write_run(steps[0], results[0], folder, gallery=gallery)
    return Run(folder, study.name, record)


def run_requests(
    study: Study | Sequence[Study],
    *,
    out: Path | str | None = None,
    gallery: bool | None = None,
    **options: Any,  # noqa: ANN401 (those of run)
) -> list[Run]:
    """Carry out all requests of a study one after the other, or the studies of requests in a row; return their runs.

    The options are those of `run`. The runs are written to request-1, request-2, ... below `out`, by default
    runs/SCENARIO-requests; `report(out)` writes the page over all of them and that of each.
    """
    studies = study.steps if isinstance(study, Study) else study
    folder = Path(out) if out is not None else RUNS / f"{studies[0].scenario.name}-requests"
    steps, results = _computed(studies, partial(claim_folder, folder, sequence=True), **options)
    return write_requests(steps, results, folder, gallery=gallery)


def plan_lines(
    study: Study, *, store: Path | str = STORE, requests: bool = False, resources: Resources | None = None
) -> list[str]:
    """Return what `run` (or `run_requests`) would do, without doing it: stages, requests, warnings and work left.

    Nothing is written, no process started. A few steps of each kind of stage are measured to say how long all take.

    >>> plan_lines(Study.create("tiny", methods="gd", seeds=[1]), store="no/store")[0]
    '9 stages: 0 finished, 9 to run'
    """
    study = study.model_copy(update={"compute": (resources or Resources()).compute})
    with said_if_slow(PLANNING):
        steps, plans = _surviving(study.steps if requests else [study], _plans)
        work = work_left(steps, store, plans)
    todo = outline(plans, store)
    return [str(todo), *todo.lines, *_announced(steps, work)]


def _announced(steps: Sequence[Study], work: WorkLeft) -> list[str]:
    with said_if_slow(SEARCHING):
        warned = [f"warning: {text}" for text in steps[0].warnings]
    return [*forget_lines(steps), *warned, *([f"work: {work}"] if work.seconds else [])]


def _computed(
    studies: Sequence[Study],
    claim: Callable[[], None],
    store: Path | str = STORE,
    executor: Executor | None = None,
    resources: Resources | None = None,
    progress: bool = False,
) -> tuple[list[Study], list[list[Result]]]:
    """Return the studies as they were computed, and their results; only the leader of several processes does.

    `claim` creates the folder of the run, or raises an error.
    """
    resources, store = resources or Resources(), Path(store)
    Store(store).refuse_unusable()
    if not resources.one_process:
        end_with_the_leader()
        if "LOCAL_RANK" not in os.environ:
            with suppress(RowError), said_if_slow(PLANNING):  # that row is left out below
                _plans(studies)  # what is wrong is said once, before there are other processes to say it too
    steps = [study.model_copy(update={"compute": resources.compute}) for study in studies]
    with devices.launched(resources.fabric):
        if not devices.leads():
            _surviving(steps, lambda left: run_all(left, store=store))
        else:  # this process speaks to the user
            with said_if_slow(PLANNING) if progress else nullcontext():
                steps, plans = _surviving(steps, _plans)
                with devices.alone():
                    work = work_left(steps, store, plans)
            todo = outline(plans, store)
            if sum(work.seconds.values()) > resources.most_days * 24 * 3600:
                text = f"expected work of at most {resources.most_days:g} days, got {work}"
                raise InputError(f"{text}; lower draws, epochs or seeds, or start it all the same with --yes")
            one = not resources.side_by_side or (work.short and not steps[0].audit.until)
            workers = 1 if one else resources.workers
            where = nullcontext(executor) if executor else engine(workers, resources.cluster)
            with where as pool:  # a cluster that cannot be reached is said before anything else
                claim()
                note_written(store, OWN_STORE)
                for line in (str(todo), *_announced(steps, work)) if progress else ():
                    say(line)
                with shown(progress, todo.total) as report:

                    def computed(left: list[Study]) -> list[list[Result]]:
                        ready = plans if left is steps else None
                        return run_all(left, store=store, executor=pool, report=report, plans=ready)

                    return _surviving(steps, computed)
    raise SystemExit(0)


def _plans(steps: Sequence[Study]) -> list[list[SeedPlan]]:
    return [plan(step) for step in steps]


def _surviving(steps: list[Study], carried_out: Callable[[list[Study]], T]) -> tuple[list[Study], T]:
    """Return the studies without the rows whose methods failed, and what was carried out with them."""
    while True:
        try:
            return steps, carried_out(steps)
        except RowError as error:
            left = [step.without(error.label, error.reason) for step in steps]
            if devices.leads():
                say(f"{error}; {traceback_kept(error)}")
            steps = left


@contextmanager
def shown(progress: bool, stages: int) -> Iterator[Report | None]:
    """Yield a reporter of finished stages: a bar on a terminal, plain lines otherwise, on standard error."""
    if not progress or not sys.stderr.isatty():

        def print_line(stage: Stage, done: int, total: int) -> None:
            print(f"[{done}/{total}] {stage.title}", file=sys.stderr, flush=True)  # noqa: T201

        yield print_line if progress else None
        return
    from rich import progress as bars
    from rich.console import Console

    counts = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn())
    columns = (*counts, bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=stages)
        yield lambda stage, done, total: bar.update(task, description=stage.title, completed=done, total=total)
