"""Accuracies as the unlearning literature counts them, in per cent."""

from __future__ import annotations

from torch import nn

from residuum.models import forward
from residuum.types import Samples, Splits


def accuracy(model: nn.Module, samples: Samples) -> float:
    """Return 100 * Pr[argmax h(x) = y], in eval mode, over all outputs including a forgotten class.

    >>> import torch
    >>> points = Samples(torch.tensor([[0.2, 0.7], [0.9, 0.1]]), torch.tensor([1, 1]), ("a", "b"))
    >>> accuracy(nn.Identity(), points)
    50.0
    """
    right = forward(model, samples).argmax(1).eq(samples.y)
    return 100.0 * right.double().mean().item()


def accuracies(model: nn.Module, splits: Splits) -> dict[str, float]:
    """Return retain and test accuracy, and unlearn accuracy = 100 - forget accuracy.

    In class form the test set has no images of the forgotten class: a model that never predicts it is not
    punished for that.
    """
    return {
        "retain_accuracy": accuracy(model, splits.retain),
        "unlearn_accuracy": 100.0 - accuracy(model, splits.forget),
        "test_accuracy": accuracy(model, splits.test),
    }
