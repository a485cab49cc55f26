"""The call: does a row show more than re-trained models show of nothing?"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ERROR = 0.05
FEWEST = 3  # innocents: with two the spread is one difference


class Call(NamedTuple):
    """p of "not more than re-trained models", whether it is at most 5 %, and the range of what those show.

    p and `found` are None with fewer than three innocents, or where a value does not exist.
    """

    p: float | None
    found: bool | None
    floor: tuple[float, float] | None
    innocents: int


def call(values: Sequence[float | None], innocents: Sequence[float | None], *, least: float = 0.0) -> Call:
    """Compare a row's values, one for each seed, with those of N innocent models by Student's t, one-sided.

    T = (mean of the row - mean of the innocents) / (s sqrt(1/S + 1/N)) follows t with N - 1 degrees of freedom if the
    row were re-trained too; s is the innocents' standard deviation, at least `least`.

    >>> call([0.9, 0.8], [0.5, 0.52, 0.48, 0.5]).found, call([0.5], [0.5, 0.52, 0.48]).found, call([0.9], [0.5]).found
    (True, False, None)
    """
    from scipy.special import stdtr

    known = np.array([value for value in innocents if value is not None], np.float64)
    floor = (float(known.min()), float(known.max())) if len(known) else None
    row = [value for value in values if value is not None]
    if len(known) < FEWEST or not row or len(row) < len(values):
        return Call(None, None, floor, len(known))
    spread = max(float(known.std(ddof=1)), least)
    distance = float(np.mean(row) - known.mean())
    if spread == 0:
        p = float(distance <= 0)
    else:
        p = float(stdtr(len(known) - 1, -distance / (spread * np.sqrt(1 / len(row) + 1 / len(known)))))
    return Call(p, p <= ERROR, floor, len(known))
