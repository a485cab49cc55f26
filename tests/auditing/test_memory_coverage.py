"""Nominal 95 % intervals of class knowledge, memory and completeness cover the truth as often as they say.

Experiments are columns: each is a radius of one table of counts. Where the interval is over samples, every study
has samples of its own.
"""

import numpy as np
import pytest

from residuum.auditing.memory import completeness, measure_memory, relative_distance_test

REPEATS = 2000
EASE = np.array([[0.55, 0.42], [0.5, 0.45], [0.45, 0.4]])  # of original, model, reference: p = first + second * ease
APART = np.array([[0.57, 0.42], [0.5, 0.45], [0.3, 0.4]])


def chances(rng, size, base):
    """Return chances to be right of samples whose ease is uniform; `base` (3, 2), or one for each sample."""
    p = base[..., 0] + base[..., 1] * rng.random((*size, 1)) + rng.uniform(-0.04, 0.04, (*size, 3))
    return p.clip(0, 1)


def means(base):
    """Return the mean chances, over classes too where `base` has several."""
    return (base[..., 0] + base[..., 1] / 2).reshape(-1, 3).mean(0)


def covered(found, truth, low="low", high="high"):
    low, high = (np.array(found[end], dtype=float) for end in (low, high))
    assert not np.isnan(low).any()
    return np.mean((low <= truth) & (truth <= high))


def truths(p_forgotten, p_heldout):
    """Return class knowledge, memory and the difference of differences of mean shares (original, model, reference)."""
    (_, m, a), (_, h_m, h_a) = p_forgotten, p_heldout
    return {"class_knowledge": h_m / h_a, "memory": m / a / (h_m / h_a), "memory_difference": (m - a) - (h_m - h_a)}


def over_draws(counts_of, drawn, seed, n, n_heldout, draws, classes=1):
    rng = np.random.default_rng(seed)
    p, held = chances(rng, (n,), EASE), chances(rng, (n_heldout,), EASE - [0.05, 0])
    labels, held_labels = np.arange(n) % classes, np.arange(n_heldout) // 2 % (2 * classes) % classes
    held_labels[: n_heldout // 3] = 0
    weights = sum((held_labels == c) * np.mean(labels == c) / np.mean(held_labels == c) for c in range(classes))
    found = measure_memory(
        counts_of(drawn(rng, p, draws, REPEATS), labels), counts_of(drawn(rng, held, draws, REPEATS), held_labels, "h")
    )
    truth = truths(p.mean(0), weights @ held / n_heldout)
    return {name: covered(found[name], value) for name, value in truth.items()}


def over_samples(counts_of, drawn, seed, n, n_heldout, draws):
    rng = np.random.default_rng(seed)
    bases = EASE, EASE - [[0.05, 0], [0.08, 0], [0.05, 0]]
    tables = [
        drawn(rng, chances(rng, (size, REPEATS), base), draws, REPEATS)
        for size, base in zip((n, n_heldout), bases, strict=True)
    ]
    found = measure_memory(counts_of(tables[0]), counts_of(tables[1], prefix="h"))
    truth = truths(*map(means, bases))
    return {name: covered(found[name], value, "sample_low", "sample_high") for name, value in truth.items()}


def over_samples_of_random_classes(counts_of, drawn, seed, n, n_heldout, draws, classes=4):
    """The class mix is drawn too, and the classes differ in what the models know of them."""
    rng = np.random.default_rng(seed)
    slope = np.linspace(0, 1, classes)[:, None, None] * [[-0.1, 0], [0.05, 0], [-0.3, 0]]
    of_class, shift = EASE + slope, np.array([[0.03, 0], [0.03, 0], [0.0, 0]])
    held_labels, hits = np.arange(n_heldout) % classes, dict.fromkeys(("memory", "memory_difference"), 0)
    # the truth has every class equally often, as the population that the forgotten samples are drawn from
    truth = truths(means(of_class + shift), means(of_class))
    for _ in range(REPEATS):
        labels = rng.integers(classes, size=n)
        tables = [
            drawn(rng, chances(rng, own.shape, base[own]), draws, 1)
            for base, own in ((of_class + shift, labels), (of_class, held_labels))
        ]
        found = measure_memory(counts_of(tables[0], labels), counts_of(tables[1], held_labels, "h"))
        for name in hits:
            hits[name] += covered(found[name], truth[name], "sample_low", "sample_high")
    return {name: hit / REPEATS for name, hit in hits.items()}


def completeness_over_samples(counts_of, drawn, seed, n, draws):
    """Where the interval is bounded: elsewhere there is none."""
    rng = np.random.default_rng(seed)
    found = completeness(counts_of(drawn(rng, chances(rng, (n, REPEATS), APART), draws, REPEATS)))
    o, m, a = means(APART)
    low, high = (np.array(found[end], dtype=float) for end in ("low", "high"))
    bounded = ~np.isnan(low)
    assert bounded.mean() > 0.9
    return {"completeness": np.mean((low <= (o - m) / (o - a)) & ((o - m) / (o - a) <= high), where=bounded)}


def completeness_over_draws(counts_of, drawn, seed, n, draws):
    rng = np.random.default_rng(seed)
    p = chances(rng, (n,), EASE)
    o, m, a = p.mean(0)
    found = completeness(counts_of(drawn(rng, p, draws, REPEATS)))
    return {"completeness": covered(found, (o - m) / (o - a), "draw_low", "draw_high")}


QUICK = [
    (over_draws, 1, 44, 44, 100),
    (over_draws, 3, 60, 90, 20, 3),
    (over_samples, 4, 44, 30, 1),
    (over_samples, 5, 44, 44, 20),
    (completeness_over_samples, 1, 44, 20),
    (completeness_over_draws, 1, 44, 20),
]
FULL = [
    (over_draws, 2, 44, 30, 10),
    (over_draws, 9, 200, 200, 10, 5),
    (over_samples, 6, 200, 100, 100),
    (over_samples, 7, 100, 30, 1),
    (over_samples_of_random_classes, 8, 45, 100, 100),
    (over_samples_of_random_classes, 8, 100, 100, 1),
    (completeness_over_samples, 1, 44, 100),
    (completeness_over_samples, 2, 44, 1),
    (completeness_over_samples, 4, 500, 100),
    (completeness_over_draws, 3, 100, 10),
    (completeness_over_draws, 4, 500, 100),
]


def name_of(case):
    return "-".join([case[0].__name__, *map(str, case[2:])])


CASES = [pytest.param(case, id=name_of(case)) for case in QUICK]
CASES += [pytest.param(case, id=name_of(case), marks=pytest.mark.long) for case in FULL]


@pytest.mark.parametrize("case", CASES)
def test_intervals_cover(counts_of, drawn, case):
    measured, *arguments = case
    shares = measured(counts_of, drawn, *arguments)
    assert shares
    assert all(0.935 <= share <= 0.97 for share in shares.values()), shares


@pytest.mark.long
def test_the_relative_test_covers_nearly_as_often(counts_of, drawn):
    """The truth is that of as many draws: chance moves shares apart, which a finite number of draws cannot undo."""
    rng = np.random.default_rng(3)
    bases = EASE, EASE - [[0.05, 0], [0.08, 0], [0.05, 0]]

    def counted(base, n):
        return drawn(rng, chances(rng, (n, REPEATS), base), 50, REPEATS)

    found = relative_distance_test(
        counts_of(counted(bases[0], 60)), counts_of(counted(bases[1], 60), prefix="h"), bootstrap_seed=1
    )
    many = relative_distance_test(
        counts_of(counted(bases[0], 600)), counts_of(counted(bases[1], 600), prefix="h"), bootstrap_seed=1
    )
    assert 0.92 <= covered(found, np.mean(many["value"])) <= 0.97
