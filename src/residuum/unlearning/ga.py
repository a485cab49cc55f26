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
    """Gradient ascent on the forget set: w <- w + lr * grad L(w, S_f), by descending -L(w, S_f).

    Negating the loss, not the step, lets weight decay still shrink the weights. With `bn_mode="train"` every
    forget batch also moves the batch-norm statistics, which is an unlearning mechanism of its own: at the
    published lr = 1e-5 with clip 1 it is the larger one.
    Reference: Jang et al., "Knowledge Unlearning for Mitigating Privacy Risks in Language Models", ACL 2023.

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
