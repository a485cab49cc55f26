"""Fresh weights in place of trained ones or mixed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from residuum.models import device_of
from residuum.models.layers import Normalise, initialise
from residuum.types import InputError, generator

Parts = Mapping[str, nn.Module]


def reinitialise(parts: Iterable[nn.Module], seed: int) -> None:
    """Draw the weights of these modules again as a fresh network would, statistics of batch-norm included."""
    ours = generator(seed)
    for module in parts:
        device = device_of(module)
        module.cpu()  # the same weights whatever the device
        if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d | Normalise):
            initialise(module, ours)
        elif callable(reset := getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))):
            with torch.random.fork_rng(devices=[]):  # foreign layers draw from the global generator
                torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=ours)))
                reset()
        else:
            kind = type(module).__name__
            raise InputError(f"{kind} has no reset_parameters, so it cannot be re-initialised; name other blocks")
        module.to(device)


@torch.no_grad()
def restart(parts: Parts, initial: Mapping[str, Tensor]) -> None:
    """Give the modules, named as in the model, the weights and statistics of an earlier state of it."""
    for name, part in parts.items():
        for own, value in mixable(part):
            key = f"{name}.{own}" if name else own
            if key not in initial or initial[key].shape != value.shape:
                raise InputError(f"the initial weights have no {key!r} of shape {tuple(value.shape)}; another model's")
            value.copy_(initial[key])


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
        shared |= {id(value): (name, own, value.clone()) for own, value in mixable(part) if id(value) not in shared}
    renew(parts)
    for name, own, before in shared.values():
        value = getattr(parts[name], own)
        if not value.is_floating_point():
            value.zero_()
        elif keep:
            value.copy_(keep * before + (1 - keep) * value)
    if not keep:
        return {}
    weights = [(name, before, getattr(parts[name], own)) for name, own, before in shared.values() if own == "weight"]
    cosines = {name: F.cosine_similarity(now.flatten().double(), old.flatten(), 0) for name, old, now in weights}
    return {name: round(float(value), 6) for name, value in cosines.items()}
