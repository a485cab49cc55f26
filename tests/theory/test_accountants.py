"""Every accountant against chains whose laws are known: Gaussian in one dimension, and a grid for logistic loss."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from residuum.theory.langevin import (
    Chain,
    many_requests,
    one_request,
    published_epsilon,
    removal_gap,
    request_gaps,
    rurk_request,
)
from residuum.theory.shifted import Phase, divergence_rate, request_phases, shifted_epsilon, steps_needed

CHAINS = [Chain(l2=m, step=h / m, sigma=s) for m, h, s in itertools.product((0.01, 0.3), (0.01, 0.5), (0.05, 1.0))]


def gaussian_law(chain, drifts, start=0.0):
    """Mean and variance of w <- w - eta (m w - b_t) + noise, step by step: the slow second way."""
    mean, variance = start, 0.0
    for b in drifts:
        mean = mean - chain.step * (chain.l2 * mean - b)
        variance = chain.contraction**2 * variance + chain.noise_variance
    return mean, variance


def exact_rate(chain, drifts, reference, starts=(0.0, 0.0)):
    (a, v), (b, _) = gaussian_law(chain, drifts, starts[0]), gaussian_law(chain, reference, starts[1])
    return (a - b) ** 2 / (2 * v)


def stationary(chain, drift):
    return drift / chain.l2, chain.noise_variance / (1 - chain.contraction**2)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(("learn", "unlearn"), [(1, 0), (5, 3), (300, 0), (300, 40)])
def test_shifted_is_exact_on_a_quadratic_with_one_request(chain, learn, unlearn):
    gap = 0.02
    exact = exact_rate(chain, [gap] * learn + [0] * unlearn, [0] * (learn + unlearn))
    assert divergence_rate([Phase(learn, gap), Phase(unlearn, 0.0)], chain) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("chain", CHAINS)
def test_shifted_is_exact_on_a_quadratic_with_three_requests(chain):
    phases = request_phases(1000, [1, 5, 2], 200, [30, 10, 20], 1.0)
    drifts = [phase.gap for phase in phases for _ in range(phase.steps)]
    assert divergence_rate(phases, chain) == pytest.approx(exact_rate(chain, drifts, [0] * len(drifts)), rel=1e-9)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("pull", [0.001, 0.02, 0.4, 3.0])
@pytest.mark.parametrize("serve", [1, 50])
def test_shifted_bounds_rurk_on_a_quadratic_within_its_factor(chain, pull, serve):
    """Exact while gaps do not grow; earlier noise cannot hide a pull that comes later: up to 21 times there."""
    exact = exact_rate(chain, [0.02] * 200 + [pull] * serve, [0] * (200 + serve))
    bound = divergence_rate([Phase(200, 0.02), Phase(serve, pull)], chain)
    assert exact * (1 - 1e-9) <= bound <= 21 * exact
    if pull <= 0.02:
        assert bound == pytest.approx(exact, rel=1e-9)


def test_shifted_counts_different_starts():
    chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    exact = exact_rate(chain, [0.02] * 10, [0] * 10, starts=(3.0, 0.0))
    assert divergence_rate([Phase(10, 0.02)], chain, start_gap=3.0) == pytest.approx(exact, rel=1e-9)
    assert divergence_rate([Phase(0, 0.02)], chain, start_gap=3.0) == math.inf
    assert divergence_rate([Phase(0, 0.02)], chain) == 0


def test_minorant_is_the_constrained_optimum():
    """Against a general solver on the shifts themselves, gaps growing and falling."""
    from scipy.optimize import minimize

    chain = Chain(l2=0.4, step=1.0, sigma=1.0)
    phases = [Phase(3, 0.1), Phase(2, 0.7), Phase(4, 0.2), Phase(2, 1.0)]
    shifts = np.array([p.gap for p in phases for _ in range(p.steps)]) * chain.step
    c, T = chain.contraction, len(shifts)
    lower = np.tril(c ** np.maximum(0, np.subtract.outer(np.arange(T), np.arange(T)).astype(float)))
    left = {"type": "ineq", "fun": lambda a: (lower @ (shifts - a))[:-1]}
    last = {"type": "eq", "fun": lambda a: (lower @ (shifts - a))[-1]}
    found = minimize(lambda a: a @ a, shifts, constraints=[left, last], options={"ftol": 1e-14, "maxiter": 1000})
    assert found.success
    assert divergence_rate(phases, chain) == pytest.approx(found.fun / (2 * chain.noise_variance), rel=1e-5)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("alpha", [1.1, 2.0, 10.0, 100.0])
def test_published_accountants_are_never_below_the_exact_divergence(chain, alpha):
    order, gap, steps = np.array([alpha]), 0.02, 30
    v, c = stationary(chain, 0.0)[1], chain.contraction
    one = alpha * (gap / chain.l2 * c**steps) ** 2 / (2 * v)
    assert one_request(order, gap, steps, chain)[0] >= one
    two = alpha * ((gap / chain.l2 * c**steps + gap / chain.l2) * c**steps) ** 2 / (2 * v)
    assert many_requests(order, [gap, gap], [steps, steps], chain)[0] >= two
    pull = 0.01
    rurk = alpha * (((gap - pull) * c**steps + pull) / chain.l2) ** 2 / (2 * v)
    assert rurk_request(order, gap, pull, steps, chain)[0] >= rurk


@pytest.mark.parametrize("chain", CHAINS)
def test_published_stationary_divergence_is_loose_by_two_to_four(chain):
    """e0 / exact = 2 / (1 - eta m / 2), between 2 and 4."""
    v = stationary(chain, 0.0)[1]
    factor = one_request(np.array([3.0]), 0.02, 0, chain)[0] / (3.0 * (0.02 / chain.l2) ** 2 / (2 * v))
    assert factor == pytest.approx(2 / (1 - chain.step * chain.l2 / 2), rel=1e-9)


@pytest.mark.parametrize("steps", [0, 20, 200])
@pytest.mark.parametrize("pull", [0.0, 0.0005])
def test_shifted_epsilon_is_never_above_the_published_one(steps, pull):
    chain = Chain(l2=0.05, step=2.0, sigma=0.1)
    phases = [Phase(100_000, 0.01), Phase(steps, pull)]
    published = published_epsilon([0.01], [steps], chain, 1e-5, pull=pull).clipped
    renyi, gaussian = (shifted_epsilon(phases, chain, 1e-5, gaussian=g).clipped for g in (False, True))
    assert gaussian <= renyi <= published


def logistic_steps(x, y, n, l2, step, extra=None):
    """Noiseless step of one-dimensional logistic regression as a function on a grid."""

    def advance(w):
        gradient = l2 * w + sum((1 / (1 + np.exp(-w * a)) - b) * a for a, b in zip(x, y, strict=True)) / n
        return w - step * (gradient + (extra(w) if extra else 0))

    return advance


def push(density, grid, advance, chain):
    """One step of the chain on a density: move, then convolve with the step's Gaussian."""
    kernel = np.exp(-((grid[:, None] - advance(grid)[None, :]) ** 2) / (2 * chain.noise_variance))
    return (kernel / kernel.sum(axis=0)) @ density


def renyi(p, q, alpha):
    keep = p > 1e-200
    return math.log(np.sum(p[keep] ** alpha * q[keep] ** (1 - alpha))) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.5, 4.0])
@pytest.mark.parametrize("pull", [0.0, 0.15])
def test_bounds_hold_for_one_dimensional_logistic_regression(alpha, pull):
    """Curved losses, RURK's ascent on the forgotten sample included: densities propagated on a grid."""
    l2, n, grid = 0.5, 4, np.linspace(-4, 4, 801)
    chain = Chain(l2=l2, step=1 / (0.25 + l2), sigma=0.3)
    x, y = np.array([0.3, -0.2, 0.3, 1.0]), np.array([1, 0, 1, 0])
    ascent = (lambda w: -pull * (1 / (1 + np.exp(-w)) - y[3])) if pull else None
    full = logistic_steps(x, y, n, l2, chain.step)
    rest = logistic_steps(x[:3], y[:3], n, l2, chain.step)
    rurk = logistic_steps(x[:3], y[:3], n, l2, chain.step, ascent)
    unlearned, retrained, serve = np.eye(801)[400], np.eye(801)[400], 6 if pull else 1
    for advance, steps in ((full, 12), (rurk, serve)):
        for _ in range(steps):
            unlearned, retrained = push(unlearned, grid, advance, chain), push(retrained, grid, rest, chain)
    gap = removal_gap(1, n, 1.0, normalizer="fixed")
    bound = alpha * divergence_rate([Phase(12, gap), Phase(serve, pull)], chain)
    for p, q in ((unlearned, retrained), (retrained, unlearned)):
        assert 0.05 * bound < renyi(p, q, alpha) <= bound


def test_steps_needed_is_the_smallest_number():
    chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    k = steps_needed([Phase(1000, 0.02)], chain, 1.0, 1e-5)
    assert shifted_epsilon([Phase(1000, 0.02), Phase(k, 0.0)], chain, 1e-5).value <= 1
    assert shifted_epsilon([Phase(1000, 0.02), Phase(k - 1, 0.0)], chain, 1e-5).value > 1


def test_pull_never_decays_and_grows_with_the_radius():
    chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    eps = [shifted_epsilon([Phase(1000, 0.02), Phase(10**5, 0.001 * (1 + t))], chain, 1e-5).value for t in (0, 1, 2)]
    assert 0.01 < eps[0] < eps[1] < eps[2]


def test_phases_of_requests_match_a_hand_count():
    phases = request_phases(100, [1, 2], 500, [10, 20], 1.0, normalizer="fixed", pull=0.5)
    assert [(p.steps, p.gap) for p in phases] == [(500, 0.03), (10, 0.52), (20, 0.5)]


def test_gaps_of_requests_match_a_hand_count():
    assert request_gaps(100, [1, 2], 1.5, normalizer="fixed") == [0.015, 0.03]
    assert request_gaps(100, [1, 2], 1.5) == [0.03, 6 / 99]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Chain(l2=0.0, step=1.0, sigma=0.1), "l2 in (0, inf)"),
        (lambda: Chain(l2=0.1, step=11.0, sigma=0.1), "step in (0, 10]"),
        (lambda: removal_gap(5, 4, 1.0), "removed in [0, 4]"),
        (lambda: removal_gap(1, 4, 1.0, normalizer="sum"), "'mean' or 'fixed'"),
        (lambda: request_phases(10, [1], 5, [], 1.0), "one number of steps per request"),
        (lambda: published_epsilon([0.1, 0.1], [1, 1], CHAINS[0], 1e-5, pull=0.1), "one request"),
        (lambda: shifted_epsilon([Phase(1, 0.1)], CHAINS[0], 1.0), "delta in (0, 1)"),
    ],
)
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)
