"""Random labels for the forget samples: what SalUn and FaLW teach."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, generator
from residuum.training import Batch, TrainingPhase, cross_entropy
from residuum.unlearning.base import Phases
from residuum.unlearning.streams import joined

Labels = Literal["uniform", "wrong"]
Order = Literal["alternate", "joint"]
Weights = Callable[[nn.Module, Batch, Tensor, int], Tensor]


def random_labels(y: Tensor, classes: int, kind: Labels, noise: torch.Generator) -> Tensor:
    """Return labels drawn uniformly from all classes, the true one included, or from the wrong ones only."""
    shift = torch.randint(int(kind == "wrong"), classes, y.shape, generator=noise).to(y.device)
    return (y + shift) % classes


def relabeling_phases(
    splits: Splits, seed: int, labels: Labels, order: Order, weights: Weights | None = None
) -> Phases:
    """Return the passes that minimize CE(h(x), y') over S_f, y' drawn anew in every epoch, and L(w, S_r).

    `order="alternate"`: in each epoch one pass over S_f, then one over S_r, with one optimizer. "joint": both sets
    shuffled together, one mean over the batch (the stream of `relabeling_streams`). All processes draw the same.
    `weights` returns w_i of a model, a batch, which of its samples are to be forgotten, and the epoch; the loss of the
    batch is then mean_i w_i CE_i.
    """

    def phases(epoch: int) -> Sequence[TrainingPhase]:
        y = random_labels(splits.forget.y, splits.classes, labels, generator(child_seed(seed, f"labels {epoch}")))
        first = 0  # position of the first forget sample in the stream
        if order == "joint":
            y, first = torch.cat([splits.retain.y, y]), len(splits.retain)

        def loss(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            target = y[batch.indices].to(batch.y.device)
            if weights is None:
                return F.cross_entropy(model(batch.x), target)
            w = weights(model, batch, batch.indices >= first, epoch)
            return (w * F.cross_entropy(model(batch.x), target, reduction="none")).mean()

        if order == "joint":
            return [TrainingPhase(loss, "joint")]
        return [TrainingPhase(loss, "forget"), TrainingPhase(cross_entropy)]

    return phases


def relabeling_streams(splits: Splits, order: Order) -> dict[str, Samples]:
    """Return the joint stream, where it is used: the retain samples come first in it."""
    return {"joint": joined(splits.retain, splits.forget)} if order == "joint" else {}
