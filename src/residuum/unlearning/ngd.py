"""NGD: fine-tune on the retain set with noise in every step."""

from typing import ClassVar

from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class NGD(GradientMethod):
    """Fine-tune on the retain set with noise in every step.

    NGD descends `w <- w - lr * (grad L(w, S_r) + sigma * xi)` with fresh noise `xi ~ N(0, I)` in every step. The noise
    is added after momentum, which would amplify it up to `1 / (1 - momentum)` times.

    Use it to blur all weights a little when you can pay for it with accuracy.

    Literature: Two forms appear under one name. `noise=langevin` takes the other one, `w <- w - lr * grad L + sqrt(2
    lr) * sigma * xi`, which is 4.5 times as strong at lr = 0.1. Neither has clipping or bounded constants, so no
    epsilon holds for a deep network.

    Reference: Chien, Wang, Chen, Li, "Langevin Unlearning", NeurIPS 2024, https://arxiv.org/abs/2401.10371

    >>> NGD(sigma=0.01).recipe.noise
    'grad'
    """

    name: ClassVar[str] = "ngd"
    title: ClassVar[str] = "NGD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(lr=0.1, weight_decay=1e-4, sigma=0.03)
