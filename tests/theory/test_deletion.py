"""Descent-to-delete and the certificates of Newton removal: exact values, and where a published claim fails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from residuum.theory.deletion import (
    descend,
    distance_bound,
    objective_epsilon,
    output_epsilon,
    publish,
    publishing_epsilon,
    publishing_noise,
)
from residuum.theory.logistic import Logistic, gradient, unit_rows
from residuum.theory.renyi import gaussian_delta, gaussian_epsilon


def test_printed_constant_of_objective_perturbation_fails_for_large_epsilon():
    """c = sqrt(2 log(1.5/delta)) is conservative for small eps; at eps = 10 the true delta is larger than claimed."""
    delta = 1e-5
    c = math.sqrt(2 * math.log(1.5 / delta))
    true = {eps: gaussian_delta(eps, eps / c) for eps in (0.5, 1.0, 2.0, 10.0, 15.0)}
    assert all(true[eps] <= delta for eps in (0.5, 1.0, 2.0))
    assert true[10.0] > 1.5 * delta
    assert true[15.0] > 10 * delta
    assert objective_epsilon(10 / c, 1.0, delta, printed=True).value == pytest.approx(10)
    assert objective_epsilon(10 / c, 1.0, delta).value > 10


def newton_deltas(eps, std):
    """Exact delta, both ways, between removal by Newton's step and re-fitting, in one dimension.

    Both laws are written as laws of the perturbation that would make the weights an exact re-fit.
    """
    x, y, l2 = np.array([1.0, 0.6, -0.4]), np.array([1, -1, 1]), 0.01
    w = np.linspace(-1500, 1500, 600_001)

    def slope(v, keep):
        signs = y[keep, None] * x[keep, None]
        return (-signs / (1 + np.exp(np.clip(signs * v, -700, 700)))).sum(axis=0) + l2 * keep.size * v

    kept = np.array([1, 2])
    b = -slope(w, np.arange(3))
    s = 1 / (1 + np.exp(-np.clip(x[kept, None] * w, -700, 700)))
    new = w - (slope(w, kept) + b) / ((s * (1 - s) * x[kept, None] ** 2).sum(axis=0) + l2 * 2)
    target = -slope(new, kept)
    width = np.abs(np.gradient(target, w)) * (w[1] - w[0])
    p = np.exp(-(b**2) / (2 * std**2)) * np.abs(np.gradient(b, w)) / np.abs(np.gradient(target, w))
    q = np.exp(-(target**2) / (2 * std**2))
    scale = math.sqrt(2 * math.pi) * std
    residual = np.abs(target - b)[np.abs(b) < 9 * std].max()
    ways = [(np.maximum(one - math.exp(eps) * two, 0) * width).sum() / scale for one, two in ((p, q), (q, p))]
    return residual, ways, (p * width).sum() / scale


def test_objective_perturbation_does_not_hide_a_residual_that_depends_on_it():
    """The literature's theorem: residual <= r for every b implies the delta of two Gaussians r / std apart. It fails:
    Newton's residual depends on b, and the exact delta in one dimension is several times the claimed one."""
    std, delta = 2.0, 0.01
    residual, _, mass = newton_deltas(0.0, std)
    assert mass == pytest.approx(1, abs=1e-3)
    eps = gaussian_epsilon(residual / std, delta)
    printed = objective_epsilon(residual, std, delta, printed=True).value
    assert max(newton_deltas(eps, std)[1]) > 2 * delta
    assert printed > eps
    assert max(newton_deltas(printed, std)[1]) > 1.2 * delta


def test_publishing_noise_is_the_printed_formula_when_half_the_data_may_go():
    problem, n, steps, eps, delta = Logistic(l2=0.05), 1000, 25, 0.7, 1e-4
    gamma = (problem.smoothness - 0.05) / (problem.smoothness + 0.05)
    log = math.log(1 / delta)
    printed = (
        4 * math.sqrt(2) * gamma**steps / (0.05 * n * (1 - gamma**steps) * (math.sqrt(log + eps) - math.sqrt(log)))
    )
    ours = publishing_noise(distance_bound(problem, n, steps, smallest=n // 2), eps, delta)
    assert ours == pytest.approx(printed, rel=1e-12)


def test_printed_publishing_noise_certifies_its_epsilon_with_room():
    for eps in (0.1, 1.0, 5.0):
        true = publishing_epsilon(0.01, publishing_noise(0.01, eps, 1e-5), 1e-5).value
        assert 0.6 * eps < true <= eps


@pytest.mark.parametrize("classes", [2, 3])
def test_descent_stays_within_its_distance_over_a_sequence_of_deletions(classes):
    rng = np.random.default_rng(7)
    x, y = unit_rows(rng.standard_normal((60, 4))), rng.integers(0, classes, 60)
    problem = Logistic(l2=0.1, classes=classes)
    secret = descend(problem, problem.start(1, 4), x, y, 200)
    for left in (57, 54, 51, 48):
        bound = distance_bound(problem, 60, 5, removed=3, smallest=48)
        secret = descend(problem, secret, x[:left], y[:left], 5)
        exact = descend(problem, secret, x[:left], y[:left], 500)
        assert np.abs(gradient(problem, exact, x[:left], y[:left])).max() < 1e-10
        assert 0 < np.linalg.norm(secret - exact) <= bound


def test_publishing_leaves_the_secret_alone():
    secret = np.zeros((2000, 1, 1))
    shown = publish(secret, 0.5, np.random.default_rng(7))
    assert not secret.any()
    assert shown.std() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: publishing_noise(0.1, 0.0, 0.1), "eps in (0, inf)"),
        (lambda: publishing_noise(0.1, 1.0, 1.0), "delta in (0, 1)"),
        (lambda: publishing_epsilon(0.1, 0.0, 0.1), "noise in (0, inf)"),
        (lambda: distance_bound(Logistic(l2=0.1), 10, 0), "steps in [1, inf)"),
        (lambda: distance_bound(Logistic(l2=0.1), 10, 1, removed=11), "removed in [1, 10]"),
        (lambda: objective_epsilon(-1.0, 1.0, 0.1), "residual in [0, inf)"),
        (lambda: output_epsilon(-1.0, 1, 0.1, 1.0, 0.1), "residual in [0, inf)"),
        (lambda: output_epsilon(1.0, 0, 0.1, 1.0, 0.1), "retained in [1, inf)"),
        (lambda: output_epsilon(1.0, 1, 0.0, 1.0, 0.1), "l2 in (0, inf)"),
        (lambda: output_epsilon(1.0, 1, 0.1, 0.0, 0.1), "noise in (0, inf)"),
    ],
)
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)
