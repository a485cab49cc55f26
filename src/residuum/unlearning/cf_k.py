"""CF-k: fine-tune the last layers on the retain set."""

from typing import ClassVar

from torch import nn

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.layers import Layers, train_tail


@component
class CFk(GradientMethod):
    """Catastrophic forgetting of the last k layers: freeze the rest, descend L(w, S_r) from the original.

    `layers` says which they are (`blocks`, `k` or `share`, see `Layers`). `freeze_bn_stats` keeps the batch-norm
    statistics of the frozen part; without it they still follow the retain batches. `keep` mixes the tail only.
    With every layer in the tail (`share=1`) it is GD. The literature's k = 5 means "the last two residual blocks and
    the head"; counted as the reference code counts, that needs k = 6, because the shortcut is a layer too.
    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022.

    >>> CFk(blocks="layer4+fc").layers.blocks
    ('layer4', 'fc')
    """

    name: ClassVar[str] = "cf_k"
    title: ClassVar[str] = "CF-k"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
    layers: Layers = Layers()
    freeze_bn_stats: bool = True

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Train the tail of the copy."""
        tail = self.layers.of(model)
        return train_tail(self, tail, model, splits, context, freeze_bn_stats=self.freeze_bn_stats)
