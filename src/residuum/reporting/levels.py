"""An interval at another confidence, from the recorded one: the record alone suffices."""

from __future__ import annotations

from statistics import NormalDist

Bounds = tuple[float, float]


def quantile(confidence: float) -> float:
    """Return z with Pr[|N(0,1)| <= z] = confidence."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def ratio_bounds(r: float, bounds: Bounds, confidence: float, wanted: float) -> Bounds:
    """Return the interval of a pooled ratio at the wanted confidence.

    The record has r exp(-+ z se/r); with f = z'/z the wanted one is r (low/r)^f, r (high/r)^f, and [0, f high]
    at r = 0.

    >>> [round(end, 4) for end in ratio_bounds(1.0, (0.5, 2.0), 0.95, 0.95)]
    [0.5, 2.0]
    """
    factor, (low, high) = quantile(wanted) / quantile(confidence), bounds
    if r == 0:
        return 0.0, factor * high
    return r * (low / r) ** factor, r * (high / r) ** factor


def difference_bounds(value: float, bounds: Bounds, confidence: float, wanted: float) -> Bounds:
    """Return the interval value -+ z se of a difference at the wanted confidence, cut to [-1, 1].

    The recorded ends may be cut too: the longer side has the full width.

    >>> difference_bounds(0.0, (-0.1, 0.1), 0.95, 0.95)
    (-0.1, 0.1)
    """
    half = max(value - bounds[0], bounds[1] - value) * quantile(wanted) / quantile(confidence)
    return max(-1.0, value - half), min(1.0, value + half)
