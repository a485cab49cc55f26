"""Accuracies as the unlearning literature counts them, in per cent."""

from collections.abc import Mapping

from torch import Tensor, nn

from residuum.models import forward
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.types import Samples, Splits

PARTS = ("retain", "forget", "test", "forgotten_test")


def logits_of_parts(model: nn.Module, splits: Splits, team: Team = SINGLE_PROCESS) -> dict[str, Tensor]:
    """Return the logits (n, classes) of everything that is measured, by part; parts without samples are left out."""
    parts = {name: getattr(splits, name) for name in PARTS}
    return {name: forward(model, part, team=team) for name, part in parts.items() if len(part)}


def accuracy(model: nn.Module, samples: Samples) -> float:
    """Return 100 * Pr[argmax h(x) = y], in eval mode, over all outputs including a forgotten class.

    >>> import torch
    >>> points = Samples(torch.tensor([[0.2, 0.7], [0.9, 0.1]]), torch.tensor([1, 1]), ("a", "b"))
    >>> accuracy(nn.Identity(), points)
    50.0
    """
    return share_right(forward(model, samples), samples)


def share_right(logits: Tensor, samples: Samples) -> float:
    """Return 100 * the share of samples whose largest logit is that of their label."""
    return 100.0 * logits.argmax(1).eq(samples.y).double().mean().item()


def accuracies(model: nn.Module, splits: Splits, *, logits: Mapping[str, Tensor] | None = None) -> dict[str, float]:
    """Return retain and test accuracy, and unlearn accuracy = 100 - forget accuracy.

    In class form the test set has no images of the forgotten class: a model that never predicts it is not
    punished for that. `logits` are those of `logits_of_parts`, where they are known already.
    """
    known = logits_of_parts(model, splits) if logits is None else logits
    return {
        "retain_accuracy": share_right(known["retain"], splits.retain),
        "unlearn_accuracy": 100.0 - share_right(known["forget"], splits.forget),
        "test_accuracy": share_right(known["test"], splits.test),
    }
