"""Soft reset: mix the original's weights with fresh ones, then train on the retain set."""

import dataclasses
from math import floor
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.methods.as_trained import AsTrained
from residuum.methods.base import Context
from residuum.methods.fresh import keeps_statistics, trainable_parts
from residuum.training import STRICT, Fraction
from residuum.types import Splits

QUARTER = 0.25  # of the original's batch size, validated on digits and Fashion-MNIST


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SoftReset(AsTrained):
    """w <- keep * w_o + (1 - keep) * fresh for all weights, then descend L(w, S_r) with the original's recipe.

    A dial between fine-tuning (keep = 1, GD) and re-training for fewer epochs (keep = 0, which does not read w_o).
    `bn_stats="mix"` treats batch-norm means and variances alike, "reset" starts them at 0 and 1; either way they are
    learned again. `share` is the length as a share of the original's epochs, rounded down, so that one setting costs as
    much everywhere; `epochs` takes its place where it is given without a share. `batch_share` makes batches a share of
    the original's, for more steps in as many passes, and `batch_size` takes its place in the same way. Its default
    "auto" is a quarter, or the original's own batches where the network has batch-norm: a ResNet-18 did not fit its
    data again with quarter batches. `fresh="draw"` mixes two basins, "initial" walks back on the original's own path:
    different algorithms. Only S_r is read. A share keep^k of the first original is left after k requests, so that there
    is no certificate.
    Reference: Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020 (shrink and perturb, there to
    generalise better).

    >>> SoftReset().keep, SoftReset().share, SoftReset(epochs=5).share
    (0.2, 0.3, None)
    """

    name: ClassVar[str] = "soft_reset"
    title: ClassVar[str] = "Soft reset"

    epochs: Annotated[int, Field(ge=0)] = 10
    share: Annotated[float, Field(gt=0, le=1)] | None = 0.3
    batch_share: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] | None = "auto"
    keep: Fraction = 0.2
    bn_stats: Literal["mix", "reset"] = "mix"

    @model_validator(mode="before")
    @classmethod
    def _numbers_take_the_place_of_shares(cls, values: Any) -> Any:  # noqa: ANN401 (pydantic's own wrapper)
        settings = getattr(values, "kwargs", None) or {}
        for number, share in (("epochs", "share"), ("batch_size", "batch_share")):
            if settings.get(number) is not None and share not in settings:
                settings[share] = None
        return values

    @property
    def needs_recipe(self) -> bool:
        """Whether a setting is left to the original's recipe."""
        return super().needs_recipe or self.share is not None or isinstance(self.batch_share, float)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Run the shared loop on the copy, in batches that suit the network."""
        if self.batch_share != "auto":
            return super().edit(model, splits, context)
        batch_share = None if keeps_statistics(trainable_parts(model)) else QUARTER
        return dataclasses.replace(self, batch_share=batch_share).edit(model, splits, context)

    def filled(self, context: Context) -> Self:
        """Return the method with the original's values in place of None, and shares of its length and batches."""
        ready = super().filled(context)
        if self.share is not None:
            ready = dataclasses.replace(ready, epochs=max(1, floor(self.share * context.training().epochs)))
        if isinstance(self.batch_share, float):
            size = max(1, round(self.batch_share * context.training().batch_size))
            ready = dataclasses.replace(ready, batch_size=size)
        return ready

    def soften(self, model: nn.Module, splits: Splits, context: Context) -> None:
        """Mix, and start batch-norm statistics anew if asked to."""
        super().soften(model, splits, context)
        for module in model.modules():
            if self.bn_stats == "reset" and isinstance(module, _NormBase):
                module.reset_running_stats()
