"""Validation samples of the forgotten classes: what a model does with samples alike that it never saw."""

import torch
from torch import Tensor, nn

from residuum.models import forward
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.types import Samples, Splits


def held_out_alike(splits: Splits) -> Samples:
    """Return the validation samples of the forgotten classes, ordered by id so that their order changes nothing."""
    alike = torch.isin(splits.validation.y, splits.forget.y).nonzero().flatten().tolist()
    return splits.validation.subset(sorted(alike, key=lambda row: splits.validation.ids[row]))


def error_rate(model: nn.Module, samples: Samples, team: Team = SINGLE_PROCESS) -> float:
    """Return the share of samples the model gets wrong."""
    return forward(model, samples, team=team).argmax(1).ne(samples.y).double().mean().item()


def rows_by_class(samples: Samples) -> dict[int, Tensor]:
    """Return, for each label that occurs, the mask of its samples."""
    return {label: samples.y == label for label in sorted(set(samples.y.tolist()))}


def lacks_held_out(splits: Splits, who: str) -> str | None:
    """Return the refusal of a method that needs such samples of every forgotten class, if there are none of one."""
    lacking = sorted(set(splits.forget.y.tolist()) - set(splits.validation.y.tolist()))
    if not lacking:
        return None
    name = splits.class_names[lacking[0]]
    return (
        f"{who} needs validation samples of the forgotten classes, and there are none of {name!r}; "
        "set data.validation_size, or take another method (class form has none at all)"
    )
