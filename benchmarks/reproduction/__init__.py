"""The findings of the literature, each as a check on runs of ours: our number, its interval, and whether it agrees.

    python -m benchmarks.reproduction RUN [RUN ...]

RUN is the folder of a run, or one of docs/reproduction: a results.json is enough. Tables in markdown for each: the rows
with r, G, M, average gap and cost; the published values next to ours; r at every radius; and the findings about rows
that were run. Where a method has several rows, what each setting changes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reproduction.published import METRICS, Comparison, compare, load_published, published_row

from residuum.core.roles import Role
from residuum.judging.findings import comparisons_of
from residuum.record import Finding, Quantity, Spread
from residuum.record.run import Run
from residuum.reporting.glossary import GAP
from residuum.reporting.summary import RowSummary, summary_of
from residuum.reporting.wording import estimate_words, figure_words
from residuum.studies.parsing import as_text

NOT_RUN = "not run"
FLAT = 5.0  # points of unlearn accuracy
LEAST = 1.0  # points of accuracy: retrained models that fit all retained samples do not differ
RATIOS: tuple[Quantity, ...] = ("r", "M")
ACCURACIES = ("unlearn_accuracy", "retain_accuracy", "test_accuracy")
NEAR = 0.25  # as share of the way from the reference's r = 1 to the original's


class Answer(NamedTuple):
    """Our number in words, and whether the finding holds in it; None where the run cannot tell."""

    shown: str
    holds: bool | None


class Known:
    """What the findings ask of one run under one perturbation."""

    def __init__(self, run: Run, perturbation: str) -> None:
        self.run, self.perturbation = run, perturbation
        self.rows = {row.label: row for row in summary_of(run).rows}

    def r(self, label: str) -> Finding | None:
        """Return what is known of r of a row: of this label, or the first with this method."""
        named = (row for row in self.rows.values() if row.row.method == label)
        row = self.rows.get(label) or next(named, None)
        return self.run.record.finding(row.label, self.perturbation) if row else None

    def gaps(self) -> dict[str, float]:
        """Return the average gap of each method, smallest first."""
        found = {
            label: gap
            for label, row in self.rows.items()
            if row.role is Role.METHOD and (gap := row.cells[GAP.key].value) is not None
        }
        return dict(sorted(found.items(), key=lambda pair: pair[1]))


Check = Callable[[Known], Answer]


def shown(label: str, finding: Finding, column: int = 0) -> str:
    """Return r in words, at a radius or over all."""
    tau = finding.columns[column].tau
    at = "" if tau is None else f" at {tau:.3g}"
    return f"{label}{at} {known_part(estimate_words(finding.value(column), *finding.interval(column), finding.form))}"


def known_part(words: str) -> str:
    """Return a figure without the interval that a single seed does not have."""
    return words.replace(" [nan, nan]", "")


def told_above(label: str) -> Check:
    """Return whether r of the row is above what retraining explains."""
    return lambda known: _side(known, label, lambda finding: finding.above and not finding.below)


def told_below(label: str) -> Check:
    """Return whether r of the row is below what retraining explains."""
    return lambda known: _side(known, label, lambda finding: finding.below and not finding.above)


def not_above_at_the_largest(label: str) -> Check:
    """Return whether r of the row at the largest radius is at or below 1, up to what retraining explains."""
    return lambda known: _side(known, label, lambda f: f.value(-1) <= f.floor(-1)[1], column=-1)


def explained_at_the_smallest(label: str) -> Check:
    """Return whether r of the row at the smallest radius is what retraining explains."""
    return lambda known: _side(known, label, lambda f: f.columns[_smallest(f)].side is None, column=None)


def _smallest(finding: Finding) -> int:
    """Return the column of the smallest radius above 0."""
    return next(k for k, column in enumerate(finding.columns) if column.tau)


def _side(known: Known, label: str, holds: Callable[[Finding], bool], column: int | None = 0) -> Answer:
    """Return the answer on one row; None where retraining explains it, and even the original's r.

    `column` None is the smallest radius above 0.
    """
    finding, original = known.r(label), known.r("original")
    if finding is None or original is None:
        return Answer(NOT_RUN, None)
    column = _smallest(finding) if column is None else column
    low, high = finding.floor(column)
    words = shown(label, finding, column)
    if math.isnan(low):  # one seed with one control
        return Answer(words, None)
    told = column == 0 and finding.above != finding.below
    blind = low <= original.value(column) <= high and not told
    return Answer(f"{words}; {low:.2f} to {high:.2f}", None if blind else holds(finding))


def near_the_original(label: str) -> Check:
    """Return whether r of the row lies within a quarter of the way from the original's r to 1."""

    def answer(known: Known) -> Answer:
        row, original = known.r(label), known.r("original")
        if row is None or original is None:
            return Answer(NOT_RUN, None)
        words = f"{shown(label, row)}, original {original.value():.2f}"
        if original.value() <= 1:  # nothing to be near to
            return Answer(words, None)
        moved = 1 - (row.value() - 1) / (original.value() - 1)
        return Answer(f"{words}: {100 * moved:.0f} % of the way", moved <= NEAR)

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


def in_class_form(check: Check) -> Check:
    """Return the check for runs that forget whole classes, and for no others."""
    return lambda known: check(known) if known.run.form == "class" else Answer(NOT_RUN, None)


def variants(known: Known, *fields: str) -> dict[Any, RowSummary]:
    """Return the rows of RURK that differ in these fields alone, by the first one's value; the most that there are."""
    alike: dict[str, dict[Any, RowSummary]] = {}
    for row in known.rows.values():
        if row.row.method == "rurk":
            rest = {key: value for key, value in row.row.settings.items() if key not in fields}
            alike.setdefault(repr(rest), {})[row.row.settings[fields[0]]] = row
    return max(alike.values(), key=len, default={})


def best_search(attack: str) -> Check:
    """Return whether RURK has its smallest average gap with this search."""

    def answer(known: Known) -> Answer:
        cells = {search: row.cells[GAP.key].value for search, row in variants(known, "attack").items()}
        gaps = {search: gap for search, gap in cells.items() if gap is not None}
        if attack not in gaps or len(gaps) < 2:
            return Answer(NOT_RUN, None)
        ordered = sorted(gaps, key=gaps.__getitem__)
        return Answer(", ".join(f"{search} {gaps[search]:.2f}" for search in ordered), ordered[0] == attack)

    return answer


def with_growing(*fields: str, holds: Callable[[list[float]], bool]) -> Check:
    """Return whether this holds of RURK's unlearn accuracy over growing values of a setting, all others being equal."""

    def answer(known: Known) -> Answer:
        rows = sorted(variants(known, *fields).items())
        found = [(value, row.cells["unlearn_accuracy"].value or 0.0) for value, row in rows]
        if len(found) < 2:
            return Answer(NOT_RUN, None)
        words = ", ".join(f"{accuracy:.0f} at {value:g}" for value, accuracy in found)
        return Answer(f"unlearn accuracy {words}", holds([accuracy for _, accuracy in found]))

    return answer


def rises(values: list[float]) -> bool:
    """Return whether no value is below the one before, and the last is above the first."""
    return values == sorted(values) and values[-1] > values[0]


def is_flat(values: list[float]) -> bool:
    """Return whether all values lie within so many points."""
    return max(values) - min(values) <= FLAT


FINDINGS: dict[str, Check] = {
    "original r > 1": told_above("original"),
    "GD near the original": near_the_original("gd"),
    "CF-k near the original": near_the_original("cf_k"),
    "RURK near 1 at small radii": explained_at_the_smallest("rurk"),
    "RURK at or below 1 at larger radii": not_above_at_the_largest("rurk"),
    "RURK among the best average gaps": among_the_best_gaps("rurk", 3),
    "FGSM search the best variant of RURK": best_search("fgsm"),
    "EU-k has the smallest average gap in class form": in_class_form(among_the_best_gaps("eu_k", 1)),
    "RURK has the second smallest": in_class_form(among_the_best_gaps("rurk", 2)),
    "RURK's unlearn accuracy rises with tau": with_growing("tau", holds=rises),
    "RURK's unlearn accuracy rises with lambda": with_growing("lambda_f", "lambda_a", holds=rises),
    "RURK's unlearn accuracy is flat in v": with_growing("v", holds=is_flat),
    "NTK above 1 at larger radii": told_above("ntk"),
    "NGD above 1": told_above("ngd"),
    "SCRUB above 1": told_above("scrub"),
    "GA over-forgets": told_below("ga"),
    "SSD over-forgets": told_below("ssd"),
    "soft_reset explained by retraining": lambda known: _side(
        known, "soft_reset", lambda f: not f.above and not f.below
    ),
    "soft_reset's average gap at most 1.0": lambda known: _at_most(known, "soft_reset", 1.0),
}


def _at_most(known: Known, label: str, limit: float) -> Answer:
    gap = known.gaps().get(label)
    return Answer(NOT_RUN, None) if gap is None else Answer(f"{gap:.2f}", gap <= limit)


def row_lines(known: Known) -> Iterator[str]:
    """Yield verdict, r, G, M, accuracies, gap and cost of every row."""
    yield "| model | verdict | r | G | M | unlearn acc. % | retain acc. % | test acc. % | average gap | cost % |"
    yield "|---" * 10 + "|"
    for label, row in known.rows.items():
        cells = _figures(known, row, (), ("r", "G", "M")) + _figures(known, row, (*ACCURACIES, GAP.key, "cost"), ())
        yield f"| {label} | {row.judgment.verdict if row.judgment else ''} | {' | '.join(cells)} |"


def _figures(known: Known, row: RowSummary, keys: Sequence[str], quantities: Sequence[Quantity]) -> list[str]:
    values = [row.cells[key].value for key in keys]
    parts = [known.run.record.finding(row.label, known.perturbation, quantity) for quantity in quantities]
    words = ["–" if value is None else f"{value:.1f}" for value in values]
    return words + [known_part(figure_words(part)[0]) if part else "–" for part in parts]


def change_lines(known: Known) -> Iterator[str]:
    """Yield what each further row of a method changes: what differs from its first by more than retraining alone.

    For accuracies that is how far the retrained models lie apart; for r and M what they explain.
    """
    yield "| method | setting | unlearn acc. % | retain acc. % | test acc. % | average gap | r | M | changes |"
    yield "|---" * 9 + "|"
    alike: dict[str, list[RowSummary]] = {}
    for row in known.rows.values():
        alike.setdefault(row.row.method, []).append(row)
    for method, (base, *others) in alike.items():
        for row in (base, *others) if others and base.role is Role.METHOD else ():
            moved = "" if row is base else ", ".join(_moved(known, row, base)) or "nothing"
            cells = [*_figures(known, row, (*ACCURACIES, GAP.key), RATIOS), moved]
            yield f"| {method} | {_differences(row, base)} | {' | '.join(cells)} |"
    for label, reason in known.run.record.failed.items():
        yield f"| {label.replace(':', ' | ', 1)} {'| – ' * 6}| fails: {reason} |"


def _range(known: Known, key: str) -> float:
    """Return how far the retrained models lie apart in an accuracy, a point at least."""
    values = [row.cells[key].value or 0.0 for row in known.rows.values() if row.role.retrained]
    return max(LEAST, max(values) - min(values))


def _differences(row: RowSummary, base: RowSummary) -> str:
    """Return the settings in which a row differs from the first one of its method."""
    own, others = row.row.settings, base.row.settings
    return ", ".join(f"{field}={as_text(own[field])}" for field in own if own[field] != others.get(field)) or "–"


def _moved(known: Known, row: RowSummary, base: RowSummary) -> Iterator[str]:
    for key in ACCURACIES:
        if abs((row.cells[key].value or 0.0) - (base.cells[key].value or 0.0)) > _range(known, key):
            yield key.removesuffix("_accuracy")
    for quantity in RATIOS:
        part = comparisons_of(known.run.record).of(known.perturbation, quantity)
        own, other = (part and part.values(r.row) for r in (row, base))
        if part and own is not None and other is not None:
            step = float(own[:, 0].mean() - other[:, 0].mean() - part.columns.mean[0])
            if abs(step) > part.columns.half_floor[0]:
                yield quantity


def published_lines(known: Known) -> Iterator[str]:
    """Yield the published accuracies beside ours, as mean and standard deviation over seeds."""
    found: dict[str, dict[str, Comparison]] = {}
    for entry in compare(known.run, load_published()):
        found.setdefault(entry.label, {})[entry.metric] = entry
    yield "| model | " + " | ".join(f"{metric.replace('_', ' ')} %" for metric in METRICS.values()) + " | note |"
    yield "|---" * (len(METRICS) + 2) + "|"
    for label, entries in found.items():
        cells = [_beside(entries[metric]) if metric in entries else "–" for metric in METRICS.values()]
        doubt = next((entry.doubt for entry in entries.values() if entry.doubt), "")
        yield f"| {label} | {' | '.join(cells)} | {doubt} |"


def _beside(entry: Comparison) -> str:
    mark = {"agrees": " =", "differs": " ≠"}.get(entry.mark, "")
    return f"{_spread(entry.ours)}; {_spread(entry.theirs)}{mark}"


def _spread(spread: Spread) -> str:
    return f"{spread.mean:.1f}" + ("" if spread.std is None or spread.n < 2 else f" ± {spread.std:.1f}")


def beside_lines(known: Known) -> Iterator[str]:
    """Yield verdict, r, M and cost of every row, and its accuracies and gap with the published values in brackets.

    Of several rows of a method, the first has the published values.
    """
    head = ["model", "verdict", "r", "M", "unlearn acc. %", "retain acc. %", "test acc. %", "average gap", "cost %"]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    metrics = {"unlearn_acc": ACCURACIES[0], "retain_acc": ACCURACIES[1], "test_acc": ACCURACIES[2], "avg_gap": GAP.key}
    shown: set[str] = set()
    for label, row in known.rows.items():
        published = published_row(known.run, row.row.method) if row.row.method not in shown else {}
        shown.add(row.row.method)
        cells = _figures(known, row, (), ("r", "M"))
        for name, key in metrics.items():
            ours, theirs = row.cells[key].value, published.get(name)
            cells.append(("–" if ours is None else f"{ours:.1f}") + (f" ({theirs.mean:.1f})" if theirs else ""))
        cells += _figures(known, row, ("cost",), ())
        yield f"| {label} | {row.judgment.verdict if row.judgment else ''} | {' | '.join(cells)} |"


def radius_lines(known: Known) -> Iterator[str]:
    """Yield r of every row at every radius above 0, and what retraining explains there.

    Where each model is attacked itself, the literature's r is in brackets: on the inputs crafted on the row.
    """
    found = {label: known.r(label) for label in known.rows}
    rows = {label: finding for label, finding in found.items() if finding is not None}
    first = next(iter(rows.values()))
    columns = {k: column.tau for k, column in enumerate(first.columns) if column.tau}
    yield "| model | " + " | ".join(f"{255 * tau:.2g}/255" for tau in columns.values()) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for label, finding in rows.items():
        cells = [f"{finding.value(k):.2f}" for k in columns]
        if finding.crafted_on == "unlearned":
            same = known.rows[label].curve(known.perturbation, "pooled").value[-len(cells) :]
            cells = [f"{cell} ({r:.2f})" for cell, r in zip(cells, same, strict=True)]
        yield f"| {label} | " + " | ".join(cells) + " |"
    bars = [first.floor(k) for k in columns]
    if not math.isnan(bars[0][0]):
        yield "| *retraining explains* | " + " | ".join(f"{low:.2f} to {high:.2f}" for low, high in bars) + " |"


def finding_lines(known: Known) -> Iterator[str]:
    """Yield each finding with our number."""
    yield "| finding | ours [95 %]; what retraining explains | result |\n|---|---|---|"
    words = {True: "agrees", False: "does not", None: "cannot tell"}
    for text, check in FINDINGS.items():
        answer = check(known)
        if answer.shown != NOT_RUN:
            yield f"| {text} | {answer.shown} | {words[answer.holds]} |"


TABLES: dict[str, Callable[[Run, str], Iterator[str]]] = {
    "rows": lambda run, perturbation: row_lines(Known(run, perturbation)),
    "radii": lambda run, perturbation: radius_lines(Known(run, perturbation)),
    "findings": lambda run, perturbation: finding_lines(Known(run, perturbation)),
    "changes": lambda run, perturbation: change_lines(Known(run, perturbation)),
    "published": lambda run, perturbation: published_lines(Known(run, perturbation)),
    "beside": lambda run, perturbation: beside_lines(Known(run, perturbation)),
}


def main() -> None:
    for run in map(Run.load, map(Path, sys.argv[1:])):
        for perturbation in run.perturbations:
            for part, lines in TABLES.items():
                print(f"\n## {run.name}, {perturbation}: {part}\n", *lines(run, perturbation), sep="\n")
