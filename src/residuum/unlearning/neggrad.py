"""NegGrad+: descend on the retain set while climbing on the forget set."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.training import Batch, NonNegative, Positive, Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class NegGrad(GradientMethod):
    """Descend on the retain set and climb on the forget set at the same time.

    NegGrad+ minimizes `L(w, S_r) - beta * min(L(w, S_f), cap)`, with one forget batch for each retain batch. With
    `beta=0` it does not read the forget set and is GD.

    Use it as the simplest method that reads both sets.

    Literature: The other form in print, `alpha * L_r - (1 - alpha) * L_f`, is `beta = (1 - alpha) / alpha` with the
    rate scaled by alpha. Cross-entropy has no upper bound, so a large `beta` diverges unless `cap` stops it. Reference
    code shuffles the forget set once and then repeats it in that order; here every pass is shuffled.

    Attributes:
        beta: Weight of the forget term.
        cap: Largest forget loss of a batch that counts; none means no limit.

    Reference: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023, https://arxiv.org/abs/2302.09880

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
