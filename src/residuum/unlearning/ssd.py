"""SSD: dampen the weights that matter more to the forget set than to the rest."""

import math
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from residuum.core.errors import warn
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, generator
from residuum.models import device_of, evaluating
from residuum.training import NonNegative
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import Weights


@component
class SSD(Method):
    """Selective synaptic dampening: where F_f[i] > alpha * F_D[i], w[i] <- w[i] * min(dampening * F_D[i] / F_f[i], 1).

    F_f and F_D are diagonal importances on S_f and on the reference D: the whole training set (`reference="full"`, as
    published, which may be computed long before a deletion request) or the retain set. As published, an importance is
    the squared gradient of the batch-mean loss, averaged over batches: it depends on the batch size, so with
    `batching="equal"` both sets use batches of the same size, min(batch_size, |S_f|), equal up to one sample. With
    "reference", as in the reference code, both are cut into batches of `batch_size` and a smaller last one: published
    alphas are meant for that, and weights count for more on a set smaller than a batch. No training;
    `dampening` is the literature's lambda.
    Reference: Foster, Schoepf, Brintrup, "Fast Machine Unlearning without Retraining through Selective Synaptic
    Dampening", AAAI 2024.

    >>> SSD(alpha=100).settings["dampening"]
    1.0
    """

    name: ClassVar[str] = "ssd"
    title: ClassVar[str] = "SSD"
    accelerated: ClassVar[bool] = True

    alpha: NonNegative = 10.0
    dampening: NonNegative = 1.0
    reference: Literal["full", "retain"] = "full"
    batching: Literal["equal", "reference"] = "equal"
    batch_size: Annotated[int, Field(ge=1)] = 128

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Dampen the copy."""
        reference = splits.train if self.reference == "full" else splits.retain
        size = self.batch_size if self.batching == "reference" else min(self.batch_size, len(splits.forget))
        seed, equal = child_seed(context.batch_seed, "ssd"), self.batching == "equal"
        importance = partial(batch_importance, model, size=size, seed=seed, equal=equal)
        forget, rest = importance(splits.forget), importance(reference)
        context.passes += len(splits.forget) + len(reference)
        dampened = 0
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name in forget:
                    factor = dampening_factor(forget[name], rest[name], alpha=self.alpha, dampening=self.dampening)
                    dampened += int(factor.lt(1).sum())
                    weight.mul_(factor)
        if not dampened:
            warn(f"no weight was dampened, the model is the original; lower alpha (now {self.alpha:g})")
        weights = sum(value.numel() for value in forget.values())
        context.notes |= {"dampened_weights": dampened, "weights": weights, "batch_size": size}
        return model


def dampening_factor(forget: Tensor, rest: Tensor, *, alpha: float, dampening: float) -> Tensor:
    """Return each weight's factor: min(dampening * rest / forget, 1) where forget > alpha * rest, else 1."""
    dampened = forget > alpha * rest
    ratio = dampening * rest / torch.where(dampened, forget, torch.ones_like(forget))
    return torch.where(dampened, ratio.clamp(max=1), torch.ones_like(forget))


def batch_importance(model: nn.Module, samples: Samples, *, size: int, seed: int, equal: bool = True) -> Weights:
    """Return mean_b (d CE(batch b) / dw)^2 over shuffled batches of at most `size` samples.

    They are equal up to one sample, or else full but for the last: a small last batch has the variance of a small
    batch, and with it a larger importance.
    """
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in weights.items()}
    order = torch.randperm(len(samples), generator=generator(seed))
    batches = order.tensor_split(math.ceil(len(samples) / size)) if equal else torch.split(order, size)
    device = device_of(model)
    with evaluating(model):
        for rows in batches:
            x, y = (part.to(device) for part in samples.batch(rows))
            loss = F.cross_entropy(model(x), y)
            gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            for name, gradient in zip(weights, gradients, strict=True):
                total[name] += gradient.square() / len(batches)
    return total
