import numpy as np
import pytest
from scipy.stats import ttest_ind

from residuum.auditing.statistics import compare_with_retrained


def test_one_value_is_students_test_of_one_more_retrained_model():
    rng = np.random.default_rng(0)
    retrained, value = rng.normal(0, 1, 7), 1.3
    wanted = ttest_ind([value], retrained, alternative="greater").pvalue  # with one value the pooled variance is theirs
    assert compare_with_retrained([value], list(retrained)).p == pytest.approx(wanted, rel=1e-9)


def test_rows_like_retrained_models_are_found_in_five_per_cent():
    rng, repeats = np.random.default_rng(1), 4000
    found = sum(
        bool(compare_with_retrained(list(rng.normal(0, 1, 3)), list(rng.normal(0, 1, 6))).more) for _ in range(repeats)
    )
    assert 0.04 <= found / repeats <= 0.06


def test_what_cannot_be_judged_is_not():
    assert compare_with_retrained([0.7, None], [0.5, 0.5, 0.6]).more is None
    assert compare_with_retrained([0.7], [0.5, None, 0.6]).p is None
    assert compare_with_retrained([0.7], []).floor is None
    assert compare_with_retrained([0.7], [0.5, 0.5, 0.5]).more is True
    assert compare_with_retrained([0.7], [0.5, 0.5, 0.5], least=0.2).more is False
