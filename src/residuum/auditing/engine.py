"""The engine: shows every perturbed input to all models, and counts who recognizes it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.count_state import CountState, Outcome, SavedCounts
from residuum.auditing.crafting import BatchInvariance, Crafter
from residuum.auditing.predictor import Predictor
from residuum.auditing.stream import DrawBatch, Schedule, clean_batches, draw_batches
from residuum.core.counts import Counts
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples
from residuum.perturbations import FGSM, PGD, Perturbation, block_generator

CraftedOn = Literal["unlearned", "reference"] | nn.Module
Progress = Callable[[int, int], None]
Pool = ThreadPoolExecutor | None
PROBE = 16


class CraftPlan(NamedTuple):
    """Inputs crafted on the model `source` are shown to the models `targets`, all named by their keys."""

    source: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class PreparedModels:
    """The models of an audit: one predictor for each distinct module, keyed by `id`, and a crafter for each source."""

    predictors: dict[int, Predictor]
    crafters: dict[int, Crafter]
    plans: list[CraftPlan]
    reference: int
    probe: Tensor
    original: int | None = None

    @property
    def classes(self) -> int:
        """Number of classes of the reference."""
        return self.predictors[self.reference].classes

    def passes_per_row(self) -> int:
        """Return how many predictions one perturbed row of every plan costs."""
        return sum(len(self.asked(targets)) for _, targets in self.plans)

    def asked(self, keys: Iterable[int]) -> set[int]:
        """Return the keys of all models that are asked for counts of these: they, the reference and the original."""
        return {*keys, self.reference} | ({self.original} if self.original is not None else set())


def prepare_models(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: Perturbation,
    space: InputSpace,
    *,
    radius: float,
    crafted_on: CraftedOn,
    seed: int,
    original: nn.Module | None = None,
    invariance: BatchInvariance | None = None,
) -> PreparedModels:
    """Return private copies of all models, ready to predict; `radius` is the largest they will meet.

    `invariance` is taken to hold for every model; without it, every architecture is tried.
    """
    probe = probe_batch(samples, space, radius, seed)
    source = crafted_on if isinstance(crafted_on, nn.Module) else reference
    distinct = {id(model): model for model in (reference, *models.values(), original) if model is not None}
    predictors = {key: Predictor(model, probe) for key, model in distinct.items()}
    keys = tuple(dict.fromkeys(map(id, models.values())))
    on_each = perturbation.crafted and crafted_on == "unlearned"
    plans = [CraftPlan(key, (key,)) for key in keys] if on_each else [CraftPlan(id(source), keys)]
    crafters: dict[int, Crafter] = {}
    invariances: dict[str, BatchInvariance] = {}  # models of the same architecture share one trial
    for key, _ in plans:
        attacked = predictors.get(key) or Predictor(source, probe)
        architecture = str(attacked.fast)
        crafters[key] = Crafter(attacked, perturbation, space, probe, invariance or invariances.get(architecture))
        invariances[architecture] = crafters[key].invariance
    return PreparedModels(predictors, crafters, plans, id(reference), probe, None if original is None else id(original))


def probe_batch(samples: Samples, space: InputSpace, radius: float, seed: int) -> Tensor:
    """Return up to 16 samples (the first by id) as they are and with noise of this radius; tokens twice as they are."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:PROBE]
    x, _ = samples.batch(torch.tensor(first))
    noise = torch.from_numpy(block_generator(seed, "probe", 0).standard_normal(x.shape, dtype=np.float32))
    return torch.cat([x, x if space.tokens else space.move(x, noise, radius)])


def count_predictions(
    schedule: Schedule,
    prepared: PreparedModels,
    names: Mapping[str, int],
    progress: Progress | None = None,
    saved: SavedCounts | None = None,
) -> dict[str, Counts]:
    """Return the counts of every named model; `names` maps to the keys of predictors.

    With `saved` it resumes where it was stopped.
    """
    state, total = CountState.begin(schedule, names.values()), passes(schedule, prepared)
    if saved:
        saved.resume(state)
    with workers() as pool:
        # one of several processes may have no sample, and a forget set no held-out one
        stream = chain(clean_batches(schedule), draw_batches(schedule)) if len(schedule.samples) else iter(())
        for batch in islice(stream, state.batches, None):
            outcomes, spent = predict_batch(schedule, batch, prepared, pool)
            state.add(batch, outcomes, spent)
            if saved:
                saved.save_if_due(state)
            if progress is not None:
                progress(state.passes, total)
    if saved:
        saved.finish(state)
    shown = schedule.samples.ids, schedule.samples.y.numpy(), schedule.taus
    patterns = 4 if prepared.original is None else 8  # without the original, the first four are all there are
    return {
        name: Counts.of_joint(*shown, state.patterns[key][..., :patterns], state.same[key])
        for name, key in names.items()
    }


def passes(schedule: Schedule, prepared: PreparedModels) -> int:
    """Return the number of predictions of the whole schedule, without crafting."""
    perturbed = sum(draws for draws, tau in zip(schedule.draws, schedule.taus, strict=True) if tau > 0)
    return clean_passes(schedule, prepared) + len(schedule.samples) * perturbed * prepared.passes_per_row()


def clean_passes(schedule: Schedule, prepared: PreparedModels) -> int:
    """Return the number of predictions of the samples as they are: one of each model."""
    clean = sum(draws for draws, tau in zip(schedule.draws, schedule.taus, strict=True) if tau == 0)
    return len(schedule.samples) * clean * len(prepared.predictors)


def predict_batch(
    schedule: Schedule, batch: DrawBatch, prepared: PreparedModels, pool: Pool
) -> tuple[list[Outcome], int]:
    """Return a batch's outcomes and number of predictions; plans run in parallel, or the models of each one.

    Plans share the reference and the original, whose predictors take one thread at a time. A perturbation from outside
    may hold a network, so it is never called from two threads.
    """
    if batch.clean:
        keys = {key for _, targets in prepared.plans for key in targets}
        return predict(prepared, keys, [batch.x], batch.columns, pool), len(batch.x) * len(prepared.predictors)
    plans = prepared.plans
    if pool and len(plans) > 1 and type(schedule.perturbation) in (FGSM, PGD):
        outcomes = list(pool.map(lambda plan: predict_plan(schedule, batch, prepared, plan, None), plans))
    else:
        outcomes = [predict_plan(schedule, batch, prepared, plan, pool) for plan in plans]
    return list(chain(*outcomes)), len(batch.x) * len(batch.columns) * prepared.passes_per_row()


def predict_plan(
    schedule: Schedule, batch: DrawBatch, prepared: PreparedModels, plan: CraftPlan, pool: Pool
) -> list[Outcome]:
    """Return the outcomes of one plan at each radius of a batch; small batches are shown at several at once."""
    crafter = prepared.crafters[plan.source]
    aimed = crafter.aim(batch.x, batch.y, batch.randomness)
    outcomes: list[Outcome] = []
    at_once = max(1, schedule.rows // len(batch.x))
    for start in range(0, len(batch.columns), at_once):
        columns = batch.columns[start : start + at_once]
        moved = [crafter.apply(schedule.taus[column], batch.x, batch.y, aimed) for column in columns]
        outcomes += predict(prepared, plan.targets, moved, columns, pool)
    return outcomes


def predict(
    prepared: PreparedModels, keys: Collection[int], inputs: list[Tensor], columns: tuple[int, ...], pool: Pool
) -> list[Outcome]:
    """Return the outcomes of some models, each asked once for the inputs of all columns together."""
    x, size = torch.cat(inputs), len(inputs[0])
    asked = sorted(prepared.asked(keys))
    parallel_map = pool.map if pool else map
    answers = parallel_map(lambda key: torch.split(prepared.predictors[key](x), size), asked)
    predicted = dict(zip(asked, answers, strict=True))
    reference = predicted[prepared.reference]
    original = None if prepared.original is None else predicted[prepared.original]
    return [
        Outcome(column, key, predicted[key][i], reference[i], original[i] if original else None)
        for i, column in enumerate(columns)
        for key in keys
    ]


@contextmanager
def workers() -> Iterator[Pool]:
    """Yield a pool of as many workers as torch has threads, one thread each: faster than splitting single operators."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield None
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
