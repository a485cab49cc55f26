"""Ways to move an input: noise, attacks, and a user's own.

A perturbation is called as `(model, x, y, generator) -> x`, with inputs within its bounds. A new one is a frozen
dataclass in its own file and a line in `components.py`; a user's own is that or a function (docs/plug-ins.md).
"""

from collections.abc import Callable

from torch import Tensor

from residuum.core import components
from residuum.core.errors import InputError
from residuum.core.inputs import UNIT, Bounds, clamped
from residuum.core.registry import Registry
from residuum.perturbations.additive import Gaussian, Substitution, UniformL2, UniformLinf
from residuum.perturbations.base import (
    BLOCK,
    Perturbation,
    Randomness,
    block_generator,
    block_slices,
    noise_check,
    stack,
)
from residuum.perturbations.gradient import FGSM, PGD
from residuum.perturbations.user import UserPerturbation, as_perturbation

PERTURBATIONS: Registry[type[Perturbation]] = components.PERTURBATIONS


def make_perturbation(perturbation: str | Perturbation | Callable[..., Tensor]) -> Perturbation:
    """Return the perturbation of this name, the object itself, or a user's callable made into one.

    >>> make_perturbation("gaussian")
    Gaussian(tau=0.03, bounds=(0.0, 1.0), scale=None, at=None, unit='raw', still=0)
    """
    if isinstance(perturbation, Perturbation):
        return perturbation
    if callable(perturbation) and not isinstance(perturbation, type):
        return UserPerturbation(function=perturbation)
    if not isinstance(perturbation, str):
        raise InputError(f"expected a perturbation, its name or a function, got {perturbation!r}")
    return PERTURBATIONS.find(PERTURBATIONS.named(perturbation))()
