"""SalUn: teach random labels, but only to the weights that matter most to the forget set."""

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context
from residuum.methods.gradients import first_by_rank, scaled_gradients, summed_gradient
from residuum.methods.random_labels import RandomLabels
from residuum.training import STRICT, Fraction
from residuum.types import Splits


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SalUn(RandomLabels):
    """Saliency unlearning: random labels on the weights with the largest |g|, g = sum_b grad CE(S_f batch b) at w_o.

    The round(share * P) largest of all P coordinates are selected, of equal ones the first; the others stay at w_o bit
    for bit: their gradients are masked before clipping, and they are put back after every step, because weight decay
    and momentum would move them. `share=1` is plain random labelling. `keep` mixes the selected weights only.
    Batch-norm statistics are never masked.
    Reference: Fan et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency in Both Image
    Classification and Generation", ICLR 2024.

    >>> SalUn(share=0.3).labels
    'uniform'
    """

    name: ClassVar[str] = "salun"
    title: ClassVar[str] = "SalUn"

    share: Fraction = 0.5

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Select weights of the copy and teach them."""
        if self.share == 1:
            return super().edit(model, splits, context)
        selected = largest_gradients(summed_gradient(model, splits.forget, self.batch_size), self.share)
        context.passes += len(splits.forget)
        context.notes |= {"selected_weights": sum(int(mask.sum()) for mask in selected.values())}
        original = {p: p.detach().clone() for p in selected}

        @torch.no_grad()
        def put_back(_: nn.Module) -> None:
            for p, mask in selected.items():
                p.copy_(torch.where(mask, p, original[p]))

        with scaled_gradients({p: mask.to(p) for p, mask in selected.items()}):
            self.teach(model, splits, context, prepare=put_back, after_step=put_back)
        return model


def largest_gradients(gradients: dict[Tensor, Tensor], share: float) -> dict[Tensor, Tensor]:
    """Return the masks of the round(share * P) largest absolute gradients of all P coordinates together."""
    sizes = [g.numel() for g in gradients.values()]
    together = torch.cat([g.abs().flatten() for g in gradients.values()])
    mask = first_by_rank(together, round(share * len(together)), largest=True)
    return {p: own.view_as(p) for p, own in zip(gradients, torch.split(mask, sizes), strict=True)}
