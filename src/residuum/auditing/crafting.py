"""Crafting: perturbed inputs that depend on a model, the same for any batch size and order.

An attack follows the sign of a gradient, which can flip when rounding differs, as it may with the size of the batch
(other matrix kernels are used). A trial on a few inputs tells, bit for bit, what a model allows: "free", any multiple
of 8 rows (all networks we tried); "fixed", batches of always the same size; "alone", each row with a copy of itself.
Batches are filled up with copies of their last row.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from residuum.auditing.predictor import Predictor
from residuum.core.inputs import InputSpace
from residuum.perturbations import Perturbation, Randomness, stack
from residuum.perturbations.gradient import loss_gradient

BatchInvariance = Literal["free", "fixed", "alone"]
Part = tuple[Tensor, Tensor, Randomness]
STEP, UNIT = 8, 64  # sizes of batches: multiples of STEP up to UNIT, or always UNIT
TRIAL_SIZES = (STEP, 3 * STEP, UNIT)


class Crafter:
    """Applies a perturbation to one model's private copy; `invariance` is the trial's result for this architecture."""

    def __init__(
        self,
        predictor: Predictor,
        perturbation: Perturbation,
        space: InputSpace,
        probe: Tensor,
        invariance: BatchInvariance | None = None,
    ) -> None:
        self.model, self.device = predictor.fast, predictor.device
        self.perturbation, self.space = perturbation, space
        if perturbation.rowwise or not perturbation.crafted:
            invariance = "free"
        self.invariance: BatchInvariance = invariance or batch_invariance(self.model, probe.to(self.device))

    def aim(self, x: Tensor, y: Tensor, randomness: Randomness) -> Randomness:
        """Return what all radii share."""
        if not self.perturbation.crafted:
            return randomness
        parts = [(self.perturbation.aim(self.model, *part), size) for part, size in self.split(x, y, randomness)]
        return stack([aimed.rows(slice(0, size)).to("cpu") for aimed, size in parts])

    def apply(self, radius: float, x: Tensor, y: Tensor, aimed: Randomness) -> Tensor:
        """Return the inputs moved at one radius."""
        if not self.perturbation.crafted:
            return self.perturbation.apply(self.model, x, y, aimed, self.space, radius)
        parts = self.split(x, y, aimed)
        moved = [self.perturbation.apply(self.model, *part, self.space, radius)[:size].cpu() for part, size in parts]
        return torch.cat(moved)

    def split(self, x: Tensor, y: Tensor, randomness: Randomness) -> list[tuple[Part, int]]:
        """Return the batch in parts that may be computed together where the model is, with their rows before filling.

        The parts are on the model's device.
        """
        x, y, randomness = x.to(self.device), y.to(self.device), randomness.to(self.device)
        if self.perturbation.rowwise:
            return [((x, y, randomness), len(x))]
        take, step = {"free": (UNIT, STEP), "fixed": (UNIT, UNIT), "alone": (1, 2)}[self.invariance]
        parts = []
        for start in range(0, len(x), take):
            rows = torch.arange(start, min(start + take, len(x)))
            filled = torch.cat([rows, rows[-1:].expand(-len(rows) % step)])
            parts.append(((x[filled], y[filled], randomness.rows(filled)), len(rows)))
        return parts


def batch_invariance(model: nn.Module, probe: Tensor) -> BatchInvariance:
    """Return in which batches a row's gradient stays the same to the bit, whatever its position and the other rows."""
    few = probe[:STEP][torch.arange(STEP) % len(probe[:STEP])]
    full = few[torch.arange(UNIT) % STEP]
    gradients = [first_class_gradient(model, full[:size]) for size in TRIAL_SIZES]
    of_full, order, mixed = gradients[-1], torch.arange(UNIT).roll(3).flip(0), full.clone()
    mixed[1::2] = mixed[:1]
    same_anywhere = torch.equal(first_class_gradient(model, full[order]), of_full[order])
    if not (same_anywhere and torch.equal(first_class_gradient(model, mixed)[::2], of_full[::2])):
        return "alone"
    parts = [part for gradient in gradients for part in torch.split(gradient, STEP)]
    return "free" if all(torch.equal(part, parts[0]) for part in parts) else "fixed"


def first_class_gradient(model: nn.Module, x: Tensor) -> Tensor:
    """Return the gradient of the loss of class 0 with respect to the input."""
    return loss_gradient(model, x, torch.zeros(len(x), dtype=torch.int64, device=x.device))
