"""Teacher: a briefly trained model that never saw the forget samples shows how to answer near them."""

import dataclasses
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import field_validator
from torch import Tensor, nn

from residuum.core.errors import warn
from residuum.core.inputs import space_of
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.models import forward, private_copy
from residuum.training import Batch, NonNegative, TrainingPhase, cross_entropy, fit
from residuum.unlearning.base import GradientMethod, InheritedRecipe, Phases, component
from residuum.unlearning.context import Context
from residuum.unlearning.start import KnownStart, trainable_parts
from residuum.unlearning.streams import noisy_copies

MUCH_WORSE = 0.03  # of validation samples


@component
class Teacher(GradientMethod):
    """Learn the answers of a briefly retrained model near the forgotten samples.

    A teacher t is trained from fresh weights on the retain set for `share` of the original's epochs. The student s
    starts at the original and minimizes `L(w, S_r) + weight * CE(softmax t(x'), s(x'))` on noisy copies x' of the
    forget set, with a radius drawn from [0, tau] for each copy and step. It never reads the labels of the forget set.
    The validation set serves only for a warning: a teacher much worse than the original makes the student forget too
    much.

    Use it when the labels of the forget set are gone.

    Attributes:
        share: Length of the teacher's training as a share of the original's epochs, at least one epoch.
        weight: Weight of the teacher's answers.
        tau: Largest radius of the noisy copies.

    Reference: none; Residuum's own.

    >>> Teacher().share
    0.25
    """

    name: ClassVar[str] = "teacher"
    title: ClassVar[str] = "Teacher"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})
    moves_inputs: ClassVar[bool] = True

    recipe: InheritedRecipe = InheritedRecipe(epochs=4, schedule="cosine")
    start: KnownStart = KnownStart()
    share: NonNegative = 0.25
    weight: NonNegative = 1.0
    tau: NonNegative = 0.03

    @field_validator("share")
    @classmethod
    def _partial(cls, share: float) -> float:
        if share >= 1:
            raise ValueError("expected less than 1: with as many epochs as training had, retrain instead")
        return share

    def phases(self, model: nn.Module, splits: Splits, context: Context) -> Phases:
        """Train the teacher; return the pass over S_r with a forget batch for each of its batches."""
        if not self.weight:
            return super().phases(model, splits, context)
        teacher = self.trained_teacher(model, splits, context)
        self.compare(teacher, model, splits, context)

        def loss(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            retain = F.cross_entropy(model(batch.x), batch.y)
            if paired is None:
                return retain
            x = noisy_copies(paired.x, self.tau, noise, space_of(model))
            return retain + self.weight * F.cross_entropy(model(x), F.softmax(teacher(x), 1))

        return [TrainingPhase(loss, paired_stream="forget")]

    def trained_teacher(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Return a frozen model that was trained from fresh weights on the retain set, briefly."""
        teacher = private_copy(model)
        seed = child_seed(context.batch_seed, "teacher")
        self.start.renew(trainable_parts(teacher), splits, dataclasses.replace(context, seed=seed))
        recipe = context.training()
        recipe = dataclasses.replace(recipe, epochs=max(1, round(self.share * recipe.epochs)))
        phases = [TrainingPhase(cross_entropy)]
        context.passes += fit(teacher, {"retain": splits.retain}, recipe, phases, seed=seed)
        return teacher.eval().requires_grad_(False)

    def compare(self, teacher: nn.Module, original: nn.Module, splits: Splits, context: Context) -> None:
        """Note both errors on the validation set, and warn of a teacher that is much worse."""
        if not len(splits.validation):
            return
        answers = [forward(model, splits.validation).argmax(1) for model in (teacher, original)]
        errors = [labels.ne(splits.validation.y).double().mean().item() for labels in answers]
        context.notes |= {"teacher_validation_error": errors[0], "original_validation_error": errors[1]}
        if errors[0] > errors[1] + MUCH_WORSE:
            warn(
                f"teacher: its validation accuracy is {100 * (errors[0] - errors[1]):.1f} points below the original's, "
                f"so the student forgets too much; raise share (now {self.share:g})"
            )
