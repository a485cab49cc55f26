"""Deleting from convex models: descent-to-delete, Newton removal, and the Gaussian noise that hides what is left."""

import math

import numpy as np

from residuum.theory.langevin import CONVEX
from residuum.theory.logistic import Logistic, check_features, gradient, project
from residuum.theory.renyi import gaussian_epsilon
from residuum.theory.result import Array, Bound, Labels, check, check_delta, epsilon_bound

_DESCENT = (
    CONVEX,
    "the first training ended within the same distance of its minimizer (see `distance_bound`)",
    "only published weights are seen; the state kept between requests is secret",
    "requests do not depend on published models",
)
_HEAD_ONLY = "covers the linear head only: an extractor that has seen the forget set is outside"
_OBJECTIVE = (
    _HEAD_ONLY,
    "full Newton step (step size 1), no subsampling of negatives",
    "the gradient residual does not depend on the perturbation b: assumed by the literature, not proved",
)


def distance_bound(problem: Logistic, n: int, steps: int, *, removed: int = 1, smallest: int | None = None) -> float:
    """Bound the distance to the minimizer after each request of `removed` samples served with `steps` steps.

    gamma^T / (1 - gamma^T) * 2 s M / (m n_min), gamma = (L - m) / (L + m), step size 2 / (L + m).
    `smallest` is the fewest samples a request of the sequence may still find; n if not given.

    >>> print(f"{distance_bound(Logistic(l2=0.05), 1000, 25):.3e}")  # gamma = 5/7
    8.891e-06
    """
    smallest = n if smallest is None else smallest
    check("n", n, low=1)
    check("steps", steps, low=1)
    check("removed", removed, low=1, high=n)
    check("smallest", smallest, low=1, high=n)
    gamma = (problem.smoothness - problem.l2) / (problem.smoothness + problem.l2)
    return gamma**steps / (1 - gamma**steps) * (2 * removed * problem.lipschitz / (problem.l2 * smallest))


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
    return epsilon_bound(value, delta, _DESCENT, {"distance": distance, "noise": noise})


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


def objective_epsilon(residual: float, std: float, delta: float, *, printed: bool = False) -> Bound:
    """Return eps of objective perturbation b ~ N(0, std^2 I) that hides the gradient residual of a Newton removal.

    Printed: c residual / std with c = sqrt(2 log(1.5 / delta)); its proof ends at eps = 2 log 3, and it is false at
    eps = 10 for delta = 1e-5 (docs/reference/theory.md).
    Default: the exact value for two Gaussians residual / std apart.

    >>> objective_epsilon(1.0, 10.0, 1e-4).value < objective_epsilon(1.0, 10.0, 1e-4, printed=True).value
    True

    Reference: Guo et al., Certified data removal (2020); the removal itself is `residuum.unlearning.CR`.
    """
    check("residual", residual, low=0)
    check("std", std, low=0, ends="(]")
    check_delta(delta)
    mu = residual / std
    value = mu * math.sqrt(2 * math.log(1.5 / delta)) if printed else gaussian_epsilon(mu, delta)
    return epsilon_bound(value, delta, _OBJECTIVE, {"residual": residual, "std": std})


def output_epsilon(residual: float, retained: int, l2: float, noise: float, delta: float) -> Bound:
    """Return the exact eps when the heads after a Newton removal are published with Gaussian noise instead.

    ||w_new - w_retrained|| <= residual / (l2 n_r) by strong convexity, `residual` that of all heads taken as one
    vector: two fixed points under one Gaussian, no independence needed.

    >>> round(output_epsilon(0.1, 100, 0.05, 0.1, 1e-5).value, 4) == round(gaussian_epsilon(0.2, 1e-5), 4)
    True
    """
    check("residual", residual, low=0)
    check("retained", retained, low=1)
    check("l2", l2, low=0, ends="(]")
    check("noise", noise, low=0, ends="(]")
    distance = residual / (l2 * retained)
    value = gaussian_epsilon(distance / noise, delta)
    return epsilon_bound(value, delta, (_HEAD_ONLY,), {"distance": distance, "noise": noise})
