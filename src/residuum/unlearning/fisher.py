"""Fisher: noise on every weight, the more the less the retain set needs it."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad

from residuum.core.samples import Samples, Splits
from residuum.core.seeds import generator
from residuum.models import device_of, evaluating, forward, head_of
from residuum.training import NonNegative, Positive, Progress
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import Weights, by_row, functional, samples_at_once

TINY, CAP, HEAD_CAP, BOOST = 1e-8, 1e3, 1e2, 10.0
ROW_VARIANCE = 1e-4  # of the forgotten class in the head, before the boost


@component
class Fisher(Method):
    """Add noise to every weight, more where the retain set does not need it.

    Fisher forgetting sets `w <- w + N(0, alpha / F)` with the exact Fisher information of the retain set, `F[i] =
    mean_{x in S_r} sum_y p_w(y|x) (d CE(h_w(x), y) / dw_i)^2`, from gradients of single samples. `1 / F` is capped at
    1e3 (head: 1e2) and averaged over the inputs of each unit. Head, biases and batch-norm get ten times the variance.
    When a whole class is forgotten, its row of the head starts at 0 with variance 1e-3.

    Use it as the baseline of pure noise: when samples are forgotten, nothing aims at them, and S_f is never read.

    Literature: Code that squares batch-mean gradients, or takes true labels, computes something else. Through the cap,
    weights that do nothing get the largest noise.

    Attributes:
        alpha: Scale of the variance; the literature uses values near 1e-6.
        memory_mib: Memory for the gradients that are held at once, in MiB.

    Reference: Golatkar, Achille, Soatto, "Eternal Sunshine of the Spotless Net", CVPR 2020,
    https://arxiv.org/abs/1911.04933

    >>> Fisher(alpha=1e-8).reads
    frozenset({'retain'})
    """

    name: ClassVar[str] = "fisher"
    title: ClassVar[str] = "Fisher"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})
    accelerated: ClassVar[bool] = True

    alpha: NonNegative = 1e-6
    memory_mib: Positive = 256.0

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Add the noise to the copy."""
        information = fisher_information(model, splits.retain, self.memory_mib, context.progress)
        context.passes += len(splits.retain) * splits.classes
        forgotten = splits.forget_class if splits.form == "class" else None
        variances = noise_variance(model, information, alpha=self.alpha, forgotten=forgotten)
        noise, head = generator(context.noise_seed), f"{head_of(model)[0]}."
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name in variances:
                    drawn = torch.randn(weight.shape, generator=noise, dtype=weight.dtype).to(weight.device)
                    if forgotten is not None and name.startswith(head):
                        weight[forgotten] = 0
                    weight.add_(variances[name].sqrt() * drawn)
        total = sum(float(v.sum()) for v in variances.values())
        largest = max(float(v.max()) for v in variances.values())
        count = sum(v.numel() for v in variances.values())
        context.notes |= {"noise_std_mean_square": math.sqrt(total / count), "noise_std_largest": math.sqrt(largest)}
        return model


def fisher_information(
    model: nn.Module, samples: Samples, memory_mib: float, progress: Progress | None = None
) -> Weights:
    """Return F for every trainable parameter: mean_x sum_y p(y|x) (d CE / dw)^2, batch-norm in eval mode."""
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters() if p.requires_grad}
    shares = F.softmax(forward(model, samples), 1) / len(samples)
    done = 0
    for x, _, rows in samples.batches(samples_at_once(model, samples, memory_mib, weight_copies=2)):
        for label in range(shares.shape[1]):
            labels = torch.full((len(rows),), label)
            for name, value in squared_gradients(model, x, labels, shares[rows, label]).items():
                total[name] += value
        done += len(rows)
        if progress:
            progress(done, len(samples))
    return total


def squared_gradients(model: nn.Module, x: Tensor, y: Tensor, weight: Tensor) -> Weights:
    """Return sum_i weight_i * (d CE(h_w(x_i), y_i) / dw)^2, elementwise, for every trainable parameter.

    >>> model = nn.utils.skip_init(nn.Linear, 1, 2, bias=False)
    >>> _ = nn.init.zeros_(model.weight)  # both classes at 1/2: gradients -x/2 and x/2
    >>> x, y = torch.tensor([[2.0], [1.0]]), torch.tensor([0, 0])
    >>> squared_gradients(model, x, y, torch.ones(2))["weight"].flatten().tolist()
    [1.25, 1.25]
    """
    logits, weights = functional(model)

    def single(weights: Weights, row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(logits(weights, row[None]), label[None])

    device = device_of(model)
    with evaluating(model):
        gradients = by_row(grad(single), weights, x.to(device), y.to(device))
    return {name: torch.einsum("n...,n->...", g.square_(), weight.to(device)) for name, g in gradients.items()}


def noise_variance(model: nn.Module, information: Weights, *, alpha: float, forgotten: int | None = None) -> Weights:
    """Return the variance of each weight's noise, in the shape of the weights."""
    head, variances = f"{head_of(model)[0]}.", {}
    for name, value in information.items():
        variance = alpha * (1 / (value + TINY)).clamp(max=HEAD_CAP if name.startswith(head) else CAP)
        if variance.ndim > 1:
            variance = variance.mean(1, keepdim=True).expand_as(value).clone()
        if forgotten is not None and name.startswith(head):
            variance[forgotten] = ROW_VARIANCE
        boosted = name.startswith(head) or variance.ndim == 1
        variances[name] = variance * (BOOST if boosted else 1.0)
    return variances
