"""FaLW: random labels, each forget sample weighed by how much better than unseen ones it is known."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from residuum.core.samples import Splits
from residuum.models import device_of, evaluating
from residuum.models.inference import rows_at_once
from residuum.training import Batch, NonNegative, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.relabeling import Labels, Order, relabeling_phases, relabeling_streams
from residuum.unlearning.streams import class_means, refusal_without_validation, unseen_of_forgotten_classes


@component
class FaLW(GradientMethod):
    """Teach random labels, more strongly to samples that the model still knows too well.

    FaLW trains on the retain set and on the forget set with random labels. The loss of forgotten sample i of class c is
    multiplied by `1 + sign(z) tanh(|z|)^(1 / B_c)`, between 0 and 2. Here `z = (p_i - mu_c) / sigma_c` compares the
    model's p(y|x_i) with its mean and standard deviation on validation samples of the class, in eval mode, and `B_c =
    (N_f / (C N_fc))^gate_power` is larger for classes with few samples to forget.

    Use it when the forget set has many samples of some classes and few of others, and you have validation samples of
    all of them. An audit cannot use the same samples as held-out ones.

    Literature: The defaults are those of a port, not the authors'. It estimates in every step and reads p_i from batch
    statistics; here mu and sigma are estimated once per epoch. The mean over validation samples still profits from the
    forget set, so it is too high where the forget set is a large share of its class.

    Attributes:
        labels: uniform draws from all classes, the true one included; wrong draws from the others.
        order: joint shuffles both sets together; alternate makes a pass over the forget set, then the retain set.
        gate_power: Exponent of B_c.

    Reference: Yu et al., "FaLW: A Forgetting-aware Loss Reweighting for Long-tailed Unlearning", ICLR 2026,
    https://arxiv.org/abs/2601.18650

    >>> FaLW().order
    'joint'
    """

    name: ClassVar[str] = "falw"
    title: ClassVar[str] = "FaLW"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})

    recipe: Recipe = Recipe(weight_decay=5e-4)
    labels: Labels = "uniform"
    order: Order = "joint"
    gate_power: NonNegative = 0.15

    def refusal(self, splits: Splits) -> str | None:
        """Return which class has no validation samples to compare with."""
        return refusal_without_validation(splits, self.name)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Teach the copy random labels, with the forget samples weighed."""
        gate = Gate(self, splits)
        phases = relabeling_phases(splits, context.noise_seed, self.labels, self.order, gate.weights)
        self.soften(model, splits, context)
        self.descend(model, splits, context, phases, streams=relabeling_streams(splits, self.order))
        return model


def gate_weights(z: Tensor, balance: Tensor) -> Tensor:
    """Return 1 + sign(z) tanh(|z|)^(1 / balance), between 0 and 2.

    >>> gate_weights(torch.tensor([0.0, 1.0, -1.0]), torch.ones(3))
    tensor([1.0000, 1.7616, 0.2384])
    """
    return 1 + z.sign() * z.abs().tanh() ** (1 / balance)


class Gate:
    """The weights of forget samples under the model as it is, against validation samples of their classes."""

    def __init__(self, method: FaLW, splits: Splits) -> None:
        self.unseen, self.epoch = unseen_of_forgotten_classes(splits), -1
        counts = splits.forget.y.bincount(minlength=splits.classes).double()
        self.balance = (len(splits.forget) / (splits.classes * counts)) ** method.gate_power

    @torch.no_grad()
    def weights(self, model: nn.Module, batch: Batch, forgotten: Tensor, epoch: int) -> Tensor:
        """Return w_i of the samples to forget, and 1 for the others; estimate mu and sigma first in a new epoch."""
        if self.epoch != epoch:
            self.estimate(model)
        self.epoch = epoch
        weights, forgotten = torch.ones(len(batch.y), device=batch.y.device), forgotten.to(batch.y.device)
        x, y = batch.x[forgotten], batch.y[forgotten]
        c = y.cpu()
        z = (self.recognition(model, x, y) - self.mean[c]) / self.deviation[c]
        weights[forgotten] = gate_weights(z, self.balance[c]).to(x)
        return weights

    def estimate(self, model: nn.Module) -> None:
        """Measure mean and standard deviation of p(y|x) over the validation samples of each forgotten class."""
        batches, device = self.unseen.batches(rows_at_once(self.unseen.shape)), device_of(model)
        p = torch.cat([self.recognition(model, x.to(device), y.to(device)) for x, y, _ in batches])
        self.mean = class_means(p, self.unseen.y, len(self.balance))
        self.deviation = torch.full_like(self.mean, torch.nan)
        for label in set(self.unseen.y.tolist()):
            self.deviation[label] = p[self.unseen.y == label].std(correction=0).clamp(min=1e-8)

    def recognition(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return p(y|x) of each sample in eval mode, as float64 on the CPU."""
        with evaluating(model), torch.no_grad():
            probabilities: Tensor = model(x).double().softmax(1).gather(1, y[:, None])[:, 0].cpu()
            return probabilities
