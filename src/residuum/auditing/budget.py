"""The budget of an audit: how many draws a wanted half-width needs, and what an audit will cost.

A pilot says how many draws are needed, then all are made at once: one look, one final interval. Stopping when an
interval looks narrow enough, or spending draws where the last look was wide, ends preferably at underestimated
variances, and such intervals cover less often than they say. The cost comes from a measured batch.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from residuum.auditing.counts import Counts
from residuum.auditing.engine import (
    CraftedOn,
    PreparedModels,
    clean_passes,
    passes,
    predict_group,
    prepare_models,
    workers,
)
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.measures import pooled_ratio
from residuum.auditing.statistics import normal_quantile, paired_variance
from residuum.auditing.stream import Group, Work, checked_radii, make_work
from residuum.perturbations import Perturbation, block_generator, make_perturbation
from residuum.types import Samples

RESERVE = 1.1  # the pilot's variance is itself uncertain: ask for a little more than it says
FEW = 8  # rows of the first trial of a cost
ENOUGH = 0.5  # seconds of the batch that is measured


def pilot_draws(samples: int) -> int:
    """Return the pilot's draws of each sample: max(4, ceil(1000 / n))."""
    return max(4, -(-1000 // samples))


def draws_needed(
    pilots: Iterable[Counts], *, half_width: float, max_draws: int, confidence: float = 0.95
) -> NDArray[np.int64]:
    """Return how many draws of each sample the widest model needs at each radius, shape (T,).

    n = z^2 sum_i v_i / (half_width * sum_i p_a,i)^2, v_i estimated by the pilot; where the reference is never right the
    difference p_m - p_a takes the place of the ratio. At least the pilot's own draws, at most `max_draws`.
    """
    pilots = list(pilots)
    needed = np.max([needed_by(pilot, half_width, confidence) for pilot in pilots], axis=0)
    spent = np.min([pilot.draws.min(axis=0) for pilot in pilots], axis=0)
    total: NDArray[np.int64] = np.clip(np.ceil(needed), spent, np.maximum(max_draws, spent)).astype(np.int64)
    return total


def needed_by(pilot: Counts, half_width: float, confidence: float) -> NDArray[np.float64]:
    """Return the draws one model needs, not rounded."""
    z = normal_quantile(confidence)
    r, _, _ = pooled_ratio(pilot, confidence=confidence)
    scale = np.where(np.isnan(r), len(pilot), (pilot.reference_right / pilot.draws).sum(0))
    per_draw = paired_variance(pilot, np.where(np.isnan(r), 1.0, r)) * pilot.draws.mean(axis=0)
    needed: NDArray[np.float64] = RESERVE * z**2 * per_draw / (half_width * scale) ** 2
    return np.where(pilot.taus == 0, 0.0, needed)


def as_many(draws: Sequence[int], samples: int, twins: int) -> tuple[tuple[int, int], ...]:
    """Return the spans of draws that show held-out twins as many inputs as the samples: fewer each where they are more.

    >>> as_many([1, 10, 25], 100, 200)
    ((0, 1), (0, 5), (0, 13))
    """
    return tuple((0, -(-many * samples // max(samples, twins))) for many in draws)


@dataclass(frozen=True)
class Cost:
    """Predictions to make, and the seconds they are expected to take on this machine."""

    passes: int
    seconds: float

    def __str__(self) -> str:
        """Say it in one line.

        >>> str(Cost(1_200_000, 5400))
        '1,200,000 forward passes, about 90 minutes'
        """
        minutes = self.seconds / 60
        amount = f"{minutes:.0f} minutes" if minutes >= 2 else f"{self.seconds:.0f} seconds"
        return f"{self.passes:,} forward passes, about {amount}"


def estimate_cost(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: str | Perturbation | Callable[..., Tensor],
    *,
    taus: Sequence[float],
    draws: int | None = None,
    max_draws: int = 1000,
    seed: int = 0,
    crafted_on: CraftedOn = "unlearned",
    heldout: Samples | None = None,
    original: nn.Module | None = None,
) -> Cost:
    """Return the cost of `audit` with these arguments: a batch is perturbed and shown, and its time scaled.

    Without `draws`, that of an audit by half-width which needs `max_draws`. Crafting takes part in the time, not in the
    number of passes.
    """
    chosen, radii = make_perturbation(perturbation), checked_radii(taus)
    few = samples.subset(range(min(2, len(samples))))  # they are shown in float64 to prepare the models: slow
    prepared = prepare_models(
        models,
        reference,
        few,
        chosen,
        radius=max(radii),
        crafted_on=crafted_on,
        seed=seed,
        original=original,
        invariance="free",
    )
    work = make_work(samples, chosen, radii, (0, draws or max_draws), seed=seed, classes=prepared.classes)
    shown = [work] if heldout is None else [work, work_beside(work, choose_heldout(heldout, samples), draws)]
    clean, total = (sum(count(each, prepared) for each in shown) for count in (clean_passes, passes))
    seconds = clean * seconds_per_pass(work, prepared, clean=True) if clean else 0.0
    seconds += (total - clean) * seconds_per_pass(work, prepared, clean=False) if total > clean else 0.0
    return Cost(total, seconds)


def work_beside(work: Work, twins: Samples, draws: int | None) -> Work:
    """Return the work of showing held-out twins: as many draws, or, where a half-width chooses them, as many inputs."""
    shown = replace(work, samples=twins)
    if draws is not None or work.enumerated is not None:
        return shown
    return replace(shown, spans=as_many(work.draws, len(work.samples), len(twins)))


def seconds_per_pass(work: Work, prepared: PreparedModels, *, clean: bool) -> float:
    """Return the time of one prediction of samples as they are, or of perturbed ones, crafting included.

    A few rows say how many make a batch that takes `ENOUGH` seconds; that one is measured, at most of usual size.
    """

    def seconds_of(rows: int) -> tuple[float, int]:
        group = first_rows(rows, work, clean=clean)
        start = time.perf_counter()
        _, made = predict_group(work, group, prepared, pool)
        return time.perf_counter() - start, made

    with workers() as pool:
        spent, made = min(seconds_of(FEW) for _ in range(2))  # the first finds nothing prepared
        rows = min(work.rows, max(FEW, round(FEW * ENOUGH / spent)))
        if rows > FEW:
            spent, made = seconds_of(rows)
    return spent / made


def first_rows(rows: int, work: Work, *, clean: bool = False) -> Group:
    """Return a group of so many rows as they are, or at all radii above 0, which share what an attack aims at."""
    columns = tuple(t for t, tau in enumerate(work.taus) if (tau == 0) == clean)
    positions = torch.arange(rows) % len(work.samples)
    randomness = work.perturbation.draw(block_generator(work.seed, "cost", 0), rows, work.samples.shape)
    return Group(columns, positions, *work.samples.batch(positions), randomness, clean=clean)
