"""NGD: fine-tune on the retain set with noise in every step."""

from typing import ClassVar

from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class NGD(GradientMethod):
    """Noisy gradient descent: w <- w - lr * (grad L(w, S_r) + sigma * xi), xi ~ N(0, I) afresh in every step.

    `noise="langevin"` is the other form in the literature, w <- w - lr * grad L + sqrt(2 lr) * sigma * xi,
    sqrt(2 / lr) times as strong. The kick is added after momentum, which would amplify it up to tenfold.
    No clipping and no bounded constants: no epsilon for a deep network.
    Reference: Chien, Wang, Chen, Li, "Langevin Unlearning", NeurIPS 2024.

    >>> NGD(sigma=0.01).recipe.noise
    'grad'
    """

    name: ClassVar[str] = "ngd"
    title: ClassVar[str] = "NGD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(lr=0.1, weight_decay=1e-4, sigma=0.03)
