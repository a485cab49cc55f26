"""The decoy audit's tests are exact, keep their level, and find what they say they find."""

from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.linear_model import Ridge

from residuum.auditing.decoys import label_fit, permutation_test, two_sample_test
from residuum.core.errors import InputError


def slow_difference(scores, side, labels):
    weights, differences = [], []
    for label in sorted(set(labels)):
        ours, theirs = scores[(labels == label) & side], scores[(labels == label) & ~side]
        if len(ours) and len(theirs):
            weights.append(len(ours) * len(theirs) / (len(ours) + len(theirs)))
            differences.append(ours.mean() - theirs.mean())
    return np.dot(weights, differences) / np.sum(weights)


def all_sides(side, labels):
    """Every way to choose as many of each class."""
    by_class = [np.flatnonzero(labels == label) for label in sorted(set(labels))]
    for chosen in product(*(combinations(rows, side[rows].sum()) for rows in by_class)):
        other = np.zeros(len(side), bool)
        other[[row for of_class in chosen for row in of_class]] = True
        yield other


@pytest.mark.parametrize("ties", [False, True])
def test_p_is_that_of_all_permutations(ties):
    rng = np.random.default_rng(3)
    labels = np.array([2, 0, 0, 2, 1, 0, 0, 2, 2, 2, 0])  # class 1 has one sample, on one side only
    side = np.array([1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0], bool)
    scores = rng.normal(size=11) + 0.8 * side
    scores = scores.round() if ties else scores
    everything = np.array([slow_difference(scores, other, labels) for other in all_sides(side, labels)])
    test = permutation_test(scores, side, labels, permutations=20_000)
    assert test.difference == pytest.approx(slow_difference(scores, side, labels))
    assert test.deviation == pytest.approx(everything.std())
    exact = np.mean(everything >= test.difference - 1e-12)
    assert test.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000))


def test_p_is_uniform_where_nothing_differs_but_the_classes():
    rng, p = np.random.default_rng(0), []
    for seed in range(400):
        labels = rng.integers(0, 4, 90)
        side = rng.random(90) < np.array([0.2, 0.4, 0.6, 0.8])[labels]  # another mix of classes on either side
        scores = rng.standard_cauchy(90) + 10 * labels
        p.append(permutation_test(scores, side, labels, permutations=199, seed=seed).p)
    assert kstest(p, "uniform").pvalue > 0.001
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_the_detectable_difference_is_found_in_four_of_five_cases():
    rng, found = np.random.default_rng(1), []
    for seed in range(300):
        labels, side, scores = rng.integers(0, 3, 240), np.arange(240) < 80, rng.normal(size=240)
        shift = permutation_test(scores, side, labels, permutations=1).detectable()
        found.append(permutation_test(scores + shift * side, side, labels, permutations=199, seed=seed).p <= 0.05)
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)


def test_the_same_seed_gives_the_same_p_and_arguments_stay():
    rng = np.random.default_rng(5)
    scores, side, labels = rng.normal(size=50), rng.random(50) < 0.5, rng.integers(0, 3, 50)
    before = scores.copy(), side.copy(), labels.copy()
    assert permutation_test(scores, side, labels, seed=4) == permutation_test(scores, side, labels, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(before, (scores, side, labels), strict=True))


def test_the_standard_library_draws_the_same_permutations():
    rng = np.random.default_rng(6)
    scores, side, labels = rng.normal(size=30).round(1), rng.random(30) < 0.4, np.sort(rng.integers(0, 3, 30))
    test, drawn, as_large = (
        permutation_test(scores, side, labels, permutations=50, seed=2**40 + 3),
        Random(2**40 + 3),
        0,
    )
    for _ in range(50):
        u = np.array([drawn.random() for _ in range(30)])
        other = np.zeros(30, bool)
        for label in range(3):
            rows = np.flatnonzero(labels == label)
            other[rows[u[rows].argsort()[: side[rows].sum()]]] = True
        as_large += slow_difference(scores, other, labels) >= test.difference - 1e-12
    assert test.p == (1 + as_large) / 51


def test_classes_on_one_side_only_cannot_be_compared():
    with pytest.raises(InputError, match="a class with samples on both sides"):
        permutation_test(np.arange(4.0), np.array([1, 1, 0, 0], bool), np.array([0, 0, 1, 1]))


def inputs_of(rng, n=240):
    labels = rng.integers(0, 3, n)
    return rng.normal(size=(n, 6)) + labels[:, None], labels


@pytest.mark.long
def test_the_two_sample_test_keeps_its_level_whatever_the_classes():
    rng, p = np.random.default_rng(2), []
    for seed in range(120):
        inputs, labels = inputs_of(rng, 120)
        side = rng.random(120) < np.array([0.3, 0.5, 0.7])[labels]
        p.append(two_sample_test(inputs, labels, side, permutations=99, seed=seed).p)
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 120)
    assert kstest(p, "uniform").pvalue > 0.001


@pytest.mark.parametrize("difference", ["shift", "spread", "labels"])
def test_the_two_sample_test_finds_other_inputs_and_other_labels(difference):
    rng = np.random.default_rng(6)
    inputs, labels = inputs_of(rng, 800)
    inputs, side = 3 * inputs, np.arange(800) < 400
    if difference == "shift":
        inputs[side, 0] += 1.5
    elif difference == "spread":
        inputs[side] *= 1.3
    else:  # a third of the labels of one side are wrong; the classes are as frequent as before
        wrong = np.flatnonzero(side)[:130]
        labels[wrong] = rng.permutation(labels[wrong])
    test = two_sample_test(inputs, labels, side, permutations=199)
    assert test.p <= 0.05
    assert test.auc > 0.5


def test_how_well_a_label_fits_is_that_of_a_fit_without_the_sample():
    rng = np.random.default_rng(7)
    features, labels = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    design = np.concatenate([features, np.ones((30, 1))], 1)
    slow = []
    for left_out in range(30):
        others = np.arange(30) != left_out
        targets = (labels[:, None] == np.arange(3)).astype(float)
        scores = (
            Ridge(alpha=1.0, fit_intercept=False).fit(design[others], targets[others]).predict(design[[left_out]])[0]
        )
        slow.append(scores[labels[left_out]] - np.delete(scores, labels[left_out]).max())
    assert np.allclose(label_fit(features, labels), slow)
