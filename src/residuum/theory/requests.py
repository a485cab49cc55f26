"""From deletion requests to the phases of the accountant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from residuum.theory.result import check
from residuum.theory.shifted import Phase

Normaliser = Literal["mean", "fixed"]


def removal_gap(removed: int, n: int, clip: float, *, normaliser: Normaliser = "mean") -> float:
    """Bound the difference of two averaged, clipped gradients when `removed` of `n` samples go.

    "mean": each average over its own samples, 2 s M / n. "fixed": both sums divided by the same public n, s M / n.

    >>> removal_gap(10, 1000, 1.0), removal_gap(10, 1000, 1.0, normaliser="fixed")
    (0.02, 0.01)
    """
    check("n", n, low=1)
    check("removed", removed, low=0, high=n)
    check("clip", clip, low=0, ends="(]")
    if normaliser not in ("mean", "fixed"):
        raise ValueError(f"expected normaliser 'mean' or 'fixed', got {normaliser!r}")
    return (2 if normaliser == "mean" else 1) * removed * clip / n


def request_phases(
    n: int, removed: Sequence[int], learn_steps: int, steps: Sequence[int], clip: float,
    *, normaliser: Normaliser = "mean", pull: float = 0.0,
) -> list[Phase]:  # fmt: skip
    """Return the phases of learning on n samples and then serving requests, against re-training on what is left.

    While request j is served, the data still hold all later requests; `pull` adds an objective that reads S_f.

    >>> request_phases(100, [1, 2], 500, [10, 20], 1.0)
    [Phase(steps=500, gap=0.06), Phase(steps=10, gap=0.04040404040404041), Phase(steps=20, gap=0.0)]
    """
    if len(removed) != len(steps) or not removed:
        raise ValueError(f"expected one number of steps per request, got {len(steps)} for {len(removed)} requests")
    phases = [Phase(learn_steps, removal_gap(sum(removed), n, clip, normaliser=normaliser))]
    for j, count in enumerate(steps):
        size = n if normaliser == "fixed" else n - sum(removed[: j + 1])
        gap = removal_gap(sum(removed[j + 1 :]), size, clip, normaliser=normaliser)
        phases.append(Phase(count, gap + pull))
    return phases
