"""How often two models must, or may, differ on perturbed inputs."""

from __future__ import annotations

import math
from typing import NamedTuple

from residuum.theory.indistinguishability import ratio_violation
from residuum.theory.result import Bound, check, probability_bound


class Interval(NamedTuple):
    """A lower and an upper bound on the same quantity."""

    low: Bound
    high: Bound


def inevitable_disagreement(eps: float, delta: float, dimension: int, tau: float, *, constant: float = 1.0) -> Bound:
    """Return the nominal value of the inevitable-disagreement formula; it guarantees nothing.

    B = p (1 - A sqrt(pi/8) exp(-2 eps - (d - 1) tau^2 / 2)) with p = 2 delta / (1 - exp(-eps)), A the constant that
    the literature hides in O(.).

    >>> round(inevitable_disagreement(1.0, 1e-5, dimension=3072, tau=0.1).value / 3.164e-5, 3)
    1.0

    Reference: Hsu et al., The Unseen Threat (2025), Proposition 2. Two identical models meet every (eps, delta) and
    never disagree, so B is no lower bound (docs/theory.md).
    """
    check("dimension", dimension, low=2)
    check("tau", tau, low=0, high=2)
    check("constant", constant, low=0, ends="(]")
    p = ratio_violation(eps, delta, tight=False).value
    shrink = constant * math.sqrt(math.pi / 8) * math.exp(-2 * eps - (dimension - 1) * tau**2 / 2)
    constants = {"eps": eps, "delta": delta, "dimension": float(dimension), "tau": tau, "constant": constant, "p": p}
    return probability_bound(p * (1 - shrink), _NOMINAL, constants)


_NOMINAL = (
    "nominal value of a formula, not a guarantee: p is an upper bound used as if it were the probability itself",
    "constant = 1 stands for a factor that the literature does not state",
    "inputs on the unit sphere; divide tau by the norm of the input",
    "the models disagree on at least half of the sphere",
)


def disagreement_from_ratio(ratio: float, accuracy: float, *, assume_independent: bool = False) -> Interval:
    """Bound the disagreement of two models from residual knowledge r and the reference's accuracy pa.

    Always valid: pa |r - 1| <= E[k] <= min(1, 2 - pa (1 + r)).
    Printed, only if both err independently over perturbations: r pa (1 - pa) <= E[k] <= 1 - r pa^2.

    >>> always = disagreement_from_ratio(1.0, 0.5)
    >>> printed = disagreement_from_ratio(1.0, 0.5, assume_independent=True)
    >>> (always.low.value, always.high.value), (printed.low.value, printed.high.value)
    ((0.0, 1.0), (0.25, 0.75))

    Reference: Hsu et al., The Unseen Threat (2025); the always-valid form is the Frechet inequality.
    """
    check("accuracy", accuracy, low=0, high=1, ends="(]")
    check("ratio", ratio, low=0, high=1 / accuracy)
    low, high = (_independent if assume_independent else _always)(ratio, accuracy)
    assumptions = (_INDEPENDENT if assume_independent else _ALWAYS,)
    constants = {"ratio": ratio, "accuracy": accuracy}
    return Interval(
        Bound(low, max(low, 0.0), low <= 0, assumptions, constants),
        probability_bound(high, assumptions, constants),
    )


_ALWAYS = "both accuracies are over the same perturbed inputs; nothing else"
_INDEPENDENT = "being right is independent between the two models over perturbations (false for m = a)"


def _always(r: float, pa: float) -> tuple[float, float]:
    return pa * abs(r - 1), min(1.0, 2 - pa * (1 + r))


def _independent(r: float, pa: float) -> tuple[float, float]:
    return r * pa * (1 - pa), 1 - r * pa**2
