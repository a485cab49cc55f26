import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from residuum.auditing.statistics import Classes, rank
from residuum.core.errors import InputError


def one_class(n_f, n_h):
    return Classes(np.zeros(n_f, np.int64), np.zeros(n_h, np.int64))


def test_the_area_is_that_of_scikit_learn_class_by_class():
    rng = np.random.default_rng(3)
    classes = Classes(np.array([0] * 5 + [1] * 15), np.array([0] * 12 + [1] * 8 + [2] * 4))
    forgotten, heldout = rng.integers(0, 6, 20).astype(float), rng.integers(0, 6, 24).astype(float)
    wanted = 0.0
    for label, share in ((0, 0.25), (1, 0.75)):
        f, h = forgotten[classes.forgotten == label], heldout[classes.heldout == label]
        wanted += share * roc_auc_score([1] * len(f) + [0] * len(h), [*f, *h])
    assert rank(forgotten, heldout, classes).auc == pytest.approx(wanted, abs=1e-12)


def test_the_variance_with_one_class_is_that_of_a_slow_loop_over_pairs():
    rng = np.random.default_rng(4)
    f, h = rng.normal(0.5, 1, 7), rng.normal(0, 1, 9)
    found = rank(f, h, one_class(7, 9))
    v10 = [np.mean([float(a > b) for b in h]) for a in f]
    v01 = [np.mean([float(a > b) for a in f]) for b in h]
    wanted = np.var(v10, ddof=1) / 7 + np.var(v01, ddof=1) / 9
    assert found.classes.variance(found.forgotten, found.heldout) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("shift", "n_f", "n_h"), [(0.0, 40, 40), (0.8, 44, 43), (1.5, 30, 100)])
def test_ninety_five_per_cent_of_the_intervals_cover_the_true_area(shift, n_f, n_h):
    from scipy.stats import norm

    rng, truth, repeats = np.random.default_rng(5), norm.cdf(shift / np.sqrt(2)), 500
    covered = 0
    for _ in range(repeats):
        low, high = rank(rng.normal(shift, 1, n_f), rng.normal(0, 1, n_h), one_class(n_f, n_h)).interval()
        covered += low <= truth <= high
    assert 0.925 <= covered / repeats <= 0.98


def test_the_interval_covers_with_ten_classes_of_which_some_have_one_forgotten_sample():
    rng, covered, repeats = np.random.default_rng(6), 0, 400
    heldout = np.repeat(np.arange(10), 20)
    for _ in range(repeats):
        classes = Classes(rng.integers(0, 10, 40), heldout)
        found = rank(rng.normal(0, 1, 40), rng.normal(0, 1, 200), classes)
        low, high = found.interval()
        covered += low <= 0.5 <= high
    assert 0.925 <= covered / repeats <= 0.98


def test_perfect_separation_has_an_end_below_one_that_holds():
    found = rank(np.ones(10), np.zeros(20), one_class(10, 20))
    assert found.interval() == (pytest.approx(0.025 ** (1 / 10)), 1.0)
    worst = rank(np.zeros(10), np.ones(20), one_class(10, 20))
    assert worst.interval() == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))


def test_paired_differences_cover_zero_and_vanish_for_the_same_scores():
    rng, missed, repeats = np.random.default_rng(7), 0, 500
    classes = one_class(44, 43)
    for _ in range(repeats):
        both = rng.normal(0, 1, 87)
        one, other = (both + rng.normal(0, 1, 87) for _ in range(2))
        first, second = (rank(own[:44], own[44:], classes) for own in (one, other))
        _, low, high, p = first.minus(second)
        missed += not low <= 0 <= high
        assert first.minus(first) == (0.0, 0.0, 0.0, 0.5)
        assert (p < 0.025) == (low > 0)
    assert 0.03 <= missed / repeats <= 0.08


def test_a_class_without_held_out_samples_is_refused():
    with pytest.raises(InputError, match="got none of \\[1\\]"):
        Classes(np.array([0, 1]), np.array([0]))
