"""What an audit will cost, from a measured probe, before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from residuum.auditing.auditor import CraftedOn, checked_radii, prepare_models
from residuum.auditing.engine import PreparedModels, passes, predict_transfer, probe_batch, workers
from residuum.auditing.stream import Group, Work, make_work
from residuum.perturbations import Perturbation, block_generator, make_perturbation
from residuum.types import Samples


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
    draws: int,
    seed: int = 0,
    crafted_on: CraftedOn = "unlearned",
) -> Cost:
    """Return the cost of `audit` with these arguments: one batch is perturbed and shown, and its time scaled.

    Crafting takes part in the time, not in the number of passes.
    """
    chosen, radii = make_perturbation(perturbation), checked_radii(taus)
    prepared = prepare_models(models, reference, chosen, crafted_on, probe_batch(samples, max(radii), seed))
    work = make_work(samples, chosen, radii, (0, draws), seed=seed, classes=prepared.classes)
    total = passes(work, prepared)
    return Cost(total, total * seconds_per_pass(work, prepared))


def seconds_per_pass(work: Work, prepared: PreparedModels) -> float:
    """Return the time of one prediction, crafting included, measured on a batch of usual size (second of two runs)."""
    positions = torch.arange(work.rows) % len(work.samples)
    randomness = work.perturbation.draw(block_generator(work.seed, "cost", 0), work.rows, work.samples.shape)
    group = Group((work.taus.index(max(work.taus)),), positions, *work.samples.batch(positions), randomness)
    with workers() as pool:
        for _ in range(2):
            start = time.perf_counter()
            for transfer in prepared.transfers:
                predict_transfer(work, group, prepared, transfer, pool)
            spent = time.perf_counter() - start
    return spent / (work.rows * prepared.passes_per_row())
