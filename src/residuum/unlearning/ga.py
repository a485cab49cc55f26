"""GA: climb the loss of the forget set."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import field_validator
from torch import Tensor, nn

from residuum.training import Batch, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.start import Start


@component
class WholeStart(Start):
    """The original as it is."""

    @field_validator("keep")
    @classmethod
    def _whole(cls, keep: float) -> float:
        if keep != 1:
            raise ValueError("expected 1, because no retain data would repair a softened start")
        return keep


@component
class GA(GradientMethod):
    """Climb the loss of the forget set.

    GA descends `-L(w, S_f)`, that is `w <- w + lr * grad L(w, S_f)`. The loss is negated, not the step, so weight decay
    still shrinks the weights. It never reads the retain set.

    Use it when you have the forget set and nothing else, and stop early.

    Literature: With the published rate of 1e-5 and clipping at 1, each step moves the weights by at most 1e-5. The
    published effect can hardly come from the weights. With `bn_mode=train` every forget batch also moves the batch-norm
    statistics, which has the larger effect, so try both modes.

    Reference: Jang et al., "Knowledge Unlearning for Mitigating Privacy Risks in Language Models", ACL 2023,
    https://arxiv.org/abs/2210.01504

    >>> GA(lr=1e-3).recipe.clip
    1.0
    """

    name: ClassVar[str] = "ga"
    title: ClassVar[str] = "GA"
    reads: ClassVar[frozenset[str]] = frozenset({"forget"})
    main_stream: ClassVar[str] = "forget"

    recipe: Recipe = Recipe(epochs=1, lr=1e-5, weight_decay=1e-4, clip=1.0)
    start: WholeStart = WholeStart()

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return -L(w, S_f)."""
        return -F.cross_entropy(model(batch.x), batch.y)
