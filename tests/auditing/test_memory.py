"""Held-out samples, class knowledge and memory."""

import numpy as np
import pytest
import torch

from residuum.auditing import audit
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.memory import measure_memory
from residuum.core.errors import InputError
from residuum.core.samples import Samples

CURVES = ("class_knowledge", "memory", "memory_difference")


@pytest.fixture
def random_counts(counts_of, drawn):
    def make(seed, n, draws=20, classes=1, prefix="s", T=3):
        rng = np.random.default_rng(seed)
        return counts_of(drawn(rng, rng.uniform(0.2, 0.95, (n, 3)), draws, T), np.arange(n) % classes, prefix)

    return make


def values(found, name, end="value"):
    return np.array(found[name][end], dtype=float)


def test_with_itself_as_twin_nothing_is_memory(random_counts):  # A1
    forgotten = random_counts(1, 40, classes=3)
    found = measure_memory(forgotten, forgotten)
    assert np.allclose(values(found, "memory"), 1, rtol=1e-14)
    assert np.allclose(values(found, "memory_difference"), 0, atol=1e-15)


def test_the_reference_itself_knows_and_remembers_nothing_more(counts_of):  # A2
    same = np.zeros((40, 3, 8), int)
    same[..., [0, 3]] = np.random.default_rng(2).multinomial(20, [0.3, 0.7], (40, 3))
    found = measure_memory(counts_of(same[:20]), counts_of(same[20:], prefix="h"))
    assert values(found, "class_knowledge").tolist() == values(found, "memory").tolist() == [1.0] * 3
    assert values(found, "memory_difference").tolist() == [0.0] * 3


def test_exchanging_model_and_reference_inverts_memory(random_counts):  # A3
    forgotten, heldout = random_counts(3, 40, classes=2), random_counts(4, 50, classes=2, prefix="h")
    one, other = measure_memory(forgotten, heldout), measure_memory(forgotten.swapped(), heldout.swapped())
    for name in ("class_knowledge", "memory"):
        assert np.allclose(values(one, name) * values(other, name), 1)
    for ends in (("low", "high"), ("sample_low", "sample_high")):
        assert np.allclose(values(one, "memory", ends[0]) * values(other, "memory", ends[1]), 1)


def test_numbers_agree_with_a_slow_loop(random_counts):
    forgotten, heldout = random_counts(5, 37, classes=3), random_counts(6, 61, classes=3, prefix="h")
    found, z = measure_memory(forgotten, heldout), 1.959963984540054
    n = len(forgotten)
    weight = {}
    for label in range(3):
        weight[label] = sum(forgotten.labels == label) / n / sum(heldout.labels == label)
    for t in range(3):
        sides = {}
        for name, counts, weights in (
            ("F", forgotten, [1 / n] * n),
            ("H", heldout, [weight[label] for label in heldout.labels]),
        ):
            p_m = [counts.method_right[i, t] / counts.draws[i, t] for i in range(len(counts))]
            p_a = [counts.reference_right[i, t] / counts.draws[i, t] for i in range(len(counts))]
            right = sum(w * p for w, p in zip(weights, p_m, strict=True))
            expected = sum(w * p for w, p in zip(weights, p_a, strict=True))
            variance = 0.0
            for i, w in enumerate(weights):
                both, m, a = counts.both_right[i, t], counts.method_right[i, t], counts.reference_right[i, t]
                cells = np.array([both, m - both, a - both, counts.draws[i, t] - m - a + both]) + 0.05
                events = np.array([1 - right / expected, 1, -right / expected, 0])
                share = cells / cells.sum()
                v = share @ events**2 - (share @ events) ** 2
                variance += w**2 * v * cells.sum() / (cells.sum() - 1) / counts.draws[i, t]
            sides[name] = np.array(p_m), np.array(p_a), right, expected, variance
        p_m, p_a, right, expected, variance = sides["F"]
        h_m, h_a, h_right, h_expected, h_variance = sides["H"]
        G, M = h_right / h_expected, right / expected / (h_right / h_expected)
        s = np.sqrt(variance / right**2 + h_variance / h_right**2)
        within, adjusted = 0.0, np.zeros(n)
        for label in range(3):
            e = (h_m - G * h_a)[heldout.labels == label]
            share = sum(forgotten.labels == label) / n
            within += share**2 * e.var(ddof=1) / len(e)
            own = forgotten.labels == label
            adjusted[own] = (p_m - right / expected * p_a)[own] / right - e.mean() / h_right
        s_samples = np.sqrt(adjusted.var(ddof=1) / n + within / h_right**2)
        assert found["heldout"]["rate"][t] == pytest.approx(h_right, rel=1e-12)
        assert found["heldout"]["reference_rate"][t] == pytest.approx(h_expected, rel=1e-12)
        assert found["class_knowledge"]["value"][t] == pytest.approx(G, rel=1e-12)
        assert found["class_knowledge"]["high"][t] == pytest.approx(G * np.exp(z * np.sqrt(h_variance) / h_right))
        assert found["memory"]["value"][t] == pytest.approx(M, rel=1e-12)
        assert found["memory"]["low"][t] == pytest.approx(M * np.exp(-z * s), rel=1e-12)
        assert found["memory"]["sample_high"][t] == pytest.approx(M * np.exp(z * s_samples), rel=1e-12)
        difference = (right - expected) - (h_right - h_expected)
        assert found["memory_difference"]["value"][t] == pytest.approx(difference, rel=1e-9)


def test_order_of_samples_does_not_matter(random_counts):
    forgotten, heldout = random_counts(7, 30, classes=2), random_counts(8, 40, classes=2, prefix="h")
    shuffled = [counts.subset(counts.ids[::-1]) for counts in (forgotten, heldout)]
    assert measure_memory(*shuffled) == measure_memory(forgotten, heldout)


def test_classes_with_few_held_out_samples_leave_both_sets(random_counts):
    forgotten, heldout = random_counts(9, 30, classes=3), random_counts(10, 40, classes=4, prefix="h")
    few = heldout.rows(np.flatnonzero((heldout.labels != 2) | (np.arange(40) < 20)))
    found = measure_memory(forgotten, few)
    assert found["heldout"]["left_out"] == ["2"]
    assert "1 of the forgotten classes have fewer than 10" in found["heldout"]["notes"][0]
    assert found["heldout"]["samples"] == 20  # class 3 was not forgotten
    kept = forgotten.rows(np.flatnonzero(forgotten.labels < 2))
    assert found["memory"] == measure_memory(kept, few)["memory"]
    shares = found["heldout"]["forgotten"]
    assert shares["samples"] == len(kept)
    for side, right in (("rate", kept.method_right), ("reference_rate", kept.reference_right)):
        assert shares[side] == pytest.approx((right / kept.draws).mean(0))
    assert "forgotten" not in measure_memory(kept, few)["heldout"]
    assert found["memory"]["sample_low"] == [None] * 3
    assert "fewer than 30" in found["heldout"]["notes"][1]


def test_with_too_few_held_out_samples_there_is_only_a_note(random_counts):
    forgotten = random_counts(11, 30)
    found = measure_memory(forgotten, random_counts(12, 9, prefix="h"))
    assert set(found) == {"heldout"}
    assert found["heldout"]["samples"] == 0
    assert "no forgotten class has 10" in found["heldout"]["notes"][0]


def test_a_reference_that_is_never_right_leaves_the_differences(counts_of):
    table = np.zeros((40, 2, 8), int)
    table[..., 2], table[..., 0] = 7, 3
    never = counts_of(table)
    found = measure_memory(never, counts_of(table, prefix="h"))
    assert found["memory"]["value"] == found["class_knowledge"]["value"] == [None, None]
    assert found["memory_difference"]["value"] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert found["memory_difference"]["low"][0] < 0 < found["memory_difference"]["high"][0]
    assert "never right" in found["heldout"]["notes"][-1]


def test_a_model_that_is_never_right_on_forgotten_samples_has_memory_zero(counts_of, random_counts):
    wrong = np.zeros((40, 1, 8), int)
    wrong[..., 1], wrong[..., 0] = 7, 3
    found = measure_memory(counts_of(wrong), random_counts(13, 40, prefix="h", T=1))
    assert (found["memory"]["value"], found["memory"]["low"]) == ([0.0], [0.0])
    assert 0 < found["memory"]["high"][0] < 0.1
    assert found["memory"]["sample_low"] == [None]


def test_radius_zero_and_enumerated_attacks_have_no_interval_over_draws(random_counts):
    found = measure_memory(random_counts(14, 40), random_counts(15, 40, prefix="h"), exact=True)
    for name in CURVES:
        assert found[name]["low"] == found[name]["value"] == found[name]["high"]
        assert (values(found, name, "sample_low") < values(found, name)).all()


def samples(labels, prefix):
    return Samples(
        torch.rand(len(labels), 2), torch.tensor(labels), tuple(f"{prefix}/{i:04d}" for i in range(len(labels)))
    )


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")  # of five draws by a random network
def test_held_out_samples_have_the_forgotten_mix_and_are_the_first_by_id():
    pool = samples([i % 3 for i in range(900)], "test")
    forgotten = samples([0] * 60 + [1] * 20, "train")
    chosen = choose_heldout(pool.subset(np.random.default_rng(0).permutation(900)), forgotten)
    assert chosen.y.bincount().tolist() == [120, 40]
    assert sorted(chosen.ids) == sorted(
        [*(f"test/{i:04d}" for i in range(0, 360, 3)), *(f"test/{i:04d}" for i in range(1, 120, 3))]
    )
    small = choose_heldout(pool, samples([0] * 5 + [1], "train"))
    assert small.y.bincount().tolist() == [84, 17]  # 100 in all, rounded up
    many = choose_heldout(samples([0] * 3000, "test"), samples([0] * 2000, "train"))
    assert len(many) == 1000
    model = torch.nn.Linear(2, 3).eval()
    for heldout, said in ((pool, 600), (chosen, None)):
        result = audit({"m": model}, model, forgotten, "gaussian", taus=[0.1], draws=5, seed=1, heldout=heldout)
        assert result.settings.get("heldout_chosen_from") == said


def test_held_out_samples_may_not_be_forgotten_ones():
    with pytest.raises(InputError, match="not forgotten, got 'train/0000' in both"):
        choose_heldout(samples([0] * 20, "train"), samples([0] * 3, "train"))
