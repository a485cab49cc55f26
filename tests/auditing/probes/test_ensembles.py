"""A16-A21: comparisons of many models."""

from itertools import combinations

import numpy as np
import pytest
import torch

from residuum.auditing.probes import Evidence, KLoM, ULiRA
from residuum.auditing.probes.klom import klom, klom_of_chance, refuse_few
from residuum.auditing.probes.rmia import log_relative
from residuum.auditing.probes.ulira import fit, u_lira
from residuum.auditing.statistics import Classes, clustered_auc, rank, true_positive_rate
from residuum.core.errors import InputError
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits


def slow_klom(p, q):
    p, q = np.clip(p, -100, 100), np.clip(q, -100, 100)
    low, high = min(p.min(), q.min()), max(p.max(), q.max())
    if low == high:
        return 0.0
    place = [[min(int((v - low) / (high - low) * 20), 19) for v in part] for part in (p, q)]
    total = 0.0
    for b in range(20):
        own, other = (part.count(b) / len(part) for part in place)
        total += own * np.log(own / max(other, 1e-5)) if own else 0.0
    return total


def test_a16_klom_is_that_of_a_slow_loop_0_for_equal_models_and_large_for_disjoint_ones():
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 1, (60, 9)), rng.normal(0.7, 2, (80, 9))
    assert klom(p, q) == pytest.approx([slow_klom(a, b) for a, b in zip(p.T, q.T, strict=True)], abs=1e-12)
    assert (klom(p, p) == 0).all()
    assert (klom(np.ones((60, 2)), np.ones((70, 2))) == 0).all()
    assert (klom(p, p + 80) > 10).all()


@pytest.mark.parametrize(("models", "published"), [(20, 3.0), (50, 0.91), (100, 0.36), (200, 0.15)])
def test_the_closed_form_is_the_mean_of_klom_where_both_kinds_have_one_law(models, published):
    p, q = np.random.default_rng(1).normal(0, 1, (2, models, 4000))
    assert klom_of_chance(p, q).mean() == pytest.approx(published, rel=0.05)
    assert klom_of_chance(p, q).mean() == pytest.approx(klom(p, q).mean(), rel=0.02)


def test_the_closed_form_is_the_mean_over_all_ways_to_choose_the_unlearned_models():
    models = np.random.default_rng(2).gamma(1, 1, (7, 3)).round(1)
    chosen = [np.isin(np.arange(7), rows) for rows in combinations(range(7), 3)]
    every = np.mean([klom(models[rows], models[~rows]) for rows in chosen], axis=0)
    assert klom_of_chance(models[:3], models[3:]) == pytest.approx(every, abs=1e-12)


def test_few_models_are_refused():
    assert refuse_few(50, 50) is None
    assert "got 3 and 100" in refuse_few(3, 100)


def test_a17_relabeled_innocents_have_one_half_within_their_interval_and_shifted_ones_have_not():
    rng = np.random.default_rng(2)
    base, covered, repeats = rng.normal(3, 2, 30), 0, 60
    for _ in range(repeats):
        models = base + rng.normal(0, 1, (24, 1)) + rng.normal(0, 1, (24, 30))
        phi = models[:12], models[12:]
        fitted = fit(phi[0][:6], phi[1][:6])
        _, low, high = clustered_auc(fitted.score(phi[0][6:]), fitted.score(phi[1][6:]))
        covered += low <= 0.5 <= high
    assert covered / repeats >= 0.87
    shifted = base + 1.0 + rng.normal(0, 1, (16, 30))
    found = u_lira(shifted, base + rng.normal(0, 1, (16, 30)), seed=1)
    assert found.low > 0.5
    assert found.p <= 0.01
    assert found.tpr is not None


@pytest.mark.parametrize(("probe", "models"), [(ULiRA(), 16), (KLoM(), 50)], ids=["ulira", "klom"])
def test_models_that_differ_everywhere_are_not_said_to_remember(probe, models):
    rng = np.random.default_rng(10)
    kinds = {"retrain": (0, 0), "remembering": (2, 0), "less sure": (-2, -2)}  # shifts on forgotten, held-out samples
    margins = {
        (label, str(seed)): {
            part: rng.normal(3 + shifts[part != "forget"], 1, 20)
            for part in ("forget", "heldout", "retain", "validation")
        }
        for label, shifts in kinds.items()
        for seed in range(models)
    }
    forget, heldout = (
        Samples(torch.zeros(20, 1), torch.zeros(20, dtype=torch.int64), tuple(f"{name}{i}" for i in range(20)))
        for name in "fh"
    )
    splits = Splits(forget, forget, forget, forget, heldout, heldout, ("a",))
    roles = dict.fromkeys(kinds, Role.METHOD) | {"retrain": Role.REFERENCE}
    rows = probe.measure(Evidence(splits, 1, roles, margins=margins))
    assert max(rows["remembering"].p, rows["less sure"].p) <= 0.01
    assert rows["remembering"].more
    assert not rows["less sure"].more


def test_u_lira_says_beside_its_value_what_held_out_samples_show():
    rng = np.random.default_rng(11)
    own, innocent = rng.normal(1, 1, (16, 20)), rng.normal(3, 1, (16, 20))
    assert ULiRA().of_heldout(own, innocent) > 0.8
    assert ULiRA().of_heldout(innocent[::2], innocent[1::2]) == pytest.approx(0.5, abs=0.1)
    assert ULiRA().of_heldout(np.empty((0, 0)), innocent) is None


def test_permuting_models_keeps_its_level():
    rng, repeats = np.random.default_rng(3), 100
    base = rng.normal(0, 1, 20)
    below = 0
    for k in range(repeats):
        models = base + rng.normal(0, 1, (16, 1)) + rng.normal(0, 1, (16, 20))
        below += u_lira(models[:8], models[8:], seed=k, permutations=99).p <= 0.1
    assert 0.03 <= below / repeats <= 0.19


def test_the_clustered_area_is_that_of_all_pairs_and_the_rate_is_at_most_the_limit():
    rng = np.random.default_rng(5)
    one, other = rng.integers(0, 5, (3, 4)).astype(float), rng.integers(0, 5, (2, 6)).astype(float)
    pairs = [(a > b) + (a == b) / 2 for a in one.ravel() for b in other.ravel()]
    assert clustered_auc(one, other)[0] == pytest.approx(np.mean(pairs), abs=1e-12)
    line = np.arange(200.0)
    assert true_positive_rate(np.array([196.5, 197.5, 198.5]), line) == pytest.approx(
        2 / 3
    )  # 198 and 199 lie above: 1 %


def test_with_64_models_every_sample_has_variances_of_its_own():
    rng = np.random.default_rng(6)
    wide, narrow = rng.normal(0, 3, (64, 2)), rng.normal(0, 1, (64, 2))
    assert (fit(wide, narrow).variances[0] > 4 * fit(wide, narrow).variances[1]).all()
    shared = fit(wide[:63], narrow).variances
    assert np.array_equal(*shared)
    assert len(set(shared[0])) == 1
    with pytest.raises(InputError, match="at least 8 models of each kind, got 7 and 64"):
        u_lira(wide[:7], narrow, seed=0)


def test_a19_the_score_ranks_as_the_relative_probability():
    rng = np.random.default_rng(7)
    innocent, margins = rng.normal(2, 1, (4, 80)), rng.normal(2.5, 1.5, 80)
    log_q = log_relative(margins, innocent)
    p, known = 1 / (1 + np.exp(-margins)), (1 / (1 + np.exp(-innocent))).mean(0)
    assert np.exp(log_q) == pytest.approx(p / (0.65 * known + 0.35), rel=1e-12)
    population = log_relative(rng.normal(2, 1.5, 2000), np.tile(innocent, (1, 25)))
    score = (np.exp(log_q)[:, None] / np.exp(population) > 1).mean(1)  # as published, with gamma = 1
    classes = Classes(np.zeros(40, int), np.zeros(40, int))
    areas = [rank(values[:40], values[40:], classes).auc for values in (score, log_q)]
    assert areas[0] == pytest.approx(areas[1], abs=0.01)


def test_a20_intervals_cover_one_half_where_both_sets_have_one_law():
    rng, classes, covered, repeats = np.random.default_rng(8), Classes(np.zeros(44, int), np.zeros(43, int)), 0, 500
    for _ in range(repeats):
        log_q = log_relative(rng.normal(2, 2, 87), rng.normal(2, 2, (3, 87)))
        low, high = rank(log_q[:44], log_q[44:], classes).interval()
        covered += low <= 0.5 <= high
    assert 0.925 <= covered / repeats <= 0.975


def test_a21_unknown_samples_stay_finite_and_no_reference_is_refused():
    assert np.isfinite(log_relative(np.array([5.0]), np.array([[-800.0]]))).all()
    with pytest.raises(InputError, match="at least one retrained model"):
        log_relative(np.zeros(2), np.zeros((0, 2)))
    with pytest.raises(InputError, match="c < 1"):
        log_relative(np.zeros(2), np.zeros((1, 2)), c=1.0)


@pytest.mark.parametrize(("unlearned", "innocent"), [(4, 20), (4, 50), (4, 4)])
def test_the_interval_covers_one_half_with_few_models_beside_many(unlearned, innocent):
    rng, trials, covered = np.random.default_rng(0), 1500, 0
    for _ in range(trials):  # models of one law: each has a shift of its own on top of the samples' noise
        one, other = (rng.normal(0, 1, (k, 1)) + rng.normal(0, 1, (k, 15)) for k in (unlearned, innocent))
        _, low, high = clustered_auc(one, other)
        covered += low <= 0.5 <= high
    assert covered / trials >= 0.945


def test_klom_permutes_which_models_are_unlearned():
    rng = np.random.default_rng(0)
    own, innocent = rng.normal(0.3, 1, (50, 6)), rng.normal(0, 1, (50, 6))
    models, order = np.concatenate([own, innocent]), np.random.default_rng(4)
    mixed = (models[order.permutation(100)] for _ in range(99))
    larger = sum(klom(part[:50], part[50:]).mean() >= klom(own, innocent).mean() for part in mixed)
    assert KLoM().permutation_p(own, innocent, np.random.default_rng(4)) == (1 + larger) / 100
