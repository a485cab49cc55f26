"""SSD: dampen the weights that matter more to the forget set than to the rest."""

import math
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from residuum.core.errors import warn
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, generator
from residuum.training import NonNegative
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import Weights, batch_gradients


@component
class SSD(Method):
    """Shrink the weights that matter more for the forget set than for the rest.

    SSD (selective synaptic dampening) does not train. Where `F_f[i] > alpha * F_D[i]`, it sets `w[i] <- w[i] *
    min(dampening * F_D[i] / F_f[i], 1)`. `F_f` and `F_D` are the importances of a weight on the forget set and on a
    reference set: the squared gradient of the batch-mean loss, averaged over batches. Importances therefore depend on
    the size of the batches. If no weight is shrunk, the run warns and the row's notes say `unchanged`.

    Use it when there is no time to train, and check the retain accuracy: it can fall suddenly as `alpha` falls.

    Literature: The minimum "over i" in print is meant for each weight. The text compares with the retain set, the code
    with the whole training set. Published alphas belong to `batching=reference`, whose ratios F_f / F_D are five to
    twenty times as large on the digits demo.

    Attributes:
        alpha: How many times more important a weight must be for the forget set to be shrunk.
        dampening: Strength of the shrinking; the paper calls it lambda.
        reference: Set that the forget set is compared with: full (the training set, as published) or retain.
        batching: equal cuts both sets into batches of one size, at most |S_f|; reference cuts them as the paper's code.
        batch_size: Samples in a batch whose gradient is squared.

    Reference: Foster, Schoepf, Brintrup, "Fast Machine Unlearning without Retraining through Selective Synaptic
    Dampening", AAAI 2024, https://arxiv.org/abs/2308.07707

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
    for gradients in batch_gradients(model, samples, batches):
        for name, p in weights.items():
            total[name] += gradients[p].square() / len(batches)
    return total
