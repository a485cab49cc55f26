"""CF-k: fine-tune the last layers on the retain set."""

from typing import ClassVar

from torch import nn

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.layers import Layers


@component
class CFk(GradientMethod):
    """Fine-tune only the last layers on the retain set.

    CF-k freezes all layers but the last ones and descends `L(w, S_r)` from the original. With every layer in the tail
    (`share=1`) it is GD, bit for bit. `keep` mixes the last layers only.

    Use it when fine-tuning would be enough and backward passes are expensive.

    Literature: In print, k = 5 means the last two residual blocks and the head; counted as the reference code counts,
    with the shortcut as a layer, this is k = 6. Another repository trains `layer4` and leaves the head frozen.

    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022,
    https://arxiv.org/abs/2201.06640

    >>> CFk(blocks="layer4+fc").layers.blocks
    ('layer4', 'fc')
    """

    name: ClassVar[str] = "cf_k"
    title: ClassVar[str] = "CF-k"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
    layers: Layers = Layers()

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Train the tail of the copy."""
        return self.layers.train(self, model, splits, context)
