"""Measures: everything an audit reports, as a pure function of its counts, and users' measures."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.statistics import (
    Floats,
    bootstrap_ratio,
    discoveries,
    normal_quantile,
    paired_variance,
    ratio_interval,
    share_variance,
    sign_test,
    wilson_interval,
)
from residuum.core import components
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.registry import Registry, name_of
from residuum.theory.empirical import binomial_limits

SMOOTHING = 0.5
Interval = dict[str, list[float | None]]


def measure(counts: Counts, *, confidence: float = 0.95, bootstrap_seed: int, exact: bool = False) -> dict[str, Any]:
    """Return residual knowledge, difference, disagreement, unlearn accuracy and prevalence with their intervals.

    Lists follow `taus`; None stands where a value does not exist. `exact` says that the counts enumerate all
    outcomes, so that nothing is left to chance (as always at radius 0).

    >>> counts = Counts.of(["a", "b"], [0, 1], [0.1], draws=[[10], [10]], method_right=[[9], [6]],
    ...                    reference_right=[[6], [4]], both_right=[[6], [4]], same_prediction=[[7], [8]])
    >>> result = measure(counts, bootstrap_seed=7)
    >>> result["residual_knowledge"]["pooled"], result["difference"]["value"], result["disagreement"]["value"]
    ([1.5], [0.25], [0.25])
    """
    if not 0 < confidence < 1:
        raise InputError(f"expected a confidence between 0 and 1, got {confidence}")
    if len(counts) == 0 or counts.draws.size == 0 or counts.draws.min() < 1:
        raise InputError("expected at least one sample, one radius and one draw of each sample at each radius")
    order = sorted(counts.ids)
    counts = counts if list(counts.ids) == order else counts.subset(order)
    z = normal_quantile(confidence)
    certain = exact_radii(counts, exact)
    recognized, more_often = counts.reference_right > 0, counts.method_right > counts.reference_right
    significant = more_often if exact else discoveries(sign_test(counts))
    return {
        "taus": [float(tau) for tau in counts.taus],
        "draws": [int(draws) for draws in counts.draws.min(axis=0)],
        "samples": len(counts),
        "residual_knowledge": residual_knowledge(counts, confidence, bootstrap_seed, exact),
        "difference": difference(counts, certain, z),
        "disagreement": share_interval(counts.draws - counts.same_prediction, counts, certain, confidence),
        "unlearn_accuracy": share_interval(counts.draws - counts.method_right, counts, certain, confidence),
        "prevalence": interval(
            more_often.mean(0), *wilson_interval(more_often.mean(0), len(counts), z)
        ),  # over samples
        "prevalence_defined": json_numbers(mean_where(recognized, (recognized & more_often).astype(np.float64))),
        "prevalence_significant": json_numbers(np.where(counts.taus == 0, np.nan, significant.mean(0))),
    }


def pooled_ratio(counts: Counts, *, confidence: float = 0.95, exact: bool = False) -> tuple[Floats, Floats, Floats]:
    """Return r(tau) = sum_i p_m,i / sum_i p_a,i with low and high; NaN where the reference is never right.

    Every sample has the same weight, whatever its number of draws. The interval is over the draws.
    """
    top = (counts.method_right / counts.draws).sum(0)
    bottom = (counts.reference_right / counts.draws).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(bottom > 0, top / bottom, np.nan)
    variance = paired_variance(counts, np.nan_to_num(r))
    low, high = ratio_interval(r, variance, normal_quantile(confidence), bottom)
    certain = exact_radii(counts, exact)
    return r, np.where(certain, r, low), np.where(certain, r, high)


def exact_radii(counts: Counts, exact: bool) -> NDArray[np.bool_]:
    """Return at which radii the counts leave nothing to chance: radius 0, and all of them for enumerated attacks."""
    certain: NDArray[np.bool_] = (counts.taus == 0) | exact
    return certain


def residual_knowledge(counts: Counts, confidence: float, seed: int, exact: bool) -> dict[str, Any]:
    """Return the pooled ratio with both intervals, and the literature's mean of ratios with what it leaves out."""
    p_m, p_a = counts.method_right / counts.draws, counts.reference_right / counts.draws
    pooled, low, high = pooled_ratio(counts, confidence=confidence, exact=exact)
    resampled = bootstrap_ratio(p_m, p_a, confidence=confidence, seed=seed)
    recognized = counts.reference_right > 0
    ratios = np.where(recognized, p_m / np.where(recognized, p_a, 1), 0)
    return {
        "pooled": json_numbers(pooled),
        "low": json_numbers(low),
        "high": json_numbers(high),
        "bootstrap_low": json_numbers(np.where(np.isnan(pooled), np.nan, resampled[0])),
        "bootstrap_high": json_numbers(np.where(np.isnan(pooled), np.nan, resampled[1])),
        "mean_of_ratios": json_numbers(mean_where(recognized, ratios)),
        "smoothed": json_numbers(((counts.method_right + SMOOTHING) / (counts.reference_right + SMOOTHING)).mean(0)),
        "infinite": [int(count) for count in (~recognized & (counts.method_right > 0)).sum(0)],
        "undefined": [int(count) for count in (~recognized & (counts.method_right == 0)).sum(0)],
    }


def mean_where(recognized: NDArray[np.bool_], values: Floats) -> Floats:
    """Return the mean over samples that the reference recognizes, NaN where there are none; other values are 0."""
    return np.where(recognized.any(0), values.sum(0) / np.maximum(recognized.sum(0), 1), np.nan)


def difference(counts: Counts, certain: NDArray[np.bool_], z: float) -> Interval:
    """Return the mean of p_m - p_a, which is always defined, with its interval over the draws."""
    value = ((counts.method_right - counts.reference_right) / counts.draws).mean(0)
    half = np.where(certain, 0, z * np.sqrt(paired_variance(counts, 1.0)) / len(counts))
    return interval(value, np.clip(value - half, -1, 1), np.clip(value + half, -1, 1))


def share_interval(hits: NDArray[np.int32], counts: Counts, certain: NDArray[np.bool_], confidence: float) -> Interval:
    """Return the mean over samples of hits / draws, with Clopper and Pearson's interval over the draws.

    Korn and Graubard (1998): its n is the number of draws with which one share of this size would have the variance of
    this mean of many different shares. It covers also where the share is near 0 or 1.
    """
    value = (hits / counts.draws).mean(0)
    share, variance = share_variance(hits, counts)
    n = share * (1 - share) / variance
    low, high = binomial_limits(value * n, n, confidence)
    return interval(value, np.where(certain, value, low), np.where(certain, value, high))


def first_radius(counts: Counts, *, exact: bool = False) -> dict[str, float | None]:
    """Return for each id the smallest radius at which it is recognized more often than by the reference.

    "More often" is a discovery of the sign test at that radius, with a false-discovery rate of 5 % over the samples. At
    radius 0 and for enumerated attacks, where nothing is left to chance, it is the plain comparison. None stands for no
    radius.

    >>> counts = Counts.of(["a", "b"], [0, 0], [0.1, 0.2], draws=[[20, 20]] * 2, method_right=[[10, 20], [5, 5]],
    ...                    reference_right=[[10, 5], [5, 5]], both_right=[[10, 5], [5, 5]],
    ...                    same_prediction=[[10, 5], [5, 5]])
    >>> first_radius(counts)
    {'a': 0.2, 'b': None}
    """
    more_often = counts.method_right > counts.reference_right
    recognized = np.where(exact_radii(counts, exact), more_often, discoveries(sign_test(counts)))
    order = np.argsort(counts.taus)
    firsts = (next((float(counts.taus[t]) for t in order if row[t]), None) for row in recognized)
    return dict(zip(counts.ids, firsts, strict=True))


def interval(value: Floats, low: Floats, high: Floats) -> Interval:
    """Return an interval entry of the run record."""
    return {"value": json_numbers(value), "low": json_numbers(low), "high": json_numbers(high)}


def json_numbers(values: Floats) -> list[float | None]:
    """Return plain numbers, None for what does not exist.

    >>> json_numbers(np.array([1.0, np.nan, np.inf]))
    [1.0, None, None]
    """
    return [float(value) if np.isfinite(value) else None for value in values]


@dataclass(frozen=True)
class OwnMeasure:
    """A function `(counts, heldout) -> value`, or -> (value, low, high), with one number for each radius.

    `heldout` are the counts on held-out samples of the forgotten classes, None where there are none. The first
    line of the docstring is its meaning, and the part before a colon its title. An attribute `neutral` of the function
    is the value of a second retrained model.

    >>> def most_often_right(counts, heldout):
    ...     "Best known sample: the largest share right on any forgotten sample."
    ...     return (counts.method_right / counts.draws).max(axis=0)
    >>> counts = Counts.of(["a", "b"], [0, 1], [0.1], draws=[[10], [10]], method_right=[[9], [6]],
    ...                    reference_right=[[6], [4]], both_right=[[6], [4]], same_prediction=[[7], [8]])
    >>> entry = OwnMeasure(most_often_right).of(counts)
    >>> entry["title"], entry["value"]
    ('Best known sample', [0.9])
    """

    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """The measure's name in records."""
        return name_of(self.function, self.function.__name__)

    @property
    def words(self) -> dict[str, Any]:
        """Title, meaning and neutral value, for tables and pages."""
        meaning = (inspect.getdoc(self.function) or self.name.replace("_", " ")).split("\n", maxsplit=1)[0]
        title, colon, _ = meaning.partition(":")
        title = title if colon else self.name.replace("_", " ").capitalize()
        return {"title": title, "meaning": meaning, "neutral": getattr(self.function, "neutral", None)}

    def of(self, counts: Counts, heldout: Counts | None = None) -> dict[str, Any]:
        """Return the measure's entry in the record of an audit."""
        returned = self.function(counts, heldout)
        parts = returned if isinstance(returned, tuple) else (returned,)
        try:
            arrays = [np.asarray(part, np.float64) for part in parts]
        except (TypeError, ValueError):
            arrays = []
        if len(arrays) not in (1, 3) or any(array.shape != counts.taus.shape for array in arrays):
            expected = f"expected {len(counts.taus)} numbers, one for each radius, or three times as many (value, low, "
            raise InputError(f"measure {self.name}: {expected}high), got {returned!r:.80}")
        curve = interval(*arrays) if len(arrays) == 3 else {"value": json_numbers(arrays[0])}
        return self.words | curve


def as_measure(candidate: object) -> OwnMeasure:
    """Return the function of a plug-in as a measure; refuse anything else."""
    if inspect.isfunction(candidate):
        return OwnMeasure(candidate)
    raise InputError(f"expected a function measure(counts, heldout), got {candidate!r}")


OWN_MEASURES: Registry[OwnMeasure] = components.OWN_MEASURES
