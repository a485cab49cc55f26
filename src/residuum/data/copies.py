"""Copies: samples whose input is equal, or nearly equal, to another one's."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from residuum.core.samples import Samples, Splits
from residuum.data.images import ImageFiles

ROWS = 4096  # inputs that are hashed at a time
DIRECTIONS = 32  # random ones, in which distances are measured: they are right within about an eighth
NEIGHBORS = 200  # training samples whose nearest neighbors say which distance is usual
EQUAL = 1e-6  # distances below are those of equal inputs
NEAR = 0.1  # of the usual distance


def equal_inputs(parts: Sequence[Samples], many: Samples) -> list[tuple[str, ...]]:
    """Return for each part the ids of samples whose input is equal to one among many, which are read once.

    Images in files are compared as files.

    >>> points = Samples(torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([0, 1]), ("a", "b"))
    >>> equal_inputs([points], Samples(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), ("c",)))
    [('b',)]
    """
    if all(isinstance(part.x, ImageFiles) for part in (*parts, many)):
        files = [cast(ImageFiles, part.x) for part in (*parts, many)]
        sizes = {state[0] for part in files[:-1] for state in part.states()}
        same_size = [row for row, state in enumerate(files[-1].states()) if state[0] in sizes]
        hashes = [part.hashes for part in files[:-1]]
        digests_of_many = set(files[-1].subset(torch.tensor(same_size, dtype=torch.int64)).hashes)
    else:
        hashes = [list(_input_hashes(part)) for part in parts]
        digests = {digest for part in hashes for digest in part}
        digests_of_many = digests.intersection(_input_hashes(many))
    return [
        tuple(name for name, digest in zip(part.ids, part_hashes, strict=True) if digest in digests_of_many)
        for part, part_hashes in zip(parts, hashes, strict=True)
    ]


def _input_hashes(samples: Samples) -> Iterator[bytes]:
    for x, _, _ in samples.batches(ROWS):
        content = (x.flatten(1).float() + 0.0).contiguous().numpy()  # -0 is 0
        yield from (hashlib.blake2b(row.data, digest_size=16).digest() for row in content)


def near_copies(splits: Splits, *, tokens: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the forgotten samples next to a retained one, and the held-out samples next to training data.

    Next to means nearer than a tenth of the usual distance between a training sample and its nearest neighbor, as a
    picture is that was saved once more, or a row with one more digit. Columns of tables count in standard deviations.
    Tokens have no distance.
    """
    if tokens:
        return (), ()
    scale = _column_scale(splits.retain)
    generator, features = torch.Generator().manual_seed(0), math.prod(splits.retain.shape)
    directions = (
        torch.randn(features, DIRECTIONS, generator=generator) if features > DIRECTIONS else torch.eye(features)
    )
    projected = [
        torch.cat([((x.flatten(1).float() * scale) @ directions).double() for x, _, _ in samples.batches(ROWS)])
        for samples in (splits.retain, splits.forget, splits.test)
    ]
    retained, forgotten, held_out = projected
    usual = _nearest(retained[torch.randperm(len(retained), generator=generator)[:NEIGHBORS]], retained, apart=True)
    limit = NEAR * float(usual.median())
    if math.isinf(limit):  # most retained samples are equal, so that no distance is usual
        return (), ()
    next_to = _nearest(forgotten, retained) < limit, _nearest(held_out, torch.cat([retained, forgotten])) < limit
    forgotten_ids, held_out_ids = (
        tuple(name for name, near in zip(samples.ids, of.tolist(), strict=True) if near)
        for samples, of in zip((splits.forget, splits.test), next_to, strict=True)
    )
    return forgotten_ids, held_out_ids


def _column_scale(samples: Samples) -> Tensor:
    """Return one over the standard deviation of each column of a table, 0 for constant ones; 1 for other inputs."""
    if len(samples.shape) > 1:
        return torch.ones(1)
    total, squares = torch.zeros(2, *samples.shape, dtype=torch.float64)
    for x, _, _ in samples.batches(ROWS):
        total, squares = total + x.double().sum(0), squares + x.double().square().sum(0)
    mean = total / len(samples)
    deviation = (squares / len(samples) - mean.square()).clamp(min=0).sqrt()
    return torch.where(deviation > EQUAL * mean.abs(), 1 / deviation, 0.0).float()


def _nearest(points: Tensor, others: Tensor, *, apart: bool = False) -> Tensor:
    """Return the distance of each point to the nearest of the others; `apart` leaves out equal ones.

    By matrix products, the faster way, the distance of a point to itself is no exact 0.
    """
    mode = "donot_use_mm_for_euclid_dist" if apart else "use_mm_for_euclid_dist_if_necessary"
    nearest = torch.full((len(points),), math.inf, dtype=points.dtype)
    for rows in torch.split(torch.arange(len(points)), NEIGHBORS):
        for part in torch.split(others, ROWS):
            distances = torch.cdist(points[rows], part, compute_mode=mode)
            if apart:
                distances[distances < EQUAL] = math.inf
            nearest[rows] = torch.minimum(nearest[rows], distances.min(1).values)
    return nearest
