"""From Renyi divergence to (eps, delta), and the exact Gaussian trade-off to compare with."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from residuum.theory.result import Array, Bound, check, check_delta, epsilon_bound

ORDERS: Array = 1 + np.geomspace(1e-3, 1e5, 4001)
_BOTH_WAYS = ("the Renyi divergence is bounded in both directions",)


def renyi_to_epsilon(alpha: float, divergence: float, delta: float, *, tight: bool = True) -> Bound:
    """Convert a Renyi divergence of one order into eps at a given delta.

    Plain: D + log(1/delta) / (alpha - 1). Tight: D + log((alpha - 1)/alpha) - (log delta + log alpha)/(alpha - 1).

    >>> round(renyi_to_epsilon(10.0, 0.5, 1e-5, tight=False).value, 4)
    1.7792
    >>> round(renyi_to_epsilon(10.0, 0.5, 1e-5).value, 4)
    1.418

    Reference: Mironov (2017); Canonne, Kamath and Steinke (2020).
    """
    return curve_to_epsilon([alpha], [divergence], delta, tight=tight)


def curve_to_epsilon(
    orders: Sequence[float] | Array, divergences: Sequence[float] | Array, delta: float, *, tight: bool = True
) -> Bound:
    """Return the smallest eps over the orders of a Renyi curve; the best order is among the constants.

    >>> round(curve_to_epsilon([2.0, 8.0, 32.0], [0.02, 0.08, 0.32], 1e-5).value, 4)
    0.5478
    """
    check_delta(delta)
    alpha, value = np.asarray(orders, float), np.asarray(divergences, float)
    if alpha.shape != value.shape or alpha.size == 0:
        raise ValueError(f"expected as many divergences as orders, got {value.size} and {alpha.size}")
    for order in alpha:
        check("alpha", float(order), low=1, ends="(]")
    if np.isnan(value).any() or (value < 0).any():
        raise ValueError(f"expected divergences in [0, inf], got {float(value.min())}")
    if tight:
        eps = value + (np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1))
    else:
        eps = value - math.log(delta) / (alpha - 1)
    best = int(np.argmin(eps))
    return epsilon_bound(float(eps[best]), delta, _BOTH_WAYS, {"order": float(alpha[best])})


def minimal_epsilon(curve: Callable[[Array], Array], delta: float, *, tight: bool = True) -> Bound:
    """Minimize eps over a fine grid of orders of a curve alpha -> divergence that accepts arrays.

    >>> round(minimal_epsilon(lambda alpha: 0.02 * alpha, 1e-5).value, 3)
    0.794
    """
    return curve_to_epsilon(ORDERS, curve(ORDERS), delta, tight=tight)


def gaussian_delta(eps: float, mu: float) -> float:
    """Return the exact delta(eps) between N(0, 1) and N(mu, 1).

    Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu).

    >>> round(gaussian_delta(0.0, 1.0), 6)  # total variation, 2 Phi(1/2) - 1
    0.382925

    Reference: Balle and Wang, Improving the Gaussian mechanism (2018).
    """
    check("mu", mu, low=0)
    if mu == 0:
        return 0.0
    return float(ndtr(mu / 2 - eps / mu) - np.exp(eps + log_ndtr(-mu / 2 - eps / mu)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact eps at which two unit Gaussians `mu` apart are (eps, delta)-indistinguishable.

    >>> round(gaussian_epsilon(0.2, 1e-5), 4)
    0.7255
    """
    from scipy.optimize import brentq

    check_delta(delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return float(brentq(lambda eps: gaussian_delta(eps, mu) - delta, 0.0, high, xtol=1e-13))
