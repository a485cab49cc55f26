"""What all our classifiers share: normalisation as the first layer, and initialisation from an own generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """Return (x - mean) / std, one constant per channel or one for all; buffers only, nothing is trained.

    >>> Normalise((0.5,), (0.25,))(torch.tensor([[1.0, 0.5]]))
    tensor([[2., 0.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.constants = (tuple(mean), tuple(std))
        self.register_buffer("mean", torch.empty(len(mean)))
        self.register_buffer("std", torch.empty(len(std)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Write the constants into the buffers."""
        mean, std = self.constants
        self.mean.copy_(torch.tensor(mean))
        self.std.copy_(torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised inputs of the same shape (n, channels, ...)."""
        ones = [1] * (x.ndim - 2)
        return (x - self.mean.view(1, -1, *ones)) / self.std.view(1, -1, *ones)

    def extra_repr(self) -> str:
        """Show the constants."""
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class Classifier(nn.Module):
    """A network with the record it can be rebuilt from: `architecture`, a dictionary that JSON can hold."""

    architecture: dict[str, Any]

    def __init__(self, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew, in order of definition, from this generator only.

    Convolutions: normal with variance 2 / fan-out, bias 0. Linear layers: uniform within 1 / sqrt(fan-in). Other layers
    (batch-norm: weight 1, bias 0, mean 0, variance 1) are reset by their own `reset_parameters`, which draws nothing.
    Reference: He et al., "Delving deep into rectifiers", 2015.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            for values in layer.parameters():
                nn.init.uniform_(values, -bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm2d | Normalise):
            layer.reset_parameters()
