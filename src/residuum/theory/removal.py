"""Certified removal of samples from one-vs-rest logistic heads by one Newton step, and what its certificate covers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residuum.theory.renyi import gaussian_epsilon
from residuum.theory.result import Array, Bound, Labels, check, check_delta, epsilon_bound

_HEAD_ONLY = "covers the linear head only: an extractor that has seen the forget set is outside"
_OBJECTIVE = (
    _HEAD_ONLY,
    "full Newton step (step size 1), no subsampling of negatives",
    "the gradient residual does not depend on the perturbation b: assumed by the literature, not proved",
)


@dataclass(frozen=True)
class Removal:
    """Heads after the removal, one row per class, and the bounds on their gradient residuals."""

    weights: Array
    residual_bounds: Array
    smallest_curvature: float

    @property
    def total(self) -> float:
        """Euclidean norm of the residual bounds of all heads taken together."""
        return float(np.linalg.norm(self.residual_bounds))


def head_gradient(weights: Array, x: Array, signs: Array, l2: float, offset: Array) -> Array:
    """Return the gradient of J(w) = sum_i [log(1 + exp(-y_i w.x_i)) + l2/2 ||w||^2] + b.w for one head, (d,)."""
    pull = -signs / (1 + np.exp(signs * (x @ weights)))
    return np.asarray(pull @ x + l2 * len(signs) * weights + offset)


def fit_head(x: Array, signs: Array, l2: float, offset: Array, *, tolerance: float = 1e-10) -> Array:
    """Return the minimiser of J by damped Newton steps, to a gradient norm of `tolerance` times n.

    >>> x, signs = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> w = fit_head(x, signs, 0.5, np.zeros(1))
    >>> bool(abs(head_gradient(w, x, signs, 0.5, np.zeros(1))[0]) < 1e-9)
    True
    """
    weights = np.zeros(x.shape[1])
    for _ in range(100):
        slope = head_gradient(weights, x, signs, l2, offset)
        if np.linalg.norm(slope) <= tolerance * len(signs):
            return weights
        move: Array = np.asarray(np.linalg.solve(_curvature(weights, x, l2), slope), dtype=np.float64)
        weights = weights - _damping(weights, move, x, signs, l2, offset) * move
    raise ValueError(f"expected Newton's method to converge in 100 steps; l2 = {l2:g} may be too small")


def remove(weights: Array, x: Array, y: Labels, forget: NDArray[np.bool_], l2: float, offsets: Array) -> Removal:
    """Remove the samples marked in `forget` (bool, (n,)) from heads (classes, d) fitted with offsets b (classes, d).

    w_new = w - H_r^{-1} grad J(w; S_r); residual <= ||grad J(w; S)|| + ||X_r||_2 ||Delta|| ||X_r Delta|| / 4, where
    the first term stands for what fitting left.

    Reference: Guo et al., Certified data removal (2020). Rows of x have norm at most 1.
    """
    check("l2", l2, low=0, ends="(]")
    check("largest row norm", float(np.linalg.norm(x, axis=1).max()), low=0, high=1 + 1e-9)
    kept, spectral = x[~forget], float(np.linalg.norm(x[~forget], 2))
    heads, bounds = [], []
    for k, head in enumerate(weights):
        signs = np.where(y == k, 1.0, -1.0)
        _check_positives(signs[~forget], k)
        slope = head_gradient(head, kept, signs[~forget], l2, offsets[k])
        move = np.linalg.solve(_curvature(head, kept, l2), slope)
        left = float(np.linalg.norm(head_gradient(head, x, signs, l2, offsets[k])))
        heads.append(head - move)
        bounds.append(left + 0.25 * spectral * float(np.linalg.norm(move)) * float(np.linalg.norm(kept @ move)))
    return Removal(np.stack(heads), np.array(bounds), l2 * len(kept))


def objective_epsilon(residual: float, std: float, delta: float, *, printed: bool = False) -> Bound:
    """Return eps of objective perturbation b ~ N(0, std^2 I) that hides a gradient residual.

    Printed: c residual / std with c = sqrt(2 log(1.5 / delta)); its proof ends at eps = 2 log 3, and it is false at
    eps = 10 for delta = 1e-5 (docs/theory.md).
    Default: the exact value for two Gaussians residual / std apart.

    >>> objective_epsilon(1.0, 10.0, 1e-4).value < objective_epsilon(1.0, 10.0, 1e-4, printed=True).value
    True
    """
    check("residual", residual, low=0)
    check("std", std, low=0, ends="(]")
    check_delta(delta)
    mu = residual / std
    value = mu * math.sqrt(2 * math.log(1.5 / delta)) if printed else gaussian_epsilon(mu, delta)
    return epsilon_bound(value, delta, _OBJECTIVE, {"residual": residual, "std": std})


def output_epsilon(removal: Removal, noise: float, delta: float) -> Bound:
    """Return eps when the heads are published with Gaussian noise instead; needs no independence.

    ||w_new - w_retrained|| <= residual / (l2 n_r) by strong convexity.
    """
    return distance_epsilon(removal.total / removal.smallest_curvature, noise, delta)


def distance_epsilon(distance: float, noise: float, delta: float) -> Bound:
    """Return the exact eps of two fixed weight vectors `distance` apart, both published with Gaussian noise.

    >>> round(distance_epsilon(0.02, 0.1, 1e-5).value, 4) == round(gaussian_epsilon(0.2, 1e-5), 4)
    True
    """
    check("noise", noise, low=0, ends="(]")
    value = gaussian_epsilon(distance / noise, delta)
    return epsilon_bound(value, delta, (_HEAD_ONLY,), {"distance": distance, "noise": noise})


def _curvature(weights: Array, x: Array, l2: float) -> Array:
    s = 1 / (1 + np.exp(-(x @ weights)))
    return np.asarray((x.T * (s * (1 - s))) @ x + l2 * len(x) * np.eye(x.shape[1]))


def _objective(weights: Array, x: Array, signs: Array, l2: float, offset: Array) -> float:
    losses = np.logaddexp(0, -signs * (x @ weights)).sum()
    return float(losses + l2 * len(signs) / 2 * (weights @ weights) + offset @ weights)


def _damping(weights: Array, move: Array, x: Array, signs: Array, l2: float, offset: Array) -> float:
    """Return the first of 1, 1/2, ... that does not raise the objective beyond rounding."""
    now, share = _objective(weights, x, signs, l2, offset), 1.0
    slack = 1e-12 * (1 + abs(now))
    while share > 1e-6 and _objective(weights - share * move, x, signs, l2, offset) > now + slack:
        share /= 2
    return share


def _check_positives(signs: Array, k: int) -> None:
    if not (signs > 0).any():
        raise ValueError(f"expected class {k} to keep at least one sample; one-vs-rest heads cannot lose a class")
