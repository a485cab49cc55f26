"""NGD: fine-tune on the retain set with noise in every step."""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from residuum.methods.gd import GD
from residuum.training import STRICT, NonNegative


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NGD(GD):
    """Noisy gradient descent: w <- w - lr * (grad L(w, S_r) + sigma * xi), xi ~ N(0, I) afresh in every step.

    `noise="langevin"` is the other form in the literature, w <- w - lr * grad L + sqrt(2 lr) * sigma * xi,
    sqrt(2 / lr) times as strong. The kick is added after momentum, which would amplify it up to tenfold.
    No clipping and no bounded constants: no epsilon for a deep network.
    Reference: Chien, Wang, Chen, Li, "Langevin Unlearning", NeurIPS 2024.

    >>> NGD(sigma=0.01).noise
    'grad'
    """

    name: ClassVar[str] = "ngd"
    title: ClassVar[str] = "NGD"

    lr: NonNegative = 0.1
    sigma: NonNegative = 0.03
