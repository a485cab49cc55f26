"""FaLW: random labels, each forget sample weighed by how much better than unseen ones it is known."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from residuum.core.inputs import space_of
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed, generator
from residuum.models import device_of, evaluating
from residuum.models.inference import rows_at_once
from residuum.training import Batch, NonNegative, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.relabeling import Labels, Order, relabeling_phases, relabeling_streams
from residuum.unlearning.streams import class_means, held_out_alike, lacks_held_out, noisy_copies


@component
class FaLW(GradientMethod):
    """Forgetting-aware loss reweighting: one mean over a joint batch of CE(x_r, y) and w_i CE(x_i, random label).

    w_i = 1 + sign(z) tanh(|z|)^(1 / B_c), between 0 and 2, with z = (p_i - mu_c) / sigma_c for sample i of class c: p_i
    is the current p(y|x_i), mu_c and sigma_c are its mean and standard deviation over validation samples of the class,
    B_c = (N_f / (C N_fc))^gate_power; everything in eval mode. `gate_every` says how often mu and sigma are estimated:
    once an "epoch", or every so many steps (1 in the publication). `gate_tau` > 0 looks at noisy copies, one radius of
    [0, gate_tau] each, instead of the samples. The mean over validation samples is the current model's own
    generalization, which still profits from the forget samples: too high where they are a large share of their class.
    Validation samples used here cannot serve as held-out ones of an audit.
    Reference: Yu et al., "FaLW: A Forgetting-aware Loss Reweighting for Long-tailed Unlearning", ICLR 2026 (defaults:
    a port's, not the authors').

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
    gate_tau: NonNegative = 0.0
    gate_every: Literal["epoch"] | Annotated[int, Field(ge=1)] = "epoch"

    def refusal(self, splits: Splits) -> str | None:
        """Return which class has no validation samples to compare with."""
        return lacks_held_out(splits, self.name)

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Teach the copy random labels, with the forget samples weighed."""
        gate = Gate(self, splits, context)
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

    def __init__(self, method: FaLW, splits: Splits, context: Context) -> None:
        self.alike, self.tau, self.every = held_out_alike(splits), method.gate_tau, method.gate_every
        counts = splits.forget.y.bincount(minlength=splits.classes).double()
        self.balance = (len(splits.forget) / (splits.classes * counts)) ** method.gate_power
        self.noise = generator(child_seed(context.noise_seed, "gate"))
        self.epoch, self.steps = -1, 0

    @torch.no_grad()
    def weights(self, model: nn.Module, batch: Batch, forgotten: Tensor, epoch: int) -> Tensor:
        """Return w_i of the samples to forget, and 1 for the others; estimate mu and sigma first if it is time to."""
        if self.epoch != epoch if self.every == "epoch" else self.steps % self.every == 0:
            self.estimate(model)
        self.epoch, self.steps = epoch, self.steps + 1
        weights, forgotten = torch.ones(len(batch.y), device=batch.y.device), forgotten.to(batch.y.device)
        x, y = batch.x[forgotten], batch.y[forgotten]
        c = y.cpu()
        z = (self.recognition(model, x, y) - self.mean[c]) / self.deviation[c]
        weights[forgotten] = gate_weights(z, self.balance[c]).to(x)
        return weights

    def estimate(self, model: nn.Module) -> None:
        """Measure mean and standard deviation of p(y|x) over the validation samples of each forgotten class."""
        parts = torch.split(torch.arange(len(self.alike)), rows_at_once(self.alike.shape))
        device = device_of(model)
        p = torch.cat([self.recognition(model, x.to(device), y.to(device)) for x, y, _ in self.alike.batches(parts)])
        self.mean = class_means(p, self.alike.y, len(self.balance))
        self.deviation = torch.full_like(self.mean, torch.nan)
        for label in set(self.alike.y.tolist()):
            self.deviation[label] = p[self.alike.y == label].std(correction=0).clamp(min=1e-8)

    def recognition(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return p(y|x) of each sample, or of a noisy copy of it, in eval mode, as float64 on the CPU."""
        with evaluating(model), torch.no_grad():
            seen = noisy_copies(x, self.tau, self.noise, space_of(model)) if self.tau else x
            probabilities: Tensor = model(seen).double().softmax(1).gather(1, y[:, None])[:, 0].cpu()
            return probabilities
