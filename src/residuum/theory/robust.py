"""RURK's objective on the certified path: descent on the retained, ascent on the forgotten and their neighbors."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from residuum.theory.langevin import Chain
from residuum.theory.logistic import Drift, Logistic, check_features, residuals, total_gradient, unit_rows
from residuum.theory.result import Array, Bound, Labels, check
from residuum.theory.shifted import Phase, shifted_epsilon

Aim = Literal["gaussian", "min_loss"]
_ANY_ATTACK = "perturbations of norm at most tau; how they are found does not matter"


def forget_pull(problem: Logistic, lambda_f: float, lambda_a: float, tau: float) -> float:
    """Bound the gradient of both forget terms: G = lambda_f M(1) + lambda_a M(1 + tau), M the sample bound.

    Rows have norm at most `radius`, perturbed ones at most `radius + tau`; M grows in proportion.

    >>> forget_pull(Logistic(l2=0.1), 0.5, 0.5, tau=0.0), forget_pull(Logistic(l2=0.1), 0.5, 0.5, tau=1.0)
    (1.0, 1.5)
    """
    for name, value in {"lambda_f": lambda_f, "lambda_a": lambda_a, "tau": tau}.items():
        check(name, value, low=0)
    wide = min(problem.natural_bound * (1 + tau / problem.radius), problem.clip or math.inf)
    return lambda_f * problem.lipschitz + lambda_a * wide


def remaining_convexity(problem: Logistic, lambda_f: float, lambda_a: float, tau: float) -> float:
    """Return m' = l2 - (lambda_f + lambda_a) (radius + tau)^2 / 4 (softmax: / 2), which must be > 0 as published."""
    share = 4 if problem.classes == 2 else 2
    return problem.l2 - (lambda_f + lambda_a) * (problem.radius + tau) ** 2 / share


def robust_drift(
    problem: Logistic, x: Array, y: Labels, rng: np.random.Generator,
    *, lambda_f: float, lambda_a: float, tau: float, aim: Aim = "gaussian",
) -> Drift:  # fmt: skip
    """Return -lambda_f grad L(w, S_f) - lambda_a grad L(w, S_f'), to be passed as `extra` to `noisy_descent`.

    S_f' holds one neighbor per sample and step at distance at most tau: a random direction of length tau
    ("gaussian": the direction of a Gaussian, since an unbounded one has no certificate), or the step that lowers
    the loss most ("min_loss"), crafted against the current model.
    """
    check_features(problem, x, y)
    if aim not in ("gaussian", "min_loss"):
        raise ValueError(f"expected aim 'gaussian' or 'min_loss', got {aim!r}")

    def drift(weights: Array) -> Array:
        residual = residuals(problem, weights, x, y)
        direction = rng.standard_normal((len(weights), *x.shape)) if aim == "gaussian" else -residual @ weights
        near = x + tau * unit_rows(direction)
        clean, moved = total_gradient(residual, x), total_gradient(residuals(problem, weights, near, y), near)
        return np.asarray(-(lambda_f * clean + lambda_a * moved) / len(y))

    return drift


def robust_epsilon(
    problem: Logistic, chain: Chain, phases: Sequence[Phase], delta: float,
    *, lambda_f: float, lambda_a: float, tau: float,
) -> Bound:  # fmt: skip
    """Return eps when RURK's objective serves the last phase: its gap grows by G for good.

    >>> problem = Logistic(l2=0.1)
    >>> learned = [Phase(1000, 0.001), Phase(100, 0.0)]
    >>> near, far = (robust_epsilon(problem, problem.chain(0.1), learned, 1e-5, lambda_f=1e-3, lambda_a=1e-3,
    ...     tau=t).value for t in (0.0, 1.0))
    >>> bool(near < far)
    True
    """
    pull = forget_pull(problem, lambda_f, lambda_a, tau)
    bound = shifted_epsilon([*phases[:-1], Phase(phases[-1].steps, phases[-1].gap + pull)], chain, delta)
    constants = {**bound.constants, "pull": pull, "lambda_f": lambda_f, "lambda_a": lambda_a, "tau": tau}
    return replace(bound, assumptions=(*bound.assumptions, _ANY_ATTACK), constants=constants)
