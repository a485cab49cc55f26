"""How many draws an audit makes: a number, or as many as a half-width needs.

A pilot says how many draws are needed, then all are made at once: one look, one final interval. An audit that stopped
when an interval looks narrow enough would tend to stop at underestimated variances, and such intervals cover less often
than they say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.measures import pooled_ratio
from residuum.auditing.statistics import normal_quantile, paired_variance
from residuum.core.counts import Counts
from residuum.core.errors import InputError

MOST_DRAWS = 2**31 - 1  # counts are int32
RESERVE = 1.1  # the pilot's variance is itself uncertain: ask for a little more than it says


@dataclass(frozen=True)
class Draws:
    """How many draws of each sample at each radius above 0: a number, or as many as a half-width of r needs.

    With `half_width` a pilot chooses the draws of each radius, at most `maximum`, so that the widest interval of r has
    about this half-width. `first` continues an earlier audit: its counts plus these are the counts of one audit.

    >>> Draws(100).most, Draws(half_width=0.05, maximum=400).most
    (100, 400)
    """

    number: int | None = None
    half_width: float | None = None
    maximum: int = 1000
    first: int = 0

    def __post_init__(self) -> None:
        if (self.number is None) == (self.half_width is None):
            raise InputError(
                f"expected either draws or half_width, got draws={self.number} and half_width={self.half_width}"
            )
        if self.half_width is not None and (self.half_width <= 0 or self.first):
            raise InputError(f"expected half_width > 0 and first draw 0 with it, got {self.half_width}, {self.first}")
        if self.most < 1 or self.first < 0:
            raise InputError(f"expected draws >= 1 and first draw >= 0, got {self.most} and {self.first}")

    @property
    def most(self) -> int:
        """The largest number of draws that may be made."""
        return self.maximum if self.number is None else self.number


def pilot_draws(samples: int) -> int:
    """Return the pilot's draws of each sample: max(4, ceil(1000 / n))."""
    return max(4, -(-1000 // samples))


def draws_needed(
    pilots: Iterable[Counts], *, half_width: float, max_draws: int, confidence: float = 0.95
) -> NDArray[np.int64]:
    """Return how many draws of each sample the widest model needs at each radius, shape (T,).

    n = z^2 sum_i v_i / (half_width * sum_i p_a,i)^2, v_i estimated by the pilot; where the reference is never right the
    difference p_m - p_a takes the place of the ratio. At least the draws of the pilot, at most `max_draws`.
    """
    z, by_model, spent = normal_quantile(confidence), [], []
    for pilot in pilots:
        r, _, _ = pooled_ratio(pilot, confidence=confidence)
        scale = np.where(np.isnan(r), len(pilot), (pilot.reference_right / pilot.draws).sum(0))
        per_draw = paired_variance(pilot, np.where(np.isnan(r), 1.0, r)) * pilot.draws.mean(axis=0)
        by_model.append(np.where(pilot.taus == 0, 0.0, RESERVE * z**2 * per_draw / (half_width * scale) ** 2))
        spent.append(pilot.draws.min(axis=0))
    fewest, needed = np.min(spent, axis=0), np.max(by_model, axis=0)
    total: NDArray[np.int64] = np.clip(np.ceil(needed), fewest, np.maximum(max_draws, fewest)).astype(np.int64)
    return total


def as_many(draws: Sequence[int], samples: int, heldout: int) -> tuple[tuple[int, int], ...]:
    """Return spans of draws with which held-out samples give as many inputs: fewer draws of each if there are more.

    >>> as_many([1, 10, 25], 100, 200)
    ((0, 1), (0, 5), (0, 13))
    """
    return tuple((0, -(-many * samples // max(samples, heldout))) for many in draws)
