"""Parts of classifiers: normalization as first layer, heads on features of length one, initialization."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.models.inference import head_of

Model = TypeVar("Model", bound=nn.Module)


def normalized(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return (x - mean) / std for inputs (n, channels, ...), with one constant for each channel or one for all."""
    ones = [1] * (x.ndim - 2)
    return (x - mean.view(1, -1, *ones)) / std.view(1, -1, *ones)


class Normalize(nn.Module):
    """Return (x - mean) / std, one constant per channel or one for all; buffers only, nothing is trained.

    >>> Normalize((0.5,), (0.25,))(torch.tensor([[1.0, 0.5]]))
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
        """Return normalized inputs of the same shape (n, channels, ...)."""
        return normalized(x, self.mean, self.std)

    def extra_repr(self) -> str:
        """Show the constants."""
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class Classifier(nn.Module):
    """A network with `architecture`, a dictionary of JSON values from which it can be rebuilt.

    `default_width` is the width unless you give another; `images` means that inputs are (channels, height, width).
    """

    default_width: ClassVar[int] = 1
    images: ClassVar[bool] = False
    architecture: dict[str, Any]

    def __init__(self, normalize: Normalize) -> None:
        super().__init__()
        self.normalize = normalize


class PatchBasis(nn.Module):
    """Coordinates of 2x2 patches in a fixed orthonormal basis: the cosine transform of rows, columns and channels.

    On natural images it is close to the principal components of patches, so batch-norm after it nearly whitens them.
    Inputs (n, c, h, w) give (n, 4 c, h - 1, w - 1). Nothing is trained.
    Reference: Ahmed, Natarajan and Rao, "Discrete cosine transform", 1974.

    >>> basis = PatchBasis(3).filters.flatten(1)
    >>> torch.allclose(basis @ basis.T, torch.eye(12), atol=1e-6)
    True
    """

    filters: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("filters", torch.empty(4 * channels, channels, 2, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Write the basis into the buffer."""
        pixels, channels = cosine_basis(2), cosine_basis(self.filters.shape[1])
        self.filters.copy_(torch.einsum("ri,sj,kc->rskcij", pixels, pixels, channels).flatten(0, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the coordinates of all patches."""
        return F.conv2d(x, self.filters)


def cosine_basis(n: int) -> Tensor:
    """Return the rows of the orthonormal cosine transform of n values, the constant one first."""
    frequency, position = torch.arange(n, device="cpu")[:, None], torch.arange(n, device="cpu")
    rows = torch.cos(math.pi * frequency * (position + 0.5) / n)
    return F.normalize(rows, dim=1)


class IdentityConv2d(nn.Conv2d):
    """A convolution that starts by passing its inputs on: output k < inputs is input k, the others are random."""


class UnitLength(nn.Module):
    """Return x / |x|_2, row by row; a row of zeros stays."""

    def forward(self, x: Tensor) -> Tensor:
        """Return rows (n, d) of length one."""
        return F.normalize(x, dim=1)


class UnitHead(nn.Sequential):
    """Features to length one, then a linear layer without bias, its weights zero."""

    def __init__(self, features: int, classes: int) -> None:
        # skip_init draws nothing from the global generator
        linear = nn.utils.skip_init(nn.Linear, features, classes, bias=False)  # type: ignore[no-untyped-call]
        super().__init__(UnitLength(), linear)
        nn.init.zeros_(linear.weight)


def give_unit_head(model: Model, weight: Tensor | None = None) -> Model:
    """Replace the model's last linear layer (or its `UnitHead`) in place by a `UnitHead` with `weight` (classes, d).

    >>> model = give_unit_head(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.ones(2, 3))
    >>> model(torch.ones(1, 4)).shape
    torch.Size([1, 2])
    """
    name, old = head_of(model)
    new = UnitHead(old.in_features, old.out_features).train(old.training)
    if weight is not None:
        new[1].weight.data = weight.detach().clone().to(old.weight)
    parent, _, child = name.rpartition(".")
    if isinstance(model.get_submodule(parent), UnitHead):
        parent, _, child = parent.rpartition(".")
    if not name:
        raise InputError("the model is a single nn.Linear, so there are no features before its head")
    setattr(model.get_submodule(parent), child, new)
    if isinstance(model, Classifier):
        model.architecture = model.architecture | {"head": "unit"}
    return model


def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights again, in order of definition, from this generator only.

    Convolutions: normal with variance 2 / fan-out, bias 0. Linear layers, and the random filters of `IdentityConv2d`:
    uniform within 1 / sqrt(fan-in). Other layers (batch-norm: weight 1, bias 0, mean 0, variance 1) are reset by their
    own `reset_parameters`, which draws nothing.
    Reference: He et al., "Delving deep into rectifiers", 2015.
    """
    for layer in module.modules():
        if isinstance(layer, IdentityConv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.dirac_(layer.weight.data[: layer.in_channels])
        elif isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            for values in layer.parameters():
                nn.init.uniform_(values, -bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm2d | Normalize | PatchBasis):
            layer.reset_parameters()
