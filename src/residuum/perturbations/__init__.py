"""Ways to move an input: noise, attacks, and users' perturbations.

A perturbation is called as `(model, x, y, generator, radius, space) -> x`; `space` says where the inputs live. A new
one is a frozen dataclass in its own file and a line in `components.py`; a user's is such a class or a function
(docs/guides/plug-ins.md).
"""

from collections.abc import Callable

from torch import Tensor

from residuum.core import components
from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
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
    Gaussian()
    """
    if isinstance(perturbation, Perturbation):
        return perturbation
    if callable(perturbation) and not isinstance(perturbation, type):
        return UserPerturbation(function=perturbation)
    if not isinstance(perturbation, str):
        raise InputError(f"expected a perturbation, its name or a function, got {perturbation!r}")
    return PERTURBATIONS.find(PERTURBATIONS.named(perturbation))()
