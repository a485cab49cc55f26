"""What a model remembers: class knowledge and memory, and how far it went from the original to the reference.

r = G M. G = p_m(H) / p_a(H) is residual knowledge on held-out samples H of the forgotten classes, and M = r / G is what
remains for the forgotten samples F themselves. M > 1 means that the model favors these samples beyond what it knows of
their class. Where the reference is (nearly) never right, as after forgetting a whole class, differences take the place
of ratios: DD = [p_m(F) - p_m(H)] - [p_a(F) - p_a(H)].

Completeness and the relative test compare with the original too, draw by draw (`Counts.joint`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.heldout import FEWEST_OF_CLASS
from residuum.auditing.measures import exact_radii, interval, json_numbers
from residuum.auditing.statistics import (
    BOOTSTRAP_RESAMPLES,
    PSEUDO_COUNT,
    Floats,
    bootstrap_tail,
    fieller,
    normal_quantile,
    paired_variance,
    ratio_interval,
    total_over_draws,
)
from residuum.core.counts import METHOD, ORIGINAL, REFERENCE, Counts

RESAMPLED_AT_ONCE = 4 * 10**6  # shares of samples
FEWEST_FOR_SAMPLES = 30  # with fewer held-out samples there is no interval over samples
PAIRS = ((0, 0), (0, 1), (1, 1))  # whose covariances Fieller's interval needs
NO_WAY_TO_GO = (
    "completeness is null where the original's lead over re-train is not above what re-trained models differ by"
)
Intervals = tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats]]  # value, ends over draws, ends over samples


@dataclass(frozen=True)
class MatchedCounts:
    """Counts on forgotten samples F and held-out samples H of the same classes, and which classes left both."""

    forgotten: Counts
    heldout: Counts
    left_out: tuple[int, ...]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of held-out samples of each class, n_c."""
        return np.bincount(self.heldout.labels)

    @property
    def mix(self) -> Floats:
        """Share of each class among the forgotten samples, W_c."""
        shares: Floats = np.bincount(self.forgotten.labels, minlength=len(self.sizes)) / len(self.forgotten)
        return shares

    @property
    def weights(self) -> Floats:
        """W_c / n_c of each held-out sample: weighted so, they have the forgotten class mix."""
        shares: Floats = (self.mix / np.maximum(self.sizes, 1))[self.heldout.labels]
        return shares

    def class_means(self, values: Floats) -> Floats:
        """Return the mean of `values` (|H|, T) over the held-out samples of each class, shape (classes, T)."""
        sums = np.zeros((len(self.sizes), values.shape[1]))
        np.add.at(sums, self.heldout.labels, values)
        means: Floats = sums / np.maximum(self.sizes, 1)[:, None]
        return means

    def sample_variance(self, values: Floats) -> Floats:
        """Return the variance over held-out samples of the weighted mean of `values`: sum_c W_c^2 var_c / n_c."""
        residuals = values - self.class_means(values)[self.heldout.labels]
        n = self.sizes[self.heldout.labels]
        total: Floats = (self.weights**2 * n / (n - 1)) @ residuals**2
        return total


def match_classes(forgotten: Counts, heldout: Counts) -> MatchedCounts:
    """Return both sets without the classes of which fewer than 10 samples were held out, in the order of their ids."""
    labels, sizes = np.unique(heldout.labels, return_counts=True)
    classes = set(forgotten.labels.tolist())
    common = set(labels[sizes >= FEWEST_OF_CLASS].tolist()) & classes

    def matched(counts: Counts) -> Counts:
        order: NDArray[np.int64] = np.array(sorted(range(len(counts)), key=counts.ids.__getitem__), dtype=np.int64)
        return counts.rows(order[np.isin(counts.labels[order], list(common))])

    return MatchedCounts(matched(forgotten), matched(heldout), tuple(sorted(classes - common)))


class GroupRates(NamedTuple):
    """Rates in one of the two sets, by radius: those of both models on each sample, their weighted means and ratio."""

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
    with fewer than 30 held-out ones. Without a class of 10 held-out samples the result is a note only.

    >>> both = {"reference_right": [[5]] * 10, "both_right": [[4]] * 10, "same_prediction": [[5]] * 10}
    >>> of_class = {"labels": [0] * 10, "taus": [0.1], "draws": [[10]] * 10, **both}
    >>> forgotten = Counts.of([f"f{i}" for i in range(10)], **of_class, method_right=[[8]] * 10)
    >>> heldout = Counts.of([f"h{i}" for i in range(10)], **of_class, method_right=[[7]] * 10)
    >>> measures = measure_memory(forgotten, heldout)
    >>> [round(measures[name]["value"][0], 3) for name in ("class_knowledge", "memory", "memory_difference")]
    [1.4, 1.143, 0.1]
    """
    matched, z, notes = match_classes(forgotten, heldout), normal_quantile(confidence), list[str]()
    described = {"samples": len(matched.heldout), "left_out": list(map(str, matched.left_out)), "notes": notes}
    if not len(matched.heldout):
        none = f"no forgotten class has {FEWEST_OF_CLASS} held-out samples"
        return {"heldout": described | {"notes": [f"{none}: memory cannot be told from class knowledge"]}}
    if matched.left_out:
        few = f"{len(matched.left_out)} of the forgotten classes have fewer than {FEWEST_OF_CLASS} held-out samples"
        notes.append(f"{few}: class knowledge, memory and the relative test are about the others")
    if len(matched.heldout) < FEWEST_FOR_SAMPLES:
        few = f"{len(matched.heldout)} held-out samples are fewer than {FEWEST_FOR_SAMPLES}"
        notes.append(f"{few}: no interval over samples")
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
        return (
            rates.ratio,
            ratio_interval(rates.ratio, draws / scale, z),
            ratio_interval(rates.ratio, samples / scale, z),
        )


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
        return M, ratio_interval(M, draws, z), ratio_interval(np.where(M > 0, M, np.nan), samples, z)


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


def completeness(counts: Counts, *, confidence: float = 0.95, exact: bool = False) -> dict[str, list[float | None]]:
    """Return kappa = (p_o - p_m) / (p_o - p_a): 0 as the original, 1 as the reference, above 1 beyond it.

    `low` and `high` are Fieller's interval over samples, `draw_low` and `draw_high` over draws; None where they are
    unbounded, because p_o - p_a can be 0. `gap_low` is the low end over draws of p_o - p_a: unless it lies above what
    retrained models differ by, kappa means nothing.

    >>> joint = [[[0, 0, 0, 1, 2, 0, 3, 4]], [[1, 0, 0, 0, 2, 1, 2, 4]]]
    >>> counts = Counts.of_joint(["a", "b"], [0, 0], [0.1], joint, same_prediction=[[6]] * 2)
    >>> [round(value, 3) for value in completeness(counts)["value"]]  # (0.9 - 0.7) / (0.9 - 0.5)
    [0.5]
    """
    joint, z = counts.joint, normal_quantile(confidence)
    p_o, p_m, p_a = (joint @ right / counts.draws for right in (ORIGINAL, METHOD, REFERENCE))
    progress, gap = (p_o - p_m).mean(0), (p_o - p_a).mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(gap > 0, progress / gap, np.nan)
    n, residuals = len(counts), [step - step.mean(0) for step in (p_o - p_m, p_o - p_a)]
    scale = n * (n - 1) if n > 1 else np.nan
    over_samples = [(residuals[i] * residuals[j]).sum(0) / scale for i, j in PAIRS]
    # each pattern + 1/40, so that the four cells of any two models get 1/20 as everywhere else
    shares = (joint + PSEUDO_COUNT / 2) / (counts.draws + 4 * PSEUDO_COUNT)[..., None]
    moves = (ORIGINAL - METHOD, ORIGINAL - REFERENCE)
    over_draws = [
        total_over_draws(shares @ (moves[i] * moves[j]) - (shares @ moves[i]) * (shares @ moves[j]), counts) / n**2
        for i, j in PAIRS
    ]
    certain = exact_radii(counts, exact)
    gap_low = np.where(certain, gap, gap - z * np.sqrt(over_draws[2]))
    draw_ends = (np.where(certain, value, end) for end in fieller(progress, gap, over_draws, z))
    low, high, draw_low, draw_high = (
        np.where(np.isnan(value), np.nan, end) for end in (*fieller(progress, gap, over_samples, z), *draw_ends)
    )
    return interval(value, low, high) | {
        "draw_low": json_numbers(draw_low),
        "draw_high": json_numbers(draw_high),
        "gap_low": json_numbers(gap_low),
    }


def difference_floor(differences: Sequence[Mapping[str, list[float]]]) -> list[float]:
    """Return the largest end of |p_a' - p_a| at each radius: how much retrained models differ.

    >>> difference_floor([{"low": [-0.03], "high": [0.01]}, {"low": [0.0], "high": [0.02]}])
    [0.03]
    """
    ends = [difference[end] for difference in differences for end in ("low", "high")]
    return [max(map(abs, column)) for column in zip(*ends, strict=True)]


def completeness_above(measures: Mapping[str, Any], floor: Sequence[float] | None) -> dict[str, Any]:
    """Return the measures of a model without its completeness where `gap_low` is not above the floor.

    Without a floor, no control says how far retrained models are apart: then there is no completeness.
    """
    if floor is None:
        return {name: value for name, value in measures.items() if name != "completeness"}
    if (curve := measures.get("completeness")) is None:
        return dict(measures)
    above = [low > end for low, end in zip(curve["gap_low"], floor, strict=True)]
    cut = {
        name: [value if meaningful else None for value, meaningful in zip(curve[name], above, strict=True)]
        for name in ("value", "low", "high", "draw_low", "draw_high")
    }
    notes = [] if all(above) else [NO_WAY_TO_GO]
    return {**measures, "completeness": {**curve, **cut, "floor": list(floor)}, "notes": notes}


def relative_distance_test(
    forgotten: Counts, heldout: Counts, *, confidence: float = 0.95, bootstrap_seed: int
) -> dict[str, Any] | None:
    """Return the relative test D(F) - D(H) with its percentile interval over samples, and both distances.

    A model is near its original on held-out samples too, so D(H) is subtracted; what remains is about the forgotten
    samples. The bootstrap resamples these, and the held-out samples within each class, weighted to the resampled mix.
    None without a class of 10 held-out samples.
    """
    matched = match_classes(forgotten, heldout)
    if not len(matched.heldout):
        return None
    d_forgotten, d_heldout = (_distances(counts) for counts in (matched.forgotten, matched.heldout))
    of_forgotten, of_heldout = d_forgotten.mean(0), matched.weights @ d_heldout
    resampled = _resampled_differences(matched, d_forgotten, d_heldout, bootstrap_seed)
    tail = bootstrap_tail(confidence)
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0, method="inverted_cdf")
    ends = {"forgotten": json_numbers(of_forgotten), "heldout": json_numbers(of_heldout)}
    return interval(of_forgotten - of_heldout, low, high) | ends


def _distances(counts: Counts) -> Floats:
    """Return D_i = |p_m,i - p_a,i| - |p_m,i - p_o,i|: below 0 m is nearer to the reference, above 0 to the original."""
    p_m, p_a, p_o = (counts.joint @ right / counts.draws for right in (METHOD, REFERENCE, ORIGINAL))
    distances: Floats = np.abs(p_m - p_a) - np.abs(p_m - p_o)
    return distances


def _resampled_differences(matched: MatchedCounts, d_forgotten: Floats, d_heldout: Floats, seed: int) -> Floats:
    rng, labels = np.random.default_rng(seed), np.unique(matched.forgotten.labels)
    differences = np.empty((BOOTSTRAP_RESAMPLES, d_forgotten.shape[1]))
    mix = np.empty((BOOTSTRAP_RESAMPLES, len(labels)))
    for rows, times in _resampled(rng, len(d_forgotten)):
        differences[rows] = times @ d_forgotten
        for c, label in enumerate(labels):
            mix[rows, c] = times[:, matched.forgotten.labels == label].sum(1)
    for c, label in enumerate(labels):
        of_class = d_heldout[matched.heldout.labels == label]
        for rows, times in _resampled(rng, len(of_class)):
            differences[rows] -= mix[rows, c : c + 1] * (times @ of_class)
    return differences


def _resampled(rng: np.random.Generator, n: int) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of the resamples with the weight of each of n samples, (resamples, n), of limited size."""
    step = max(1, min(BOOTSTRAP_RESAMPLES, RESAMPLED_AT_ONCE // n))
    for first in range(0, BOOTSTRAP_RESAMPLES, step):
        rows = slice(first, min(first + step, BOOTSTRAP_RESAMPLES))
        yield rows, rng.multinomial(n, np.full(n, 1 / n), size=rows.stop - rows.start) / n
