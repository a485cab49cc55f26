"""The claim of the docs on digits: one sample unlearned at eps = 1 for a fifth of re-training's gradients."""

from __future__ import annotations

import numpy as np
import pytest

from residuum.theory import (
    Logistic,
    Phase,
    accuracy,
    descend,
    noisy_descent,
    removal_gap,
    shifted_epsilon,
    steps_needed,
    unit_rows,
)


def digits():
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(y))
    return unit_rows(x - x.mean(axis=1, keepdims=True))[order], y.astype(np.int64)[order]


def test_one_sample_costs_a_fifth_of_retraining_and_keeps_accuracy():
    x, y = digits()
    problem, n = Logistic(l2=0.01, classes=10), 1437
    chain = problem.chain(0.02)
    norm = float(np.linalg.norm(descend(problem, problem.start(1, 64), x[:n], y[:n], 300)))
    learn = steps_needed([], chain, 1.0, 1e-5, start_gap=norm)
    gap = removal_gap(1, n, problem.lipschitz, normalizer="fixed")
    serve = steps_needed([Phase(learn, gap)], chain, 1.0, 1e-5)
    assert shifted_epsilon([Phase(learn, gap), Phase(serve, 0.0)], chain, 1e-5).value <= 1
    assert learn >= 5 * serve
    rng = np.random.default_rng(1)
    learned = noisy_descent(problem, problem.start(3, 64), x[:n], y[:n], chain, learn, rng, normalizer=n)
    unlearned = noisy_descent(problem, learned, x[1:n], y[1:n], chain, serve, rng, normalizer=n)
    assert accuracy(problem, unlearned, x[n:], y[n:]).mean() > 0.85


@pytest.mark.parametrize("removed", [10, 50])
def test_more_samples_take_more_steps_but_never_more_than_the_docs_say(removed):
    problem = Logistic(l2=0.01, classes=10)
    chain = problem.chain(0.02)
    gap = removal_gap(removed, 1437, problem.lipschitz, normalizer="fixed")
    assert steps_needed([Phase(264, gap)], chain, 1.0, 1e-5) == {10: 151, 50: 232}[removed]
