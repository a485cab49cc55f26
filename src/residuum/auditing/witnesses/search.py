"""Search within the l-infinity ball, and the worst case: a point where the model is right and the reference wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from residuum.auditing.predictor import Predictor
from residuum.auditing.stream import rows_for
from residuum.auditing.witnesses.scores import margins
from residuum.bounds import UNIT, Bounds
from residuum.perturbations import block_generator, clamped
from residuum.perturbations.gradient import loss_gradient
from residuum.types import Samples

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


Objective = Literal["ce", "margin"]
RESTARTS = 5


def worst_case(
    model: Predictor,
    reference: Predictor,
    samples: Samples,
    radii: list[float],
    *,
    seed: int,
    objective: Objective = "ce",
    restarts: int = RESTARTS,
    steps: int = STEPS,
    bounds: Bounds = UNIT,
) -> tuple[NDArray[np.bool_], list[Tensor]]:
    """Return for which samples and radii some x' has the model right and the reference wrong, (n, T), and these x'.

    Maximises CE_a(x', y) - CE_m(x', y), or with "margin" min(margin of m, -margin of a), by projected gradient steps
    from x and from random points of the ball, and from what a smaller radius found: shares never fall with the radius.
    What is shown counts only beside the same search with a control in the model's place: two equally good linear models
    in 64 dimensions differ somewhere within 0.1 of nearly every input.

    >>> x, y = torch.tensor([[0.5]]), torch.tensor([1])
    >>> one, other = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
    >>> one.weight.data = other.weight.data = torch.tensor([[0.0], [1.0]])
    >>> one.bias.data, other.bias.data = torch.tensor([0.4, 0.0]), torch.tensor([0.45, 0.0])
    >>> asked = [Predictor(each, x) for each in (one, other)]
    >>> worst_case(*asked, Samples(x, y, ("a",)), [0.0, 0.04, 0.08], seed=7)[0].tolist()
    [[False, False, True]]
    """
    order = np.argsort(radii)
    found = np.zeros((len(samples), len(radii)), dtype=np.bool_)
    inputs: list[Tensor] = [torch.empty(0)] * len(radii)
    parts = torch.split(torch.arange(len(samples)), rows_for(samples.shape))
    centres = [samples.batch(rows) for rows in parts]
    before = [Found(torch.zeros(len(x), dtype=torch.bool), x) for x, _ in centres]
    for column in order:
        for k, (x, y) in enumerate(centres):
            pair = _Pair(model, reference, y, objective)
            names = [samples.ids[row] for row in parts[k].tolist()]
            starts = [before[k].x, *(_random(x, radii[column], names, seed, again) for again in range(1, restarts))]
            before[k] = _any_start(pair, x, starts, before[k], radii[column], bounds, steps)
        found[:, column] = torch.cat([each.success for each in before]).numpy()
        inputs[column] = torch.cat([each.x for each in before])
    return found, inputs


class _Pair:
    def __init__(self, model: Predictor, reference: Predictor, y: Tensor, objective: Objective) -> None:
        self.model, self.reference, self.y, self.objective = model, reference, y, objective

    def uphill(self, x: Tensor) -> Tensor:
        towards, away = (gradient_of(each, x, self.y, self.objective) for each in (self.model, self.reference))
        if self.objective == "ce":
            return away - towards
        behind = margin_of(self.model, x, self.y) < -margin_of(self.reference, x, self.y)
        return torch.where(behind.reshape(-1, *[1] * (x.ndim - 1)), -towards, away)

    def reached(self, x: Tensor) -> Tensor:
        return (self.model(x) == self.y) & (self.reference(x) != self.y)


def gradient_of(predictor: Predictor, x: Tensor, y: Tensor, objective: Objective) -> Tensor:
    """Return the gradient of cross-entropy, weighted by 1 - p_y as it is, or with "margin" of its direction alone."""
    device = predictor.device
    gradient = loss_gradient(predictor.fast, x.to(device), y.to(device)).cpu()
    if objective == "margin":
        return gradient
    unsure = 1 - predictor.logits(x).double().softmax(1).gather(1, y[:, None])
    return gradient * unsure.to(gradient).reshape(-1, *[1] * (x.ndim - 1))


def margin_of(predictor: Predictor, x: Tensor, y: Tensor) -> Tensor:
    """Return z_y - logsumexp of the other logits."""
    return margins(predictor.logits(x), y)


def _random(x: Tensor, radius: float, ids: list[str], seed: int, again: int) -> Tensor:
    noise = [block_generator(seed, f"worst/{name}", again).random(x.shape[1:], dtype=np.float32) for name in ids]
    return x + radius * (2 * torch.from_numpy(np.stack(noise)) - 1)


def _any_start(
    pair: _Pair, x: Tensor, starts: list[Tensor], before: Found, radius: float, bounds: Bounds, steps: int
) -> Found:
    best, size = before, torch.full((len(x),), radius, dtype=torch.float64)
    for start in starts:
        if best.success.all():
            break
        tried = search(x, start, size, pair.uphill, pair.reached, bounds=bounds, steps=steps)
        new = (tried.success & ~best.success).reshape(-1, *[1] * (x.ndim - 1))
        best = Found(best.success | tried.success, torch.where(new, tried.x, best.x))
    return best


def more_often(model: NDArray[np.bool_], control: NDArray[np.bool_]) -> float:
    """Return p of the exact one-sided McNemar test that samples are found for the model more often, shape (n,) each."""
    from residuum.theory.empirical import sign_test_p

    more, less = int((model & ~control).sum()), int((control & ~model).sum())
    return float(sign_test_p(np.array(more), np.array(less)))
