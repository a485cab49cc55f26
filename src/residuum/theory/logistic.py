"""L2-regularized logistic regression, binary and softmax, many models at once, by projected noisy gradient descent.

Shapes: x (n, d) with rows of norm at most `radius`, y (n,) integers, weights (models, k, d) with k = 1 for two
classes and k = classes otherwise. No bias: add a constant feature before `unit_rows` if one is needed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from residuum.theory.langevin import Chain
from residuum.theory.result import Array, Labels, check

Drift = Callable[[Array], Array]


@dataclass(frozen=True)
class Logistic:
    """The problem and its constants: strong convexity `l2`, gradient bound `lipschitz`, `smoothness`.

    `clip` below the natural gradient bound is allowed for two classes only: there it clips a monotone scalar and the
    loss stays convex; clipping softmax gradients does not keep convexity, and no accountant covers it.

    >>> problem = Logistic(l2=0.1, classes=10)
    >>> round(problem.lipschitz, 4), problem.smoothness
    (1.4142, 0.6)
    """

    l2: float
    classes: int = 2
    radius: float = 1.0
    clip: float | None = None
    projection: float | None = None

    def __post_init__(self) -> None:
        check("l2", self.l2, low=0, ends="(]")
        check("classes", self.classes, low=2)
        check("radius", self.radius, low=0, ends="(]")
        if self.projection is not None:
            check("projection", self.projection, low=0, ends="(]")
        if self.clip is not None:
            lowest = 0.0 if self.classes == 2 else self.natural_bound
            check("clip", self.clip, low=lowest, ends="[]" if lowest else "(]")

    @property
    def natural_bound(self) -> float:
        """Largest gradient norm of one sample without clipping: radius, times sqrt(2) for softmax."""
        return self.radius * (1.0 if self.classes == 2 else math.sqrt(2))

    @property
    def lipschitz(self) -> float:
        """Bound M on the gradient of one sample's loss, the l2 term left out."""
        return self.natural_bound if self.clip is None else min(self.clip, self.natural_bound)

    @property
    def smoothness(self) -> float:
        """Bound L on the curvature: radius^2 / 4 (softmax: / 2) plus l2."""
        return self.radius**2 / (4 if self.classes == 2 else 2) + self.l2

    def chain(self, sigma: float) -> Chain:
        """Return the constants of noisy gradient descent with the step 1/L."""
        return Chain(l2=self.l2, step=1 / self.smoothness, sigma=sigma)

    def start(self, models: int, features: int) -> Array:
        """Return zero weights of shape (models, k, features)."""
        return np.zeros((models, 1 if self.classes == 2 else self.classes, features))


def unit_rows(x: Array) -> Array:
    """Return the rows (..., d) divided by their norms (zero rows stay): a step that looks at no other sample.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(x / np.where(norms == 0, 1, norms))


def residuals(problem: Logistic, weights: Array, x: Array, y: Labels) -> Array:
    """Return the derivative of the loss in the scores, (models, n, k), scaled so that gradients respect the clip.

    x may also be (models, n, d): each model with inputs of its own.
    """
    scores = _scores(weights, x)
    if problem.classes == 2:
        residual = 1 / (1 + np.exp(-scores)) - y[:, None]
    else:
        residual = np.exp(scores - scores.max(axis=2, keepdims=True))
        residual /= residual.sum(axis=2, keepdims=True)
        residual[:, np.arange(len(y)), y] -= 1
    if problem.clip is None:
        return residual
    norms = np.linalg.norm(residual, axis=2, keepdims=True) * np.linalg.norm(x, axis=-1)[..., None]
    return np.asarray(residual * (problem.clip / np.maximum(norms, problem.clip)))


def gradient(problem: Logistic, weights: Array, x: Array, y: Labels, normalizer: int | None = None) -> Array:
    """Return sum of clipped per-sample gradients / normalizer + l2 w; the normalizer is n unless given."""
    total = total_gradient(residuals(problem, weights, x, y), x)
    return np.asarray(total / (normalizer or len(y)) + problem.l2 * weights)


def total_gradient(residual: Array, x: Array) -> Array:
    """Return the sum over samples of residual times input, (models, k, d)."""
    if x.ndim == 2:
        return np.tensordot(residual, x, axes=(1, 0))
    return np.asarray(residual.transpose(0, 2, 1) @ x)


def project(weights: Array, radius: float | None) -> Array:
    """Scale each model back to norm `radius`, and only those beyond it."""
    if radius is None:
        return weights
    norms = np.linalg.norm(weights, axis=(1, 2), keepdims=True)
    return np.asarray(weights * (radius / np.maximum(norms, radius)))


def noisy_descent(
    problem: Logistic, weights: Array, x: Array, y: Labels, chain: Chain, steps: int, rng: np.random.Generator,
    *, normalizer: int | None = None, extra: Drift | None = None,
) -> Array:  # fmt: skip
    """Run `steps` of w <- Proj(w - eta (grad f(w) + extra(w)) + sqrt(2 eta sigma^2) N(0, I)) on every model.

    The same call learns (on all samples) and unlearns (on the retained ones, from the learned weights).

    >>> problem = Logistic(l2=0.5)
    >>> x, y = np.array([[1.0], [-1.0]]), np.array([1, 0])
    >>> models = noisy_descent(problem, problem.start(1000, 1), x, y, problem.chain(0.1), 20, np.random.default_rng(7))
    >>> models.shape, bool(0.6 < models.mean() < 0.7)
    ((1000, 1, 1), True)
    """
    check_features(problem, x, y)
    check("step", chain.step, low=0, high=1 / problem.smoothness * (1 + 1e-12), ends="(]")
    if chain.l2 != problem.l2:
        raise ValueError(f"expected the chain's l2 to be the problem's {problem.l2:g}, got {chain.l2:g}")
    scale = math.sqrt(chain.noise_variance)
    for _ in range(steps):
        drift = gradient(problem, weights, x, y, normalizer)
        if extra is not None:
            drift += extra(weights)
        noise = scale * rng.standard_normal(weights.shape)
        weights = project(weights - chain.step * drift + noise, problem.projection)
    return weights


def accuracy(problem: Logistic, weights: Array, x: Array, y: Labels) -> Array:
    """Return each model's share of right predictions, shape (models,)."""
    return np.asarray((predictions(problem, weights, x) == y).mean(axis=1))


def predictions(problem: Logistic, weights: Array, x: Array) -> Labels:
    """Return predicted classes, shape (models, n).

    >>> predictions(Logistic(l2=1.0), np.array([[[1.0]]]), np.array([[2.0], [-2.0]])).tolist()
    [[1, 0]]
    """
    scores = _scores(weights, x)
    labels = (scores[..., 0] > 0) if problem.classes == 2 else scores.argmax(axis=2)
    return np.asarray(labels, dtype=np.int64)


def check_features(problem: Logistic, x: Array, y: Labels) -> None:
    """Refuse features beyond the radius and labels beyond the classes: the constants would be wrong."""
    largest = float(np.linalg.norm(x, axis=1).max(initial=0))
    if not largest <= problem.radius * (1 + 1e-9):
        raise ValueError(f"expected rows of norm in [0, {problem.radius:g}], got {largest:.6g}; see unit_rows")
    if len(y) and not (y.min() >= 0 and y.max() < problem.classes):
        raise ValueError(f"expected labels in [0, {problem.classes - 1}], got {int(y.min())} to {int(y.max())}")


def _scores(weights: Array, x: Array) -> Array:
    """Return x . w of shape (models, n, k); one matrix product when all models share their inputs."""
    if x.ndim == 2:
        return np.tensordot(x, weights, axes=(1, 2)).transpose(1, 0, 2)
    return np.asarray(x @ weights.transpose(0, 2, 1))
