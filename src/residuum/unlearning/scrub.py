"""SCRUB: a student that obeys its teacher on the retain set and contradicts it on the forget set."""

import copy
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from residuum.core.samples import Samples, Splits
from residuum.models import forward
from residuum.training import Batch, Hooks, NonNegative, Positive, Recipe, TrainingPhase
from residuum.unlearning.base import GradientMethod, Phases, component
from residuum.unlearning.context import Context

Teacher = Callable[[str, Batch], Tensor]


@component
class SCRUB(GradientMethod):
    """Move away from the original on the forget set and stay with it on the retain set.

    The original is the teacher t, and a copy of it the student s. In each of the first `msteps` epochs the student
    climbs `KL_T(t || s)` on the forget set. In every epoch it descends `gamma * CE(s, y) + alpha * KL_T(t || s)` on the
    retain set, with the same optimizer. Here `KL_T = T^2 / B * sum_i KL(softmax(t_i / T) || softmax(s_i / T))` with the
    temperature T. The teacher's answers are computed once, unless augmentation changes the inputs.

    Use it for strong forgetting that keeps accuracy, and tune `msteps`, `lr` and `forget_batch_size` first.

    Literature: At the start student and teacher agree, and the KL has zero gradient. With `bn_mode=eval` and without
    weight decay the first climb does nothing at all; the method leaves that point only because batch statistics disturb
    the student. The paper does not give temperature, epochs and `msteps`; the defaults are those of the reference code.

    Attributes:
        alpha: Weight of the KL term on the retain set.
        gamma: Weight of the cross-entropy on the retain set.
        temperature: T, which softens the answers that are compared.
        msteps: Number of first epochs that also climb on the forget set.
        decay_epochs: Epochs after which the rate is multiplied by `decay_rate`.
        decay_rate: Factor of the rate at each of these epochs.
        forget_batch_size: Size of forget batches, which sets the number of climbing steps; none means `batch_size`.

    Reference: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023, https://arxiv.org/abs/2302.09880

    >>> SCRUB(epochs=5, lr=0.1, decay_epochs=(3,)).rate(2), round(SCRUB(lr=0.1, decay_epochs=(3,)).rate(3), 9)
    (0.1, 0.01)
    """

    name: ClassVar[str] = "scrub"
    title: ClassVar[str] = "SCRUB"

    recipe: Recipe = Recipe(epochs=3, lr=5e-4, weight_decay=5e-4)
    alpha: NonNegative = 0.001
    gamma: NonNegative = 1.0
    temperature: Positive = 4.0
    msteps: Annotated[int, Field(ge=0)] = 2
    decay_epochs: tuple[Annotated[int, Field(ge=1)], ...] = (3, 5, 9)
    decay_rate: Positive = 0.1
    forget_batch_size: Annotated[int, Field(ge=1)] | None = None

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0; `decay_epochs` are the last ones before a drop."""
        return self.recipe.rate(epoch) * self.decay_rate ** sum(epoch + 1 > drop for drop in self.decay_epochs)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Alternate climb and descent on the copy."""
        streams = {"forget": splits.forget} if self.msteps else {}
        streams |= {"retain": splits.retain} if self.alpha else {}
        phases = self.alternation(teacher_of(model, streams, copied=bool(self.recipe.augment)))
        sizes = {} if self.forget_batch_size is None else {"forget": self.forget_batch_size}
        self.soften(model, splits, context)
        self.descend(model, splits, context, phases, batch_sizes=sizes, hooks=Hooks(rate=self.rate))
        return model

    def alternation(self, teacher: Teacher) -> Phases:
        """Return the passes of each epoch: the climb while it lasts, then the descent."""

        def climb(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            return -distillation(teacher("forget", batch), model(batch.x), self.temperature)

        def descent(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            logits = model(batch.x)
            loss = self.gamma * F.cross_entropy(logits, batch.y)
            if self.alpha:
                loss = loss + self.alpha * distillation(teacher("retain", batch), logits, self.temperature)
            return loss

        return lambda epoch: [TrainingPhase(climb, "forget")] * (epoch < self.msteps) + [TrainingPhase(descent)]


def distillation(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Return T^2 * mean_i KL(softmax(t_i / T) || softmax(s_i / T)) of logits (n, classes)."""
    log_s, t = F.log_softmax(student / temperature, 1), F.softmax(teacher / temperature, 1)
    return F.kl_div(log_s, t, reduction="batchmean") * temperature**2


def teacher_of(model: nn.Module, streams: Mapping[str, Samples], *, copied: bool = False) -> Teacher:
    """Return the logits of `model` as it is now, whatever becomes of it: cached per sample, or from a frozen copy.

    Augmented inputs are new in every epoch and need the copy.
    """
    if not copied:
        cached = {name: forward(model, samples) for name, samples in streams.items()}
        return lambda stream, batch: cached[stream][batch.indices].to(batch.x.device)
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    return lambda stream, batch: frozen(batch.x)
