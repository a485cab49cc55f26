"""The findings of the literature, each as a check on runs of ours: our number, its interval, and whether it agrees.

    python benchmarks/reproduction.py RUN [RUN ...]

RUN is the folder of a run, or one of docs/reproduction: a results.json is enough. Two tables in markdown for each: the
rows with r, G, M, average gap and cost, and the findings. A finding about rows that were not run says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from residuum.reporting import Run
from residuum.reporting.evidence import Finding, find
from residuum.reporting.glossary import GAP
from residuum.reporting.wording import estimate_words, figure_words

NOT_RUN = "not run"
NEAR = 0.25  # as share of the way from re-train's r = 1 to the original's


class Answer(NamedTuple):
    """Our number in words, and whether the finding holds in it; None where the run cannot tell."""

    shown: str
    holds: bool | None


class Known:
    """What the findings ask of one run under one perturbation."""

    def __init__(self, run: Run, perturbation: str) -> None:
        self.run, self.perturbation = run, perturbation
        self.rows = {row.label: row for row in run.summary.rows}

    def r(self, label: str) -> Finding | None:
        """Return what is known of r of a row."""
        row = self.rows.get(label)
        return find(self.run, row.row, self.perturbation) if row else None

    def gaps(self) -> dict[str, float]:
        """Return the average gap of each method, smallest first."""
        found = {
            label: row.cells[GAP.key].value
            for label, row in self.rows.items()
            if row.kind == "method" and row.cells[GAP.key].value is not None
        }
        return dict(sorted(found.items(), key=lambda pair: pair[1] or 0.0))


Check = Callable[[Known], Answer]


def shown(label: str, finding: Finding, column: int = 0) -> str:
    """Return r in words, at a radius (column 1 is the smallest above 0) or over all."""
    at = f" at {finding.taus[column - 1]:.3g}" if column else ""
    return f"{label}{at} {estimate_words(finding.value(column), *finding.interval(column), finding.form)}"


def told_above(label: str) -> Check:
    """Return whether r of the row is above what re-training explains."""
    return lambda known: _side(known, label, lambda finding: finding.judgement.word == "found")


def told_below(label: str) -> Check:
    """Return whether r of the row is below what re-training explains."""
    return lambda known: _side(known, label, lambda finding: finding.judgement.word == "over")


def not_above_at_the_largest(label: str) -> Check:
    """Return whether r of the row at the largest radius is at or below 1, up to what re-training explains."""
    return lambda known: _side(known, label, lambda f: f.value(-1) <= f.bar(-1)[1], column=-1)


def explained_at_the_smallest(label: str) -> Check:
    """Return whether r of the row at the smallest radius is what re-training explains."""
    return lambda known: _side(known, label, lambda f: f.bar(1)[0] <= f.value(1) <= f.bar(1)[1], column=1)


def _side(known: Known, label: str, holds: Callable[[Finding], bool], column: int = 0) -> Answer:
    """Return the answer on one row; None where re-training explains even the original's r."""
    finding, original = known.r(label), known.r("original")
    if finding is None or original is None:
        return Answer(NOT_RUN, None)
    low, high = finding.bar(column)
    words = shown(label, finding, column % len(finding.judgement.value))
    blind = low <= original.value(column) <= high
    return Answer(f"{words}; {low:.2f} to {high:.2f}", None if blind else holds(finding))


def near_the_original(label: str) -> Check:
    """Return whether r of the row lies within a quarter of the way from the original's r to 1."""

    def answer(known: Known) -> Answer:
        row, original = known.r(label), known.r("original")
        if row is None or original is None:
            return Answer(NOT_RUN, None)
        moved = 1 - (row.value() - 1) / (original.value() - 1)
        return Answer(
            f"{shown(label, row)}, original {original.value():.2f}: {100 * moved:.0f} % of the way", moved <= NEAR
        )

    return answer


def among_the_best_gaps(label: str, places: int) -> Check:
    """Return whether the average gap of the row is one of the smallest."""

    def answer(known: Known) -> Answer:
        gaps = known.gaps()
        if label not in gaps:
            return Answer(NOT_RUN, None)
        best = next(iter(gaps))
        place = list(gaps).index(label) + 1
        return Answer(
            f"{gaps[label]:.2f}, place {place} of {len(gaps)} (best: {best} {gaps[best]:.2f})", place <= places
        )

    return answer


FINDINGS: dict[str, Check] = {
    "original r > 1": told_above("original"),
    "GD near the original": near_the_original("gd"),
    "CF-k near the original": near_the_original("cf_k"),
    "RURK near 1 at small radii": explained_at_the_smallest("rurk"),
    "RURK at or below 1 at larger radii": not_above_at_the_largest("rurk"),
    "RURK among the best average gaps": among_the_best_gaps("rurk", 3),
    "NTK above 1 at larger radii": told_above("ntk"),
    "NGD above 1": told_above("ngd"),
    "SCRUB above 1": told_above("scrub"),
    "GA over-forgets": told_below("ga"),
    "SSD over-forgets": told_below("ssd"),
    "soft_reset explained by re-training": lambda known: _side(
        known, "soft_reset", lambda f: f.judgement.word == "none"
    ),
    "soft_reset's average gap at most 1.0": lambda known: _at_most(known, "soft_reset", 1.0),
}


def _at_most(known: Known, label: str, limit: float) -> Answer:
    gap = known.gaps().get(label)
    return Answer(NOT_RUN, None) if gap is None else Answer(f"{gap:.2f}", gap <= limit)


def row_lines(known: Known) -> Iterator[str]:
    """Yield r, G, M, gap, cost and verdict of every row."""
    yield "| model | unlearn acc. % | retain acc. % | test acc. % | average gap | cost % | r | G | M | verdict |"
    yield "|---" * 10 + "|"
    for label, row in known.rows.items():
        cells = [
            row.cells[key].value for key in ("unlearn_accuracy", "retain_accuracy", "test_accuracy", GAP.key, "cost")
        ]
        parts = [find(known.run, row.row, known.perturbation, quantity) for quantity in ("r", "G", "M")]
        words = ["–" if value is None else f"{value:.1f}" for value in cells]
        words += [figure_words(part)[0] if part else "–" for part in parts]
        yield f"| {label} | {' | '.join(words)} | {row.verdict.word if row.verdict else ''} |"


def finding_lines(known: Known) -> Iterator[str]:
    """Yield each finding with our number."""
    yield "| finding | ours [95 %]; what re-training explains | |\n|---|---|---|"
    words = {True: "agrees", False: "does not", None: "cannot tell"}
    for text, check in FINDINGS.items():
        answer = check(known)
        yield f"| {text} | {answer.shown} | {'' if answer.shown == NOT_RUN else words[answer.holds]} |"


def main() -> None:
    for folder in sys.argv[1:]:
        run = Run.load(Path(folder))
        for perturbation in run.perturbations:
            known = Known(run, perturbation)
            print(f"\n## {run.name}, {perturbation}\n", *row_lines(known), "", *finding_lines(known), sep="\n")


if __name__ == "__main__":
    main()
