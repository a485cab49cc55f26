"""Logistic regression on the certified path: gradients, constants, projection, noise, RURK's drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from residuum.theory.langevin import Chain
from residuum.theory.logistic import (
    Logistic,
    accuracy,
    gradient,
    noisy_descent,
    predictions,
    project,
    residuals,
    unit_rows,
)
from residuum.theory.robust import forget_pull, remaining_convexity, robust_drift, robust_epsilon
from residuum.theory.shifted import Phase, shifted_epsilon


def data(classes, n=30, d=4, seed=7):
    rng = np.random.default_rng(seed)
    return unit_rows(rng.standard_normal((n, d))), rng.integers(0, classes, n)


def loss(problem, w, x, y):
    """Mean loss plus l2 term of one model, written sample by sample."""
    total = 0.0
    for row, label in zip(x, y, strict=True):
        scores = w @ row
        scores = np.array([0.0, scores[0]]) if problem.classes == 2 else scores
        total += math.log(np.exp(scores).sum()) - scores[label]
    return total / len(y) + problem.l2 / 2 * (w * w).sum()


@pytest.mark.parametrize("classes", [2, 3])
def test_gradient_is_the_derivative_of_the_loss(classes):
    problem, (x, y) = Logistic(l2=0.1, classes=classes), data(classes)
    w = np.random.default_rng(1).standard_normal((2, 1 if classes == 2 else 3, 4))
    slow = np.zeros_like(w)
    for index in np.ndindex(w.shape):
        up, down = w.copy(), w.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        slow[index] = (loss(problem, up[index[0]], x, y) - loss(problem, down[index[0]], x, y)) / 2e-6
    assert np.abs(gradient(problem, w, x, y) - slow).max() < 1e-8


@pytest.mark.parametrize("classes", [2, 5])
def test_constants_bound_what_is_measured(classes):
    """Gradient norms and curvature along random pairs stay within lipschitz, smoothness and l2."""
    problem, (x, y) = Logistic(l2=0.05, classes=classes), data(classes)
    rng = np.random.default_rng(3)
    a, b = (20 * rng.standard_normal((200, *problem.start(1, 4).shape[1:])) for _ in range(2))
    b = a + 0.1 * rng.standard_normal(a.shape) * rng.uniform(0, 1, (200, 1, 1))
    norms = np.linalg.norm(residuals(problem, a, x, y), axis=2) * np.linalg.norm(x, axis=1)
    assert norms.max() <= problem.lipschitz + 1e-12
    move, change = b - a, gradient(problem, b, x, y) - gradient(problem, a, x, y)
    ratio = np.linalg.norm(change, axis=(1, 2)) / np.linalg.norm(move, axis=(1, 2))
    assert ratio.max() <= problem.smoothness + 1e-12
    assert ((change * move).sum(axis=(1, 2)) >= problem.l2 * (move**2).sum(axis=(1, 2)) - 1e-12).all()


def test_smoothness_is_attained_by_binary_regression():
    problem = Logistic(l2=0.1)
    x, y = np.array([[1.0]]), np.array([1])
    slope = (gradient(problem, np.full((1, 1, 1), 1e-5), x, y) - gradient(problem, np.zeros((1, 1, 1)), x, y)) / 1e-5
    assert slope.item() == pytest.approx(problem.smoothness, rel=1e-6)


def test_clipped_binary_gradients_stay_monotone_and_bounded():
    problem, (x, y) = Logistic(l2=0.1, clip=0.3), data(2)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 300, 1, 4)) * 5
    norms = np.abs(residuals(problem, a, x, y)[..., 0]) * np.linalg.norm(x, axis=1)
    assert norms.max() <= 0.3 + 1e-12
    inner = ((gradient(problem, a, x, y) - gradient(problem, b, x, y)) * (a - b)).sum(axis=(1, 2))
    assert (inner >= 0.1 * ((a - b) ** 2).sum(axis=(1, 2)) - 1e-12).all()


def test_projection_acts_only_beyond_the_radius():
    w = np.random.default_rng(7).standard_normal((50, 3, 4))
    inside = w / 100
    assert np.array_equal(project(inside, 1.0), inside)
    assert np.allclose(np.linalg.norm(project(w, 1.0), axis=(1, 2)), np.minimum(1, np.linalg.norm(w, axis=(1, 2))))


def test_batched_models_equal_a_loop_over_models():
    problem, (x, y) = Logistic(l2=0.1, classes=3, projection=2.0), data(3)
    chain, starts = problem.chain(0.1), np.random.default_rng(1).standard_normal((5, 3, 4))
    noise = np.random.default_rng(2).standard_normal((6, 5, 3, 4))
    before = starts.copy()
    batched = noisy_descent(problem, starts, x, y, chain, 6, Replay(noise))
    for i in range(5):
        alone = noisy_descent(problem, starts[[i]], x, y, chain, 6, Replay(noise[:, [i]]))
        assert np.allclose(alone[0], batched[i], atol=1e-12)
    assert np.array_equal(starts, before)


class Replay:
    """Stands for a generator; hands out prepared noise."""

    def __init__(self, blocks):
        self.blocks = iter(blocks)

    def standard_normal(self, shape):
        block = next(self.blocks)
        assert block.shape == shape
        return block


def test_same_seed_same_models_and_noise_of_the_stated_size():
    problem = Logistic(l2=0.5)
    x, y = np.zeros((2, 1)), np.array([0, 1])
    chain = problem.chain(0.3)
    runs = [noisy_descent(problem, problem.start(4000, 1), x, y, chain, 40, np.random.default_rng(9)) for _ in "ab"]
    assert np.array_equal(*runs)
    stationary = chain.noise_variance / (1 - chain.contraction**2)
    assert runs[0].var() == pytest.approx(stationary, rel=0.1)


def test_fixed_normalizer_divides_by_the_public_number():
    problem, (x, y) = Logistic(l2=0.1), data(2)
    w = np.ones((1, 1, 4))
    short = gradient(problem, w, x[:10], y[:10], normalizer=30) - 0.1 * w
    assert np.allclose(short * 3, gradient(problem, w, x[:10], y[:10]) - 0.1 * w)


def test_noiseless_limit_is_sklearns_minimizer():
    linear_model = pytest.importorskip("sklearn.linear_model")
    for classes in (2, 3):
        problem, (x, y) = Logistic(l2=0.1, classes=classes), data(classes)
        chain = Chain(l2=0.1, step=1 / problem.smoothness, sigma=1e-12)
        w = noisy_descent(problem, problem.start(1, 4), x, y, chain, 300, np.random.default_rng(0))
        theirs = linear_model.LogisticRegression(C=1 / (0.1 * len(y)), fit_intercept=False, tol=1e-10).fit(x, y)
        assert np.allclose(w[0], theirs.coef_, atol=1e-5)
        assert accuracy(problem, w, x, y)[0] == pytest.approx(theirs.score(x, y))
        assert np.array_equal(predictions(problem, w, x)[0], theirs.predict(x))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("aim", ["gaussian", "min_loss"])
def test_forget_drift_never_exceeds_its_bound(classes, aim):
    problem, (x, y) = Logistic(l2=0.1, classes=classes), data(classes, n=6)
    rng = np.random.default_rng(5)
    settings = {"lambda_f": 0.2, "lambda_a": 0.3, "tau": 0.7}
    w = 8 * rng.standard_normal((100, *problem.start(1, 4).shape[1:]))
    drift = robust_drift(problem, x, y, rng, aim=aim, **settings)(w)
    bound = forget_pull(problem, **settings)
    assert np.linalg.norm(drift, axis=(1, 2)).max() <= bound
    assert aim == "min_loss" or bound < 3 * np.linalg.norm(drift, axis=(1, 2)).max()
    still = robust_drift(problem, x, y, rng, aim=aim, lambda_f=0.2, lambda_a=0.3, tau=0.0)(w)
    plain = -0.5 * (gradient(problem, w, x, y) - 0.1 * w)
    assert np.allclose(still, plain)


def test_min_loss_neighbors_lie_straight_towards_the_label():
    """Two classes by hand: x' = x + tau (2 y - 1) w / ||w||, ascent on its loss."""
    problem, (x, y) = Logistic(l2=0.1), data(2, n=6)
    w = np.random.default_rng(5).standard_normal(4)
    near = x + 0.5 * np.outer(2 * y - 1, w / np.linalg.norm(w))
    by_hand = -((1 / (1 + np.exp(-near @ w)) - y) @ near) / 6
    drift = robust_drift(problem, x, y, np.random.default_rng(0), lambda_f=0, lambda_a=1, tau=0.5, aim="min_loss")
    assert np.allclose(drift(w[None, None])[0, 0], by_hand)


def test_robust_epsilon_grows_with_the_radius_and_never_falls_to_zero():
    problem = Logistic(l2=0.05, classes=10)
    chain, phases = problem.chain(0.1), [Phase(500, 0.001), Phase(10**5, 0.0)]
    eps = [
        robust_epsilon(problem, chain, phases, 1e-5, lambda_f=1e-3, lambda_a=1e-3, tau=t).value for t in (0, 0.5, 1, 2)
    ]
    assert 0.05 < eps[0] < eps[1] < eps[2] < eps[3]
    assert shifted_epsilon(phases, chain, 1e-5).clipped == 0
    none = robust_epsilon(problem, chain, phases, 1e-5, lambda_f=0, lambda_a=0, tau=1.0)
    assert none.clipped == 0


def test_remaining_convexity_by_hand():
    assert remaining_convexity(Logistic(l2=0.5), 0.1, 0.1, 1.0) == pytest.approx(0.5 - 0.2)
    assert remaining_convexity(Logistic(l2=0.5, classes=3), 0.1, 0.1, 1.0) == pytest.approx(0.5 - 0.4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Logistic(l2=0), "l2 in (0, inf)"),
        (lambda: Logistic(l2=0.1, classes=1), "classes in [2, inf)"),
        (lambda: Logistic(l2=0.1, classes=3, clip=1.0), "clip in [1.41421, inf)"),
        (lambda: Logistic(l2=0.1, projection=0.0), "projection in (0, inf)"),
        (lambda: run(x=2 * np.ones((1, 1))), "rows of norm in [0, 1]"),
        (lambda: run(y=np.array([2])), "labels in [0, 1]"),
        (lambda: run(chain=Chain(l2=0.1, step=9.0, sigma=0.1)), "step in (0, 2.85714]"),
        (lambda: run(chain=Chain(l2=0.2, step=1.0, sigma=0.1)), "chain's l2"),
        (lambda: forget_pull(Logistic(l2=0.1), -1, 0, 0), "lambda_f in [0, inf)"),
        (lambda: robust_drift(Logistic(l2=0.1), np.ones((1, 1)), np.array([0]), np.random.default_rng(),
                              lambda_f=0, lambda_a=0, tau=0, aim="fgsm"), "'gaussian' or 'min_loss'"),
    ],
)  # fmt: skip
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)


def run(x=None, y=None, chain=None):
    problem = Logistic(l2=0.1)
    x, y = np.ones((1, 1)) if x is None else x, np.array([1]) if y is None else y
    noisy_descent(problem, problem.start(1, 1), x, y, chain or problem.chain(0.1), 1, np.random.default_rng(0))
