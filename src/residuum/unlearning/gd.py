"""GD: fine-tune on the retain set."""

from typing import ClassVar

from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class GD(GradientMethod):
    """Fine-tune the original on the retain set.

    GD goes on training where the original stopped: `w <- w - lr * grad L(w, S_r)`. It never reads the forget set, so
    the forgotten samples are no longer repeated, but nothing pushes them out.

    Use it as the baseline that every other method must beat.

    Literature: "Descent to delete" proves a certificate for convex models that project their weights and publish them
    with noise. GD does neither, so it has no certificate.

    Reference: Neel, Roth, Sharifi-Malvajerdi, "Descent-to-Delete", ALT 2021, https://arxiv.org/abs/2007.02923

    >>> GD(epochs=3).recipe.lr
    0.01
    """

    name: ClassVar[str] = "gd"
    title: ClassVar[str] = "GD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
