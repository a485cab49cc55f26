"""In which order stages are given to workers: what the most work waits for comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from residuum.experiments.store import Stage

# how long kinds of stages take, relative to each other, where the store has not seen one yet
GUESSES = {"train": 4.0, "audit": 8.0}


def longest_path_first(stages: Iterable[Stage], seconds: Mapping[str, float | None]) -> list[Stage]:
    """Return each stage once, sorted by the time from its start to the end of the longest chain that hangs on it.

    `stages` has parents before children; equal ones stay in this order, so that early seeds are finished early.
    `seconds` says by key how long a stage will take; None where that is not known.
    """
    unique = {stage.key: stage for stage in stages}
    after = dict.fromkeys(unique, 0.0)
    path = {}
    for key, stage in reversed(unique.items()):
        known = seconds[key]
        path[key] = after[key] + (GUESSES.get(stage.kind, 1.0) if known is None else known)
        for parent in stage.parents.values():
            after[parent.key] = max(after[parent.key], path[key])
    return sorted(unique.values(), key=lambda stage: -path[stage.key])
