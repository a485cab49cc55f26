"""The stream of perturbed inputs: what is shown, in which order, with which randomness."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.perturbations import BLOCK, Perturbation, Randomness, block_generator, block_slices, stack

Span = tuple[int, int]  # draws first..last-1
Radii = tuple[float, ...]


def checked_radii(taus: Sequence[float]) -> Radii:
    """Return the radii as floats; refuse none, negative, repeated or infinite ones."""
    radii = tuple(float(tau) for tau in taus)
    if not radii or len(set(radii)) < len(radii) or not all(math.isfinite(tau) and tau >= 0 for tau in radii):
        raise InputError(f"expected one or more different finite radii >= 0, got {list(taus)}")
    return radii


@dataclass(frozen=True)
class Schedule:
    """What an audit shows: at radius taus[t], draws spans[t][0]..spans[t][1]-1 of every sample.

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

    def draw(self, rng: np.random.Generator, rows: int) -> Randomness:
        """Return the randomness of `rows` inputs."""
        shape = (math.prod(self.samples.shape) - self.untouched,) if self.untouched else self.samples.shape
        return self.perturbation.draw(rng, rows, shape).after(self.untouched)

    @property
    def draws(self) -> tuple[int, ...]:
        """Draws of each sample at each radius."""
        return tuple(last - first for first, last in self.spans)


@dataclass(frozen=True)
class DrawBatch:
    """Draws of samples positions[i], to be shown at the radii `columns`; `clean` ones as they are, at radius 0."""

    columns: tuple[int, ...]
    positions: Tensor
    x: Tensor
    y: Tensor
    randomness: Randomness
    clean: bool = False


def make_schedule(
    samples: Samples,
    perturbation: Perturbation,
    taus: Radii,
    draws: Span,
    *,
    seed: int,
    classes: int,
    rows: int = 0,
    untouched: int = 0,
) -> Schedule:
    """Return the schedule of these draws, or all outcomes where they can be enumerated; 0 `rows`: by input size."""
    enumerated = perturbation.outcomes(classes)
    outcomes = None if enumerated is None or enumerated.uniform is None else len(enumerated.uniform)
    spans = spans_of(taus, *draws, outcomes)
    return Schedule(samples, perturbation, taus, spans, seed, rows or rows_for(samples.shape), enumerated, untouched)


def spans_of(taus: Radii, first: int, last: int, outcomes: int | None) -> tuple[Span, ...]:
    """Return the draws of each radius: one at radius 0 and all outcomes once, both only when an audit begins."""
    begins = int(first == 0)
    moving = (first, last) if outcomes is None else (0, begins * outcomes)
    return tuple(moving if tau > 0 else (0, begins) for tau in taus)


def segments(schedule: Schedule) -> Iterator[tuple[Span, tuple[int, ...]]]:
    """Yield ranges of draws with the radii above 0 that need them; draws that several radii share are made once."""
    moving = [t for t, tau in enumerate(schedule.taus) if tau > 0]
    cuts = sorted({end for t in moving for end in schedule.spans[t]})
    for first, last in pairwise(cuts):
        columns = tuple(t for t in moving if schedule.spans[t][0] <= first and last <= schedule.spans[t][1])
        if columns:
            yield (first, last), columns


def clean_batches(schedule: Schedule) -> Iterator[DrawBatch]:
    """Yield the samples as they are, for radius 0."""
    columns = tuple(t for t, tau in enumerate(schedule.taus) if tau == 0 and schedule.draws[t])
    if columns:
        for positions in torch.split(torch.arange(len(schedule.samples)), schedule.rows):
            yield DrawBatch(columns, positions, *schedule.samples.batch(positions), Randomness(), clean=True)


def draw_batches(schedule: Schedule) -> Iterator[DrawBatch]:
    """Yield every draw of every sample once, a block of some samples at a time: memory does not grow with them."""
    for span, columns in segments(schedule):
        for block, inside in [(0, slice(*span))] if schedule.enumerated is not None else block_slices(*span):
            many = inside.stop - inside.start
            for positions in torch.split(torch.arange(len(schedule.samples)), max(1, schedule.rows // many)):
                randomness = stack([keyed_randomness(schedule, int(position), block, inside) for position in positions])
                repeated = positions.repeat_interleave(many)
                yield DrawBatch(columns, repeated, *schedule.samples.batch(repeated), randomness)


def keyed_randomness(schedule: Schedule, position: int, block: int, inside: slice) -> Randomness:
    """Return the randomness of one sample's block, which depends on seed, id and block only, or all outcomes."""
    if schedule.enumerated is not None:
        return schedule.enumerated
    rng = block_generator(schedule.seed, schedule.samples.ids[position], block)
    return schedule.draw(rng, BLOCK).rows(inside)


def rows_for(shape: tuple[int, ...]) -> int:
    """Return how many inputs of this shape to process at once: enough for the processor, little for the memory.

    >>> rows_for((3, 32, 32)), rows_for((1, 8, 8))
    (170, 1024)
    """
    return max(32, min(1024, 2**19 // max(math.prod(shape), 1)))
