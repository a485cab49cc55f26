"""Adaptive draws: a pilot says how many are needed for a wanted half-width, then all are made at once.

One look, one final interval. Stopping when an interval looks narrow enough, or spending draws where the last look
was wide, ends preferably at underestimated variances, and such intervals cover less often than they say.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.counts import Counts
from residuum.auditing.intervals import normal_quantile, paired_variance
from residuum.auditing.measures import pooled_ratio

RESERVE = 1.1  # the pilot's variance is itself uncertain: ask for a little more than it says


def pilot_draws(samples: int) -> int:
    """Return the pilot's draws of each sample: max(4, ceil(1000 / n)).

    >>> pilot_draws(44), pilot_draws(20_000)
    (23, 4)
    """
    return max(4, -(-1000 // samples))


def draws_needed(
    pilots: Iterable[Counts], *, half_width: float, max_draws: int, confidence: float = 0.95
) -> NDArray[np.int64]:
    """Return how many draws of each sample the widest model needs at each radius, shape (T,).

    n = z^2 sum_i v_i / (half_width * sum_i p_a,i)^2, v_i estimated by the pilot; where the reference is never right the
    difference p_m - p_a takes the place of the ratio. At least the pilot's own draws, at most `max_draws`.
    """
    pilots = list(pilots)
    needed = np.max([needed_by(pilot, half_width, confidence) for pilot in pilots], axis=0)
    spent = np.min([pilot.draws.min(axis=0) for pilot in pilots], axis=0)
    total: NDArray[np.int64] = np.clip(np.ceil(needed), spent, np.maximum(max_draws, spent)).astype(np.int64)
    return total


def needed_by(pilot: Counts, half_width: float, confidence: float) -> NDArray[np.float64]:
    """Return the draws one model needs, not rounded."""
    z = normal_quantile(confidence)
    r, _, _ = pooled_ratio(pilot, confidence=confidence)
    scale = np.where(np.isnan(r), len(pilot), (pilot.reference_right / pilot.draws).sum(0))
    per_draw = paired_variance(pilot, np.where(np.isnan(r), 1.0, r)) * pilot.draws.mean(axis=0)
    needed: NDArray[np.float64] = RESERVE * z**2 * per_draw / (half_width * scale) ** 2
    return np.where(pilot.taus == 0, 0.0, needed)
