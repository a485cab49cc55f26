"""GD: fine-tune on the retain set."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import GradientMethod
from residuum.training import STRICT, Batch


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GD(GradientMethod):
    """Gradient descent on the retain set: w <- w - lr * grad L(w, S_r), started at the original.

    The forget set is never read. Without projection and publishing noise there is no certificate.
    Reference: Neel, Roth, Sharifi-Malvajerdi, "Descent-to-Delete", ALT 2021 (there for convex models).

    >>> GD(epochs=3).lr
    0.01
    """

    name: ClassVar[str] = "gd"
    title: ClassVar[str] = "GD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    weight_decay: float = 1e-4

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return L(w, S_r)."""
        return F.cross_entropy(model(batch.x), batch.y)
