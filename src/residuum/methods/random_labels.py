"""Random labels: teach the forget samples labels drawn by chance; what SalUn and FaLW are built on."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context, GradientMethod, Phases
from residuum.methods.streams import joined, mean_cross_entropy, random_labels
from residuum.training import STRICT, Batch, Loss, NonNegative, TrainingPhase
from residuum.types import Splits, child_seed, generator


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RandomLabels(GradientMethod):
    """Minimise CE(h(x), y') over S_f, y' drawn anew in every epoch, and L(w, S_r).

    `order="alternate"`: in each epoch one pass over S_f, then one over S_r, with one optimiser. "joint": both sets
    shuffled together, one mean over the batch. `labels="uniform"` draws from all classes, the true one included, as the
    literature does; "wrong" from the others.
    """

    name: ClassVar[str] = "random_labels"

    epochs: Annotated[int, Field(ge=0)] = 10
    weight_decay: NonNegative = 5e-4
    labels: Literal["uniform", "wrong"] = "uniform"
    order: Literal["alternate", "joint"] = "alternate"

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return L(w, S_r)."""
        return F.cross_entropy(model(batch.x), batch.y)

    def drawn_labels(self, splits: Splits, seed: int, epoch: int) -> Tensor:
        """Return one random label for each forget sample: the same in every process."""
        noise = generator(child_seed(seed, f"labels {epoch}"))
        return random_labels(splits.forget.y, splits.classes, self.labels, noise)

    def passes_of(self, splits: Splits, context: Context) -> Phases:
        """Return the passes of each epoch."""

        def phases(epoch: int) -> Sequence[TrainingPhase]:
            drawn = self.drawn_labels(splits, context.noise_seed, epoch)
            if self.order == "joint":
                return [TrainingPhase(taught(torch.cat([splits.retain.y, drawn])), "joint")]
            return [TrainingPhase(taught(drawn), "forget"), TrainingPhase(self.loss)]

        return phases

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Run the passes on the copy."""
        self.teach(model, splits, context)
        return model

    def teach(self, model: nn.Module, splits: Splits, context: Context, **options: Any) -> None:  # noqa: ANN401
        """Descend with these options; in the joint stream the retained samples come first."""
        streams = {"joint": joined(splits.retain, splits.forget)} if self.order == "joint" else {}
        self.descend(model, splits, context, self.passes_of(splits, context), streams=streams, **options)


def taught(labels: Tensor) -> Loss:
    """Return the loss that teaches the stream's samples these labels."""

    def loss(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        return mean_cross_entropy(model(batch.x), labels[batch.indices].to(batch.y.device), batch.weight)

    return loss
