"""The auditor: valid, able to see, and never above a certificate; readout certificates beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from residuum.theory.empirical import (
    Event,
    adversarial_examples,
    adversarial_statistics,
    binomial_limits,
    epsilon_lower_bound,
    histogram_divergence,
    readout_certificate,
    signed_distances,
)
from residuum.theory.logistic import Logistic, noisy_descent, predictions, unit_rows
from residuum.theory.renyi import gaussian_epsilon
from residuum.theory.robust import robust_drift, robust_epsilon
from residuum.theory.shifted import request_phases, shifted_epsilon


def test_binomial_limits_agree_with_scipy_stats():
    from scipy.stats import binomtest

    for hits, trials in ((0, 7), (3, 7), (7, 7), (40, 500)):
        theirs = binomtest(hits, trials).proportion_ci(0.95, method="exact")
        low, high = binomial_limits(np.array(float(hits)), trials, 0.95)
        assert (float(low), float(high)) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.0, 3.0])
def test_lower_bound_stays_below_the_exact_gaussian_value(mu):
    delta = 0.01
    bounds = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        bounds.append(epsilon_lower_bound(rng.normal(mu, 1, (1000, 1)), rng.normal(0, 1, (1000, 1)), delta).value)
    exact = gaussian_epsilon(mu, delta)
    assert sum(bound > exact for bound in bounds) <= 2  # each is wrong with probability at most 5 %
    assert mu == 0 or np.median(bounds) > 0.15 * exact


def test_discriminant_finds_a_difference_no_single_column_shows():
    rng = np.random.default_rng(7)
    common = 10 * rng.standard_normal((2, 1500, 1))
    a, b = (np.c_[c, c + rng.standard_normal((1500, 1))] for c in common)
    a[:, 1] += 2
    assert epsilon_lower_bound(a, b, 1e-5).value > 0.8
    assert epsilon_lower_bound(a[:, [1]], b[:, [1]], 1e-5).value < 0.5


def test_event_is_tested_on_the_second_half_only():
    """A difference planted in the first half alone must not count."""
    a, b = np.random.default_rng(7).standard_normal((2, 2000, 1))
    a[:1000] += 5
    assert epsilon_lower_bound(a, b, 1e-5).value <= 0.3
    assert Event(0, 0.5, -1, True).happens(np.array([[0.4], [0.6]])) == 1


def test_delta_is_granted_before_epsilon_is_claimed():
    """A rare event of probability 0.04 that never happens after re-training: proof of eps at delta 0, none at 0.06."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 6000, 1))
    a[rng.random(6000) < 0.04] = 10
    assert epsilon_lower_bound(a, b, 0.0).value > 2
    assert epsilon_lower_bound(a, b, 0.06).value <= 0


def problem_and_data(seed=7):
    """A small two-class problem whose forgotten sample is an outlier of the wrong label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 40)
    x = unit_rows(rng.standard_normal((40, 3)) * 0.3 + np.outer(2 * y - 1, [1.0, 0.0, 0.0]))
    x[0], y[0] = [0.0, 1.0, 0.0], 1
    return Logistic(l2=0.05), x, y


def models(problem, x, y, steps, serve, *, removed=1, extra=None, count=4000):
    chain = problem.chain(0.05)
    rng = np.random.default_rng(11)
    n = len(y)
    learned = noisy_descent(problem, problem.start(count, 3), x, y, chain, steps, rng, normalizer=n)
    rest = (x[removed:], y[removed:])
    unlearned = noisy_descent(problem, learned, *rest, chain, serve, rng, normalizer=n, extra=extra)
    retrained = noisy_descent(problem, problem.start(count, 3), *rest, chain, steps + serve, rng, normalizer=n)
    return chain, unlearned, retrained


@pytest.mark.parametrize("serve", [0, 5, 40])
def test_certificate_is_never_below_the_auditors_lower_bound(serve):
    problem, x, y = problem_and_data()
    chain, unlearned, retrained = models(problem, x, y, 60, serve)
    phases = request_phases(len(y), [1], 60, [serve], problem.lipschitz, normalizer="fixed")
    certified = shifted_epsilon(phases, chain, 1e-3, gaussian=True).value
    by_weights = epsilon_lower_bound(unlearned[:, 0], retrained[:, 0], 1e-3).value
    by_attack = epsilon_lower_bound(*adversarial_statistics(unlearned, retrained, x[:1], y[:1]), 1e-3).value
    assert by_weights <= certified
    assert by_attack <= certified
    if serve == 0:
        assert by_weights > 0.15 * certified  # the auditor sees what was not unlearned
        assert by_attack > 0.1 * certified  # also through adversarial examples


@pytest.mark.parametrize("aim", ["gaussian", "min_loss"])
def test_certificate_with_the_robust_objective_is_never_below_the_lower_bound(aim):
    problem, x, y = problem_and_data()
    settings = {"lambda_f": 0.02, "lambda_a": 0.02, "tau": 0.5}
    drift = robust_drift(problem, x[:1], y[:1], np.random.default_rng(3), aim=aim, **settings)
    chain, unlearned, retrained = models(problem, x, y, 60, 60, extra=drift)
    phases = request_phases(len(y), [1], 60, [60], problem.lipschitz, normalizer="fixed")
    lower = epsilon_lower_bound(unlearned[:, 0], retrained[:, 0], 1e-3).value
    assert lower <= robust_epsilon(problem, chain, phases, 1e-3, **settings).value
    # the objective that reads the forget set is visible, and the certificate without its term would be false
    assert lower > shifted_epsilon(phases, chain, 1e-3).clipped


def test_signed_distances_agree_with_a_slow_search():
    rng = np.random.default_rng(7)
    w, x, y = rng.standard_normal((2, 3, 4)), rng.standard_normal((5, 4)), rng.integers(0, 3, 5)
    fast = signed_distances(w, x, y)
    for m in range(2):
        for i in range(5):
            gaps = [w[m, y[i]] - w[m, k] for k in range(3) if k != y[i]]
            assert fast[m, i] == pytest.approx(min(g @ x[i] / math.sqrt(g @ g) for g in gaps))


def test_adversarial_examples_change_the_prediction_by_the_smallest_step():
    rng = np.random.default_rng(7)
    w, x = rng.standard_normal((1, 1, 4)), rng.standard_normal((50, 4))
    problem = Logistic(l2=1.0)
    y = predictions(problem, w, x)[0]
    moved = adversarial_examples(w, x)
    assert (predictions(problem, w, moved)[0] != y).all()
    assert np.allclose(np.linalg.norm(moved - x, axis=1), 1.02 * signed_distances(w, x, y)[0])


def test_histogram_divergence_of_known_shares():
    a, b = np.r_[np.zeros(300), np.ones(100)], np.r_[np.zeros(100), np.ones(300)]
    p, q = np.array([300.5, 100.5]) / 401, np.array([100.5, 300.5]) / 401
    assert histogram_divergence(a, b, bins=2) == pytest.approx(float((p * np.log(p / q)).sum()))


def test_histogram_divergence_is_below_the_divergence_of_the_laws():
    """Data processing: binning can only lose; KL between unit Gaussians mu apart is mu^2 / 2."""
    rng = np.random.default_rng(7)
    found = histogram_divergence(rng.normal(1, 1, 50_000), rng.normal(0, 1, 50_000), bins=20)
    assert 0.4 < found < 0.5


def test_readout_certificate_knows_when_it_says_nothing():
    calls = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        calls.append(readout_certificate(rng.normal(0, 1, 200), rng.normal(0, 1, 200), draws=100, seed=seed).vacuous)
    assert sum(calls) >= 16  # 95 % of equal pairs are called equal
    rng = np.random.default_rng(7)
    far = readout_certificate(rng.normal(1, 1, 200), rng.normal(0, 1, 200), draws=100)
    assert not far.vacuous
    again = readout_certificate(rng.normal(1, 1, 200), rng.normal(0, 1, 200), draws=100, seed=1)
    assert far.as_dict() != again.as_dict()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: epsilon_lower_bound(np.zeros((999, 1)), np.zeros((1000, 1)), 0.1), "unlearned models in [1000, inf)"),
        (lambda: epsilon_lower_bound(np.zeros((1000, 1)), np.zeros((1000, 1)), 1.0), "delta in [0, 1)"),
        (lambda: readout_certificate(np.zeros((2, 2)), np.zeros(2)), "one finite readout per unlearned model"),
        (lambda: readout_certificate(np.zeros(5), np.zeros(5), bins=1), "bins in [2, inf)"),
        (lambda: adversarial_examples(np.zeros((1, 3, 2)), np.zeros((1, 2))), "two-class models"),
    ],
)
def test_impossible_input_is_refused_with_the_allowed_range(call, text):
    with pytest.raises(ValueError, match="expected") as error:
        call()
    assert text in str(error.value)
