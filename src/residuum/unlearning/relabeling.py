"""Random labels for the forget samples: what SalUn and FaLW teach."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, generator
from residuum.training import Batch, Loss, TrainingPhase, cross_entropy
from residuum.unlearning.base import Phases
from residuum.unlearning.streams import joined

Labels = Literal["uniform", "wrong"]
Order = Literal["alternate", "joint"]


def random_labels(y: Tensor, classes: int, kind: Labels, noise: torch.Generator) -> Tensor:
    """Return labels drawn uniformly from all classes, the true one included, or from the wrong ones only."""
    shift = torch.randint(int(kind == "wrong"), classes, y.shape, generator=noise).to(y.device)
    return (y + shift) % classes


def relabeling_phases(splits: Splits, seed: int, labels: Labels, order: Order) -> Phases:
    """Return the passes that minimize CE(h(x), y') over S_f, y' drawn anew in every epoch, and L(w, S_r).

    `order="alternate"`: in each epoch one pass over S_f, then one over S_r, with one optimizer. "joint": both sets
    shuffled together, one mean over the batch (the stream of `relabeling_streams`). All processes draw the same.
    """

    def phases(epoch: int) -> Sequence[TrainingPhase]:
        noise = generator(child_seed(seed, f"labels {epoch}"))
        drawn = random_labels(splits.forget.y, splits.classes, labels, noise)
        if order == "joint":
            return [TrainingPhase(taught(torch.cat([splits.retain.y, drawn])), "joint")]
        return [TrainingPhase(taught(drawn), "forget"), TrainingPhase(cross_entropy)]

    return phases


def relabeling_streams(splits: Splits, order: Order) -> dict[str, Samples]:
    """Return the joint stream, where it is used: the retain samples come first in it."""
    return {"joint": joined(splits.retain, splits.forget)} if order == "joint" else {}


def taught(labels: Tensor) -> Loss:
    """Return the loss that teaches the stream's samples these labels: mean_i w_i CE_i, w_i = 1 without weights."""

    def loss(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        logits, y = model(batch.x), labels[batch.indices].to(batch.y.device)
        if batch.weight is None:
            return F.cross_entropy(logits, y)
        return (batch.weight * F.cross_entropy(logits, y, reduction="none")).mean()

    return loss
