"""SalUn: teach random labels, but only to the weights that matter most to the forget set."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from residuum.core.samples import Splits
from residuum.training import Fraction, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import first_by_rank, scaled_gradients, summed_gradient
from residuum.unlearning.relabeling import Labels, Order, relabeling_phases, relabeling_streams


@component
class SalUn(GradientMethod):
    """Saliency unlearning: random labels on the weights with the largest |g|, g = sum_b grad CE(S_f batch b) at w_o.

    Minimize CE(h(x), y') over S_f, y' drawn anew in every epoch, and L(w, S_r). `order="alternate"`: in each epoch one
    pass over S_f, then one over S_r. "joint": both sets shuffled together. `labels="uniform"` draws from all classes,
    the true one included, as the literature does; "wrong" from the others.
    The round(share * P) largest of all P coordinates are selected, of equal ones the first; the others stay at w_o bit
    for bit: their gradients are masked before clipping, and they are put back after every step, because weight decay
    and momentum would move them. `share=1` is plain random labeling. `keep` mixes the selected weights only.
    Batch-norm statistics are never masked.
    Reference: Fan et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency in Both Image
    Classification and Generation", ICLR 2024.

    >>> SalUn(share=0.3).labels
    'uniform'
    """

    name: ClassVar[str] = "salun"
    title: ClassVar[str] = "SalUn"

    recipe: Recipe = Recipe(weight_decay=5e-4)
    labels: Labels = "uniform"
    order: Order = "alternate"
    share: Fraction = 0.5

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Select weights of the copy and teach them."""
        selected: dict[Tensor, Tensor] = {}
        if self.share < 1:
            gradients = summed_gradient(model, splits.forget, self.recipe.batch_size)
            selected = largest_gradients(gradients, self.share)
            context.passes += len(splits.forget)
            context.notes |= {"selected_weights": sum(int(mask.sum()) for mask in selected.values())}
        original = {p: p.detach().clone() for p in selected}

        @torch.no_grad()
        def put_back(_: nn.Module) -> None:
            for p, mask in selected.items():
                p.copy_(torch.where(mask, p, original[p]))

        phases = relabeling_phases(splits, context.noise_seed, self.labels, self.order)
        streams = relabeling_streams(splits, self.order)
        with scaled_gradients({p: mask.to(p) for p, mask in selected.items()}):
            self.soften(model, splits, context)
            put_back(model)
            self.descend(model, splits, context, phases, streams=streams, after_step=put_back)
        return model


def largest_gradients(gradients: dict[Tensor, Tensor], share: float) -> dict[Tensor, Tensor]:
    """Return the masks of the round(share * P) largest absolute gradients of all P coordinates together."""
    sizes = [g.numel() for g in gradients.values()]
    together = torch.cat([g.abs().flatten() for g in gradients.values()])
    mask = first_by_rank(together, round(share * len(together)), largest=True)
    return {p: part.view_as(p) for p, part in zip(gradients, torch.split(mask, sizes), strict=True)}
