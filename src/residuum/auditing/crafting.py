"""Crafting: perturbed inputs that depend on a model, the same for any batch size and order.

An attack follows the sign of a gradient, and a sign can flip when rounding differs. Rounding differs between a batch of
one row (another matrix kernel) and larger ones, and might differ between larger ones. So no gradient is computed on
fewer than two rows, and rows share a batch only if a trial showed that, bit for bit, they do not influence each other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from residuum.auditing.plan import Predictor
from residuum.perturbations import Perturbation, Randomness, stack
from residuum.perturbations.gradient import input_gradient, loss_direction

TRIAL_ROWS = 7
TRIAL_SIZES = (2, 3, 7)


class Crafter:
    """Applies a perturbation to one model's private copy.

    `rows` is the largest batch that will be asked for; the trial includes it, unless its result is `known` from a model
    of the same architecture.
    """

    def __init__(
        self, predictor: Predictor, perturbation: Perturbation, probe: Tensor, rows: int, known: bool | None = None
    ) -> None:
        self.model = predictor.fast
        self.perturbation = perturbation
        free = perturbation.rowwise or not perturbation.crafted
        self.together = free or (rows_are_independent(self.model, probe, rows) if known is None else known)

    def aim(self, x: Tensor, y: Tensor, randomness: Randomness) -> Randomness:
        """Return what all radii share."""
        if not self.perturbation.crafted:
            return randomness
        aimed = [self.perturbation.aim(self.model, *part) for part in self.split(x, y, randomness)]
        return stack([part.rows(slice(0, end)) for part, end in zip(aimed, self.sizes(len(x)), strict=True)])

    def apply(self, tau: float, x: Tensor, y: Tensor, aimed: Randomness) -> Tensor:
        """Return the inputs moved at one radius."""
        at = self.perturbation.at(tau)
        if not self.perturbation.crafted:
            return at.apply(self.model, x, y, aimed)
        moved = [at.apply(self.model, *part) for part in self.split(x, y, aimed)]
        return torch.cat([part[:end] for part, end in zip(moved, self.sizes(len(x)), strict=True)])

    def sizes(self, rows: int) -> list[int]:
        """Return how many rows of each part are wanted; the rest is padding."""
        return [rows] if self.together else [1] * rows

    def split(self, x: Tensor, y: Tensor, randomness: Randomness) -> list[tuple[Tensor, Tensor, Randomness]]:
        """Return the batch in parts of at least two rows: all rows together, or each beside a copy of itself."""
        starts = [slice(0, len(x))] if self.together else [slice(i, i + 1) for i in range(len(x))]
        found = []
        for rows in starts:
            part = x[rows], y[rows], randomness.rows(rows)
            alone = len(part[0]) == 1
            found.append((twice(part[0]), twice(part[1]), stack([part[2]] * 2)) if alone else part)
        return found


def twice(rows: Tensor) -> Tensor:
    """Return the rows and a copy of them."""
    return torch.cat([rows, rows])


def rows_are_independent(model: nn.Module, probe: Tensor, rows: int) -> bool:
    """Return whether gradients are the same, bit for bit, for several batch sizes and places in the batch."""
    trial = probe[: max(2, min(TRIAL_ROWS, len(probe)))]
    if len(trial) < 2:
        trial = twice(trial)
    filled = trial.repeat(-(-rows // len(trial)), *[1] * (trial.ndim - 1))[: max(rows, len(trial))]
    wanted = loss_gradient(model, filled)
    return all(
        torch.equal(loss_gradient(model, filled[start : start + size]), wanted[start : start + size])
        for size in TRIAL_SIZES
        for start in {0, max(0, len(filled) - size)}
    )


def loss_gradient(model: nn.Module, x: Tensor) -> Tensor:
    """Return the gradient of the loss of class 0 with respect to the input."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        logits = model(leaf)
        direction = loss_direction(logits.detach(), torch.zeros(len(x), dtype=torch.int64))
        return input_gradient(logits, leaf, direction)
