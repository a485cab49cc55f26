"""EU-k: train the last layers anew on the retain set."""

from typing import ClassVar

from torch import nn

from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.layers import Layers
from residuum.unlearning.start import Start


@component
class EUk(GradientMethod):
    """Draw the last layers again and train only them on the retain set.

    EU-k gives the last layers fresh weights, freezes all layers before them, and descends `L(w, S_r)`. It is CF-k with
    `keep=0`. The fresh layers start as in a new network, batch-norm and its statistics included.

    Use it when the late layers hold most of what must go, and the frozen layers may keep what they know.

    Literature: "Exact" holds for the last layers only, because the frozen ones have seen the forget set. The reference
    code leaves batch-norm of the last layers as it was. In print, k = 5 means the last two residual blocks and the
    head; counted as that code counts, with the shortcut as a layer, this is k = 6.

    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022,
    https://arxiv.org/abs/2201.06640

    >>> EUk(k=2).layers.share
    0.5
    """

    name: ClassVar[str] = "eu_k"
    title: ClassVar[str] = "EU-k"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
    start: Start = Start(keep=0.0)
    layers: Layers = Layers()

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Train a fresh tail of the copy."""
        return self.layers.train(self, model, splits, context)
