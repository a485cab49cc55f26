"""Class knowledge and memory: r = G M, what a model knows of the class and what it remembers of the very samples.

G = p_m(H) / p_a(H) is residual knowledge on held-out samples H of the forgotten classes, M = r / G what is left for the
forgotten samples F themselves. M > 1: the model favors these samples beyond what it knows of their class. Where the
reference is (nearly) never right, as after forgetting a whole class, the differences take the place of the ratios:
DD = [p_m(F) - p_m(H)] - [p_a(F) - p_a(H)].
"""

from typing import Any, NamedTuple

import numpy as np

from residuum.auditing.heldout import FEWEST_FOR_SAMPLES, FEWEST_OF_CLASS, MatchedCounts, match_classes
from residuum.auditing.measures import exact_radii, interval, json_numbers
from residuum.auditing.statistics import Floats, normal_quantile, paired_variance, ratio_interval
from residuum.core.counts import Counts

Intervals = tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats]]  # value, ends over draws, ends over samples


class GroupRates(NamedTuple):
    """One of both sets at every radius: the shares of both models on each sample, their weighted means and ratio."""

    p_m: Floats
    p_a: Floats
    right: Floats
    reference_right: Floats
    ratio: Floats

    @property
    def excess(self) -> Floats:
        """p_m,i - ratio p_a,i of each sample; its weighted mean is 0."""
        return self.p_m - self.ratio * self.p_a

    @property
    def shares(self) -> dict[str, list[float | None]]:
        """The recognition rates of both models, as a record has them."""
        return {"rate": json_numbers(self.right), "reference_rate": json_numbers(self.reference_right)}


def measure_memory(
    forgotten: Counts, heldout: Counts, *, confidence: float = 0.95, exact: bool = False
) -> dict[str, Any]:
    """Return the held-out shares, class knowledge G, memory M and the difference of differences DD.

    `low` and `high` are over the draws, the samples being fixed; `sample_low` and `sample_high` over the samples, None
    with fewer than 30 held-out ones. With no class of 10 held-out samples there is nothing but a note.

    >>> both = {"reference_right": [[5]] * 10, "both_right": [[4]] * 10, "same_prediction": [[5]] * 10}
    >>> of_class = {"labels": [0] * 10, "taus": [0.1], "draws": [[10]] * 10, **both}
    >>> forgotten = Counts.of([f"f{i}" for i in range(10)], **of_class, method_right=[[8]] * 10)
    >>> heldout = Counts.of([f"h{i}" for i in range(10)], **of_class, method_right=[[7]] * 10)
    >>> measures = measure_memory(forgotten, heldout)
    >>> [round(measures[name]["value"][0], 3) for name in ("class_knowledge", "memory", "memory_difference")]
    [1.4, 1.143, 0.1]
    """
    matched, z = match_classes(forgotten, heldout), normal_quantile(confidence)
    notes = _notes(matched)
    described = {"samples": len(matched.heldout), "left_out": list(map(str, matched.left_out)), "notes": notes}
    if not len(matched.heldout):
        return {"heldout": described}
    of_forgotten, of_heldout = _rates(matched.forgotten, None), _rates(matched.heldout, matched.weights)
    described |= of_heldout.shares
    if matched.left_out:  # memory is about the forgotten samples that stay
        described["forgotten"] = {"samples": len(matched.forgotten)} | of_forgotten.shares
    certain = exact_radii(forgotten, exact)
    curves = {
        "class_knowledge": class_knowledge(matched, of_heldout, z),
        "memory": memory(matched, of_forgotten, of_heldout, z),
        "memory_difference": memory_difference(matched, of_forgotten, of_heldout, z),
    }
    if np.isnan(curves["memory"][0]).any():
        notes.append("memory is null where the reference, or the model on held-out samples, is never right")
    measures: dict[str, Any] = {"heldout": described}
    for name, (value, draws, samples) in curves.items():
        ends = [np.where(certain, value, end) for end in draws]
        over_samples = [np.where(len(matched.heldout) >= FEWEST_FOR_SAMPLES, end, np.nan) for end in samples]
        sample_low, sample_high = map(json_numbers, over_samples)
        measures[name] = interval(value, *ends) | {"sample_low": sample_low, "sample_high": sample_high}
    return measures


def class_knowledge(matched: MatchedCounts, rates: GroupRates, z: float) -> Intervals:
    """Return G = p_m(H) / p_a(H) with its ends over draws and over samples."""
    with np.errstate(divide="ignore", invalid="ignore"):
        draws, samples = _heldout_variances(matched, rates)
        scale = rates.reference_right**2
        return rates.ratio, _ratio_ends(rates.ratio, draws / scale, z), _ratio_ends(rates.ratio, samples / scale, z)


def memory(matched: MatchedCounts, forgotten: GroupRates, heldout: GroupRates, z: float) -> Intervals:
    """Return M = r / G with its ends M exp(-+ z sqrt(s_F^2 + s_H^2)) over draws and over samples.

    Over samples s_F^2 = var_i(e_i / p_m(F) - h_i / p_m(H)) / n with e_i = p_m,i - r p_a,i, and h_i the mean of the same
    over the held-out samples of i's class: these are weighted to the forgotten class mix, which other samples would
    change. It is 0 for a single class. Variances are written on the scale of M, so that M = 0 has an upper end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        G = np.where(heldout.right > 0, heldout.ratio, np.nan)
        M = forgotten.ratio / G
        draws, samples = (variance * (M / heldout.right) ** 2 for variance in _heldout_variances(matched, heldout))
        scale = forgotten.reference_right * G
        n = len(matched.forgotten)
        draws = draws + paired_variance(matched.forgotten, np.nan_to_num(forgotten.ratio), 1 / n) / scale**2
        influence = (
            forgotten.excess / scale - matched.class_means(heldout.excess)[matched.forgotten.labels] * M / heldout.right
        )
        samples = samples + _variance_of_mean(influence)
        return M, _ratio_ends(M, draws, z), _ratio_ends(np.where(M > 0, M, np.nan), samples, z)


def memory_difference(matched: MatchedCounts, forgotten: GroupRates, heldout: GroupRates, z: float) -> Intervals:
    """Return DD = [p_m(F) - p_a(F)] - [p_m(H) - p_a(H)] with its ends over draws and over samples."""
    d_forgotten, d_heldout = forgotten.p_m - forgotten.p_a, heldout.p_m - heldout.p_a
    value = d_forgotten.mean(0) - matched.weights @ d_heldout
    draws = paired_variance(matched.forgotten, 1.0, 1 / len(matched.forgotten))
    draws = draws + paired_variance(matched.heldout, 1.0, matched.weights)
    adjusted = d_forgotten - matched.class_means(d_heldout)[matched.forgotten.labels]
    samples = _variance_of_mean(adjusted) + matched.sample_variance(d_heldout)
    halves = [z * np.sqrt(variance) for variance in (draws, samples)]
    return value, (value - halves[0], value + halves[0]), (value - halves[1], value + halves[1])


def _rates(counts: Counts, weights: Floats | None) -> GroupRates:
    p_m, p_a = counts.method_right / counts.draws, counts.reference_right / counts.draws
    weights = np.full(len(counts), 1 / len(counts)) if weights is None else weights
    right, reference_right = weights @ p_m, weights @ p_a
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(reference_right > 0, right / reference_right, np.nan)
    return GroupRates(p_m, p_a, right, reference_right, ratio)


def _heldout_variances(matched: MatchedCounts, rates: GroupRates) -> tuple[Floats, Floats]:
    """Return the variance of p_m(H) - G p_a(H) over draws and over samples."""
    draws = paired_variance(matched.heldout, np.nan_to_num(rates.ratio), matched.weights)
    return draws, matched.sample_variance(rates.excess)


def _variance_of_mean(values: Floats) -> Floats:
    n = len(values)
    return values.var(0, ddof=1) / n if n > 1 else np.full(values.shape[1], np.nan)


def _ratio_ends(value: Floats, variance: Floats, z: float) -> tuple[Floats, Floats]:
    return ratio_interval(value, variance, np.ones_like(value), z)


def _notes(matched: MatchedCounts) -> list[str]:
    if not len(matched.heldout):
        return [
            f"no forgotten class has {FEWEST_OF_CLASS} held-out samples: memory cannot be told from class knowledge"
        ]
    notes = []
    if matched.left_out:
        notes.append(
            f"{len(matched.left_out)} of the forgotten classes have fewer than {FEWEST_OF_CLASS} held-out samples: "
            "class knowledge, memory and the relative test are about the others"
        )
    if len(matched.heldout) < FEWEST_FOR_SAMPLES:
        notes.append(
            f"{len(matched.heldout)} held-out samples are fewer than {FEWEST_FOR_SAMPLES}: no interval over samples"
        )
    return notes
