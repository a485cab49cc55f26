"""SalUn: teach random labels, but only to the weights that matter most to the forget set."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from residuum.core.samples import Splits
from residuum.training import Fraction, Hooks, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import first_by_rank, scaled_gradients, summed_gradient
from residuum.unlearning.relabeling import Labels, Order, relabeling_phases, relabeling_streams


@component
class SalUn(GradientMethod):
    """Teach random labels to the weights that matter most for the forget set.

    SalUn selects the `share` of all weights with the largest absolute gradient of the forget set's loss. These weights
    learn random labels on the forget set, drawn anew in every epoch, and the true labels on the retain set. The other
    weights stay as they are, bit for bit. `share=1` is plain random labeling, and `keep` mixes the selected weights
    only.

    Use it for comparison. On digits it forgets the class, not the samples.

    Literature: Masking only the gradients lets weight decay and momentum move the other weights, which copies of the
    code do. Selecting by a quantile selects everything where most gradients are zero.

    Attributes:
        labels: uniform draws from all classes, the true one included, as published; wrong draws from the others.
        order: alternate makes a pass over the forget set, then one over the retain set; joint shuffles them together.
        share: Share of the weights that may change.

    Reference: Fan et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency in Both Image
    Classification and Generation", ICLR 2024, https://arxiv.org/abs/2310.12508

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
        def put_back(_: nn.Module, rate: float = 0.0) -> None:
            for p, mask in selected.items():
                p.copy_(torch.where(mask, p, original[p]))

        phases = relabeling_phases(splits, context.noise_seed, self.labels, self.order)
        streams = relabeling_streams(splits, self.order)
        with scaled_gradients({p: mask.to(p) for p, mask in selected.items()}):
            self.soften(model, splits, context)
            put_back(model)
            self.descend(model, splits, context, phases, streams=streams, hooks=Hooks(after_step=put_back))
        return model


def largest_gradients(gradients: dict[Tensor, Tensor], share: float) -> dict[Tensor, Tensor]:
    """Return the masks of the round(share * P) largest absolute gradients of all P coordinates together."""
    sizes = [g.numel() for g in gradients.values()]
    together = torch.cat([g.abs().flatten() for g in gradients.values()])
    mask = first_by_rank(together, round(share * len(together)), largest=True)
    return {p: part.view_as(p) for p, part in zip(gradients, torch.split(mask, sizes), strict=True)}
