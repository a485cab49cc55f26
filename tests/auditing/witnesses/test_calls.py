import numpy as np
import pytest
from scipy.stats import ttest_ind

from residuum.auditing.witnesses.calls import call


def test_one_value_is_students_test_of_one_more_innocent():
    rng = np.random.default_rng(0)
    innocents, value = rng.normal(0, 1, 7), 1.3
    wanted = ttest_ind([value], innocents, alternative="greater").pvalue  # with one value the pooled variance is theirs
    assert call([value], list(innocents)).p == pytest.approx(wanted, rel=1e-9)


def test_rows_like_the_innocents_are_called_in_five_per_cent():
    rng, repeats = np.random.default_rng(1), 4000
    found = sum(bool(call(list(rng.normal(0, 1, 3)), list(rng.normal(0, 1, 6))).found) for _ in range(repeats))
    assert 0.04 <= found / repeats <= 0.06


def test_what_cannot_be_judged_is_not():
    assert call([0.7, None], [0.5, 0.5, 0.6]).found is None
    assert call([0.7], [0.5, None, 0.6]).p is None
    assert call([0.7], []).floor is None
    assert call([0.7], [0.5, 0.5, 0.5]).found is True
    assert call([0.7], [0.5, 0.5, 0.5], least=0.2).found is False
