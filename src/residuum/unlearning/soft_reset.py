"""Soft reset: mix the original's weights with fresh ones, then train on the retain set."""

import dataclasses
from math import floor
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import Arguments, GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.inherited import InheritedRecipe
from residuum.unlearning.start import KnownStart, Parts, keeps_statistics, trainable_parts

QUARTER = 0.25  # of the original's batch size, validated on digits and Fashion-MNIST


@component
class SoftReset(GradientMethod):
    """w <- keep * w_o + (1 - keep) * fresh for all weights, then descend L(w, S_r) with the original's recipe.

    A dial between fine-tuning (keep = 1, GD) and retraining for fewer epochs (keep = 0, which does not read w_o).
    `bn_stats="mix"` treats batch-norm means and variances alike, "reset" starts them at 0 and 1; either way they are
    learned again. `share` is the length as a share of the original's epochs, rounded down, so that one setting costs as
    much everywhere; `epochs` takes its place where it is given without a share. `batch_share` makes batches a share of
    the original's, for more steps in as many passes, and `batch_size` takes its place in the same way. Its default
    "auto" is a quarter, or the original's own batches where the network has batch-norm: a ResNet-18 did not fit its
    data again with quarter batches. `fresh="draw"` mixes two basins, "initial" walks back on the original's own path:
    different algorithms. Only S_r is read. A share keep^k of the first original is left after k requests, so that there
    is no certificate.
    Reference: Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020 (shrink and perturb, there to
    generalize better).

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
    bn_stats: Literal["mix", "reset"] = "mix"

    @model_validator(mode="before")
    @classmethod
    def _numbers_take_the_place_of_shares(cls, arguments: Arguments) -> Arguments:
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

    def soften(self, model: nn.Module, splits: Splits, context: Context, parts: Parts | None = None) -> None:
        """Mix, and start batch-norm statistics anew if asked to."""
        super().soften(model, splits, context, parts)
        if self.start.keep < 1 and self.bn_stats == "reset":
            for module in model.modules():
                if isinstance(module, _NormBase):
                    module.reset_running_stats()
