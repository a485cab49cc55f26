"""Attacks that follow the gradient of the loss with respect to the input: FGSM and PGD.

Meaning and defaults are those of torchattacks, steps measured in the l-infinity norm. The model is
put in eval mode for the attack; afterwards every submodule has its own flag back and no parameter has a gradient.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
from residuum.models import evaluating
from residuum.perturbations.additive import symmetric_uniform
from residuum.perturbations.base import Perturbation, Randomness

Target = Literal["untargeted", "true", "random"]

MOST_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class GradientAttack(Perturbation):
    """An attack with an aim.

    `target` "untargeted" raises the loss of the label; "true" lowers it (it looks for recognition, not for error);
    "random" lowers the loss of a wrong label drawn uniformly, which lowers Pr[right] by construction.
    """

    target: Target = "untargeted"
    crafted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.target not in get_args(Target):
            raise InputError(f"{self.name}: expected a target of {', '.join(get_args(Target))}, got {self.target!r}")

    def uniform_numbers(self, rng: np.random.Generator, rows: int) -> Tensor | None:
        """Return what picks the wrong labels, if there are any to pick."""
        return torch.from_numpy(rng.random(rows)) if self.target == "random" else None

    def outcomes(self, classes: int) -> Randomness | None:
        """Return one uniform position for each wrong label, or a single one where no label is drawn."""
        number = classes - 1 if self.target == "random" else 1
        return Randomness(uniform=(torch.arange(number, dtype=torch.float64) + 0.5) / number)

    def gradient_sign(self, model: nn.Module, x: Tensor, y: Tensor, uniform: Tensor | None) -> Tensor:
        """Return the sign of the direction in which the attack wants to go, shape of `x`."""
        sign = loss_gradient(model, x, y, uniform if self.target == "random" else None).sign_()
        return sign if self.target == "untargeted" else sign.neg_()


@dataclass(frozen=True, kw_only=True)
class FGSM(GradientAttack):
    """One step of size tau along the sign of the gradient: x' = clamp(x + tau sign(grad_x cost)).

    The gradient does not depend on tau, and chance enters through a random target only, so all outcomes can be listed.

    Reference: Goodfellow et al., "Explaining and harnessing adversarial examples", 2015.

    >>> model = nn.Linear(2, 2)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))
    >>> x, y = torch.full((1, 2), 0.5), torch.tensor([0])
    >>> FGSM()(model, x, y, torch.Generator(), 0.25).tolist()
    [[0.25, 0.75]]
    """

    name: ClassVar[str] = "fgsm"

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return what picks the random targets."""
        return Randomness(uniform=self.uniform_numbers(rng, rows))

    def aim(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Randomness:
        """Return the sign of the gradient as noise of radius one."""
        with evaluating(model):
            return Randomness(noise=self.gradient_sign(model, x, y, randomness.uniform))


@dataclass(frozen=True, kw_only=True)
class PGD(GradientAttack):
    """Projected gradient steps in the l-infinity ball of radius tau around x, from a uniform random start.

    x_0 = clamp(x + U(-tau, tau)); x_{k+1} = clamp(x + clip(x_k + alpha sign(grad cost) - x, -tau, tau)).

    Reference: Madry et al., "Towards deep learning models resistant to adversarial attacks", 2018.

    >>> model, x, y = nn.Linear(2, 2), torch.rand(3, 2), torch.tensor([0, 1, 0])
    >>> moved = PGD(steps=5)(model, x, y, torch.Generator(), 0.1)
    >>> bool(((moved - x).abs() <= 0.1 + 1e-6).all())
    True
    """

    alpha: float = 2 / 255
    steps: int = 10
    random_start: bool = True
    name: ClassVar[str] = "pgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.steps <= MOST_STEPS or not 0 < self.alpha < float("inf"):
            expected = f"expected steps >= 1, at most {MOST_STEPS}, and a finite alpha > 0"
            raise InputError(f"pgd: {expected}, got {self.steps} and {self.alpha}")

    @property
    def gradients(self) -> int:
        """One for each step."""
        return self.steps

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return random starts in the unit cube and what picks the random targets."""
        start = symmetric_uniform(rng, (rows, prod(shape))) if self.random_start else None
        noise = None if start is None else torch.from_numpy(start).view(rows, *shape)
        return Randomness(noise, self.uniform_numbers(rng, rows))

    def apply(
        self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness, space: InputSpace, radius: float
    ) -> Tensor:
        """Return the inputs after all steps."""
        reach = space.scaled(torch.full_like(x, radius))
        low, high = space.clamp_(x - reach), space.clamp_(x + reach)
        moved = super().apply(model, x, y, randomness, space, radius)
        with evaluating(model):
            for _ in range(self.steps):
                step = self.gradient_sign(model, moved, y, randomness.uniform)
                moved = torch.add(moved, space.scaled(step), alpha=self.alpha).clamp_(low, high)
        return moved

    def outcomes(self, classes: int) -> Randomness | None:
        """Return one outcome for each possible target where the start is not random."""
        return None if self.random_start else super().outcomes(classes)


def loss_direction(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of cross-entropy with respect to the logits, divided by 1 - p_label.

    The softmax over the other classes minus the one-hot label: the same direction as softmax - one-hot, without its
    underflow where the model is sure (there the plain gradient is 0 in float32, and the attack would stand still).
    """
    is_label = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
    others = logits.double().masked_fill(is_label, float("-inf")).softmax(dim=1)
    return others.masked_fill(is_label, -1.0).to(logits.dtype)


def loss_gradient(model: nn.Module, x: Tensor, y: Tensor, uniform: Tensor | None = None) -> Tensor:
    """Return the gradient of the loss of y, or of the wrong label that `uniform` picks, with respect to the input.

    It is that of `loss_direction`; parameters get none. A model that diverged has no direction: NaN becomes 0.
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        logits = model(leaf)
        if not logits.requires_grad:
            raise InputError("a gradient attack needs a model that is differentiable with respect to its input")
        label = y if uniform is None else wrong_label(y, uniform, logits.shape[1])
        return torch.autograd.grad(logits, leaf, loss_direction(logits.detach(), label))[0].nan_to_num_()


def wrong_label(y: Tensor, uniform: Tensor, classes: int) -> Tensor:
    """Return the label that a uniform number in [0, 1) picks among those that are not y."""
    if classes < 2:
        raise InputError(f"random targets need at least 2 classes, got {classes}")
    offset = 1 + (uniform * (classes - 1)).long().clamp(max=classes - 2)
    return (y + offset.to(y.device)) % classes
