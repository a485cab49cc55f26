"""Search within the l-infinity ball, and the recovery radius: the smallest ball in which it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residuum.auditing.counting import rows_for
from residuum.auditing.predictor import Predictor
from residuum.auditing.statistics import Floats
from residuum.core.inputs import PIXELS, InputSpace
from residuum.core.samples import Samples
from residuum.perturbations.gradient import loss_gradient

STEPS, HALVINGS = 20, 8
REACH = 2.5  # all steps together, in radii

Direction = Callable[[Tensor], Tensor]
Success = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SearchResult:
    """For each row whether the search succeeded, and the success of smallest norm (elsewhere the center)."""

    success: Tensor
    x: Tensor

    def norms(self, center: Tensor) -> Tensor:
        """Return the l-infinity distance from the center in float64, infinite where the search failed."""
        distance = (self.x.double() - center.double()).abs().flatten(1).amax(1)
        return distance.masked_fill(~self.success, float("inf"))


def search(
    center: Tensor,
    start: Tensor,
    radius: Tensor,
    uphill: Direction,
    succeeds: Success,
    *,
    space: InputSpace,
    steps: int = STEPS,
) -> SearchResult:
    """Follow the sign of `uphill` from `start` for so many steps of 2.5 radius / steps, within the ball and the bounds.

    `radius` has one value for each row. `start` counts too; the search ends early when every row has succeeded.
    """
    size = radius.to(center).reshape(-1, *[1] * (center.ndim - 1))
    low, high = space.clamp_(center - size), space.clamp_(center + size)
    moved = start.clamp(low, high)
    best = SearchResult(succeeds(moved), moved.clone())
    for _ in range(steps):
        if best.success.all():
            break
        moved = (moved + REACH / steps * size * uphill(moved).sign()).clamp(low, high)
        step = SearchResult(succeeds(moved), moved)
        nearer = _rows(step.norms(center) < best.norms(center), center)
        best = SearchResult(best.success | step.success, torch.where(nearer, step.x, best.x))
    return SearchResult(best.success, torch.where(_rows(best.success, center), best.x, center))


def _rows(mask: Tensor, like: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class Goal:
    """The goal of a search on one model: that the labels y are predicted, or with `away` that they are not."""

    predictor: Predictor
    y: Tensor
    away: bool = False

    def uphill(self, x: Tensor) -> Tensor:
        """Return the direction toward the goal."""
        device = self.predictor.device
        gradient = loss_gradient(self.predictor.fast, x.to(device), self.y.to(device)).cpu()
        return gradient if self.away else -gradient

    def reached(self, x: Tensor) -> Tensor:
        """Return which rows have reached the goal."""
        return (self.predictor(x) == self.y) ^ self.away


@dataclass(frozen=True)
class Recovery:
    """rho of each sample, shape (n,), and the input x' that was recognized (or, where signed, no longer) there."""

    rho: Floats
    x: Tensor


def recovery_radii(
    predictor: Predictor,
    samples: Samples,
    *,
    tau_max: float,
    labels: Tensor | None = None,
    signed: bool = False,
    space: InputSpace = PIXELS,
) -> Recovery:
    """Return rho(x) = min{tau : some x' within tau of x is given the label}, an upper bound of it by search.

    0 where x is recognized already, infinite where nothing is found within `tau_max`. With `signed` a recognized x has
    minus the smallest radius at which it is *not* recognized: where nearly all are right, only this tells them apart.
    The interval of radii is halved 8 times, and each search starts from the last success clipped into the smaller ball.
    The model is pushed to `labels`, by default those of the samples.

    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.tensor([[0.5], [0.2]]), torch.tensor([1, 0])
    >>> line = torch.nn.Linear(1, 2)
    >>> line.weight.data, line.bias.data = torch.tensor([[0.0], [1.0]]), torch.tensor([0.6, 0.0])
    >>> recovery = recovery_radii(Predictor(line, x), Samples(x, y, ("a", "b")), tau_max=0.5)
    >>> recovery.rho.round(2).tolist()
    [0.1, 0.0]
    """
    labels = samples.y if labels is None else labels
    parts = []
    for x, _, positions in samples.batches(rows_for(samples.shape)):
        y = labels[positions]
        right = predictor(x) == y
        rho, nearest = torch.zeros(len(x), dtype=torch.float64), x.clone()
        for away, rows in ((False, ~right), (True, right)):
            if rows.any() and (signed or not away):
                success = _smallest(Goal(predictor, y[rows], away), x[rows], tau_max, space)
                rho[rows] = success.norms(x[rows]) * (-1 if away else 1)
                nearest[rows] = success.x
        parts.append(Recovery(rho.numpy(), nearest))
    return Recovery(np.concatenate([part.rho for part in parts]), torch.cat([part.x for part in parts]))


def _smallest(goal: Goal, x: Tensor, tau_max: float, space: InputSpace) -> SearchResult:
    low, radius = torch.zeros(len(x), dtype=torch.float64), torch.full((len(x),), tau_max, dtype=torch.float64)
    best = search(x, x, radius, goal.uphill, goal.reached, space=space)
    for _ in range(HALVINGS):
        high = best.norms(x).clamp(max=tau_max)
        middle = (low + high) / 2
        tried = search(x, best.x, middle, goal.uphill, goal.reached, space=space)
        better = tried.success & best.success
        low = torch.where(better, low, middle)
        best = SearchResult(best.success, torch.where(_rows(better, x), tried.x, best.x))
    return best
