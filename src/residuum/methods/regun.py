"""ReGUn: make forgotten samples look like unseen ones of their class."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context
from residuum.methods.gate import ForgettingMethod
from residuum.methods.streams import held_out_alike, lacks_held_out, rows_by_class
from residuum.models import forward
from residuum.training import STRICT, Batch, NonNegative, Positive, TrainingPhase
from residuum.types import InputError, Splits

Goal = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ReGUn(ForgettingMethod):
    """Held-out matching: minimise lambda_r L(w, S_r) + lambda_f mean_i KL(q_i || p_w(.|x_i)) over S_f.

    q is the original's mean softmax(logits / temperature) on validation samples: `target="class"` takes those of the
    sample's own class, once; "batch", as the reference code does, one q for the whole forget batch, from validation
    samples drawn anew in every step with its class frequencies, which pulls every sample towards the mixture. `drive`
    says which set makes an epoch ("forget": the reference code). The original's answers on unseen samples still profit
    from the forget set.
    Reference: Mirlach, Laguna, Vogt, "Reference-Guided Machine Unlearning", 2026.

    >>> ReGUn(lambda_f=0).paired_stream is None
    True
    """

    name: ClassVar[str] = "regun"
    title: ClassVar[str] = "ReGUn"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})

    epochs: Annotated[int, Field(ge=0)] = 10
    lambda_r: NonNegative = 1.0
    lambda_f: NonNegative = 0.5
    temperature: Positive = 1.0
    target: Literal["class", "batch"] = "class"
    drive: Literal["retain", "forget"] = "retain"

    @property
    def paired_stream(self) -> str | None:
        """The set that does not make the epoch, unless its weight is zero."""
        weight = self.lambda_f if self.drive == "retain" else self.lambda_r
        other = "forget" if self.drive == "retain" else "retain"
        return other if weight else None

    def refusal(self, splits: Splits) -> str | None:
        """Return which class has no validation samples to match."""
        return lacks_held_out(splits, self.name) or super().refusal(splits)

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return lambda_r L(w, S_r)."""
        return self.lambda_r * F.cross_entropy(model(batch.x), batch.y)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Ask the original about unseen samples, then train the copy."""
        if reason := self.refusal(splits):
            raise InputError(reason)
        goal = self.goal(model, splits, context)

        def both(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
            retain, forget = (batch, paired) if self.drive == "retain" else (paired, batch)
            terms = [self.loss(model, retain, None, noise)] if retain is not None and self.lambda_r else []
            if forget is not None and self.lambda_f:
                terms.append(self.lambda_f * divergence(goal(forget.y, noise), model(forget.x), forget.weight))
            return torch.stack(terms).sum() if len(terms) > 1 else terms[0]

        self.descend(model, splits, context, lambda epoch: [TrainingPhase(both, self.drive, self.paired_stream)])
        return model

    def goal(self, model: nn.Module, splits: Splits, context: Context) -> Goal:
        """Return the function from the labels of a forget batch to q, (n, classes)."""
        alike = held_out_alike(splits)
        answers = (forward(model, alike, team=context.team).double() / self.temperature).softmax(1)
        of_class = {label: answers[rows] for label, rows in rows_by_class(alike).items()}
        if self.target == "class":
            table = {label: own.mean(0) for label, own in of_class.items()}
            return lambda y, noise: torch.stack([table[label] for label in y.tolist()]).to(y.device)

        def of_batch(y: Tensor, noise: torch.Generator) -> Tensor:
            drawn = [of_class[label] for label in y.tolist()]
            rows = [own[torch.randint(len(own), (), generator=noise)] for own in drawn]
            return torch.stack(rows).mean(0).expand(len(y), -1).to(y.device)

        return of_batch


def divergence(q: Tensor, logits: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return mean_i w_i KL(q_i || softmax(logits_i)) of probabilities and logits (n, classes).

    >>> divergence(torch.tensor([[0.5, 0.5]]), torch.zeros(1, 2)).item()
    0.0
    """
    rows = F.kl_div(F.log_softmax(logits, 1), q.to(logits), reduction="none").sum(1)
    return rows.mean() if weight is None else (weight * rows).mean()
