"""The last layers of any network: which they are, and how to train nothing else."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import nn

from residuum.methods.base import Context
from residuum.methods.fresh import Parts
from residuum.methods.gd import GD
from residuum.models import head_of
from residuum.training import STRICT
from residuum.types import InputError, Splits, unknown_name

STAGE = "layer4"  # last residual stage in torchvision's names, which ours share


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TailMethod(GD):
    """Descend on the retain set with the last layers only; the rest stays bit-identical.

    Which layers: `blocks` (module names, on the command line joined by "+": `layer4+fc`), or the last `k`
    convolutional and linear layers in reverse order of definition, shortcuts included, with every batch-norm met on
    the way; with neither, the last residual stage and the head, or, in a network without stages, the last layers
    that together hold at least `share` of the parameters. `freeze_bn_stats` keeps the batch-norm statistics of the
    frozen part; without it they still follow the retain batches. `keep` mixes the tail only.
    """

    blocks: tuple[str, ...] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    freeze_bn_stats: bool = True

    @model_validator(mode="before")
    @classmethod
    def _split_blocks(cls, values: Any) -> Any:  # noqa: ANN401 (pydantic's own wrapper of the arguments)
        given = getattr(values, "kwargs", None) or {}
        if isinstance(given.get("blocks"), str):
            given["blocks"] = tuple(given["blocks"].replace("+", ",").split(","))
        if given.get("blocks") is not None and given.get("k") is not None:
            raise ValueError("give blocks or k, not both")
        return values

    def tail_of(self, model: nn.Module) -> list[nn.Module]:
        """Return the modules of the tail that own parameters, in order of definition."""
        if self.blocks is not None:
            return blocks_of(model, self.blocks)
        if self.k is not None:
            return last_layers(model, self.k)
        if hasattr(model, STAGE):
            return blocks_of(model, (STAGE, head_of(model)[0]))
        return last_share(model, self.share)

    def softened_parts(self, model: nn.Module) -> Parts:
        """Return the tail's modules."""
        names = {module: name for name, module in model.named_modules()}
        return {names[module]: module for module in self.tail_of(model)}

    def refuse_frozen_statistics(self, parts: Parts) -> None:
        """Refuse mixed ones; those of an entirely fresh tail are as a fresh network's."""
        if self.keep:
            super().refuse_frozen_statistics(parts)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Freeze the rest of the copy and descend."""
        tail = self.tail_of(model)
        trained = sum(p.numel() for module in tail for p in module.parameters(recurse=False))
        context.notes |= {"trained_parameters": trained, "parameters": sum(p.numel() for p in model.parameters())}
        with training_only(model, tail):
            self.descend(model, splits, context, self.phases, frozen=self.kept_statistics(model, tail))
        return model

    def kept_statistics(self, model: nn.Module, tail: Sequence[nn.Module]) -> list[nn.Module]:
        """Return the modules outside the tail whose buffers must not move."""
        if not self.freeze_bn_stats:
            return []
        leaves = [module for module in model.modules() if not any(True for _ in module.children())]
        return [leaf for leaf in leaves if leaf not in tail and any(True for _ in leaf.buffers())]


def owners(model: nn.Module) -> list[nn.Module]:
    """Return the modules that hold parameters of their own, in order of definition."""
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
    total, held = sum(p.numel() for p in model.parameters()), 0
    tail: list[nn.Module] = []
    for module in reversed(owners(model)):
        if held >= math.ceil(share * total):
            break
        tail.insert(0, module)
        held += sum(p.numel() for p in module.parameters(recurse=False))
    return tail


@contextmanager
def training_only(model: nn.Module, tail: Sequence[nn.Module]) -> Iterator[None]:
    """Let only the tail's parameters require gradients; restore every flag on exit."""
    flags = [(p, p.requires_grad) for p in model.parameters()]
    inside = {p for module in tail for p in module.parameters(recurse=False)}
    for p, flag in flags:
        p.requires_grad_(flag and p in inside)
    try:
        yield
    finally:
        for p, flag in flags:
            p.requires_grad_(flag)
