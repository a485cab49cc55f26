"""Soft reset: mix the original's weights with fresh ones, then train on the retain set."""

import dataclasses
from math import floor
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.methods.as_trained import AsTrained
from residuum.methods.base import Context
from residuum.training import STRICT, Fraction
from residuum.types import Splits


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SoftReset(AsTrained):
    """w <- keep * w_o + (1 - keep) * fresh for all weights, then descend L(w, S_r) with the original's recipe.

    A dial between fine-tuning (keep = 1, GD) and re-training for fewer epochs (keep = 0, which does not read w_o).
    `bn_stats="mix"` treats batch-norm means and variances alike, "reset" starts them at 0 and 1; either way they are
    learned again. `share` in place of `epochs` is the length as a share of the original's epochs, rounded down, so that
    one setting costs as much everywhere; `batch_share` in place of `batch_size` makes batches a share of the
    original's, for more steps in as many passes. `fresh="draw"` mixes two basins, "initial" walks back on the
    original's own path: different algorithms. Only S_r is read. A share keep^k of the first original is left after k
    requests, so that there is no certificate.
    Reference: Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020 (shrink and perturb, there to
    generalise better).

    >>> SoftReset().keep
    0.3
    """

    name: ClassVar[str] = "soft_reset"
    title: ClassVar[str] = "Soft reset"

    epochs: Annotated[int, Field(ge=0)] = 10
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    batch_share: Annotated[float, Field(gt=0, le=1)] | None = None
    keep: Fraction = 0.3
    bn_stats: Literal["mix", "reset"] = "mix"

    def filled(self, context: Context) -> Self:
        """Return the method with the original's values in place of None, and shares of its length and batches."""
        ready = super().filled(context)
        if self.share is not None:
            ready = dataclasses.replace(ready, epochs=max(1, floor(self.share * context.training().epochs)))
        if self.batch_share is not None:
            size = max(1, round(self.batch_share * context.training().batch_size))
            ready = dataclasses.replace(ready, batch_size=size)
        return ready

    def soften(self, model: nn.Module, splits: Splits, context: Context) -> None:
        """Mix, and start batch-norm statistics anew if asked to."""
        super().soften(model, splits, context)
        for module in model.modules():
            if self.bn_stats == "reset" and isinstance(module, _NormBase):
                module.reset_running_stats()
