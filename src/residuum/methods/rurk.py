"""RURK: unlearn robustly, so that perturbed copies of forgotten samples are not recognised either."""

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import GradientMethod
from residuum.models import evaluating
from residuum.perturbations import FGSM, PGD, Gaussian, Perturbation
from residuum.perturbations.gradient import Target
from residuum.training import STRICT, Batch, NonNegative, Positive


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RURK(GradientMethod):
    """Robust unlearning against residual knowledge: forget perturbed copies of the forgotten samples as well.

    Minimise L(w, S_r) - lambda_f * L(w, S_f) - lambda_a * (1/v) sum_j L(w, S_f + perturbation_j), with v fresh
    perturbed copies of the forget batch in every step: `attack="gaussian"`, x' = clamp(x + tau * N(0, I), 0, 1), or
    searched within the l-infinity ball by `fgsm` or `pgd` (`attack_steps` steps of `attack_rate`) in eval mode.
    `aim="min_loss"` searches x' that lowers the loss of the true label y, the paper's definition of vulnerable;
    "random_wrong_label" is what its text does: draw y' != y, search x' that raises the loss of y', and *add*
    lambda_a * CE(h(x'), y'). `recognised_only` averages over the x' that are still predicted as y.
    lambda_a = 0 is NegGrad+ with beta = lambda_f; both zero is GD. The paper's algorithm box ascends this loss,
    which would unlearn the retain set; its objective, and this file, descend. `sigma`, `noise` and `radius` give
    projected noisy steps; no epsilon follows from them.
    Reference: "The Unseen Threat: Residual Knowledge in Machine Unlearning under Perturbed Samples", NeurIPS 2025.

    >>> RURK(lambda_f=0, lambda_a=0).paired_stream is None
    True
    """

    name: ClassVar[str] = "rurk"
    title: ClassVar[str] = "RURK"

    epochs: int = 2
    weight_decay: NonNegative = 5e-4
    schedule: Literal["constant", "cosine"] = "cosine"
    schedule_epochs: Annotated[int, Field(ge=1)] | None = 200
    clip: Positive | None = 1.0
    tau: NonNegative = 0.03
    lambda_f: NonNegative = 0.03
    lambda_a: NonNegative = 0.03
    v: Annotated[int, Field(ge=1)] = 1
    attack: Literal["gaussian", "fgsm", "pgd"] = "gaussian"
    aim: Literal["min_loss", "random_wrong_label"] = "min_loss"
    attack_steps: Annotated[int, Field(ge=1)] = 10
    attack_rate: Positive = 2 / 255
    recognised_only: bool = False

    @property
    def paired_stream(self) -> str | None:
        """The forget stream, unless both its weights are zero."""
        return "forget" if self.lambda_f or self.lambda_a else None

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return the objective on one retain batch and one forget batch."""
        loss = F.cross_entropy(model(batch.x), batch.y)
        if paired is not None and self.lambda_f:
            loss = loss - self.lambda_f * F.cross_entropy(model(paired.x), paired.y)
        if paired is not None and self.lambda_a:
            loss = loss + self.lambda_a * self.vulnerable_loss(model, paired, noise)
        return loss

    def vulnerable_loss(self, model: nn.Module, batch: Batch, noise: torch.Generator) -> Tensor | float:
        """Return what is added, times lambda_a: -CE(h(x'), y), or +CE(h(x'), y') for a wrong label y'."""
        x, y = batch.x.repeat(self.v, *[1] * (batch.x.ndim - 1)), batch.y.repeat(self.v)
        labels, sign = y, -1.0
        if self.attack != "gaussian" and self.aim == "random_wrong_label":
            labels, sign = wrong_labels(model, x, y, noise), 1.0
        moved = self.perturbation()(model, x, labels, noise)
        if self.recognised_only:
            kept = predictions(model, moved).eq(y)
            moved, labels = moved[kept], labels[kept]
        return sign * F.cross_entropy(model(moved), labels) if len(moved) else 0.0

    def perturbation(self) -> Perturbation:
        """Return what moves the forget batch."""
        if self.attack == "gaussian":
            return Gaussian(self.tau)
        target: Target = "true" if self.aim == "min_loss" else "untargeted"
        if self.attack == "fgsm":
            return FGSM(tau=self.tau, target=target)
        return PGD(tau=self.tau, target=target, alpha=self.attack_rate, steps=self.attack_steps)


@torch.no_grad()
def predictions(model: nn.Module, x: Tensor) -> Tensor:
    """Return the predicted labels in eval mode."""
    with evaluating(model):
        return model(x).argmax(1)  # type: ignore[no-any-return]


@torch.no_grad()
def wrong_labels(model: nn.Module, x: Tensor, y: Tensor, noise: torch.Generator) -> Tensor:
    """Return labels drawn uniformly from the model's classes other than y."""
    with evaluating(model):
        classes = int(model(x[:1]).shape[1])
    return (y + torch.randint(1, classes, y.shape, generator=noise).to(y.device)) % classes
