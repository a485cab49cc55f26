"""CF-k: fine-tune the last layers on the retain set."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.start import Layers, training_only


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
        train_tail(self, self.layers.of(model), model, splits, context, freeze_bn_stats=self.freeze_bn_stats)
        return model


def train_tail(
    method: GradientMethod,
    tail: Sequence[nn.Module],
    model: nn.Module,
    splits: Splits,
    context: Context,
    *,
    freeze_bn_stats: bool,
) -> None:
    """Descend with these modules only; the rest stays bit-identical, its statistics too if they are frozen."""
    trained = sum(p.numel() for module in tail for p in module.parameters(recurse=False))
    context.notes |= {"trained_parameters": trained, "parameters": sum(p.numel() for p in model.parameters())}
    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    still = [leaf for leaf in leaves if leaf not in tail and any(True for _ in leaf.buffers())]
    names = {module: name for name, module in model.named_modules()}
    with training_only(model, tail):
        method.soften(model, splits, context, parts={names[module]: module for module in tail})
        method.descend(model, splits, context, frozen=still if freeze_bn_stats else ())
