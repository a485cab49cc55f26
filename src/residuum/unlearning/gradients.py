"""Gradients of a set and of its single samples, and which weights a method changes by them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.hooks import RemovableHandle

from residuum.core.samples import Samples
from residuum.models import device_of, evaluating

Weights = dict[str, Tensor]
Gradients = dict[Tensor, Tensor]  # of weights
Network = Callable[[Weights, Tensor], Tensor]
MIB = 2**20


def batch_gradients(model: nn.Module, samples: Samples, parts: Iterable[Tensor] | int) -> Iterator[Gradients]:
    """Yield grad CE(batch) of every weight to train, in eval mode, for the batches of `Samples.batches`."""
    weights, device = [p for p in model.parameters() if p.requires_grad], device_of(model)
    with evaluating(model), torch.enable_grad():
        for x, y, _ in samples.batches(parts):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
            yield dict(zip(weights, gradients, strict=True))


def summed_gradient(model: nn.Module, samples: Samples, batch_size: int) -> Gradients:
    """Return sum_b grad CE(batch b) of every weight to train, in eval mode, for batches in the samples' order."""
    total: Gradients = {p: torch.zeros_like(p) for p in model.parameters() if p.requires_grad}
    for gradients in batch_gradients(model, samples, batch_size):
        for p, gradient in gradients.items():
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
def scaled_gradients(factors: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """Multiply the gradients of these weights by their factors as they arise, before clipping."""
    with ExitStack() as hooks:
        for p, factor in factors.items():
            register: Callable[..., RemovableHandle] = p.register_hook
            hooks.enter_context(register(factor.mul))
        yield


def functional(model: nn.Module, state: Mapping[str, Tensor] | None = None) -> tuple[Network, Weights]:
    """Return the network as a function (weights, x (n, ...)) -> logits (n, classes), and its trainable weights.

    `state` replaces the model's own weights and statistics; the statistics stay fixed. Call the function within
    `evaluating(model)`: batch statistics would couple the samples.
    """
    state = {**model.state_dict(), **(state or {})}
    weights = {name: state[name].detach() for name, p in model.named_parameters() if p.requires_grad}
    fixed = {name: value for name, value in state.items() if name not in weights}

    def logits(trainable: Weights, x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(model, {**fixed, **trainable}, (x,))
        return outputs

    return logits, weights


def by_row(derivative: Callable[..., Weights], weights: Weights, *batch: Tensor) -> Weights:
    """Return derivative(weights, *row) of every row of the batch, stacked.

    All rows at once, or one by one if the network's code branches on values (masks of transformers do), which cannot
    be vectorized.

    >>> rows = by_row(lambda weights, one: {"w": weights["w"] * one.item()}, {"w": torch.ones(1)}, torch.arange(2))
    >>> rows["w"].tolist()
    [[0.0], [1.0]]
    """
    try:
        return vmap(derivative, in_dims=(None, *[0] * len(batch)))(weights, *batch)
    except RuntimeError as error:
        if not str(error).startswith("vmap: "):
            raise
    rows = [derivative(weights, *row) for row in zip(*batch, strict=True)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def samples_at_once(model: nn.Module, samples: Samples, memory_mib: float, weight_copies: int = 0) -> int:
    """Return how many samples a derivative can take at once, at least 1.

    The outputs of all layers for one sample are measured by a forward pass and count four times.
    """
    outputs: list[int] = []

    def measure(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs.append(output.numel() * output.element_size())

    with ExitStack() as hooks, evaluating(model), torch.no_grad():
        for module in model.modules():
            hooks.enter_context(module.register_forward_hook(measure))
        model(samples.batch(torch.tensor([0]))[0].to(device_of(model)))
    weights = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return max(int(memory_mib * MIB // max(weight_copies * weights + 4 * sum(outputs), 1)), 1)
