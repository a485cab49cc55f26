"""The first screen: the level of every row on one axis, beside what re-training explains, sorted by verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from residuum.reporting import wording
from residuum.reporting.evidence import Finding, Quantity, find
from residuum.reporting.run import Run
from residuum.reporting.verdict import WORDS, Verdict

TITLES: dict[Quantity, str] = {"r": "Residual knowledge", "M": "Memory"}


@dataclass(frozen=True)
class Axis:
    """A stretch of values, cut at its ends; places on it are in per cent from the left.

    >>> Axis.around([0.9, 1.3]).place(1.1), Axis(0.88, 1.32).ticks()
    (50.0, [0.9, 1.0, 1.1, 1.2, 1.3])
    """

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float]) -> Axis:
        """Return an axis with these values and a little room on both sides."""
        known = [value for value in values if math.isfinite(value)]
        room = 0.05 * ((max(known) - min(known)) or 0.2)
        return cls(min(known) - room, max(known) + room)

    def place(self, value: float) -> float:
        """Return where a value stands."""
        inside = min(max(value, self.low), self.high)
        return round(100 * (inside - self.low) / (self.high - self.low), 2)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values, steps of 1, 2 or 5 times a power of ten, that cut the axis into about `count` parts."""
        rough = (self.high - self.low) / count
        power = 10 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(k * step, 12) for k in range(first, last + 1)]


@dataclass(frozen=True)
class Column:
    """One quantity of all rows on one axis; `bar` is what re-training explains, None where too few models tell."""

    quantity: Quantity
    axis: Axis
    form: str
    neutral: float
    bar: tuple[float, float] | None
    retrained: int
    findings: dict[str, Finding]

    @property
    def title(self) -> str:
        """What the column shows."""
        return TITLES[self.quantity]

    @property
    def attacked(self) -> bool:
        """Whether every model meets inputs that attack itself."""
        return any(finding.crafted_on == "unlearned" for finding in self.findings.values())

    def text(self, label: str) -> str:
        """Return the row's figure, with its interval where there is one."""
        finding = self.findings.get(label)
        if finding is None:
            return "–"
        ends = finding.interval()
        return (
            wording.amount(finding.value(), self.form)
            if self.bar is None
            else wording.estimate_words(finding.value(), *ends, self.form)
        )

    def spoken(self, label: str) -> str:
        """Return in words what the row's picture shows."""
        finding = self.findings[label]
        seeds = ", ".join(wording.amount(value, self.form) for value in finding.seeds)
        bar = "" if self.bar is None else f"; re-training explains {self.bar_words}"
        return f"{label}, {self.title.lower()}: {self.text(label)}{bar}; seeds {seeds}"

    @property
    def bar_words(self) -> str:
        """What re-training explains, as text."""
        return "" if self.bar is None else " to ".join(wording.amount(end, self.form) for end in self.bar)

    def tick_text(self, tick: float) -> str:
        """Return the number at a tick."""
        return f"{100 * tick:+g}" if self.form == "class" else f"{tick:g}"


@dataclass(frozen=True)
class PictureRow:
    """One line of the picture."""

    label: str
    verdict: Verdict
    notes: list[str]


@dataclass(frozen=True)
class Picture:
    """All rows under the first perturbation of a run; without columns where nothing was audited."""

    perturbation: str
    columns: list[Column]
    rows: list[PictureRow]


def picture_of(run: Run) -> Picture:
    """Return the picture: rows in the order of the verdicts' words, then from the largest level to the smallest."""
    perturbation = run.perturbations[0] if run.perturbations else ""
    columns = [column for quantity in TITLES if (column := _column(run, perturbation, quantity))]
    levels = {label: finding.value() for column in columns[:1] for label, finding in column.findings.items()}
    rows = [
        PictureRow(label, verdict, list(wording.row_notes(run, label, perturbation)))
        for label, verdict in run.verdicts.items()
    ]
    rows.sort(key=lambda row: (WORDS.index(row.verdict.word), -levels.get(row.label, -math.inf)))
    return Picture(perturbation, columns, rows)


def _column(run: Run, perturbation: str, quantity: Quantity) -> Column | None:
    found = {label: find(run, run.rows[label], perturbation, quantity) for label in run.verdicts}
    findings = {label: finding for label, finding in found.items() if finding}
    if not findings:
        return None
    first = next(iter(findings.values()))
    bar = None if math.isnan(first.bar()[0]) else first.bar()
    neutral = first.neutral
    shown = [value for finding in findings.values() for value in (finding.value(), *finding.seeds)]
    axis = _with_whiskers(Axis.around([*shown, *(bar or ()), neutral]), list(findings.values()))
    return Column(quantity, axis, run.form, neutral, bar, first.judgement.retrained, findings)


def _with_whiskers(axis: Axis, findings: Sequence[Finding]) -> Axis:
    """Return the axis with room for the intervals, at most half as much again on each side: the rest is cut."""
    ends = [end for finding in findings for end in finding.interval() if math.isfinite(end)]
    wide, most = Axis.around([axis.low, axis.high, *ends]), (axis.high - axis.low) / 2
    return Axis(max(wide.low, axis.low - most), min(wide.high, axis.high + most))
