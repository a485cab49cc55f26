"""Run what the site shows figures of: all methods on both digits scenarios, and one run with many seeds.

python -m website.measure build/site-runs

writes website/measured.csv, the tables of README.md and docs/benchmarks/digits.md, and docs/concepts/*.svg. Finished
stages are taken from the folder's store.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from residuum import Run, Study, run
from residuum.core.components import METHODS
from residuum.reporting.summary import summary_of
from residuum.reporting.wording import estimate_words, figure_words
from residuum.studies.execution import Resources
from website import pictures, tables

CONCEPTS = Path(__file__).parents[1] / "docs" / "concepts"
QUANTITIES = ("r", "G", "M")
MANY_SEEDS = list(range(11, 19))


def measured_run(folder: Path, name: str, scenario: str, methods: str, seeds: list[int] | None = None) -> Run:
    """Return the run of these methods; an old one in the folder is made anew from the store."""
    study = Study.create(scenario, methods=methods, seeds=seeds)
    resources = Resources(workers=os.cpu_count() or 1)
    return run(study, store=folder / "store", out=folder / name, resources=resources, progress=True)


def lines(done: Run) -> Iterator[dict[str, str]]:
    """Yield a line for each row of a run: accuracies and cost in per cent, r, G and M over all radii, the verdict."""
    for row in summary_of(done).rows:
        cells = {key: row.cells[key].value for key in ("unlearn_accuracy", "test_accuracy", "cost")}
        found = {quantity: done.record.finding(row.label, done.perturbations[0], quantity) for quantity in QUANTITIES}
        yield {
            "scenario": done.name,
            "row": row.label,
            **{key: "" if value is None else f"{value:.1f}" for key, value in cells.items()},
            **{key: estimate_words(f.value(), *f.interval(), f.form) if f else "–" for key, f in found.items()},
            **{f"{key} explained": figure_words(f)[1] if f else "–" for key, f in found.items()},
            "verdict": str(row.judgment.verdict) if row.judgment else "",
            "seeds": str(len(done.seeds)),
        }


def main(folder: Path) -> None:
    """Run, write the table, draw the pictures."""
    everything = ",".join(METHODS)
    runs = [measured_run(folder, scenario, scenario, everything) for scenario in ("digits", "digits-random")]
    many = measured_run(folder, "many-seeds", "digits-random", "gd", MANY_SEEDS)
    found = [line for done in runs for line in lines(done)]
    with tables.MEASURED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    tables.measured.cache_clear()
    tables.write()
    pictures.draw(*runs, many, CONCEPTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
