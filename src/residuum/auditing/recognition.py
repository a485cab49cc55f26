"""Per-sample answers: from which radius on a forgotten sample is recognised again, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from residuum.auditing.counts import Counts
from residuum.auditing.intervals import discoveries, sign_test


def first_radius(counts: Counts, *, exact: bool = False, level: float = 0.05) -> dict[str, float | None]:
    """Return for each id the smallest radius at which it is recognised more often than by the reference.

    "More often" is a discovery of the sign test at that radius (false-discovery rate `level` over the samples); at
    radius 0 and for enumerated attacks, where nothing is left to chance, the plain comparison. None: at no radius.

    >>> counts = Counts.of(["a", "b"], [0, 0], [0.1, 0.2], draws=[[20, 20]] * 2, method_right=[[10, 20], [5, 5]],
    ...                    reference_right=[[10, 5], [5, 5]], both_right=[[10, 5], [5, 5]],
    ...                    same_prediction=[[10, 5], [5, 5]])
    >>> first_radius(counts)
    {'a': 0.2, 'b': None}
    """
    more = counts.method_right > counts.reference_right
    certain = (counts.taus == 0) | exact
    recognised = np.where(certain, more, discoveries(sign_test(counts), level))
    order = np.argsort(counts.taus)
    return {
        sample_id: next((float(counts.taus[t]) for t in order if row[t]), None)
        for sample_id, row in zip(counts.ids, recognised, strict=True)
    }


def most_suspicious(tables: Mapping[str, Counts], many: int) -> tuple[str, ...]:
    """Return the ids with the smallest sign-test p over all rows and radii above 0 (ties: by id)."""
    best: dict[str, float] = {}
    for counts in tables.values():
        p = sign_test(counts)[:, counts.taus > 0].min(axis=1, initial=1.0)
        for sample_id, value in zip(counts.ids, p, strict=True):
            best[sample_id] = min(float(value), best.get(sample_id, 1.0))
    return tuple(sorted(best, key=lambda sample_id: (best[sample_id], sample_id))[:many])
