"""CT: turn every convolution kernel over its diagonal, then fine-tune on the retain set."""

from typing import ClassVar

import torch
from torch import nn

from residuum.core.errors import InputError, warn
from residuum.core.samples import Splits
from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context


@component
class CT(GradientMethod):
    """Transpose every convolution kernel, then fine-tune on the retain set.

    CT (convolution transpose) swaps the two spatial axes of every kernel and trains on the retain set. With square
    kernels, symmetric padding and global pooling, the turned network treats transposed images exactly as the original
    treats images. Before training wears it off, the knowledge is moved behind a transposition, not removed. Kernels
    that are not square are refused, and a network without spatial kernels is only fine-tuned, with a warning.

    Use it for comparison, and audit transposed forget images too.

    Reference: "kgltop5" of the NeurIPS 2023 unlearning challenge, in Cadet et al., "Deep Unlearn: Benchmarking Machine
    Unlearning", 2024, https://arxiv.org/abs/2410.01276

    >>> CT().recipe.epochs
    3
    """

    name: ClassVar[str] = "ct"
    title: ClassVar[str] = "CT"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(epochs=3, lr=1e-3, weight_decay=5e-4, schedule="cosine")

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Turn the copy's kernels and train."""
        convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
        spatial = [module for module in convolutions if module.kernel_size != (1, 1)]
        for module in spatial:
            if module.kernel_size[0] != module.kernel_size[1]:
                raise InputError(f"ct: expected square kernels, got {module.kernel_size}; take another method")
        if not spatial:
            warn("ct: no kernel to transpose, so the method is GD")
        self.soften(model, splits, context)
        with torch.no_grad():
            for kernel in dict.fromkeys(module.weight for module in spatial):  # modules may share one
                kernel.copy_(kernel.transpose(2, 3).clone())
        self.descend(model, splits, context)
        return model
