"""Ask any `nn.Module` for its logits without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from residuum.parallel import SINGLE_PROCESS, Team
from residuum.types import InputError, Samples


@contextmanager
def module_flags(model: nn.Module) -> Iterator[None]:
    """Restore the train or eval flag of every submodule on exit, also after an error.

    >>> model = nn.Sequential(nn.Dropout(), nn.Dropout()).eval()
    >>> with module_flags(model):
    ...     _ = model[1].train()
    >>> model[1].training
    False
    """
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode and restore every flag on exit."""
    with module_flags(model):
        model.eval()
        yield


def rows_at_once(shape: tuple[int, ...]) -> int:
    """Return how many inputs of this shape to show a model at once: 512, fewer of large images to spare memory.

    >>> rows_at_once((3, 32, 32)), rows_at_once((3, 224, 224))
    (512, 16)
    """
    return max(16, min(512, 2**21 // max(prod(shape), 1)))


def device_of(model: nn.Module) -> torch.device:
    """Return where the model's first parameter or buffer is; that is where its inputs must be.

    >>> device_of(nn.Linear(1, 1))
    device(type='cpu')
    """
    return next((value.device for value in model.state_dict().values()), torch.device("cpu"))


def forward(
    model: nn.Module, samples: Samples, *, batch_size: int | None = None, team: Team = SINGLE_PROCESS
) -> Tensor:
    """Return the logits (n, classes) of all samples, on the CPU, in eval mode and without gradients.

    The processes of a `team` take turns with the batches, and all get all logits.

    >>> samples = Samples(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), ("a",))
    >>> forward(nn.Identity(), samples)
    tensor([[1., 0.]])
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, got {batch_size}")
    positions = torch.split(torch.arange(len(samples)), batch_size or rows_at_once(samples.shape))
    device = device_of(model)
    with evaluating(model), torch.no_grad():
        mine = [model(x.to(device)).cpu() for x, _, _ in samples.batches(positions[team.rank :: team.size])]
    everybodys = team.gather(mine)
    return torch.cat([everybodys[k % team.size][k // team.size] for k in range(len(positions))])


def head_of(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return name and module of the last linear layer in order of definition.

    >>> head_of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ('2', Linear(in_features=3, out_features=2, bias=True))
    """
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise InputError(f"{type(model).__name__} has no nn.Linear layer, so its head is not known")
    return linear[-1]
