"""RURK: unlearn robustly, so that perturbed copies of forgotten samples are not recognized either."""

import math
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from residuum.core.inputs import UNIT, Bounds, InputSpace, space_of
from residuum.core.samples import Splits
from residuum.models import evaluating, forward
from residuum.perturbations import FGSM, PGD, Gaussian, Perturbation
from residuum.perturbations.gradient import Target
from residuum.training import Batch, NonNegative, Recipe, TrainingPhase
from residuum.unlearning.base import GradientMethod, Phases, component
from residuum.unlearning.context import Context
from residuum.unlearning.relabeling import random_labels
from residuum.unlearning.streams import (
    class_means,
    noisy_copies,
    refusal_without_validation,
    unseen_of_forgotten_classes,
)


@component
class RURK(GradientMethod):
    """Forget perturbed copies of the forgotten samples as well.

    RURK minimizes `L(w, S_r) - lambda_f * L(w, S_f) - lambda_a * (1/v) sum_j L(w, S_f + perturbation_j)` with v fresh
    perturbed copies of the forget batch in every step. Both weights at 0 give GD, and lambda_a = 0 gives NegGrad+. The
    copies are noisy (`attack=gaussian`) or searched within the l-infinity ball (`fgsm`, `pgd`). The cross-entropy that
    is subtracted has no upper bound: the published form (`penalty=ce`) forgets nothing on eight seeds of digits and
    everything on the ninth. `penalty=capped` subtracts at most `cap` of each sample. The defaults are the published
    form; the digits scenario has the capped form from a softened start.

    Use it when somebody may probe the model near the forgotten samples and you still have them.

    Literature: The algorithm box ascends the loss above, which would unlearn the retain set. The objective has one
    lambda, the box two. The text maximizes the loss of a random wrong label, a weak substitute for `aim=min_loss`. The
    paper does not say whether batch-norm is in training mode, which decides the result on CIFAR-10.

    Attributes:
        tau: Radius of the perturbed copies.
        lambda_f: Weight of the forget term.
        lambda_a: Weight of the term on perturbed copies.
        v: Perturbed copies of each forget sample in a step.
        attack: How copies are made: gaussian noise, or a search by fgsm or pgd.
        aim: What a search looks for: min_loss, the copies recognized best; random_wrong_label, the paper's text;
            untargeted, the copies recognized worst, a negative control.
        spread: fixed takes the radius tau; uniform draws the radius of each noisy copy from [0, tau].
        penalty: ce subtracts the plain cross-entropy; capped subtracts at most `cap` of each sample.
        cap: A number; classes for log C, as sure as guessing; validation for the original's mean loss on validation
            samples of the class; none for no cap.
        bounds: Range of the inputs, for models that were not wrapped; none for standardized features.

    Reference: Hsu et al., "The Unseen Threat: Residual Knowledge in Machine Unlearning under Perturbed Samples",
    NeurIPS 2025, https://arxiv.org/abs/2601.22359

    >>> RURK(lambda_f=0, lambda_a=0).paired_stream is None
    True
    """

    name: ClassVar[str] = "rurk"
    title: ClassVar[str] = "RURK"
    moves_inputs: ClassVar[bool] = True

    recipe: Recipe = Recipe(epochs=2, weight_decay=5e-4, schedule="cosine", schedule_epochs=200, clip=1.0)
    tau: NonNegative = 0.03
    lambda_f: NonNegative = 0.03
    lambda_a: NonNegative = 0.03
    v: Annotated[int, Field(ge=1, le=1000)] = 1
    attack: Literal["gaussian", "fgsm", "pgd"] = "gaussian"
    aim: Literal["min_loss", "random_wrong_label", "untargeted"] = "min_loss"
    spread: Literal["fixed", "uniform"] = "fixed"
    penalty: Literal["ce", "capped"] = "ce"
    cap: Literal["classes", "validation"] | NonNegative | None = "classes"
    bounds: Bounds = UNIT

    @field_validator("cap", mode="before")
    @classmethod
    def _endless(cls, cap: object) -> object:
        return None if cap == math.inf else cap

    @model_validator(mode="after")
    def _one_radius_for_searches(self) -> Self:
        if self.spread == "uniform" and self.attack != "gaussian":
            raise ValueError(f"spread=uniform is for attack=gaussian; {self.attack} searches at one radius")
        return self

    @property
    def paired_stream(self) -> str | None:
        """The forget stream, unless both its weights are zero."""
        return "forget" if self.lambda_f or self.lambda_a else None

    @property
    def parts_read(self) -> frozenset[str]:
        """Validation samples as well, where they give the caps."""
        return super().parts_read | ({"validation"} if self.caps_by_validation else set())

    @property
    def caps_by_validation(self) -> bool:
        """Whether the caps are losses on validation samples."""
        return self.penalty == "capped" and self.cap == "validation"

    def refusal(self, splits: Splits) -> str | None:
        """Return what the caps lack."""
        return refusal_without_validation(splits, f"{self.name}: cap=validation") if self.caps_by_validation else None

    def phases(self, model: nn.Module, splits: Splits, context: Context) -> Phases:
        """Return the pass over S_r with a forget batch for each of its batches; the caps come from the original."""
        loss = partial(self.loss, caps=self.caps(model, splits))
        return [TrainingPhase(loss, paired_stream=self.paired_stream)]

    def caps(self, model: nn.Module, splits: Splits) -> Tensor | None:
        """Return for each class what its samples' loss may grow to, or None where nothing bounds it."""
        if self.penalty != "capped" or self.cap is None:
            return None
        if self.cap != "validation":
            return torch.full((splits.classes,), math.log(splits.classes) if self.cap == "classes" else self.cap)
        unseen = unseen_of_forgotten_classes(splits)
        losses = F.cross_entropy(forward(model, unseen), unseen.y, reduction="none")
        return class_means(losses, unseen.y, splits.classes)

    def loss(
        self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator, caps: Tensor | None = None
    ) -> Tensor:
        """Return the objective on one retain batch and one forget batch."""
        loss = F.cross_entropy(model(batch.x), batch.y)
        if paired is not None and self.lambda_f:
            loss = loss - self.lambda_f * forget_loss(model(paired.x), paired.y, caps)
        if paired is not None and self.lambda_a:
            loss = loss + self.lambda_a * self.vulnerable_loss(model, paired, noise, caps)
        return loss

    def vulnerable_loss(
        self, model: nn.Module, batch: Batch, noise: torch.Generator, caps: Tensor | None = None
    ) -> Tensor:
        """Return what is added, times lambda_a: -CE(h(x'), y), or +CE(h(x'), y') for a wrong label y'."""
        x, y = batch.x.repeat(self.v, *[1] * (batch.x.ndim - 1)), batch.y.repeat(self.v)
        if self.attack != "gaussian" and self.aim == "random_wrong_label":
            labels = wrong_labels(model, x, y, noise)
            return F.cross_entropy(model(self.perturbed(model, x, labels, noise)), labels)
        return -forget_loss(model(self.perturbed(model, x, y, noise)), y, caps)

    def perturbed(self, model: nn.Module, x: Tensor, labels: Tensor, noise: torch.Generator) -> Tensor:
        """Return one perturbed copy of each input."""
        space = space_of(model, InputSpace(self.bounds))
        if self.spread == "uniform" or space.tokens:
            return noisy_copies(x, self.tau, noise, space)
        return self.perturbation()(model, x, labels, noise, self.tau, space)

    def perturbation(self) -> Perturbation:
        """Return what moves the forget batch."""
        if self.attack == "gaussian":
            return Gaussian()
        target: Target = "true" if self.aim == "min_loss" else "untargeted"
        return FGSM(target=target) if self.attack == "fgsm" else PGD(target=target)


def forget_loss(logits: Tensor, y: Tensor, caps: Tensor | None) -> Tensor:
    """Return mean_i min(CE_i, caps[y_i]) of logits (n, classes): what is to grow; without caps the plain mean."""
    if caps is None:
        return F.cross_entropy(logits, y)
    return torch.minimum(F.cross_entropy(logits, y, reduction="none"), caps[y.cpu()].to(logits)).mean()


@torch.no_grad()
def wrong_labels(model: nn.Module, x: Tensor, y: Tensor, noise: torch.Generator) -> Tensor:
    """Return labels drawn uniformly from the model's classes other than y."""
    with evaluating(model):
        classes = int(model(x[:1]).shape[1])
    return random_labels(y, classes, "wrong", noise)
