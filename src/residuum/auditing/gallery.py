"""The gallery: perturbed pictures of the most suspicious samples, and which models recognize them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from residuum.auditing.auditor import Auditor
from residuum.auditing.counting import Schedule, rows_for
from residuum.auditing.statistics import sign_test
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.gallery import Gallery
from residuum.core.inputs import PIXELS, InputSpace
from residuum.core.samples import Samples
from residuum.perturbations import Perturbation, make_perturbation

SAMPLES, RADII, DRAWS = 12, 3, 6


def make_gallery(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: str | Perturbation,
    counts: Mapping[str, Counts],
    *,
    seed: int,
    space: InputSpace = PIXELS,
) -> Gallery:
    """Return the 12 samples with the smallest sign-test p over all rows, at 3 radii of the audit, 6 draws each.

    The draws are the first of the audit with the same seed, so that the pictures are part of what was counted. All rows
    are shown the same pictures: gradient attacks are crafted on the reference.
    """
    attack = make_perturbation(perturbation)
    position = {sample_id: i for i, sample_id in enumerate(samples.ids)}
    suspects = samples.subset([position[sample_id] for sample_id in most_suspicious(counts, SAMPLES)])
    taus = shown_radii(next(iter(counts.values())).taus)
    prepared = Auditor(models, reference, attack, taus, seed, crafted_on="reference", space=space).prepare(samples)
    schedule = Schedule(suspects, attack, taus, ((0, DRAWS),) * len(taus), seed, rows_for(samples.shape))
    shape = (len(suspects), len(taus), DRAWS)
    images = np.zeros((*shape, *samples.shape), np.uint8)
    right = {key: np.zeros(shape, np.bool_) for key in prepared.predictors}
    (crafter,) = prepared.crafters.values()
    for batch in schedule.batches(range(len(suspects))):
        aimed = crafter.aim(batch.x, batch.y, batch.randomness)
        positions = torch.unique_consecutive(batch.positions).numpy()
        for column in batch.columns:
            moved = crafter.apply(schedule.taus[column], batch.x, batch.y, aimed)
            pixels = (moved * 255).round().to(torch.uint8).numpy()
            images[positions, column] = pixels.reshape(len(positions), DRAWS, *pixels.shape[1:])
            for key, predictor in prepared.predictors.items():
                answers = (predictor(moved) == batch.y).numpy()
                right[key][positions, column] = answers.reshape(len(positions), DRAWS)
    ids, rows = np.array(suspects.ids, np.str_), np.array(list(models), np.str_)
    rows_right = np.stack([right[id(model)] for model in models.values()])
    return Gallery(ids, suspects.y.numpy(), np.array(taus), rows, images, right[prepared.reference], rows_right)


def most_suspicious(tables: Mapping[str, Counts], many: int) -> tuple[str, ...]:
    """Return the ids with the smallest sign-test p over all rows and radii above 0 (ties: by id)."""
    best: dict[str, float] = {}
    for counts in tables.values():
        p = sign_test(counts)[:, counts.taus > 0].min(axis=1, initial=1.0)
        for sample_id, value in zip(counts.ids, p, strict=True):
            best[sample_id] = min(float(value), best.get(sample_id, 1.0))
    return tuple(sorted(best, key=lambda sample_id: (best[sample_id], sample_id))[:many])


def shown_radii(taus: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    """Return the smallest, the middle and the largest radius above 0.

    >>> shown_radii([0, 0.1, 0.2, 0.3, 0.4])
    (0.1, 0.3, 0.4)
    """
    moving = sorted(float(tau) for tau in taus if tau > 0)
    if not moving:
        raise InputError("expected an audit with at least one radius above 0")
    return tuple(dict.fromkeys([moving[0], moving[len(moving) // 2], moving[-1]]))
