"""What the page draws: the level of every row on one axis at the top, curves over the radius, trade-off, gallery."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from residuum.record import Finding, Quantity, Verdict
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.gallery import GalleryPage
from residuum.reporting.glossary import AXES, MEASURES, Measure
from residuum.reporting.summary import row_styles, summary_of

PLACES = 5  # significant digits of what plots draw; tables and files have all
TITLES: dict[Quantity, str] = {"r": "Residual knowledge", "M": "Memory"}


@dataclass(frozen=True)
class Axis:
    """A range of values; places on it are in per cent from the left, and values outside are cut.

    >>> Axis.around([0.9, 1.3]).place(1.1), Axis(0.88, 1.32).ticks()
    (50.0, [0.9, 1.0, 1.1, 1.2, 1.3])
    """

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float]) -> Axis:
        """Return an axis with these values and a little room on both sides."""
        finite = [value for value in values if math.isfinite(value)]
        room = 0.05 * ((max(finite) - min(finite)) or 0.2)
        return cls(min(finite) - room, max(finite) + room)

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
    """One quantity of all rows on one axis; `floor` is the noise floor, None with too few retrained models."""

    quantity: Quantity
    axis: Axis
    form: str
    neutral: float
    floor: tuple[float, float] | None
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
        if self.floor is None:
            return wording.amount(finding.value(), self.form)
        return wording.estimate_words(finding.value(), *finding.interval(), self.form)

    def aria_label(self, label: str) -> str:
        """Return in words what the row's picture shows."""
        finding = self.findings[label]
        seeds = ", ".join(wording.amount(value, self.form) for value in finding.seeds)
        floor = "" if self.floor is None else f"; retraining explains {self.floor_words}"
        return f"{label}, {self.title.lower()}: {self.text(label)}{floor}; seeds {seeds}"

    @property
    def floor_words(self) -> str:
        """The noise floor as text."""
        return "" if self.floor is None else " to ".join(wording.amount(end, self.form) for end in self.floor)

    def tick_text(self, tick: float) -> str:
        """Return the number at a tick."""
        return f"{100 * tick:+g}" if self.form == "class" else f"{tick:g}"


@dataclass(frozen=True)
class PictureRow:
    """One line of the picture."""

    label: str
    verdict: Verdict | None
    badge: str
    chips: list[wording.Chip]
    notes: list[str]


@dataclass(frozen=True)
class Picture:
    """All rows under the first perturbation of a run; without columns where nothing was audited."""

    perturbation: str
    columns: list[Column]
    rows: list[PictureRow]


def picture_of(run: Run) -> Picture:
    """Return the picture: rows in the order of the verdicts, then from the largest level to the smallest."""
    perturbation = run.perturbations[0] if run.perturbations else ""
    columns = [column for quantity in TITLES if (column := _column(run, perturbation, quantity))]
    levels = {label: finding.value() for column in columns[:1] for label, finding in column.findings.items()}
    rows = [
        PictureRow(
            label,
            judgment.verdict,
            wording.verdict_badge(judgment),
            wording.chips(judgment)[:2],
            list(wording.row_notes(run, label, perturbation)),
        )
        for label, judgment in run.verdicts.items()
    ]
    order: list[Verdict | None] = list(Verdict)
    rows.sort(key=lambda row: (order.index(row.verdict), -levels.get(row.label, -math.inf)))
    return Picture(perturbation, columns, rows)


def _column(run: Run, perturbation: str, quantity: Quantity) -> Column | None:
    judgments = run.verdicts.items()
    findings = {label: finding for label, j in judgments if (finding := j.found(perturbation, quantity))}
    if not findings:
        return None
    first = next(iter(findings.values()))
    floor, neutral = first.floor() if first.has_floor else None, first.neutral
    shown = [value for finding in findings.values() for value in (finding.value(), *finding.seeds)]
    narrow = Axis.around([*shown, *(floor or ()), neutral])
    # intervals get at most half of the axis more on each side; the rest is cut
    ends = [end for finding in findings.values() for end in finding.interval() if math.isfinite(end)]
    wide, room = Axis.around([narrow.low, narrow.high, *ends]), (narrow.high - narrow.low) / 2
    axis = Axis(max(wide.low, narrow.low - room), min(wide.high, narrow.high + room))
    return Column(quantity, axis, run.form, neutral, floor, first.retrained, findings)


def plot_data(runs: Sequence[Run], galleries: Sequence[GalleryPage]) -> dict[str, Any]:
    """Return what the page's script draws."""
    measures = taken_measures(runs)
    shown = list(dict.fromkeys(label for run in runs for label in summary_of(run).first_shown()))
    return {
        "first": "difference" if all(run.form == "class" for run in runs) else MEASURES[0].key,
        "measures": [asdict(measure) for measure in measures],
        "styles": {label: asdict(style) for label, style in row_styles(runs).items()},
        "shown": shown,
        "panels": rounded([panel for run in runs for panel in panels(run, measures)]),
        "tradeoff": rounded(
            [
                {
                    "run": run.name,
                    "perturbation": name,
                    "form": run.form,
                    "points": [asdict(point) for point in summary_of(run).trade_off(name)],
                }
                for run in runs
                for name in run.perturbations
            ]
        ),
        "gallery": [
            {"seeds": {s: [_answers(card) for card in cards] for s, cards in g.seeds.items()}} for g in galleries
        ],
    }


def taken_measures(runs: Sequence[Run]) -> list[Measure]:
    """Return the measures that have a value anywhere."""
    audits = [audit for run in runs for *_, audit in run.record.each_audit()]
    measures = {measure.key: measure for run in runs for measure in summary_of(run).measures}.values()
    return [m for m in measures if any(value is not None for audit in audits for value in audit.curve(m.key).value)]


def panels(run: Run, measures: Sequence[Measure] = MEASURES) -> Iterator[dict[str, Any]]:
    """Yield for each perturbation everything that its plots show."""
    summary = summary_of(run)
    for name in run.perturbations:
        floors = summary.floors[name]
        yield {
            "run": run.name,
            "perturbation": name,
            "axis": AXES.get(name, "radius"),
            "taus": summary.taus[name],
            "seeds": run.seeds,
            "floors": {key: floor and {"low": floor.low, "high": floor.high} for key, floor in floors.items()},
            "curves": {
                measure.key: {
                    row.label: [
                        {"value": curve.value, "low": curve.low, "high": curve.high}
                        for curve in row.seed_curves(name, measure.key)
                    ]
                    for row in summary.audited(name)
                }
                for measure in measures
            },
        }


def _answers(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: strip[key] for key in ("reference", "right", "counted")} for strip in card["strips"]]


def rounded(value: object) -> object:
    """Return the same value with floats cut to the digits a plot can show.

    >>> rounded({"a": [1.23456789, None]})
    {'a': [1.2346, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.{PLACES}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value
