"""Which weights a method changes: gradients of a set, the largest or smallest of them, and steps that respect it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.models import device_of, evaluating
from residuum.types import Samples

PerWeight = Mapping[Tensor, Tensor]


def summed_gradient(model: nn.Module, samples: Samples, batch_size: int) -> dict[Tensor, Tensor]:
    """Return sum_b grad CE(batch b) of every weight to train, in eval mode, for batches in the samples' order."""
    weights = [p for p in model.parameters() if p.requires_grad]
    total: dict[Tensor, Tensor] = {p: torch.zeros_like(p) for p in weights}
    device = device_of(model)
    with evaluating(model), torch.enable_grad():
        for x, y, _ in samples.batches(torch.split(torch.arange(len(samples)), batch_size)):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            for p, gradient in zip(weights, torch.autograd.grad(loss, weights, materialize_grads=True), strict=True):
                total[p] += gradient
    return total


def first_by_rank(values: Tensor, count: int, *, largest: bool) -> Tensor:
    """Return the mask of exactly `count` values, the largest or the smallest; of equal ones those that come first.

    >>> first_by_rank(torch.tensor([0.0, 0.0, 3.0, 0.0]), 2, largest=True)
    tensor([ True, False,  True, False])
    """
    mask = torch.zeros(values.numel(), dtype=torch.bool, device=values.device)
    mask[values.flatten().argsort(descending=largest, stable=True)[:count]] = True
    return mask.view_as(values)


@contextmanager
def scaled_gradients(factors: PerWeight) -> Iterator[None]:
    """Multiply the gradients of these weights by their factors as they arise, before clipping."""
    handles = [p.register_hook(lambda g, factor=factor: g * factor) for p, factor in factors.items()]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
