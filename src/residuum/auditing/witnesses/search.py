"""Search within the l-infinity ball: projected gradient steps of which any iterate may succeed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from residuum.auditing.predictor import Predictor
from residuum.perturbations import Bounds, clamped
from residuum.perturbations.gradient import loss_gradient

STEPS = 20
REACH = 2.5  # all steps together, in radii

Direction = Callable[[Tensor], Tensor]
Success = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Found:
    """For each row whether the search succeeded, and the success of smallest norm (elsewhere the centre)."""

    success: Tensor
    x: Tensor

    def norms(self, centre: Tensor) -> Tensor:
        """Return the l-infinity distance from the centre in float64, infinite where nothing was found."""
        distance = (self.x.double() - centre.double()).abs().flatten(1).amax(1)
        return distance.masked_fill(~self.success, float("inf"))


def search(
    centre: Tensor,
    start: Tensor,
    radius: Tensor,
    uphill: Direction,
    succeeds: Success,
    *,
    bounds: Bounds,
    steps: int = STEPS,
) -> Found:
    """Follow the sign of `uphill` from `start` for so many steps of 2.5 radius / steps, within the ball and the bounds.

    `radius` has one value for each row. `start` counts too; the search ends early when every row has succeeded.
    """
    size = radius.to(centre).reshape(-1, *[1] * (centre.ndim - 1))
    low, high = clamped(centre - size, bounds), clamped(centre + size, bounds)
    moved = start.clamp(low, high)
    found = Found(succeeds(moved), moved.clone())
    for _ in range(steps):
        if found.success.all():
            break
        moved = (moved + REACH / steps * size * uphill(moved).sign()).clamp(low, high)
        found = _nearer(found, Found(succeeds(moved), moved), centre)
    return Found(found.success, torch.where(_rows(found.success, centre), found.x, centre))


def _nearer(one: Found, other: Found, centre: Tensor) -> Found:
    better = other.norms(centre) < one.norms(centre)
    return Found(one.success | other.success, torch.where(_rows(better, centre), other.x, one.x))


def _rows(mask: Tensor, like: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class Goal:
    """What a search on one model wants of the labels y: that they are predicted, or with `away` that they are not."""

    predictor: Predictor
    y: Tensor
    away: bool = False

    def uphill(self, x: Tensor) -> Tensor:
        """Return the direction in which the wish comes nearer."""
        device = self.predictor.device
        gradient = loss_gradient(self.predictor.fast, x.to(device), self.y.to(device)).cpu()
        return gradient if self.away else -gradient

    def reached(self, x: Tensor) -> Tensor:
        """Return on which rows the wish is fulfilled."""
        return (self.predictor(x) == self.y) ^ self.away
