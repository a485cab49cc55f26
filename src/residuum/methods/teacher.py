"""Teacher: a briefly trained model that never saw the forget samples shows how to answer near them."""

import dataclasses
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.as_trained import AsTrained
from residuum.methods.base import Context, Phases
from residuum.methods.fresh import trainable_parts
from residuum.methods.streams import error_rate, noisy_copies
from residuum.models import private_copy, space_of
from residuum.training import STRICT, Batch, NonNegative, TrainingPhase, cross_entropy, fit
from residuum.types import Splits, child_seed, warn

MUCH_WORSE = 0.03  # of validation samples


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Teacher(AsTrained):
    """Innocent teacher: minimise L(w, S_r) + weight * CE(softmax t(x'), s(x')), x' = clamp(x + u N(0, I)), x in S_f.

    The teacher t is trained from fresh weights on S_r with the original's recipe for `share` of its epochs, at least
    one, then frozen in eval mode; the student s starts at the original. u ~ U[0, tau] for each sample and step. Images
    of S_f are read, their labels never. A teacher much worse than the original makes the student forget too much, with
    a warning; the validation set serves for that warning only.

    >>> Teacher().share
    0.25
    """

    name: ClassVar[str] = "teacher"
    title: ClassVar[str] = "Innocent teacher"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})
    moves_inputs: ClassVar[bool] = True

    epochs: Annotated[int, Field(ge=0)] = 4
    share: NonNegative = 0.25
    weight: NonNegative = 1.0
    tau: NonNegative = 0.03

    @field_validator("share")
    @classmethod
    def _partial(cls, share: float) -> float:
        if share >= 1:
            raise ValueError("expected less than 1: with as many epochs as training had, re-train instead")
        return share

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Train the teacher, then let it teach the copy."""
        ready = self.filled(context)
        if not self.weight:
            ready.descend(model, splits, context, ready.phases)
            return model
        teacher = self.innocent(model, splits, context)
        self.compare(teacher, model, splits, context)
        ready.descend(model, splits, context, self.lessons(teacher))
        return model

    def innocent(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Return the teacher."""
        teacher = private_copy(model)
        own = dataclasses.replace(context, seed=child_seed(context.batch_seed, "teacher"))
        self.renew(trainable_parts(teacher), splits, own)
        recipe = context.training()
        recipe = dataclasses.replace(recipe, epochs=max(1, round(self.share * recipe.epochs)))
        phases = [TrainingPhase(cross_entropy)]
        context.passes += fit(teacher, {"retain": splits.retain}, recipe, phases, seed=own.seed, team=context.team)
        return teacher.eval().requires_grad_(False)

    def compare(self, teacher: nn.Module, original: nn.Module, splits: Splits, context: Context) -> None:
        """Note both errors on the validation set, and warn of a teacher that is much worse."""
        if not len(splits.validation):
            return
        errors = [error_rate(model, splits.validation, context.team) for model in (teacher, original)]
        context.notes |= {"teacher_validation_error": errors[0], "original_validation_error": errors[1]}
        if errors[0] > errors[1] + MUCH_WORSE:
            text = (
                f"teacher: its validation accuracy is {100 * (errors[0] - errors[1]):.1f} points below the original's, "
                f"so the student forgets too much; raise share (now {self.share:g})"
            )
            warn(text)

    def lessons(self, teacher: nn.Module) -> Phases:
        """Return the passes of each epoch: one over S_r, with a forget batch beside each of its batches."""

        def lesson(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            loss = self.loss(model, batch, None, noise)
            if paired is None:
                return loss
            x = noisy_copies(paired.x, self.tau, noise, space_of(model))
            return loss + self.weight * F.cross_entropy(model(x), F.softmax(teacher(x), 1))

        return lambda epoch: [TrainingPhase(lesson, paired_stream="forget")]
