"""NGD: fine-tune on the retain set with noise in every step."""

import math
from typing import ClassVar, Literal

import torch
from torch import nn

from residuum.core.samples import Splits
from residuum.core.seeds import generator
from residuum.training import Hooks, NonNegative, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context


@component
class NGD(GradientMethod):
    """Fine-tune on the retain set with noise in every step.

    NGD descends `w <- w - lr * (grad L(w, S_r) + sigma * xi)` with fresh noise `xi ~ N(0, I)` in every step. The noise
    is added after momentum, which would amplify it up to `1 / (1 - momentum)` times.

    Use it to blur all weights a little when you can pay for it with accuracy.

    Literature: Two forms appear under one name. `noise=langevin` takes the other one, `w <- w - lr * grad L + sqrt(2
    lr) * sigma * xi`, which is 4.5 times as strong at lr = 0.1. Neither has clipping or bounded constants, so no
    epsilon holds for a deep network.

    Attributes:
        sigma: Standard deviation of the noise xi ~ N(0, I).
        noise: grad moves the weights by lr * sigma * xi, langevin by sqrt(2 * lr) * sigma * xi.

    Reference: Chien, Wang, Chen, Li, "Langevin Unlearning", NeurIPS 2024, https://arxiv.org/abs/2401.10371

    >>> NGD(sigma=0.01).noise
    'grad'
    """

    name: ClassVar[str] = "ngd"
    title: ClassVar[str] = "NGD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(lr=0.1, weight_decay=1e-4)
    sigma: NonNegative = 0.03
    noise: Literal["grad", "langevin"] = "grad"

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Fine-tune the copy and kick all weights that have a gradient after every step."""
        noise = generator(context.noise_seed)

        @torch.no_grad()
        def kick(model: nn.Module, lr: float) -> None:
            scale = self.sigma * (math.sqrt(2 / lr) if self.noise == "langevin" and lr else 1.0)
            for p in model.parameters() if scale else ():
                if p.grad is not None:
                    xi = torch.randn(p.shape, generator=noise, dtype=p.dtype).to(p.device)
                    p.add_(xi, alpha=-lr * scale)

        self.soften(model, splits, context)
        self.descend(model, splits, context, hooks=Hooks(after_step=kick))
        return model
