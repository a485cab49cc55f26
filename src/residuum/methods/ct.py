"""CT: turn every convolution kernel over its diagonal, then fine-tune on the retain set."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context
from residuum.methods.gd import GD
from residuum.training import STRICT, NonNegative
from residuum.types import InputError, Splits, warn


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CT(GD):
    """Convolution transpose: swap the two spatial axes of every kernel, then descend L(w, S_r).

    With square kernels, symmetric padding and global pooling the turned network does to transposed images exactly what
    the original does to images: before training the knowledge is moved behind a transposition, not removed, so audit
    transposed forget images too. Other than square kernels are refused; a network without spatial kernels is
    fine-tuned only, with a warning.
    Reference: "kgltop5" of the NeurIPS 2023 unlearning challenge, in Cadet et al., "Deep Unlearn: Benchmarking Machine
    Unlearning", 2024.

    >>> CT().epochs
    3
    """

    name: ClassVar[str] = "ct"
    title: ClassVar[str] = "CT"

    epochs: Annotated[int, Field(ge=0)] = 3
    lr: NonNegative = 1e-3
    weight_decay: float = 5e-4
    schedule: Literal["constant", "cosine"] = "cosine"

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Turn the copy's kernels and train."""
        kernels = spatial_kernels(model)
        if not kernels:
            warn("ct: no kernel to transpose, so the method is GD")
        self.descend(model, splits, context, self.phases, prepare=lambda _: transpose(kernels))
        return model


def spatial_kernels(model: nn.Module) -> list[Tensor]:
    """Return the weights of the convolutions that look at more than one pixel; refuse those that are not square."""
    found = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1)]
    for module in found:
        if module.kernel_size[0] != module.kernel_size[1]:
            raise InputError(f"ct: expected square kernels, got {module.kernel_size}; take another method")
    return list(dict.fromkeys(module.weight for module in found))


@torch.no_grad()
def transpose(kernels: list[Tensor]) -> None:
    """Swap the spatial axes in place."""
    for kernel in kernels:
        kernel.copy_(kernel.transpose(2, 3).clone())
