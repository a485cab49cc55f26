import json
import math

import numpy as np
import pytest

from residuum.auditing import Counts, measure
from residuum.auditing.measures import pooled_ratio
from residuum.core.errors import InputError

rng = np.random.default_rng(2)


def random_counts(n=12, taus=(0.0, 0.1, 0.2), draws=40):
    cells = np.stack([rng.multinomial(draws, rng.dirichlet(np.ones(5)), size=n) for _ in taus], axis=1)
    both, m, a, same, _ = np.moveaxis(cells, -1, 0)
    return Counts.of(
        [f"x/{i}" for i in rng.permutation(n)],
        np.zeros(n),
        taus,
        draws=cells.sum(-1),
        method_right=both + m,
        reference_right=both + a,
        both_right=both,
        same_prediction=both + same,
    )


def one_radius(method, reference, both, draws, same=None, tau=0.1):
    columns = {"draws": draws, "method_right": method, "reference_right": reference, "both_right": both}
    columns["same_prediction"] = same or both
    ids = [f"{i}" for i in range(len(method))]
    return Counts.of(ids, [0] * len(ids), [tau], **{name: [[v] for v in column] for name, column in columns.items()})


def test_values_agree_with_a_slow_loop():
    counts = random_counts()
    found = measure(counts, bootstrap_seed=0)
    for t in range(3):
        ratios, smoothed, more = [], [], 0
        p_m = p_a = wrong = differ = infinite = undefined = 0
        for i in range(len(counts)):
            n, k_m, k_a = (int(x[i, t]) for x in (counts.draws, counts.method_right, counts.reference_right))
            p_m, p_a = p_m + k_m / n, p_a + k_a / n
            wrong += (n - k_m) / n
            differ += (n - int(counts.same_prediction[i, t])) / n
            more += k_m > k_a
            smoothed.append((k_m + 0.5) / (k_a + 0.5))
            if k_a:
                ratios.append(k_m / k_a)
            elif k_m:
                infinite += 1
            else:
                undefined += 1
        size = len(counts)
        knowledge = found["residual_knowledge"]
        assert knowledge["pooled"][t] == pytest.approx(p_m / p_a)
        assert knowledge["mean_of_ratios"][t] == pytest.approx(np.mean(ratios))
        assert knowledge["smoothed"][t] == pytest.approx(np.mean(smoothed))
        assert (knowledge["infinite"][t], knowledge["undefined"][t]) == (infinite, undefined)
        assert found["difference"]["value"][t] == pytest.approx((p_m - p_a) / size)
        assert found["disagreement"]["value"][t] == pytest.approx(differ / size)
        assert found["unlearn_accuracy"]["value"][t] == pytest.approx(wrong / size)
        assert found["prevalence"]["value"][t] == pytest.approx(more / size)


def test_identities_of_pooled_ratio_and_disagreement():  # T14
    counts = random_counts()
    found, reverse = measure(counts, bootstrap_seed=0), measure(counts.swapped(), bootstrap_seed=0)
    for t in range(3):
        ua_m, ua_a = found["unlearn_accuracy"]["value"][t], reverse["unlearn_accuracy"]["value"][t]
        assert found["residual_knowledge"]["pooled"][t] == pytest.approx((1 - ua_m) / (1 - ua_a))
        assert abs(ua_m - ua_a) <= found["disagreement"]["value"][t] + 1e-12
        assert found["disagreement"]["value"][t] <= ua_m + ua_a + 1e-12


def test_a_model_against_itself():  # T14
    right = [10, 3, 0]
    same = one_radius(right, right, right, [10] * 3, same=[10] * 3)
    found = measure(same, bootstrap_seed=0)
    assert found["residual_knowledge"]["pooled"] == [1.0]
    assert found["residual_knowledge"]["mean_of_ratios"] == [1.0]
    assert found["disagreement"]["value"] == [0.0]
    assert found["prevalence"]["value"] == found["prevalence_significant"] == [0.0]


def test_swapping_gives_the_reciprocal_ratio_and_interval():
    counts = random_counts(taus=(0.1, 0.2))
    r, low, high = pooled_ratio(counts)
    back, back_low, back_high = pooled_ratio(counts.swapped())
    assert np.allclose(r * back, 1)
    assert np.allclose(low * back_high, 1)
    assert np.allclose(high * back_low, 1)


def test_radius_zero_and_enumerated_attacks_are_exact():
    counts = random_counts()
    for exact, certain in ((False, [0]), (True, [0, 1, 2])):
        found = measure(counts, bootstrap_seed=0, exact=exact)
        for t in range(3):
            entry = found["residual_knowledge"]
            assert (entry["low"][t] == entry["pooled"][t] == entry["high"][t]) is (t in certain)
            for name in ("difference", "disagreement", "unlearn_accuracy"):
                assert (found[name]["low"][t] == found[name]["high"][t]) is (t in certain)
    significant = measure(counts, bootstrap_seed=0, exact=True)["prevalence_significant"]
    assert significant[0] is None
    assert significant[1:] == found["prevalence"]["value"][1:]
    assert measure(counts, bootstrap_seed=0)["prevalence_significant"][0] is None


def test_class_form_where_the_reference_is_never_right():
    found = measure(one_radius([5, 0], [0, 0], [0, 0], [10, 10]), bootstrap_seed=0)
    knowledge = found["residual_knowledge"]
    for name in ("pooled", "low", "high", "bootstrap_low", "bootstrap_high", "mean_of_ratios"):
        assert knowledge[name] == [None]
    assert (knowledge["infinite"], knowledge["undefined"]) == ([1], [1])
    assert knowledge["smoothed"] == [pytest.approx((11 + 1) / 2)]
    assert found["difference"]["value"] == [0.25]
    assert found["prevalence"]["value"] == [0.5]
    assert found["prevalence_defined"] == [None]


def test_a_model_that_is_never_right_has_ratio_zero_and_an_upper_end():
    knowledge = measure(one_radius([0, 0], [9, 5], [0, 0], [10, 10]), bootstrap_seed=0)["residual_knowledge"]
    assert knowledge["pooled"] == knowledge["low"] == [0.0]
    assert 0 < knowledge["high"][0] < 0.2


def test_significant_samples_need_evidence():
    clear = one_radius([90, 52], [50, 50], [50, 45], [100, 100])
    found = measure(clear, bootstrap_seed=0)
    assert found["prevalence"]["value"] == [1.0]
    assert found["prevalence_significant"] == [0.5]


def test_defined_prevalence_leaves_out_samples_the_reference_never_knows():
    found = measure(one_radius([5, 5, 1], [0, 4, 4], [0, 4, 1], [10] * 3), bootstrap_seed=0)
    assert found["prevalence"]["value"] == [pytest.approx(2 / 3)]
    assert found["prevalence_defined"] == [0.5]


def test_every_sample_weighs_the_same_whatever_its_draws():
    counts = one_radius([10, 1], [10, 2], [10, 1], [10, 4])
    assert measure(counts, bootstrap_seed=0)["residual_knowledge"]["pooled"] == [pytest.approx(1.25 / 1.5)]
    assert measure(counts, bootstrap_seed=0)["draws"] == [4]


def test_the_order_of_the_samples_does_not_matter():
    counts = random_counts()
    shuffled = counts.subset(list(rng.permutation(counts.ids)))
    assert measure(counts, bootstrap_seed=4) == measure(shuffled, bootstrap_seed=4)


def test_measures_are_json_without_nan():
    found = measure(one_radius([5, 0], [0, 0], [0, 0], [10, 10]), bootstrap_seed=0)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    keys = [
        "taus",
        "draws",
        "samples",
        "residual_knowledge",
        "difference",
        "disagreement",
        "unlearn_accuracy",
        "prevalence",
    ]
    assert list(found) == [*keys, "prevalence_defined", "prevalence_significant"]


def test_more_confidence_gives_wider_intervals():
    counts = random_counts()
    narrow, wide = (measure(counts, confidence=level, bootstrap_seed=0) for level in (0.8, 0.99))
    for name in ("residual_knowledge", "difference", "disagreement", "unlearn_accuracy", "prevalence"):
        for t in (1, 2):
            assert wide[name]["low"][t] < narrow[name]["low"][t] < narrow[name]["high"][t] < wide[name]["high"][t]


def test_what_cannot_be_measured_is_refused():
    counts = random_counts()
    with pytest.raises(InputError, match="confidence"):
        measure(counts, confidence=95, bootstrap_seed=0)
    with pytest.raises(InputError, match="at least one sample"):
        measure(one_radius([0], [0], [0], [0]), bootstrap_seed=0)


def test_a_known_interval_by_hand():
    counts = one_radius([60], [50], [40], [100])
    q = np.array([40.05, 20.05, 10.05, 30.05]) / 100.2
    values = np.array([1 - 1.2, 1, -1.2, 0])
    v = (q @ values**2 - (q @ values) ** 2) * 100.2 / 99.2
    half = 1.959964 * math.sqrt(v / 100) / 0.5 / 1.2
    _, low, high = pooled_ratio(counts)
    assert low[0] == pytest.approx(1.2 * math.exp(-half), rel=1e-6)
    assert high[0] == pytest.approx(1.2 * math.exp(half), rel=1e-6)
