"""ReGUn: make forgotten samples look like unseen ones of their class."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.core.samples import Splits
from residuum.models import forward
from residuum.training import Batch, NonNegative, TrainingPhase
from residuum.unlearning.base import GradientMethod, Phases, component
from residuum.unlearning.context import Context
from residuum.unlearning.streams import class_means, refusal_without_validation, unseen_of_forgotten_classes


@component
class ReGUn(GradientMethod):
    """Answer on the forget set as the original answers on unseen samples of the class.

    ReGUn minimizes `lambda_r L(w, S_r) + lambda_f KL(q_i || p_w(.|x_i))` over the forget set. q_i is the original's
    mean softmax on validation samples of the sample's own class.

    Use it when many classes are to be forgotten and you have validation data to spare. The original's answers on unseen
    samples still profit from the forget set.

    Literature: The reference code takes one q for the whole batch, which pulls every sample toward the mixture of
    classes, and makes epochs over the forget set. Here each sample has the q of its class, and the retain set makes an
    epoch.

    Attributes:
        lambda_r: Weight of the retain term.
        lambda_f: Weight of the forget term.

    Reference: Mirlach, Laguna, Vogt, "Reference-Guided Machine Unlearning", 2026, https://arxiv.org/abs/2603.11210

    >>> ReGUn(lambda_f=0).paired_stream is None
    True
    """

    name: ClassVar[str] = "regun"
    title: ClassVar[str] = "ReGUn"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})

    lambda_r: NonNegative = 1.0
    lambda_f: NonNegative = 0.5

    @property
    def paired_stream(self) -> str | None:
        """The forget stream, unless its weight is zero."""
        return "forget" if self.lambda_f else None

    def refusal(self, splits: Splits) -> str | None:
        """Return which class has no validation samples to match."""
        return refusal_without_validation(splits, self.name)

    def phases(self, model: nn.Module, splits: Splits, context: Context) -> Phases:
        """Take q from the original; return the pass over S_r with a forget batch for each of its batches."""
        q_of_class = self.goals(model, splits)

        def loss(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            terms = [self.lambda_r * F.cross_entropy(model(batch.x), batch.y)] if self.lambda_r else []
            if paired is not None:
                q = q_of_class[paired.y.cpu()].to(paired.y.device)
                terms.append(self.lambda_f * divergence(q, model(paired.x)))
            return torch.stack(terms).sum() if len(terms) > 1 else terms[0]

        return [TrainingPhase(loss, paired_stream=self.paired_stream)]

    def goals(self, model: nn.Module, splits: Splits) -> Tensor:
        """Return q of every class (classes, classes), as float64; NaN for classes that are not forgotten."""
        unseen = unseen_of_forgotten_classes(splits)
        answers = forward(model, unseen).double().softmax(1)
        return class_means(answers, unseen.y, splits.classes)


def divergence(q: Tensor, logits: Tensor) -> Tensor:
    """Return mean_i KL(q_i || softmax(logits_i)) of probabilities and logits (n, classes).

    >>> divergence(torch.tensor([[0.5, 0.5]]), torch.zeros(1, 2)).item()
    0.0
    """
    return F.kl_div(F.log_softmax(logits, 1), q.to(logits), reduction="none").sum(1).mean()
