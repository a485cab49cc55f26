"""Ten deletion requests one after the other on digits: what is left of all requests so far, and of the first.

    python benchmarks/ten_requests.py [--methods gd,soft_reset,rurk] [--seeds 1001,1002] [--store FOLDER]

Each request forgets 2 % of the training samples that are left. Every method goes on from its own last result; re-train
and control are trained anew without all samples forgotten so far. Prints r over all radii above 0, pooled over their
draws, as mean over the seeds. `residuum run digits --requests FILE` does the same with all metrics and a report.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from residuum import Study
from residuum.auditing import Counts
from residuum.studies import Stage, plan
from residuum.studies.runner import run_stages
from residuum.studies.store import Store
from residuum.tuning import with_parents

REQUESTS = ["fraction=0.02"] * 10


def ratio(counts: Counts, ids: set[str]) -> float:
    """Return r over all radii above 0 of the samples with these ids."""
    rows = [row for row, own in enumerate(counts.ids) if own in ids]
    right, reference = (getattr(counts, name)[rows, 1:].sum() for name in ("method_right", "reference_right"))
    return float(right / reference)


def audits(step: Study, store: Store) -> list[Path]:
    """Return the folders of one request's audits, one for each seed."""
    stages: list[Stage] = [own.audits["gaussian"] for own in plan(step)]
    wanted = {stage.key: stage for last in stages for stage in with_parents(last)}
    run_stages(list(wanted.values()), store)
    return [store.folder(stage) for stage in stages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="gd,soft_reset,rurk")
    parser.add_argument("--seeds", default="1001,1002")
    parser.add_argument("--store", type=Path, default=Path(".residuum/store"))
    arguments = parser.parse_args()
    seeds, store = [int(seed) for seed in arguments.seeds.split(",")], Store(arguments.store)
    asked = Study.create(
        "digits", methods=arguments.methods, seeds=seeds, requests=REQUESTS, overrides={"audit.draws": 20}
    )
    first: set[str] = set()
    labels = [label for label in asked.labels if label != "retrain"]
    print("| request | forgotten so far | " + " | ".join(f"{label}: all, first request" for label in labels) + " |")
    for number, step in enumerate(asked.steps, start=1):
        so_far = set(step.splits().forget.ids)
        first = first or so_far
        folders, cells = audits(step, store), []
        for label in labels:
            counts = [Counts.load(folder / "counts" / f"{label}.npz") for folder in folders]
            values = [fmean(ratio(own, ids) for own in counts) for ids in (so_far, first)]
            cells.append(", ".join(f"{value:.2f}" for value in values))
        print(f"| {number} | {len(so_far)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
