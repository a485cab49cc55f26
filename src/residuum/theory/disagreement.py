"""What indistinguishable models may still differ in: likelihood ratio, predictions, and the geometry behind both."""

import math
from typing import NamedTuple

from scipy.special import betainc

from residuum.theory.result import Array, Bound, check, probability_bound

_RATIO = (
    "both directions of (eps, delta)-indistinguishability hold between unlearned and retrained models",
    "the value is an upper bound on a probability: the event may well have probability 0",
)
_UNIT_SPHERE = "on the unit sphere; divide tau by the norm of the input"
_NOMINAL = (
    "nominal value of a formula, not a guarantee: p is an upper bound used as if it were the probability itself",
    "constant = 1 stands for a factor that the literature does not state",
    f"inputs {_UNIT_SPHERE}",
    "the models disagree on at least half of the sphere",
)
_ALWAYS = "both accuracies are over the same perturbed inputs; nothing else"
_INDEPENDENT = "being right is independent between the two models over perturbations (false for m = a)"


class Interval(NamedTuple):
    """A lower and an upper bound on the same quantity."""

    low: Bound
    high: Bound


def ratio_violation(eps: float, delta: float, *, tight: bool = True) -> Bound:
    """Bound the probability that the likelihood ratio of unlearned to retrained leaves [exp(-2 eps), exp(2 eps)].

    Printed: p = 2 delta / (1 - exp(-eps)). Tight: p = delta (1 + exp(-2 eps)) / (1 - exp(-eps)).

    >>> print(f"{ratio_violation(1.0, 1e-5, tight=False).value:.3e} {ratio_violation(1.0, 1e-5).value:.3e}")
    3.164e-05 1.796e-05

    Reference: Hsu et al., The Unseen Threat (2025), Proposition 1, with its direction and factor put right.
    """
    check("eps", eps, low=0)
    check("delta", delta, low=0, high=1, ends="[)")
    factor = 1 + math.exp(-2 * eps) if tight else 2.0
    spread = -math.expm1(-eps)
    value = factor * delta / spread if spread else math.inf if delta else 0.0
    high = math.exp(2 * eps) if 2 * eps < 709 else math.inf
    constants = {"eps": eps, "delta": delta, "ratio_low": math.exp(-2 * eps), "ratio_high": high}
    return probability_bound(value, _RATIO, constants)


def ratio_statement(eps: float, delta: float) -> str:
    """Say in words what `ratio_violation` proves.

    >>> ratio_statement(1.0, 1e-5)
    'with probability at least 0.999982 the likelihood ratio lies in [0.135335, 7.38906]'
    """
    bound = ratio_violation(eps, delta)
    if bound.vacuous:
        return "nothing: the bound on the probability of a larger ratio is 1 or more"
    low, high = bound.constants["ratio_low"], bound.constants["ratio_high"]
    return f"with probability at least {1 - bound.value:.6g} the likelihood ratio lies in [{low:.6g}, {high:.6g}]"


def inevitable_disagreement(eps: float, delta: float, dimension: int, tau: float, *, constant: float = 1.0) -> Bound:
    """Return the nominal value of the inevitable-disagreement formula; it guarantees nothing.

    B = p (1 - A sqrt(pi/8) exp(-2 eps - (d - 1) tau^2 / 2)) with p = 2 delta / (1 - exp(-eps)), A the constant that
    the literature hides in O(.).

    >>> round(inevitable_disagreement(1.0, 1e-5, dimension=3072, tau=0.1).value / 3.164e-5, 3)
    1.0

    Reference: Hsu et al., The Unseen Threat (2025), Proposition 2. Two identical models meet every (eps, delta) and
    never disagree, so B is no lower bound (docs/reference/theory.md).
    """
    _check_sphere(dimension, tau)
    check("constant", constant, low=0, ends="(]")
    p = ratio_violation(eps, delta, tight=False).value
    shrink = constant * math.sqrt(math.pi / 8) * math.exp(-2 * eps - (dimension - 1) * tau**2 / 2)
    constants = {"eps": eps, "delta": delta, "dimension": float(dimension), "tau": tau, "constant": constant, "p": p}
    return probability_bound(p * (1 - shrink), _NOMINAL, constants)


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
    r, pa, constants = ratio, accuracy, {"ratio": ratio, "accuracy": accuracy}
    if assume_independent:
        low, high, assumptions = r * pa * (1 - pa), 1 - r * pa**2, (_INDEPENDENT,)
    else:
        low, high, assumptions = pa * abs(r - 1), min(1.0, 2 - pa * (1 + r)), (_ALWAYS,)
    lower = Bound(low, max(low, 0.0), low <= 0, assumptions, constants)
    return Interval(lower, probability_bound(high, assumptions, constants))


def half_sphere_share(dimension: int, tau: float) -> float:
    """Return the exact share of the unit sphere within chord distance `tau` of a half sphere.

    With t = 2 asin(tau / 2): 1 - I_{cos(t)^2}((d - 1) / 2, 1 / 2) / 2, I the regularized incomplete beta function.

    >>> round(half_sphere_share(3, 1.0), 6)  # Archimedes: (1 + sin 60 degrees) / 2
    0.933013
    """
    _check_sphere(dimension, tau)
    angle = 2 * math.asin(tau / 2)
    if angle >= math.pi / 2:
        return 1.0
    return float(1 - 0.5 * betainc((dimension - 1) / 2, 0.5, math.cos(angle) ** 2))


def half_sphere_bound(dimension: int, tau: float) -> Bound:
    """Return the usual lower bound 1 - sqrt(pi/8) exp(-(d - 1) tau^2 / 2), with the exact share among its constants.

    >>> bound = half_sphere_bound(100, 0.3)
    >>> bound.value <= bound.constants["exact"] <= 1
    True

    Reference: Milman and Schechtman, Asymptotic Theory of Finite Dimensional Normed Spaces (1986).
    """
    exact = half_sphere_share(dimension, tau)
    value = 1 - math.sqrt(math.pi / 8) * math.exp(-(dimension - 1) * tau**2 / 2)
    assumptions = (f"points {_UNIT_SPHERE}", "the widened set is a half sphere")
    constants = {"dimension": float(dimension), "tau": tau, "exact": exact}
    return Bound(value, min(max(value, 0.0), 1.0), value <= 0.5, assumptions, constants)


def nearest_boundary_point(x: Array, weights: Array, offset: float = 0.0) -> Array:
    """Return the point nearest to `x` at which the linear classifier sign(w . x + b) changes its prediction.

    x - (w . x + b) w / ||w||^2; literature prints x . x for w . x. Shapes: x (..., d), weights (d,).

    >>> import numpy as np
    >>> nearest_boundary_point(np.array([3.0, 4.0]), np.array([0.0, 2.0])).tolist()
    [3.0, 0.0]
    """
    norm = float(weights @ weights)
    check("squared norm of the weights", norm, low=0, ends="(]")
    moved: Array = x - ((x @ weights + offset) / norm)[..., None] * weights
    return moved


def _check_sphere(dimension: int, tau: float) -> None:
    check("dimension", dimension, low=2)
    check("tau", tau, low=0, high=2)
