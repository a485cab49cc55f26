"""EU-k: train the last layers anew on the retain set."""

from typing import ClassVar

from torch import nn

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.layers import Layers, train_tail
from residuum.unlearning.start import Start


@component
class EUk(GradientMethod):
    """Exact unlearning of the last k layers: re-initialize them, freeze the rest, descend L(w, S_r).

    "Exact" is meant of the tail alone: the frozen part has seen the forget set. The tail starts as a fresh network
    would, weights, batch-norm and its statistics; the reference code leaves batch-norm as it was, and with it what
    it knows of the forget set. It is CF-k with keep = 0, and `layers` and `freeze_bn_stats` are as there.
    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022.

    >>> EUk(k=2).layers.share
    0.5
    """

    name: ClassVar[str] = "eu_k"
    title: ClassVar[str] = "EU-k"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
    start: Start = Start(keep=0.0)
    layers: Layers = Layers()
    freeze_bn_stats: bool = True

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Train a fresh tail of the copy."""
        tail = self.layers.of(model)
        return train_tail(self, tail, model, splits, context, freeze_bn_stats=self.freeze_bn_stats)
