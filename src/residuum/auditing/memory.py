"""Class knowledge and memory: r = G M, what a model knows of the class and what it remembers of the very samples.

G = p_m(H) / p_a(H) is residual knowledge on held-out samples H of the forgotten classes, M = r / G what is left for the
forgotten samples F themselves. M > 1: the model favours these samples beyond what it knows of their class. Where the
reference is (nearly) never right, as after forgetting a whole class, the differences take the place of the ratios:
DD = [p_m(F) - p_m(H)] - [p_a(F) - p_a(H)].
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.counts import Counts
from residuum.auditing.heldout import FEWEST_FOR_SAMPLES, FEWEST_OF_CLASS, Twins, match_classes
from residuum.auditing.measures import exact_radii, interval, json_numbers
from residuum.auditing.statistics import Floats, normal_quantile, paired_variance, ratio_interval

SampledInterval = dict[str, list[float | None]]


class Side(NamedTuple):
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
    >>> found = measure_memory(forgotten, heldout)
    >>> [round(found[name]["value"][0], 3) for name in ("class_knowledge", "memory", "memory_difference")]
    [1.4, 1.143, 0.1]
    """
    twins, z = match_classes(forgotten, heldout), normal_quantile(confidence)
    notes = _notes(twins)
    described = {"samples": len(twins.heldout), "left_out": list(map(str, twins.left_out)), "notes": notes}
    if not len(twins.heldout):
        return {"heldout": described}
    of_forgotten, of_heldout = _side(twins.forgotten, None), _side(twins.heldout, twins.weights)
    certain = exact_radii(forgotten, exact)
    curves = {
        "class_knowledge": class_knowledge(twins, of_heldout, z),
        "memory": memory(twins, of_forgotten, of_heldout, z),
        "memory_difference": memory_difference(twins, of_forgotten, of_heldout, z),
    }
    if np.isnan(curves["memory"][0]).any():
        notes.append("memory is null where the reference, or the model on held-out samples, is never right")
    return {
        "heldout": described | _shares(of_heldout) | _kept_shares(twins, of_forgotten),
        **{name: _curve(*found, certain, len(twins.heldout)) for name, found in curves.items()},
    }


def _shares(side: Side) -> dict[str, Any]:
    return {"right": json_numbers(side.right), "reference_right": json_numbers(side.reference_right)}


def _kept_shares(twins: Twins, forgotten: Side) -> dict[str, Any]:
    """Return the shares right on the forgotten samples that stay, where some leave: memory is about these."""
    return {"forgotten": {"samples": len(twins.forgotten)} | _shares(forgotten)} if twins.left_out else {}


Ends = tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats]]  # value, ends over draws, ends over samples


def class_knowledge(twins: Twins, side: Side, z: float) -> Ends:
    """Return G = p_m(H) / p_a(H) with its ends over draws and over samples."""
    with np.errstate(divide="ignore", invalid="ignore"):
        draws, samples = _heldout_variances(twins, side)
        scale = side.reference_right**2
        return side.ratio, _ratio_ends(side.ratio, draws / scale, z), _ratio_ends(side.ratio, samples / scale, z)


def memory(twins: Twins, forgotten: Side, heldout: Side, z: float) -> Ends:
    """Return M = r / G with its ends M exp(-+ z sqrt(s_F^2 + s_H^2)) over draws and over samples.

    Over samples s_F^2 = var_i(e_i / p_m(F) - h_i / p_m(H)) / n with e_i = p_m,i - r p_a,i, and h_i the mean of the same
    over the held-out samples of i's class: these are weighted to the forgotten class mix, which other samples would
    change. It is 0 for a single class. Variances are written on the scale of M, so that M = 0 has an upper end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        G = np.where(heldout.right > 0, heldout.ratio, np.nan)
        M = forgotten.ratio / G
        draws, samples = (variance * (M / heldout.right) ** 2 for variance in _heldout_variances(twins, heldout))
        scale = forgotten.reference_right * G
        n = len(twins.forgotten)
        draws = draws + paired_variance(twins.forgotten, np.nan_to_num(forgotten.ratio), 1 / n) / scale**2
        influence = (
            forgotten.excess / scale - twins.class_means(heldout.excess)[twins.forgotten.labels] * M / heldout.right
        )
        samples = samples + _variance_of_mean(influence)
        return M, _ratio_ends(M, draws, z), _ratio_ends(np.where(M > 0, M, np.nan), samples, z)


def memory_difference(twins: Twins, forgotten: Side, heldout: Side, z: float) -> Ends:
    """Return DD = [p_m(F) - p_a(F)] - [p_m(H) - p_a(H)] with its ends over draws and over samples."""
    d_forgotten, d_heldout = forgotten.p_m - forgotten.p_a, heldout.p_m - heldout.p_a
    value = d_forgotten.mean(0) - twins.weights @ d_heldout
    draws = paired_variance(twins.forgotten, 1.0, 1 / len(twins.forgotten))
    draws = draws + paired_variance(twins.heldout, 1.0, twins.weights)
    adjusted = d_forgotten - twins.class_means(d_heldout)[twins.forgotten.labels]
    samples = _variance_of_mean(adjusted) + twins.sample_variance(d_heldout)
    halves = [z * np.sqrt(variance) for variance in (draws, samples)]
    return value, (value - halves[0], value + halves[0]), (value - halves[1], value + halves[1])


def _side(counts: Counts, weights: Floats | None) -> Side:
    p_m, p_a = counts.method_right / counts.draws, counts.reference_right / counts.draws
    weights = np.full(len(counts), 1 / len(counts)) if weights is None else weights
    right, reference_right = weights @ p_m, weights @ p_a
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(reference_right > 0, right / reference_right, np.nan)
    return Side(p_m, p_a, right, reference_right, ratio)


def _heldout_variances(twins: Twins, side: Side) -> tuple[Floats, Floats]:
    """Return the variance of p_m(H) - G p_a(H) over draws and over samples."""
    draws = paired_variance(twins.heldout, np.nan_to_num(side.ratio), twins.weights)
    return draws, twins.sample_variance(side.excess)


def _variance_of_mean(values: Floats) -> Floats:
    n = len(values)
    return values.var(0, ddof=1) / n if n > 1 else np.full(values.shape[1], np.nan)


def _ratio_ends(value: Floats, variance: Floats, z: float) -> tuple[Floats, Floats]:
    return ratio_interval(value, variance, np.ones_like(value), z)


def _curve(
    value: Floats,
    draws: tuple[Floats, Floats],
    samples: tuple[Floats, Floats],
    certain: NDArray[np.bool_],
    heldout: int,
) -> SampledInterval:
    low, high = (np.where(certain, value, end) for end in draws)
    sample_low, sample_high = (np.where(heldout >= FEWEST_FOR_SAMPLES, end, np.nan) for end in samples)
    ends = {"sample_low": json_numbers(sample_low), "sample_high": json_numbers(sample_high)}
    return interval(value, low, high) | ends


def _notes(twins: Twins) -> list[str]:
    if not len(twins.heldout):
        return [
            f"no forgotten class has {FEWEST_OF_CLASS} held-out samples: memory cannot be told from class knowledge"
        ]
    notes = []
    if twins.left_out:
        notes.append(
            f"{len(twins.left_out)} of the forgotten classes have fewer than {FEWEST_OF_CLASS} held-out samples: class "
            "knowledge, memory and the relative test are about the others"
        )
    if len(twins.heldout) < FEWEST_FOR_SAMPLES:
        notes.append(
            f"{len(twins.heldout)} held-out samples are fewer than {FEWEST_FOR_SAMPLES}: no interval over samples"
        )
    return notes
