"""Descent-to-delete: plain gradient descent from the old weights, and Gaussian noise on what is published."""

from __future__ import annotations

import math

import numpy as np

from residuum.theory.logistic import Logistic, check_features, gradient, project
from residuum.theory.renyi import gaussian_epsilon
from residuum.theory.result import Array, Bound, Labels, check, check_delta, epsilon_bound

_ASSUMPTIONS = (
    "convex model: every loss convex and L-smooth, plus an l2 term m; never a deep network",
    "the first training ended within the same distance of its minimiser (see `distance_bound`)",
    "only published weights are seen; the state kept between requests is secret",
    "requests do not depend on published models",
)


def distance_bound(problem: Logistic, n: int, steps: int, *, removed: int = 1, smallest: int | None = None) -> float:
    """Bound the distance to the minimiser after each request of `removed` samples served with `steps` steps.

    gamma^T / (1 - gamma^T) * 2 s M / (m n_min), gamma = (L - m) / (L + m), step size 2 / (L + m).
    `smallest` is the fewest samples a request of the sequence may still find; n if not given.

    >>> print(f"{distance_bound(Logistic(l2=0.05), 1000, 25):.3e}")  # gamma = 5/7
    8.891e-06
    """
    check("n", n, low=1)
    check("steps", steps, low=1)
    check("removed", removed, low=1, high=n)
    check("smallest", n if smallest is None else smallest, low=1, high=n)
    gamma = (problem.smoothness - problem.l2) / (problem.smoothness + problem.l2)
    moved = 2 * removed * problem.lipschitz / (problem.l2 * (n if smallest is None else smallest))
    return gamma**steps / (1 - gamma**steps) * moved


def publishing_noise(distance: float, eps: float, delta: float) -> float:
    """Return the published form's noise std: 2 distance / (sqrt(2) (sqrt(log(1/delta) + eps) - sqrt(log(1/delta)))).

    With `distance_bound` for n_min = n/2 this is 4 sqrt(2) M gamma^T / (m n (1 - gamma^T) (...)).

    >>> round(publishing_noise(0.001, 1.0, 1e-5), 5)
    0.0098

    Reference: Neel, Roth and Sharifi-Malvajerdi, Descent-to-Delete (2021), Theorem 3.1.
    """
    check("distance", distance, low=0)
    check("eps", eps, low=0, ends="(]")
    check_delta(delta)
    log = math.log(1 / delta)
    return math.sqrt(2) * distance / (math.sqrt(log + eps) - math.sqrt(log))


def publishing_epsilon(distance: float, noise: float, delta: float) -> Bound:
    """Return the exact eps of publishing with Gaussian noise when both models lie within `distance` of one point.

    >>> published = publishing_epsilon(0.001, publishing_noise(0.001, 1.0, 1e-5), 1e-5)
    >>> published.value < 1.0
    True
    """
    check("distance", distance, low=0)
    check("noise", noise, low=0, ends="(]")
    value = gaussian_epsilon(2 * distance / noise, delta)
    return epsilon_bound(value, delta, _ASSUMPTIONS, {"distance": distance, "noise": noise})


def descend(problem: Logistic, weights: Array, x: Array, y: Labels, steps: int) -> Array:
    """Run `steps` of projected full-batch gradient descent of size 2 / (L + m); learning and deleting alike.

    >>> problem = Logistic(l2=0.5)
    >>> x, y = np.array([[1.0], [-1.0]]), np.array([1, 0])
    >>> secret = descend(problem, problem.start(1, 1), x, y, 50)
    >>> bool(np.abs(gradient(problem, secret, x, y)).max() < 1e-12)
    True
    """
    check_features(problem, x, y)
    step = 2 / (problem.smoothness + problem.l2)
    for _ in range(steps):
        weights = project(weights - step * gradient(problem, weights, x, y), problem.projection)
    return weights


def publish(weights: Array, noise: float, rng: np.random.Generator) -> Array:
    """Return a noisy copy for the world; keep the argument for the next request."""
    return np.asarray(weights + noise * rng.standard_normal(weights.shape))
