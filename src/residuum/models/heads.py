"""A head on features of length one: what certified removal puts in place of the last linear layer."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.models.inference import evaluating, head_of, rows_at_once
from residuum.models.layers import Classifier
from residuum.types import InputError, Samples

Model = TypeVar("Model", bound=nn.Module)


class UnitLength(nn.Module):
    """Return x / |x|_2, row by row; a row of zeros stays.

    >>> UnitLength()(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

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
    """Replace the model's last linear layer in place by a `UnitHead`, with these weights (classes, d) if given.

    A head that is one already gets a new one in its place.
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


def head_features(model: nn.Module, samples: Samples, *, batch_size: int | None = None) -> Tensor:
    """Return what enters the last linear layer, shape (n, d), in eval mode.

    The layer must be the last thing the model does: its output is the model's.
    """
    _, head = head_of(model)
    seen: list[tuple[Tensor, Tensor]] = []
    handle = head.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    kept = []
    try:
        with evaluating(model), torch.no_grad():
            positions = torch.split(torch.arange(len(samples)), batch_size or rows_at_once(samples.shape))
            for x, _, _ in samples.batches(positions):
                seen.clear()
                kept.append(_checked(seen, model(x)))
    finally:
        handle.remove()
    return torch.cat(kept) if kept else torch.empty(0, head.in_features)


def _checked(seen: list[tuple[Tensor, Tensor]], logits: Tensor) -> Tensor:
    if len(seen) != 1 or seen[0][0].ndim != 2 or not torch.equal(seen[0][1], logits):
        raise InputError(
            "expected the model's last nn.Linear to take features (n, d) once and to return the logits; "
            "something follows it or it is used otherwise, so features and head cannot be told apart"
        )
    return seen[0][0]
