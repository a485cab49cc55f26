"""Random labels: teach the forget set wrong labels while fine-tuning on the retain set."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.training import Batch, NonNegative, Recipe
from residuum.unlearning import GradientMethod, component


@component
class RandomLabels(GradientMethod):
    """Random labels: minimize L(w, S_r) + weight * CE(h(x_f), y'), y' != y drawn anew in every step.

    Reference: Graves, Nagisetty, Ganesh, "Amnesiac Machine Learning", AAAI 2021.
    """

    name: ClassVar[str] = "random_labels"
    title: ClassVar[str] = "Random labels"

    recipe: Recipe = Recipe(epochs=3)
    weight: NonNegative = 0.1

    @property
    def paired_stream(self) -> str:
        """One forget batch beside each retain batch."""
        return "forget"

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return the loss of one step."""
        logits = model(paired.x)
        wrong = (paired.y + torch.randint(1, logits.shape[1], paired.y.shape, generator=noise)) % logits.shape[1]
        return F.cross_entropy(model(batch.x), batch.y) + self.weight * F.cross_entropy(logits, wrong)
