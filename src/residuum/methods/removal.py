"""One-vs-rest linear heads, their exact fit, and the Newton step that takes samples out again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from residuum.types import InputError

CURVATURE_CHANGE = {"logistic": 0.25, "squared": 0.0}  # Lipschitz constant of the second derivative of the loss
STEPS = 100


@dataclass(frozen=True)
class Objective:
    """J_k(w) = sum_i weights_i [loss(y_ik w.x_i) + l2/2 |w|^2] + b_k.w, for every class k at once.

    `x` (n, d) with rows of length at most one, `signs` (n, classes) of -1 and +1, `offset` b (classes, d), `weights`
    (n,); all float64. Losses: log(1 + exp(-m)) or (1 - m)^2 / 2.
    """

    x: Tensor
    signs: Tensor
    l2: float
    offset: Tensor
    weights: Tensor
    loss: Literal["logistic", "squared"] = "logistic"

    def keeping(self, weights: Tensor) -> Objective:
        """Return the objective with other weights of the samples; 0 leaves one out."""
        return replace(self, weights=weights)

    def value(self, heads: Tensor) -> Tensor:
        """Return J_k (classes,)."""
        margins = self.signs * (self.x @ heads.T)
        losses = torch.nn.functional.softplus(-margins) if self.loss == "logistic" else (1 - margins) ** 2 / 2
        return self.weights @ losses + self._ridge / 2 * heads.square().sum(1) + (self.offset * heads).sum(1)

    def gradient(self, heads: Tensor) -> Tensor:
        """Return dJ_k/dw (classes, d)."""
        margins = self.signs * (self.x @ heads.T)
        slopes = -torch.sigmoid(-margins) if self.loss == "logistic" else margins - 1
        pull = (self.weights[:, None] * slopes * self.signs).T @ self.x
        return pull + self._ridge * heads + self.offset

    def curvature(self, heads: Tensor) -> Tensor:
        """Return d2J_k/dw2 (classes, d, d)."""
        s = torch.sigmoid(self.x @ heads.T)
        bends = s * (1 - s) if self.loss == "logistic" else torch.ones_like(s)
        ridge = self._ridge * torch.eye(self.x.shape[1], dtype=self.x.dtype)
        return torch.stack([(self.x.T * (self.weights * bend)) @ self.x + ridge for bend in bends.T])

    @property
    def _ridge(self) -> float:
        return self.l2 * float(self.weights.sum())


def fit_heads(objective: Objective, *, tolerance: float = 1e-10) -> Tensor:
    """Return the minimiser (classes, d) by damped Newton steps from zero, to gradients below tolerance * n."""
    heads = torch.zeros_like(objective.offset)
    for _ in range(STEPS):
        slope = objective.gradient(heads)
        if float(slope.norm(dim=1).max()) <= tolerance * len(objective.x):
            return heads
        move = torch.linalg.solve(objective.curvature(heads), slope)
        heads = heads - _damping(objective, heads, move)[:, None] * move
    raise InputError(f"cr: the heads did not converge in {STEPS} Newton steps; raise l2 (now {objective.l2:g})")


def _damping(objective: Objective, heads: Tensor, move: Tensor) -> Tensor:
    """Return for each class the first of 1, 1/2, ... that does not raise J beyond rounding."""
    share, now = torch.ones(len(heads), dtype=heads.dtype), objective.value(heads)
    slack = 1e-12 * (1 + now.abs())
    for _ in range(30):
        worse = objective.value(heads - share[:, None] * move) > now + slack
        if not bool(worse.any()):
            break
        share = torch.where(worse, share / 2, share)
    return share


class Removal(NamedTuple):
    """Heads after a removal, and the bound on |dJ_k/dw| on what was kept, per class; valid for a full step."""

    heads: Tensor
    bounds: Tensor


def newton_removal(heads: Tensor, every: Objective, kept: Objective, *, step_size: float = 1.0) -> Removal:
    """Return w + step_size * H_kept^{-1} (dJ_every/dw - dJ_kept/dw).

    Bound: |dJ_every/dw| + c |X_kept|_2 |Delta| |X_kept Delta|, the first term being what fitting left, c = 1/4 for
    the logistic loss and 0 for the squared loss, where the step is exact.
    """
    slope = every.gradient(heads)
    move = torch.linalg.solve(kept.curvature(heads), slope - kept.gradient(heads))
    rows = kept.x * kept.weights.sqrt()[:, None]
    bent = float(torch.linalg.matrix_norm(rows, 2)) * move.norm(dim=1) * (rows @ move.T).norm(dim=0)
    return Removal(heads + step_size * move, slope.norm(dim=1) + CURVATURE_CHANGE[every.loss] * bent)


def one_by_one(heads: Tensor, every: Objective, forget: Tensor, *, step_size: float = 1.0) -> Removal:
    """Take the samples at the positions `forget` out one after the other; the bounds of the steps add up."""
    total = every.gradient(heads).norm(dim=1)
    before = every
    for position in forget.tolist():
        weights = before.weights.clone()
        weights[position] = 0
        after = before.keeping(weights)
        step = newton_removal(heads, before, after, step_size=step_size)
        total = total + step.bounds - before.gradient(heads).norm(dim=1)
        heads, before = step.heads, after
    return Removal(heads, total)
