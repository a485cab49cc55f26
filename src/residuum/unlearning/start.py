"""What a method starts from and which layers it trains: the original, softened by fresh weights, or a tail of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Splits
from residuum.core.seeds import generator
from residuum.core.settings import refused_booleans
from residuum.models import device_of, head_of
from residuum.models.layers import Normalize, initialize
from residuum.training import STRICT, Fraction
from residuum.unlearning.context import Context

Parts = Mapping[str, nn.Module]
STAGE = "layer4"  # last residual stage in torchvision's names, which ours share


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Start:
    """The weights that training starts from: w <- keep * w_o + (1 - keep) * fresh, batch-norm statistics alike.

    Fresh values come from the network's own initialization. `keep=1` is the original, which is then left alone.

    >>> Start(keep=0.25).keep
    0.25
    """

    keep: Fraction = 1.0

    _numbers = refused_booleans

    def soften(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Mix the modules' weights with fresh ones in place, and note how far each layer turned."""
        if cosines := soften(parts, self.keep, lambda fresh: self.renew(fresh, splits, context)):
            context.notes["cosines"] = cosines

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Write fresh values over those of the modules."""
        reinitialize(parts.values(), context.reset_seed)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KnownStart(Start):
    """A start whose fresh values are drawn (`fresh="draw"`) or those that the original started from ("initial").

    The latter must not have seen the forget samples: always so for a random start, for loaded weights only with a
    manifest that says so.
    """

    fresh: Literal["draw", "initial"] = "draw"

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Write the fresh values over those of the modules."""
        if self.fresh == "draw":
            super().renew(parts, splits, context)
            return
        initial, seen = context.origin.initial, context.origin.seen
        if initial is None:
            raise InputError("fresh='initial' needs initial weights; pass origin=Origin(initial=)")
        if seen is None or any(sample_id in seen for sample_id in splits.forget.ids):
            raise InputError(
                "the weights that the original started from have seen samples to forget, or nobody says that they "
                "have not; give a manifest, or set fresh=draw"
            )
        with torch.no_grad():
            for name, part in parts.items():
                for tensor, value in mixable(part):
                    key = f"{name}.{tensor}" if name else tensor
                    if key not in initial or initial[key].shape != value.shape:
                        shape = tuple(value.shape)
                        raise InputError(f"the initial weights have no {key!r} of shape {shape}; another model's")
                    value.copy_(initial[key])


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Layers:
    """Which last layers of a network a method trains.

    `blocks` are module names (on the command line joined by "+": `layer4+fc`), `k` the last k convolutional and linear
    layers in reverse order of definition, shortcuts included, with every batch-norm met on the way. With neither it
    is the last residual stage and the head, or, in a network without stages, the last layers that together hold at
    least `share` of the parameters.

    >>> Layers(blocks="layer4+fc").blocks
    ('layer4', 'fc')
    """

    blocks: tuple[str, ...] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 0.5

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


def reinitialize(parts: Iterable[nn.Module], seed: int) -> None:
    """Draw the weights of these modules again as a fresh network would, statistics of batch-norm included."""
    ours = generator(seed)
    for module in parts:
        device = device_of(module)
        module.cpu()  # the same weights whatever the device
        if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d | Normalize):
            initialize(module, ours)
        elif callable(reset := getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))):
            with torch.random.fork_rng(devices=[]):  # foreign layers draw from the global generator
                torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=ours)))
                reset()
        else:
            kind = type(module).__name__
            raise InputError(f"{kind} has no reset_parameters, so it cannot be re-initialized; name other blocks")
        module.to(device)


def trainable_parts(model: nn.Module) -> Parts:
    """Return, by name, the modules with weights to train or running statistics of their own."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _NormBase) or any(p.requires_grad for p in module.parameters(recurse=False))
    }


def keeps_statistics(parts: Parts) -> bool:
    """Tell whether one of the modules has running statistics."""
    return any(isinstance(part, _NormBase) and part.track_running_stats for part in parts.values())


def mixable(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a module's own parameters and, of batch-norm, its statistics; other buffers are constants."""
    yield from part.named_parameters(recurse=False)
    if isinstance(part, _NormBase):
        yield from part.named_buffers(recurse=False)


@torch.no_grad()
def soften(parts: Parts, keep: float, renew: Callable[[Parts], None]) -> dict[str, float]:
    """Mix in place, w <- keep * w + (1 - keep) * fresh; return the cosine of each layer's weights with the old ones.

    `renew` writes the fresh values over the old ones. Weights and batch-norm statistics are mixed alike; integer
    buffers start at 0. Where nothing is kept the old values are not read.

    >>> layer = nn.Linear(2, 1)
    >>> for p in layer.parameters():
    ...     nn.init.ones_(p)
    Parameter containing:
    tensor([[1., 1.]], requires_grad=True)
    Parameter containing:
    tensor([1.], requires_grad=True)
    >>> soften({"": layer}, 0.25, lambda parts: [p.zero_() for p in parts[""].parameters()])
    {'': 1.0}
    >>> layer.weight.tolist()
    [[0.25, 0.25]]
    """
    shared: dict[int, tuple[str, str, Tensor]] = {}  # weights that two modules share are mixed once
    for name, part in parts.items():
        shared |= {id(v): (name, tensor, v.clone()) for tensor, v in mixable(part) if id(v) not in shared}
    renew(parts)
    for name, tensor, old in shared.values():
        value = getattr(parts[name], tensor)
        if not value.is_floating_point():
            value.zero_()
        elif keep:
            value.copy_(keep * old + (1 - keep) * value)
    if not keep:
        return {}
    before = {name: old for name, tensor, old in shared.values() if tensor == "weight"}
    weights = [(name, old, parts[name].get_parameter("weight")) for name, old in before.items()]
    cosines = {name: F.cosine_similarity(now.flatten().double(), old.flatten(), 0) for name, old, now in weights}
    return {name: round(float(value), 6) for name, value in cosines.items()}


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
