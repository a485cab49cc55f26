"""Renyi conversions against dp-accounting, golden values and the exact Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.theory.renyi import (
    ORDERS,
    curve_to_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    minimal_epsilon,
    renyi_to_epsilon,
)


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.5])
@pytest.mark.parametrize("delta", [1e-7, 1e-5, 1e-2])
def test_conversion_agrees_with_dp_accounting(rho, delta):
    accountant = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = np.array([1.5, 2, 3, 5, 8, 16, 32, 64, 128, 512])
    theirs, order = accountant.compute_epsilon(orders, rho * orders, delta)
    ours = curve_to_epsilon(orders, rho * orders, delta)
    assert ours.clipped == pytest.approx(theirs, abs=1e-6)
    assert theirs == 0 or ours.constants["order"] == order


@pytest.mark.parametrize("mu", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_gaussian_epsilon_agrees_with_dp_accounting(mu, delta):
    mechanism = pytest.importorskip("dp_accounting.gaussian_mechanism")
    noise = mechanism.get_sigma_gaussian(gaussian_epsilon(mu, delta), delta, tol=1e-10)
    assert noise == pytest.approx(1 / mu, rel=1e-6)


GOLDEN = [  # mpmath, 50 digits: (alpha, divergence, delta, plain, tight)
    (2.0, 0.1, 1e-5, 11.6129254649702, 10.2266311038503),
    (10.0, 0.5, 1e-5, 1.77921394055225, 1.41801063678397),
    (64.0, 1.0, 1e-6, 1.21929381838039, 1.13753144421606),
]


@pytest.mark.parametrize(("alpha", "divergence", "delta", "plain", "tight"), GOLDEN)
def test_golden_values(alpha, divergence, delta, plain, tight):
    assert renyi_to_epsilon(alpha, divergence, delta, tight=False).value == pytest.approx(plain, abs=1e-12)
    assert renyi_to_epsilon(alpha, divergence, delta).value == pytest.approx(tight, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-4, 5), st.floats(1e-9, 0.4))
def test_order_of_the_three_conversions(rho, delta):
    """Exact Gaussian <= tight Renyi <= plain Renyi, and plain is rho + 2 sqrt(rho log 1/delta) at its best order."""
    exact = gaussian_epsilon(math.sqrt(2 * rho), delta)
    tight, plain = (minimal_epsilon(lambda a: rho * a, delta, tight=t) for t in (True, False))
    assert exact <= tight.clipped + 1e-9
    assert tight.value <= plain.value
    assert plain.value == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-3)


def test_gaussian_delta_agrees_with_integration():
    x = np.linspace(-12, 14, 400_001)
    p, q = np.exp(-((x - 1.3) ** 2) / 2), np.exp(-(x**2) / 2)
    for eps in (0.0, 0.7, 3.0):
        integral = np.trapezoid(np.maximum(p - math.exp(eps) * q, 0), x) / math.sqrt(2 * math.pi)
        assert gaussian_delta(eps, 1.3) == pytest.approx(integral, rel=1e-6)
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_epsilon(1e-9, 1e-5) == 0


def test_vacuous_when_a_test_may_be_perfect():
    assert renyi_to_epsilon(2, 30, 1e-5).vacuous
    assert not renyi_to_epsilon(20, 0.1, 1e-5).vacuous
    assert ORDERS[0] > 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: renyi_to_epsilon(1.0, 0.1, 1e-5), "alpha in (1, inf), got 1.0"),
        (lambda: renyi_to_epsilon(2.0, 0.1, 1.0), "delta in (0, 1), got 1.0"),
        (lambda: renyi_to_epsilon(2.0, 0.1, 0.0), "delta in (0, 1)"),
        (lambda: renyi_to_epsilon(2.0, -0.1, 0.1), "divergences in [0, inf]"),
        (lambda: curve_to_epsilon([2.0], [0.1, 0.2], 0.1), "as many divergences as orders"),
        (lambda: gaussian_delta(1.0, -1.0), "mu in [0, inf)"),
    ],
)
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)
