"""GD: fine-tune on the retain set."""

from typing import ClassVar

from residuum.training import Recipe
from residuum.unlearning.base import GradientMethod, component


@component
class GD(GradientMethod):
    """Gradient descent on the retain set: w <- w - lr * grad L(w, S_r), started at the original.

    The forget set is never read. Without projection and publishing noise there is no certificate.
    Reference: Neel, Roth, Sharifi-Malvajerdi, "Descent-to-Delete", ALT 2021 (there for convex models).

    >>> GD(epochs=3).recipe.lr
    0.01
    """

    name: ClassVar[str] = "gd"
    title: ClassVar[str] = "GD"
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    recipe: Recipe = Recipe(weight_decay=1e-4)
