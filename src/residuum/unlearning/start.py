"""What a method starts from: the original, or the original mixed with fresh weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.core.errors import InputError
from residuum.core.samples import Splits
from residuum.core.seeds import generator
from residuum.core.settings import refused_booleans
from residuum.models import device_of
from residuum.models.layers import Normalize, initialize
from residuum.training import STRICT, Fraction
from residuum.unlearning.context import Context

Parts = Mapping[str, nn.Module]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Start:
    """The weights that training starts from: w <- keep * w_o + (1 - keep) * fresh, batch-norm statistics alike.

    Fresh values come from the network's own initialization.

    Attributes:
        keep: Share of the original's weights in the start. 1 is the original, which is then left alone.

    >>> Start(keep=0.25).keep
    0.25
    """

    keep: Fraction = 1.0

    _numbers = refused_booleans

    @torch.no_grad()
    def soften(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Mix the modules' weights with fresh ones in place; note the cosine of each layer's weights with the old ones.

        Integer buffers start at 0. Where nothing is kept the old values are not read.
        """
        shared: dict[int, tuple[str, str, Tensor]] = {}  # weights that two modules share are mixed once
        for name, part in parts.items():
            shared |= {id(v): (name, tensor, v.clone()) for tensor, v in mixable(part) if id(v) not in shared}
        self.renew(parts, splits, context)
        cosines = {}
        for name, tensor, old in shared.values():
            value = getattr(parts[name], tensor)
            if not value.is_floating_point():
                value.zero_()
            elif self.keep:
                value.copy_(self.keep * old + (1 - self.keep) * value)
                if tensor == "weight":
                    cosine = F.cosine_similarity(value.flatten().double(), old.flatten(), 0)
                    cosines[name] = round(float(cosine), 6)
        if cosines:
            context.notes["cosines"] = cosines

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Replace the values of the modules by fresh ones."""
        if context.origin.fresh is None:
            reinitialize(parts.values(), context.reset_seed)
        else:
            write_values(parts, context.origin.fresh(context.reset_seed), "new network has")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KnownStart(Start):
    """A start whose fresh values are drawn, or are those that the original started from.

    Initial weights must not have seen the forget set. A random start never has; loaded weights need a manifest that
    says so.

    Attributes:
        fresh: draw takes a new draw of the network's own initialization, initial the weights that the original started
            from.
    """

    fresh: Literal["draw", "initial"] = "draw"

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Replace the values of the modules by fresh ones."""
        if self.fresh == "draw":
            super().renew(parts, splits, context)
            return
        initial, seen = context.origin.initial, context.origin.seen
        if initial is None:
            raise InputError("fresh='initial' needs initial weights; pass origin=Origin(initial=)")
        if seen is None or any(sample_id in seen for sample_id in splits.forget.ids):
            raise InputError(
                "the weights that the original started from have seen samples to forget, or it is not known whether "
                "they have; give a manifest, or set fresh=draw"
            )
        write_values(parts, initial, "initial weights have")


@torch.no_grad()
def write_values(parts: Parts, state: Mapping[str, Tensor], which: str) -> None:
    """Replace the values of the modules by those of a state dict."""
    for name, part in parts.items():
        for tensor, value in mixable(part):
            key = f"{name}.{tensor}" if name else tensor
            if key not in state or state[key].shape != value.shape:
                raise InputError(f"the {which} no {key!r} of shape {tuple(value.shape)}; give those of this network")
            value.copy_(state[key])


def reinitialize(parts: Iterable[nn.Module], seed: int, *, by_layer: bool = False) -> None:
    """Draw the weights of these modules again as a fresh network would, statistics of batch-norm included.

    Convolutions and linear layers are initialized as those of our networks, or `by_layer`, as torch's layers are.
    """
    noise = generator(seed)
    for module in parts:
        device = device_of(module)
        module.cpu()  # the same weights whatever the device
        if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d | Normalize) and not by_layer:
            initialize(module, noise)
        elif callable(reset := getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))):
            with torch.random.fork_rng(devices=[]):  # foreign layers draw from the global generator
                torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=noise)))
                reset()
        else:
            kind = type(module).__name__
            raise InputError(f"{kind} has no reset_parameters, so it cannot be re-initialized; name other blocks")
        module.to(device)


def trainable_parts(model: nn.Module) -> Parts:
    """Return, by name, the modules that hold weights to train or running statistics themselves."""
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
