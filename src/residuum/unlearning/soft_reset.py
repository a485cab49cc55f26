"""Soft reset: mix the original's weights with fresh ones, then train on the retain set."""

import dataclasses
from math import floor
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import ArgsKwargs
from torch import nn

from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, InheritedRecipe, component
from residuum.unlearning.context import Context
from residuum.unlearning.start import KnownStart, keeps_statistics, trainable_parts

QUARTER = 0.25  # of the original's batch size, validated on digits and Fashion-MNIST


@component
class SoftReset(GradientMethod):
    """Mix the weights with fresh ones, then train on the retain set as the original was trained.

    Soft reset starts from `w <- keep * w_o + (1 - keep) * fresh` and descends `L(w, S_r)` with the original's recipe
    for a share of its epochs. It is a dial between fine-tuning (`keep=1`) and a shorter retraining (`keep=0`, which
    does not read the original). In a request, your own training function takes the place of the recipe if it accepts
    `model=`. With neither a recipe nor such a function the method refuses, because settings of another training can
    destroy a network. After k requests a share keep^k of the first original is left, which somebody with the weights
    could detect, so there is no formal guarantee.

    Use it first: it reads only the retain set and has no terms to balance. The smallest `keep` whose validation
    accuracy comes back within a point of the original's is a good choice. Networks with batch-norm need more epochs.
    After a training in large batches, try smaller ones at a rate that is smaller by the same factor.

    Literature: Shrink and perturb was invented against the poor generalization of warm starts, with `0.4 * w + 0.1 *
    fresh`. UNDO also adds noise to the weights of a copy, and distills it from the outputs of an unlearned model (Lee
    et al., "Distillation Robustifies Unlearning", https://arxiv.org/abs/2506.06278).

    Attributes:
        share: Length of the training as a share of the original's epochs; `epochs` takes its place.
        batch_share: Size of batches as a share of the original's, for more steps in as many passes; `batch_size` takes
            its place. auto is a quarter, or training's own batches if the network has batch-norm, because a ResNet-18
            did not fit its data again with quarter batches.

    Reference: Ash, Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020, https://arxiv.org/abs/1910.08475

    >>> SoftReset().start.keep, SoftReset().share, SoftReset(epochs=5).share
    (0.2, 0.3, None)
    """

    name: ClassVar[str] = "soft_reset"
    title: ClassVar[str] = "Soft reset"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: InheritedRecipe = InheritedRecipe(schedule="cosine")
    start: KnownStart = KnownStart(keep=0.2)
    share: Annotated[float, Field(gt=0, le=1)] | None = 0.3
    batch_share: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] | None = "auto"

    @model_validator(mode="before")
    @classmethod
    def _numbers_take_the_place_of_shares(cls, arguments: ArgsKwargs) -> ArgsKwargs:
        settings = arguments.kwargs or {}
        for number, share in (("epochs", "share"), ("batch_size", "batch_share")):
            if settings.get(number) is not None and share not in settings:
                settings[share] = None
        return arguments

    @property
    def needs_recipe(self) -> bool:
        """Whether a setting is left to the original's recipe."""
        return super().needs_recipe or self.share is not None or self.batch_share is not None

    def training_recipe(self, model: nn.Module, context: Context) -> Recipe:
        """Return the original's recipe for a share of its epochs, in smaller batches."""
        original = context.origin.recipe or Recipe()
        changes: dict[str, Any] = {}
        if self.share is not None:
            changes["epochs"] = max(1, floor(self.share * original.epochs))
        batch_share = self.batch_share
        if batch_share == "auto":
            batch_share = None if keeps_statistics(trainable_parts(model)) else QUARTER
        if batch_share is not None:
            changes["batch_size"] = max(1, round(batch_share * original.batch_size))
        return dataclasses.replace(self.recipe.resolved(original), **changes)
