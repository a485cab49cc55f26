"""The last layers of a network, which CF-k and EU-k train."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from pydantic.dataclasses import dataclass
from torch import nn

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Splits
from residuum.core.settings import refused_booleans
from residuum.models import head_of
from residuum.training import STRICT
from residuum.unlearning.base import GradientMethod
from residuum.unlearning.context import Context

STAGE = "layer4"  # the last residual stage by torchvision's name, which our networks use too


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Layers:
    """Which last layers of a network a method trains.

    By default, these are the last residual stage and the head, or, in a network without stages, the last layers that
    together hold at least `share` of the parameters.

    Attributes:
        blocks: Names of the modules to train, joined by "+", such as layer4+fc.
        k: Number of convolutional and linear layers to train, counted from the end, shortcuts included, with every
            batch-norm between them.
        share: Smallest share of the parameters in the layers to train, in a network without stages.
        freeze_bn_stats: Keep the batch-norm statistics of the other layers; otherwise they follow the retain batches.

    >>> Layers(blocks="layer4+fc").blocks
    ('layer4', 'fc')
    """

    blocks: tuple[str, ...] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    freeze_bn_stats: bool = True

    _numbers = refused_booleans

    @field_validator("blocks", mode="before")
    @classmethod
    def _split(cls, blocks: object) -> object:
        return tuple(blocks.replace("+", ",").split(",")) if isinstance(blocks, str) else blocks

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.blocks is not None and self.k is not None:
            raise ValueError("give blocks or k, not both")
        return self

    def of(self, model: nn.Module) -> list[nn.Module]:
        """Return the modules of the tail that own parameters, in order of definition."""
        if self.blocks is not None:
            return blocks_of(model, self.blocks)
        if self.k is not None:
            return last_layers(model, self.k)
        if hasattr(model, STAGE):
            return blocks_of(model, (STAGE, head_of(model)[0]))
        return last_share(model, self.share)

    def train(self, method: GradientMethod, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Descend with these layers only; the rest stays bit-identical, its statistics too if they are frozen."""
        tail = self.of(model)
        inside = {p for module in tail for p in module.parameters(recurse=False)}
        trained = sum(p.numel() for module in tail for p in module.parameters(recurse=False))
        context.notes |= {"trained_parameters": trained, "parameters": sum(p.numel() for p in model.parameters())}
        leaves = [module for module in model.modules() if not any(True for _ in module.children())]
        outside = [leaf for leaf in leaves if leaf not in tail and any(True for _ in leaf.buffers())]
        flags = [(p, p.requires_grad) for p in model.parameters()]
        for p, flag in flags:
            p.requires_grad_(flag and p in inside)
        try:
            method.soften(model, splits, context, {name: part for name, part in model.named_modules() if part in tail})
            method.descend(model, splits, context, frozen=outside if self.freeze_bn_stats else ())
        finally:
            for p, flag in flags:
                p.requires_grad_(flag)
        return model


def owners(model: nn.Module) -> list[nn.Module]:
    """Return the modules that hold parameters themselves, in order of definition."""
    return [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]


def blocks_of(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Return the owners of parameters inside the named modules.

    >>> len(blocks_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), ["2"]))
    1
    """
    modules = {name: module for name, module in model.named_modules() if name and owners(module)}
    for name in names:
        if name not in modules:
            top = [child for child in modules if "." not in child]
            raise unknown_name("block", name, top if "." not in name else modules)
    inside = {part for name in names for part in owners(modules[name])}
    return [module for module in owners(model) if module in inside]


def last_layers(model: nn.Module, k: int) -> list[nn.Module]:
    """Return the last k convolutional and linear layers, and other owners of parameters met on the way."""
    counted = [isinstance(module, nn.modules.conv._ConvNd | nn.Linear) for module in owners(model)]
    if k > sum(counted):
        raise InputError(f"expected k from 1 to {sum(counted)}, the model's convolutional and linear layers, got k={k}")
    first = [position for position, layer in enumerate(counted) if layer][-k]
    return owners(model)[0 if k == sum(counted) else first :]


def last_share(model: nn.Module, share: float) -> list[nn.Module]:
    """Return the shortest tail that holds at least this share of the parameters."""
    needed, tail = math.ceil(share * sum(p.numel() for p in model.parameters())), list[nn.Module]()
    for module in reversed(owners(model)):
        if needed <= 0:
            break
        tail.insert(0, module)
        needed -= sum(p.numel() for p in module.parameters(recurse=False))
    return tail
