"""What an audit costs: its predictions, and the time of a measured batch scaled to all of them."""

import time
from dataclasses import dataclass, replace

import torch

from residuum.auditing.auditor import Auditor
from residuum.auditing.budget import Draws, as_many
from residuum.auditing.counting import DrawBatch, PreparedModels, Schedule, predict_batch, workers
from residuum.auditing.heldout import choose_heldout
from residuum.core.samples import Samples
from residuum.perturbations import block_generator

FEW = 8  # rows of the first trial of a cost
ENOUGH = 0.5  # seconds of the batch that is measured


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


def estimate_cost(auditor: Auditor, samples: Samples, draws: int | Draws, *, heldout: Samples | None = None) -> Cost:
    """Return the cost of `auditor.count` with these arguments: a batch is perturbed and shown, and its time scaled.

    With a half-width it is that of an audit which needs the maximum of draws. Crafting takes part in the time, not in
    the number of passes. The auditor is prepared for timing only: do not count with it.
    """
    budget = draws if isinstance(draws, Draws) else Draws(draws)
    few = samples.subset(range(min(2, len(samples))))  # they are shown in float64 to prepare the models: slow
    prepared = auditor.prepare(few, invariance="free")
    schedule = auditor.schedule(prepared.inputs(samples), (0, budget.most))
    schedules = [schedule]
    if heldout is not None:
        beside = replace(schedule, samples=prepared.inputs(choose_heldout(heldout, samples)))
        if budget.number is None and schedule.enumerated is None:
            beside = replace(beside, spans=as_many(schedule.draws, len(samples), len(beside.samples)))
        schedules.append(beside)
    clean, perturbed = (sum(numbers) for numbers in zip(*map(prepared.passes, schedules), strict=True))
    seconds = clean * seconds_per_pass(schedule, prepared, clean=True) if clean else 0.0
    seconds += perturbed * seconds_per_pass(schedule, prepared, clean=False) if perturbed else 0.0
    return Cost(clean + perturbed, seconds)


def seconds_per_pass(schedule: Schedule, prepared: PreparedModels, *, clean: bool) -> float:
    """Return the time of one prediction of clean samples, or of perturbed ones at all radii, crafting included.

    A few rows say how many make a batch that takes `ENOUGH` seconds. That batch is measured, at most of usual size.
    """
    columns = tuple(t for t, tau in enumerate(schedule.taus) if (tau == 0) == clean)

    def seconds_of(rows: int) -> tuple[float, int]:
        positions = torch.arange(rows) % len(schedule.samples)
        randomness = schedule.draw(block_generator(schedule.seed, "cost", 0), rows)
        batch = DrawBatch(columns, positions, *schedule.samples.batch(positions), randomness, clean)
        start = time.perf_counter()
        _, made = predict_batch(schedule, batch, prepared, pool)
        return time.perf_counter() - start, made

    with workers() as pool:
        spent, made = min(seconds_of(FEW) for _ in range(2))  # the first finds nothing prepared
        rows = min(schedule.rows, max(FEW, round(FEW * ENOUGH / spent)))
        if rows > FEW:
            spent, made = seconds_of(rows)
    return spent / made
