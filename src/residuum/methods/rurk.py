"""RURK: unlearn robustly, so that perturbed copies of forgotten samples are not recognised either."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import GradientMethod
from residuum.perturbations import Gaussian
from residuum.training import STRICT, Batch, NonNegative, Positive


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RURK(GradientMethod):
    """Robust unlearning against residual knowledge.

    Minimise L(w, S_r) - lambda_f * L(w, S_f) - lambda_a * (1/v) sum_j L(w, S_f + perturbation_j), with v fresh
    perturbed copies x' = clamp(x + tau * N(0, I), 0, 1) of the forget batch in every step.
    lambda_a = 0 is NegGrad+ with beta = lambda_f; both zero is GD. The paper's algorithm box ascends this loss,
    which would unlearn the retain set; its objective, and this file, descend.
    Reference: "The Unseen Threat: Residual Knowledge in Machine Unlearning under Perturbed Samples", NeurIPS 2025.

    >>> RURK(lambda_f=0, lambda_a=0).beside is None
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

    @property
    def beside(self) -> str | None:
        """The forget stream, unless both its weights are zero."""
        return "forget" if self.lambda_f or self.lambda_a else None

    def loss(self, model: nn.Module, batch: Batch, beside: Batch | None, noise: torch.Generator) -> Tensor:
        """Return the objective on one retain batch and one forget batch."""
        loss = F.cross_entropy(model(batch.x), batch.y)
        if beside is not None and self.lambda_f:
            loss = loss - self.lambda_f * F.cross_entropy(model(beside.x), beside.y)
        if beside is not None and self.lambda_a:
            x, y = beside.x.repeat(self.v, *[1] * (beside.x.ndim - 1)), beside.y.repeat(self.v)
            loss = loss - self.lambda_a * F.cross_entropy(model(Gaussian(self.tau)(model, x, y, noise)), y)
        return loss
