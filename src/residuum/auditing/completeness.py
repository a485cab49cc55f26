"""Between the original and the reference: how much of the way a model has gone, and which of both it is nearer to.

Both need to know, draw by draw, whether the original was right too (`Counts.joint`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from residuum.auditing.heldout import MatchedCounts, match_classes
from residuum.auditing.measures import exact_radii, interval, json_numbers
from residuum.auditing.statistics import (
    BOOTSTRAP_RESAMPLES,
    PSEUDO_COUNT,
    Floats,
    bootstrap_tail,
    fieller,
    normal_quantile,
    total_over_draws,
)
from residuum.core.counts import METHOD, ORIGINAL, REFERENCE, Counts
from residuum.core.errors import InputError

PAIRS = ((0, 0), (0, 1), (1, 1))  # whose covariances Fieller's interval needs
NO_WAY_TO_GO = (
    "completeness is null where the original's lead over re-train is not above what re-trained models differ by"
)


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
    joint, z = _joint(counts), normal_quantile(confidence)
    p_o, p_m, p_a = (joint @ right / counts.draws for right in (ORIGINAL, METHOD, REFERENCE))
    left, whole = (p_o - p_m).mean(0), (p_o - p_a).mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(whole > 0, left / whole, np.nan)
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
    gap_low = np.where(certain, whole, whole - z * np.sqrt(over_draws[2]))
    draw_ends = (np.where(certain, value, end) for end in fieller(left, whole, over_draws, z))
    low, high, draw_low, draw_high = (
        np.where(np.isnan(value), np.nan, end) for end in (*fieller(left, whole, over_samples, z), *draw_ends)
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


def completeness_above(measures: Mapping[str, Any], floor: Sequence[float]) -> dict[str, Any]:
    """Return the measures of a model without its completeness where `gap_low` is not above the floor."""
    if (curve := measures.get("completeness")) is None:
        return dict(measures)
    above = [low > end for low, end in zip(curve["gap_low"], floor, strict=True)]
    cut = {
        name: [value if meaningful else None for value, meaningful in zip(curve[name], above, strict=True)]
        for name in ("value", "low", "high", "draw_low", "draw_high")
    }
    notes = [] if all(above) else [NO_WAY_TO_GO]
    return {**measures, "completeness": {**curve, **cut, "floor": list(floor)}, "notes": notes}


def relative_distance(p_m: Floats, p_a: Floats, p_o: Floats) -> Floats:
    """Return D_i = |p_m,i - p_a,i| - |p_m,i - p_o,i|: below 0 m is nearer to the reference, above 0 to the original.

    >>> relative_distance(np.array([0.6]), np.array([0.5]), np.array([0.9])).round(3).tolist()
    [-0.2]
    """
    distance: Floats = np.abs(p_m - p_a) - np.abs(p_m - p_o)
    return distance


def relative_distance_test(
    forgotten: Counts, heldout: Counts, *, confidence: float = 0.95, bootstrap_seed: int
) -> dict[str, Any] | None:
    """Return the relative test D(F) - D(H) with its percentile interval over samples, and both distances.

    The original is the model's parent: on held-out samples, too, both are near. What remains is about the forgotten
    samples. Resampled are the forgotten samples, and the held-out ones within each class, weighted to the mix drawn.
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
    joint = _joint(counts)
    return relative_distance(*(joint @ right / counts.draws for right in (METHOD, REFERENCE, ORIGINAL)))


def _resampled_differences(matched: MatchedCounts, d_forgotten: Floats, d_heldout: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    times = _resampled(rng, len(d_forgotten))
    differences = times @ d_forgotten
    for label in np.unique(matched.forgotten.labels):
        of_class = d_heldout[matched.heldout.labels == label]
        mix = times[:, matched.forgotten.labels == label].sum(1, keepdims=True)
        differences -= mix * (_resampled(rng, len(of_class)) @ of_class)
    return differences


def _resampled(rng: np.random.Generator, n: int) -> Floats:
    """Return the share that each of n samples has of each resample, shape (resamples, n)."""
    return rng.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAP_RESAMPLES) / n


def _joint(counts: Counts) -> Floats:
    if not counts.knows_original:
        raise InputError("expected counts that know the original; audit with original=...")
    return counts.joint.astype(np.float64)
