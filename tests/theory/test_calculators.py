"""Closed-form calculators: published values, counter-examples, random tables and refused input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.theory.disagreement import (
    disagreement_from_ratio,
    half_sphere_bound,
    half_sphere_share,
    inevitable_disagreement,
    nearest_boundary_point,
    ratio_statement,
    ratio_violation,
)
from residuum.theory.result import Bound, check


def test_published_values_of_ratio_violation():
    assert ratio_violation(1, 1e-5, tight=False).value == pytest.approx(3.164e-5, rel=1e-4)
    assert ratio_violation(0.1, 0.05, tight=False).value == pytest.approx(1.0508, rel=1e-4)
    assert ratio_violation(0.01, 0.01, tight=False).value == pytest.approx(2.01, rel=1e-3)
    assert ratio_violation(0.1, 0.05, tight=False).vacuous
    assert ratio_violation(0.1, 0.05, tight=False).clipped == 1
    assert not ratio_violation(1, 1e-5).vacuous


def test_ratio_violation_at_the_ends():
    assert ratio_violation(0, 0).value == 0
    assert ratio_violation(0, 1e-9).value == math.inf
    falling = [ratio_violation(eps, 1e-3, tight=False).value for eps in (0.5, 1, 5, 50)]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(2e-3)
    assert ratio_violation(1000, 1e-3).constants["ratio_high"] == math.inf


def test_limit_with_delta_proportional_to_eps_is_not_zero():
    assert ratio_violation(1e-9, 3e-9, tight=False).value == pytest.approx(6, rel=1e-6)


weights = st.lists(st.floats(1e-3, 1), min_size=2, max_size=8)


@settings(deadline=None)
@given(weights, weights, st.floats(0.01, 2))
def test_ratio_violation_holds_on_random_distributions(p, q, eps):
    """The smallest delta of two tables is computed exactly; the violating mass never exceeds the bound."""
    size = min(len(p), len(q))
    P, Q = np.array(p[:size]) / sum(p[:size]), np.array(q[:size]) / sum(q[:size])
    delta = max(np.maximum(P - math.exp(eps) * Q, 0).sum(), np.maximum(Q - math.exp(eps) * P, 0).sum())
    outside = (math.exp(2 * eps) * Q * (1 + 1e-12) < P) | (math.exp(-2 * eps) * Q > P * (1 + 1e-12))
    assert P[outside].sum() <= ratio_violation(eps, min(delta, 0.999), tight=True).value + 1e-12
    assert ratio_violation(eps, 0.5, tight=True).value <= ratio_violation(eps, 0.5, tight=False).value


def test_tight_form_is_attained():
    """P and Q with all of delta on ratios beyond e^{2 eps}: the upper tail's part of the bound is met with equality."""
    eps, q = 0.5, 0.1
    p = q * math.exp(2 * eps)
    delta = p - math.exp(eps) * q
    assert delta / -math.expm1(-eps) == pytest.approx(p)


def test_statement_says_at_least():
    assert "at least 0.999982" in ratio_statement(1, 1e-5)
    assert ratio_statement(0.1, 0.06).startswith("nothing")


def test_inevitable_disagreement_published_factors():
    for tau, share in ((0.01, 0.54), (0.031, 0.14), (0.1, 1e-7)):
        bound = inevitable_disagreement(1e-12, 1e-13, dimension=3072, tau=tau)
        assert 1 - bound.value / bound.constants["p"] == pytest.approx(share, rel=0.5 if tau == 0.1 else 0.03)
    assert any("not a guarantee" in text for text in bound.assumptions)


def test_inevitable_disagreement_fails_for_identical_models():
    """Two identical models meet (1, 1e-3) and disagree nowhere; the formula still says something positive."""
    assert inevitable_disagreement(1.0, 1e-3, dimension=10, tau=0.5).value > 0


def test_hidden_constant_scales_the_gap():
    one, two = (inevitable_disagreement(1, 1e-3, 5, 0.1, constant=a) for a in (1, 2))
    p = one.constants["p"]
    assert (p - two.value) == pytest.approx(2 * (p - one.value))


table = st.lists(st.floats(0, 1), min_size=9, max_size=9).filter(lambda v: sum(v) > 0.1)


@settings(deadline=None, max_examples=300)
@given(table)
def test_always_valid_bounds_hold_on_random_joint_tables(values):
    """Joint law of the two predictions over three classes, class 0 right."""
    joint = np.array(values).reshape(3, 3) / sum(values)
    pm, pa, disagree = joint[0].sum(), joint[:, 0].sum(), 1 - np.trace(joint)
    if pa < 1e-6:
        return
    bounds = disagreement_from_ratio(min(pm / pa, 1 / pa), min(pa, 1.0))
    assert bounds.low.value - 1e-9 <= disagree <= bounds.high.value + 1e-9


@settings(deadline=None)
@given(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1))
def test_printed_bounds_hold_when_errors_are_independent(pa, pm, clash):
    """Both wrong together: they agree with any conditional probability."""
    disagree = pm * (1 - pa) + pa * (1 - pm) + (1 - pa) * (1 - pm) * clash
    bounds = disagreement_from_ratio(min(pm / pa, 1 / pa), pa, assume_independent=True)
    assert bounds.low.value - 1e-9 <= disagree <= bounds.high.value + 1e-9


def test_printed_bounds_fail_where_models_are_not_independent():
    same = disagreement_from_ratio(1.0, 0.5, assume_independent=True)
    assert same.low.value == 0.25 > 0.0  # m = a never disagrees
    assert same.high.value == 0.75 < 1.0  # right exactly where the other is wrong: always disagrees
    always = disagreement_from_ratio(1.0, 0.5)
    assert (always.low.value, always.high.value) == (0.0, 1.0)
    assert always.low.vacuous
    assert always.high.vacuous


@pytest.mark.parametrize("dimension", [3, 10, 100])
@pytest.mark.parametrize("tau", [0.05, 0.3, 1.0])
def test_sphere_share_agrees_with_simulation(dimension, tau):
    rng = np.random.default_rng(dimension)
    points = rng.standard_normal((200_000, dimension))
    first = points[:, 0] / np.linalg.norm(points, axis=1)
    # the nearest point of the half sphere {first <= 0} lies on the equator, at this chord
    chord = np.where(first <= 0, 0, np.sqrt(2 - 2 * np.sqrt(1 - first**2)))
    share, exact = (chord <= tau).mean(), half_sphere_share(dimension, tau)
    assert abs(share - exact) <= 4 * math.sqrt(max(exact * (1 - exact), 1e-6) / 200_000)


@settings(deadline=None)
@given(st.integers(2, 4000), st.floats(0, 2))
def test_sphere_bound_is_never_above_the_exact_share(dimension, tau):
    bound = half_sphere_bound(dimension, tau)
    assert bound.value <= bound.constants["exact"] + 1e-12


def test_sphere_closed_forms():
    assert half_sphere_share(2, 1.0) == pytest.approx(0.5 + 1 / 3)  # an arc of 60 degrees at both ends
    assert half_sphere_share(3, 0.5) == pytest.approx((1 + math.sin(2 * math.asin(0.25))) / 2)
    assert half_sphere_share(7, 1.5) == 1


def test_nearest_boundary_point_is_on_the_boundary_and_nearest():
    rng = np.random.default_rng(7)
    w, x, b = rng.standard_normal(5), rng.standard_normal((20, 5)), 0.3
    near = nearest_boundary_point(x, w, b)
    assert np.abs(near @ w + b).max() < 1e-12
    other = nearest_boundary_point(rng.standard_normal((20, 5)), w, b)
    assert (np.linalg.norm(other - x, axis=1) >= np.linalg.norm(near - x, axis=1)).all()
    printed = x - (np.sum(x * x, axis=1) / (w @ w))[:, None] * w
    assert np.abs(printed @ w).max() > 0.1  # x.x instead of w.x misses the boundary


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ratio_violation(-0.1, 0.1), "eps in [0, inf), got -0.1"),
        (lambda: ratio_violation(0.1, 1.0), "delta in [0, 1), got 1.0"),
        (lambda: ratio_violation(float("nan"), 0.1), "eps in [0, inf)"),
        (lambda: inevitable_disagreement(1, 0.1, 1, 0.1), "dimension in [2, inf), got 1"),
        (lambda: inevitable_disagreement(1, 0.1, 3, 0.1, constant=0), "constant in (0, inf)"),
        (lambda: half_sphere_share(1, 0.1), "dimension in [2, inf)"),
        (lambda: half_sphere_share(3, 2.1), "tau in [0, 2]"),
        (lambda: disagreement_from_ratio(1, 0), "accuracy in (0, 1]"),
        (lambda: disagreement_from_ratio(2.5, 0.5), "ratio in [0, 2]"),
        (lambda: nearest_boundary_point(np.ones(2), np.zeros(2)), "squared norm of the weights in (0, inf)"),
    ],
)
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)


def test_check_treats_ends_as_said():
    check("x", 1, low=0, high=1)
    for ends, value in (("[)", 1), ("(]", 0)):
        with pytest.raises(ValueError, match="expected x"):
            check("x", value, low=0, high=1, ends=ends)


def test_bounds_are_plain_json():
    text = json.dumps(Bound(math.inf, 1.0, True, ("a",), {"b": math.nan}).as_dict(), allow_nan=False)
    assert json.loads(text)["value"] is None
