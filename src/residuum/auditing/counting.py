"""Counting: every perturbed input is shown to all models, and the counts say which of them recognize it.

A `Schedule` says what is shown, in which order and with which randomness. `count_predictions` shows it.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.crafting import Crafter
from residuum.auditing.predictor import Predictor
from residuum.core import devices
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data.dataset import add_samples
from residuum.models.shifting import ShiftedAt, with_shift
from residuum.models.weights import state_hash
from residuum.perturbations import BLOCK, Perturbation, Randomness, block_generator, block_slices, stack
from residuum.training.checkpoint import Checkpoint, State

Span = tuple[int, int]  # draws first..last-1
Radii = tuple[float, ...]
Progress = Callable[[int, int], None]
Pool = ThreadPoolExecutor | None


class DrawBatch(NamedTuple):
    """Draws of samples positions[i], to be shown at the radii `columns`; `clean` ones as they are, at radius 0."""

    columns: tuple[int, ...]
    positions: Tensor
    x: Tensor
    y: Tensor
    randomness: Randomness = Randomness()
    clean: bool = False


@dataclass(frozen=True)
class Schedule:
    """What an audit shows: at radius taus[t], draws spans[t][0]..spans[t][1]-1 of every sample, `rows` inputs at once.

    `enumerated` holds the randomness of all outcomes of a perturbation that is enumerated instead of drawn; then every
    sample has exactly these outcomes at each radius above 0. No noise is drawn for the first `untouched` numbers of
    each flat input: at a layer, these are the input of the model.
    """

    samples: Samples
    perturbation: Perturbation
    taus: Radii
    spans: tuple[Span, ...]
    seed: int
    rows: int
    enumerated: Randomness | None = None
    untouched: int = 0

    @classmethod
    def of(
        cls,
        samples: Samples,
        perturbation: Perturbation,
        taus: Radii,
        draws: Span,
        *,
        seed: int,
        classes: int,
        rows: int | None = None,
        untouched: int = 0,
    ) -> "Schedule":
        """Return the schedule of these draws, or of all outcomes where they can be enumerated.

        Only an audit that begins with draw 0 shows all outcomes, and one draw at radius 0.
        """
        enumerated = perturbation.outcomes(classes)
        begins = int(draws[0] == 0)
        if enumerated is not None:
            draws = (0, begins * max(len(part) for part in enumerated if part is not None))
        spans = tuple(draws if tau > 0 else (0, begins) for tau in taus)
        return cls(samples, perturbation, taus, spans, seed, rows or rows_for(samples.shape), enumerated, untouched)

    @property
    def draws(self) -> tuple[int, ...]:
        """Draws of each sample at each radius."""
        return tuple(last - first for first, last in self.spans)

    def draw(self, rng: np.random.Generator, rows: int) -> Randomness:
        """Return the randomness of `rows` inputs."""
        shape = (math.prod(self.samples.shape) - self.untouched,) if self.untouched else self.samples.shape
        return self.perturbation.draw(rng, rows, shape).after(self.untouched)

    def batches(self, positions: Sequence[int]) -> Iterator[DrawBatch]:
        """Yield the samples at these positions as they are, then every draw of each once.

        Radii share the draws that they have in common. A batch has one block of draws of some samples, so memory does
        not grow with either. The randomness depends on seed, id and block only.
        """
        if not positions:  # one of several processes may have none, and a forget set no held-out ones
            return
        rows = torch.tensor(positions)
        if clean := tuple(t for t, tau in enumerate(self.taus) if tau == 0 and self.draws[t]):
            for part in torch.split(rows, self.rows):
                yield DrawBatch(clean, part, *self.samples.batch(part), clean=True)
        moving = [t for t, tau in enumerate(self.taus) if tau > 0]
        for first, last in pairwise(sorted({end for t in moving for end in self.spans[t]})):
            columns = tuple(t for t in moving if self.spans[t][0] <= first and last <= self.spans[t][1])
            if not columns:
                continue
            for block, inside in [(0, slice(first, last))] if self.enumerated else block_slices(first, last):
                draws = inside.stop - inside.start
                for part in torch.split(rows, max(1, self.rows // draws)):
                    randomness = [
                        self.enumerated or self.draw(block_generator(self.seed, name, block), BLOCK).rows(inside)
                        for name in (self.samples.ids[position] for position in part)
                    ]
                    repeated = part.repeat_interleave(draws)
                    yield DrawBatch(columns, repeated, *self.samples.batch(repeated), stack(randomness))


def rows_for(shape: tuple[int, ...]) -> int:
    """Return how many inputs of this shape to process at once: enough for the processor, little for the memory.

    >>> rows_for((3, 32, 32)), rows_for((1, 8, 8))
    (170, 1024)
    """
    return max(32, min(1024, 2**19 // max(math.prod(shape), 1)))


@dataclass(frozen=True)
class PreparedModels:
    """The models of an audit, ready to predict; a key is the `id` of the user's module.

    There is one predictor for each distinct module. Inputs crafted on the model `source` are shown to the models
    `plans[source]`. At a layer, models take flat inputs followed by a shift of its output; `layer` is the reference
    that does.
    """

    predictors: dict[int, Predictor]
    crafters: dict[int, Crafter]
    plans: dict[int, tuple[int, ...]]
    reference: int
    original: int | None
    probe: Tensor
    layer: ShiftedAt | None = None

    @property
    def classes(self) -> int:
        """Number of classes of the reference."""
        return self.predictors[self.reference].classes

    @property
    def untouched(self) -> int:
        """How many numbers of each flat input are the model's own input: at a layer, these are never moved."""
        return math.prod(self.layer.shape) if self.layer else 0

    def inputs(self, samples: Samples) -> Samples:
        """Return the samples as the models take them: at a layer, each is followed by a shift of 0."""
        return samples if self.layer is None else with_shift(samples, self.layer.size)

    def predicting(self, keys: Iterable[int]) -> set[int]:
        """Return the keys of all models whose predictions these models' counts need: theirs and both references'."""
        return {*keys, self.reference} | ({self.original} if self.original is not None else set())

    def passes(self, schedule: Schedule) -> tuple[int, int]:
        """Return the numbers of predictions of samples as they are and of perturbed ones, without crafting."""
        clean, perturbed = (
            sum(draws for draws, tau in zip(schedule.draws, schedule.taus, strict=True) if (tau > 0) == moving)
            for moving in (False, True)
        )
        n = len(devices.share_of(len(schedule.samples)))
        at_once = sum(len(self.predicting(targets)) for targets in self.plans.values())
        return n * clean * len(self.predictors), n * perturbed * at_once


@dataclass
class SavedCounts:
    """The states of an audit, one schedule after the other, in one checkpoint; `identity` says which audit it is."""

    identity: str
    checkpoint: Checkpoint
    earlier: list[State] = field(init=False)
    finished: list[State] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        state = self.checkpoint.restore() or {"identity": self.identity, "states": []}
        if state["identity"] != self.identity:
            other = f"that of another audit: {self.checkpoint.path}"
            raise InputError(f"expected the checkpoint of the same audit, got {other}; give another file")
        self.earlier = state["states"]

    def resumed(self, state: State) -> State:
        """Return the saved form of this state; the state itself if there is none, or one of another pilot's draws."""
        position = len(self.finished)
        resumes = position < len(self.earlier) and self.earlier[position]["spans"] == state["spans"]
        return self.earlier[position] if resumes else state

    def save_if_due(self, state: State) -> None:
        """Save all states, the last one unfinished, unless the checkpoint was written lately."""
        self.checkpoint.save(lambda: {"identity": self.identity, "states": [*self.finished, state]})


def identity(facts: Sequence[object], models: Iterable[nn.Module], shown: Iterable[Samples]) -> str:
    """Return a hash of all that decides what is counted: settings, networks with their weights, and samples."""
    text = json.dumps(facts, sort_keys=True, default=lambda thing: type(thing).__qualname__)
    digest = hashlib.sha256(text.encode())
    for model in models:
        digest.update(f"{model}{state_hash(model.state_dict())}".encode())
    for samples in shown:
        add_samples(digest, samples)
    return digest.hexdigest()


def count_predictions(
    schedule: Schedule,
    prepared: PreparedModels,
    names: Mapping[str, int],
    report: Callable[[int], None] | None = None,
    saved: SavedCounts | None = None,
) -> dict[str, Counts]:
    """Return the counts of every named model; `names` maps to keys. With `saved` it resumes where it was stopped.

    Each process counts its share of the samples, and all return the sum. `report` is called with the number of
    predictions of this process.
    """
    keys, shape = list(dict.fromkeys(names.values())), (len(schedule.samples), len(schedule.taus))
    state: State = {
        "spans": [list(span) for span in schedule.spans],
        "batches": 0,
        "passes": 0,
        "joint": torch.zeros(len(keys), *shape, 8, dtype=torch.int32),
        "same": torch.zeros(len(keys), *shape, dtype=torch.int32),
    }
    if saved:
        state = saved.resumed(state)
    n = len(schedule.samples)
    with workers() as pool:
        for batch in islice(schedule.batches(devices.share_of(n)), state["batches"], None):
            rows = batch.positions
            for column, audited, predicted in predictions(schedule, batch, prepared, pool):
                right = {key: (labels == batch.y).int() for key, labels in predicted.items()}
                original = torch.zeros_like(rows) if prepared.original is None else right[prepared.original]
                for key in audited:
                    k, pattern = keys.index(key), 4 * original + 2 * right[key] + right[prepared.reference]
                    agreeing = rows[predicted[key] == predicted[prepared.reference]]
                    state["joint"][k, :, column] += torch.bincount(8 * rows + pattern, minlength=8 * n).view(n, 8).int()
                    state["same"][k, :, column] += torch.bincount(agreeing, minlength=n).int()
                state["passes"] += len(rows) * len(predicted)
            state["batches"] += 1
            if saved:
                saved.save_if_due(state)
            if report:
                report(state["passes"])
    if saved:
        saved.finished.append(state)
    shown = schedule.samples.ids, schedule.samples.y.numpy(), schedule.taus
    patterns = 4 if prepared.original is None else 8  # without the original, the first four are all there are
    joint, same = (devices.all_reduce(state[name], "sum").numpy() for name in ("joint", "same"))
    tables = {key: Counts.of_joint(*shown, joint[k, ..., :patterns], same[k]) for k, key in enumerate(keys)}
    return {name: tables[key] for name, key in names.items()}


@dataclass
class Counting:
    """Counts one schedule after the other, with one progress and one checkpoint for all."""

    prepared: PreparedModels
    names: Mapping[str, int]
    progress: Progress | None
    saved: SavedCounts | None
    passes: int = 0  # predictions of finished schedules

    def __call__(self, schedules: Sequence[Schedule]) -> list[dict[str, Counts]]:
        """Return the counts of each schedule by the names of the models."""
        sizes = [sum(self.prepared.passes(schedule)) for schedule in schedules]
        total, tables = self.passes + sum(sizes), []

        def report(done: int) -> None:
            if self.progress is not None:
                self.progress(self.passes + done, total)

        for schedule, size in zip(schedules, sizes, strict=True):
            tables.append(count_predictions(schedule, self.prepared, self.names, report, self.saved))
            self.passes += size
        return tables


def predictions(
    schedule: Schedule, batch: DrawBatch, prepared: PreparedModels, pool: Pool
) -> Iterator[tuple[int, tuple[int, ...], dict[int, Tensor]]]:
    """Yield each radius with the models to count there and the labels that these, reference and original predict."""
    if batch.clean:
        audited = tuple(chain.from_iterable(prepared.plans.values()))
        for column, labels in zip(batch.columns, predict(prepared, audited, [batch.x], pool), strict=True):
            yield column, audited, labels
        return
    at_once = max(1, schedule.rows // len(batch.x))  # small batches are shown at several radii at once
    for source, audited in prepared.plans.items():
        crafter = prepared.crafters[source]
        aimed = crafter.aim(batch.x, batch.y, batch.randomness)
        for start in range(0, len(batch.columns), at_once):
            columns = batch.columns[start : start + at_once]
            moved = [crafter.apply(schedule.taus[column], batch.x, batch.y, aimed) for column in columns]
            for column, labels in zip(columns, predict(prepared, audited, moved, pool), strict=True):
                yield column, audited, labels


def predict(
    prepared: PreparedModels, audited: Iterable[int], inputs: list[Tensor], pool: Pool
) -> Iterator[dict[int, Tensor]]:
    """Yield for each of the inputs the labels that the models predict, each model called once for all of them."""
    x, size, keys = torch.cat(inputs), len(inputs[0]), sorted(prepared.predicting(audited))
    parallel_map = pool.map if pool else map
    by_model = list(parallel_map(lambda key: torch.split(prepared.predictors[key](x), size), keys))
    for labels in zip(*by_model, strict=True):
        yield dict(zip(keys, labels, strict=True))


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
