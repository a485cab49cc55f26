"""AMUN: fine-tune on the nearest inputs that the original misreads, with the labels it gives them."""

import dataclasses
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from residuum.core.inputs import space_of
from residuum.core.samples import Samples, Splits
from residuum.models import device_of, evaluating, private_copy
from residuum.models.inference import rows_at_once
from residuum.perturbations.gradient import loss_gradient
from residuum.training import Positive, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.streams import joined

STEPS = 50
STEP = 0.1  # of the radius
DOUBLINGS = 12  # of the radius at most


@component
class AMUN(GradientMethod):
    """Fine-tune on adversarial neighbors of the forgotten samples, with the original's own labels.

    For each forgotten sample AMUN finds the nearest input that the original misreads, by an l2 attack whose radius
    `eps` doubles up to 12 times while the original is right. It then fine-tunes on the retain set, on the forget set
    with its true labels, and on the inputs that it found with the labels the original gives them. Samples without such
    an input are left out and counted. Forgetting comes from the neighbors only, so expect r below 1 near their radius.

    Use it to see the difference between forgetting a sample and moving a boundary past it. Its unlearn accuracy stays
    the original's.

    Attributes:
        eps: First radius of the attack, in l2; each attack makes 50 steps of a tenth of it.

    Reference: Ebrahimpour-Boroojeny, Sundaram, Chandrasekaran, "AMUN: Adversarial Machine UNlearning", 2025,
    https://arxiv.org/abs/2503.00917

    >>> AMUN().eps
    0.04
    """

    name: ClassVar[str] = "amun"
    title: ClassVar[str] = "AMUN"
    moves_inputs: ClassVar[bool] = True

    recipe: Recipe = Recipe(weight_decay=5e-4)
    eps: Positive = 0.04

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Attack the copy, then train it on the merged samples."""
        errors = nearest_errors(model, splits.forget, self.eps)
        adversarial = errors.samples(splits.forget)
        context.passes += errors.passes
        context.notes |= {"adversarial": len(adversarial), "failed": len(splits.forget) - len(adversarial)}
        context.notes |= {"already_misread": int(errors.eps.eq(0).sum())}
        merged = dataclasses.replace(splits, retain=joined(splits.retain, splits.forget, adversarial))
        self.soften(model, splits, context)
        self.descend(model, merged, context)
        return model


class NearestErrors(NamedTuple):
    """For each sample: an input that is misread, the label it is given, the radius it was found in; inf: not found."""

    x: Tensor
    y: Tensor
    eps: Tensor
    passes: int

    def samples(self, source: Samples) -> Samples:
        """Return the misread inputs with the labels that the model gives them."""
        rows = self.eps.isfinite().nonzero().flatten()
        ids = tuple(f"{source.ids[row]}/adversarial" for row in rows.tolist())
        return Samples(self.x[rows], self.y[rows], ids)


def nearest_errors(model: nn.Module, samples: Samples, eps: float, max_doublings: int = DOUBLINGS) -> NearestErrors:
    """Return the nearest errors that the attack finds; a sample that the model misclassifies anyway has radius 0.

    An error counts if float64 agrees, because float32 may be wrong near the boundary.
    """
    exact, device = private_copy(model).double().eval(), device_of(model)
    with evaluating(model):
        parts = samples.batches(rows_at_once(samples.shape))
        errors = [_attack(model, exact, x.to(device), y.to(device), eps, max_doublings) for x, y, _ in parts]
    *tensors, passes = zip(*errors, strict=True)
    x, y, radius = (torch.cat(column).cpu() for column in tensors)
    return NearestErrors(x, y, radius, sum(passes))


def _attack(model: nn.Module, exact: nn.Module, x: Tensor, y: Tensor, eps: float, max_doublings: int) -> NearestErrors:
    def labels(x: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = exact(x.double())
        return logits.argmax(1)

    moved, predicted, passes = x.clone(), labels(x), 0
    radius = torch.where(predicted.eq(y), torch.inf, 0.0)
    for doubling in range(max_doublings + 1):
        size = eps * 2.0**doubling
        for _ in range(STEPS):
            rows = radius.isinf().nonzero().flatten()
            if not len(rows):
                break
            moved[rows] = _step(model, moved[rows], x[rows], y[rows], size)
            predicted[rows] = labels(moved[rows])
            radius[rows] = torch.where(predicted[rows].eq(y[rows]), torch.inf, size)
            passes += len(rows)
    return NearestErrors(moved, predicted, radius, passes)


def _step(model: nn.Module, moved: Tensor, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the inputs after one step uphill, within the l2 ball around x and the bounds of the inputs.

    Ball and step are in the units of each feature, `InputSpace.scale`.
    """

    def directions(gradient: Tensor) -> Tensor:
        return nn.functional.normalize(gradient.flatten(1), dim=1).view_as(gradient)

    space, gradient = space_of(model), loss_gradient(model, moved, y)
    scale = space.scale_of(x.shape[1:])
    if scale is None:
        away = moved + STEP * eps * directions(gradient) - x
    else:
        scale = scale.to(x)
        away = (moved - x) / scale.where(scale > 0, 1) + STEP * eps * directions(gradient * scale)
    length = torch.linalg.vector_norm(away.flatten(1), dim=1).clamp(min=1e-12).view(-1, *[1] * (x.ndim - 1))
    return space.move(x, away * (eps / length).clamp(max=1))
