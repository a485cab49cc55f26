"""Geometry behind the disagreement statements: widened half spheres and the nearest boundary point."""

from __future__ import annotations

import math

from scipy.special import betainc

from residuum.theory.result import Array, Bound, check


def half_sphere_share(dimension: int, tau: float) -> float:
    """Return the exact share of the unit sphere within chord distance `tau` of a half sphere.

    With t = 2 asin(tau / 2): 1 - I_{cos(t)^2}((d - 1) / 2, 1 / 2) / 2, I the regularised incomplete beta function.

    >>> half_sphere_share(3, 0.0)
    0.5
    >>> round(half_sphere_share(3, 1.0), 6)  # Archimedes: (1 + sin 60 degrees) / 2
    0.933013
    """
    _check_sphere(dimension, tau)
    angle = 2 * math.asin(tau / 2)
    if angle >= math.pi / 2:
        return 1.0
    return float(1 - 0.5 * betainc((dimension - 1) / 2, 0.5, math.cos(angle) ** 2))


def half_sphere_bound(dimension: int, tau: float) -> Bound:
    """Return the usual lower bound 1 - sqrt(pi/8) exp(-(d - 1) tau^2 / 2) with the exact share beside it.

    >>> bound = half_sphere_bound(100, 0.3)
    >>> bound.value <= bound.constants["exact"] <= 1
    True

    Reference: Milman and Schechtman, Asymptotic Theory of Finite Dimensional Normed Spaces (1986).
    """
    value = 1 - math.sqrt(math.pi / 8) * math.exp(-(dimension - 1) * tau**2 / 2)
    exact = half_sphere_share(dimension, tau)
    assumptions = ("points on the unit sphere; divide tau by the norm of the input", "the widened set is a half sphere")
    constants = {"dimension": float(dimension), "tau": tau, "exact": exact}
    return Bound(value, min(max(value, 0.0), 1.0), value <= 0.5, assumptions, constants)


def nearest_boundary_point(x: Array, weights: Array, offset: float = 0.0) -> Array:
    """Return the point nearest to `x` on which the linear classifier sign(w . x + b) changes its mind.

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
