"""NegGrad+: descend on the retain set while climbing on the forget set."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.training import Batch, NonNegative, Positive, Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class NegGrad(GradientMethod):
    """NegGrad+: minimize L(w, S_r) - beta * min(L(w, S_f), cap), one forget batch beside each retain batch.

    The literature's alpha form, alpha * L_r - (1 - alpha) * L_f, is beta = (1 - alpha) / alpha with the rate
    scaled by alpha. Cross-entropy has no upper bound, so a large beta diverges; `cap` (off) bounds the batch's
    forget loss. With beta = 0 the forget set is not read and the method is GD.
    Reference: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023.

    >>> NegGrad(beta=0.0).paired_stream is None
    True
    """

    name: ClassVar[str] = "neggrad"
    title: ClassVar[str] = "NegGrad+"

    recipe: Recipe = Recipe(epochs=1, weight_decay=1e-4, clip=1.0)
    beta: NonNegative = 0.001
    cap: Positive | None = None

    @property
    def paired_stream(self) -> str | None:
        """The forget stream, unless its weight is zero."""
        return "forget" if self.beta else None

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return L(w, S_r) - beta * L(w, S_f)."""
        retain = F.cross_entropy(model(batch.x), batch.y)
        if paired is None:
            return retain
        forget = F.cross_entropy(model(paired.x), paired.y)
        return retain - self.beta * (forget if self.cap is None else forget.clamp(max=self.cap))
