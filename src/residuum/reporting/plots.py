"""What the page draws: every row on one axis at the top, and curves over the radius."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from residuum.core.roles import Role
from residuum.judging.findings import judged_measure
from residuum.record import Bounds, Column, Finding, Place, Quantity, Verdict
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.glossary import AXES, PICTURE, Measure
from residuum.reporting.summary import summary_of

SIDES = {Verdict.FOUND: ("above",), Verdict.OVER_FORGOTTEN: ("below",), Verdict.MIXED: ("above", "below")}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520.0, 280.0, 46.0, 112.0, 12.0, 40.0  # of a plot of curves
TAG = 12.5  # height of a name at the end of a curve
LONGEST = 16  # characters of it
MOST = 16  # rows in a plot of curves


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
class PictureRow:
    """One row on the axis; `dots` are its seeds, or where the row stands for all retrained models, these."""

    label: str
    role: Role
    verdict: Verdict | None
    column: Column | None
    dots: list[float]
    notes: list[str]


@dataclass(frozen=True)
class Picture:
    """All judged rows in the column `place` of the rule, and the retrained models; without a place, nothing to draw.

    `groups` has the methods by verdict; the original stands above them and the retrained models below.
    """

    place: Place | None
    form: str
    axis: Axis
    floor: Bounds
    neutral: float
    retrained: int
    title: str
    originals: list[PictureRow]
    groups: dict[Verdict, list[PictureRow]]
    references: PictureRow | None

    def text(self, value: float) -> str:
        """Return a value as text: a ratio, or percentage points."""
        return wording.amount(value, self.form)

    def tick_text(self, tick: float) -> str:
        """Return the number at a tick."""
        return f"{100 * tick:+g}" if self.form == "class" else f"{tick:g}"

    @property
    def floor_words(self) -> str:
        """The noise floor as text."""
        return " to ".join(self.text(end) for end in self.floor)

    def aria_label(self, row: PictureRow) -> str:
        """Return in words what the row's picture shows."""
        if row.column is None:
            return f"{row.label}: {', '.join(self.text(dot) for dot in row.dots)}"
        ends = row.column.interval
        interval = f", 95 % interval {' to '.join(self.text(end) for end in ends)}" if ends else ""
        return f"{row.label}: {self.text(row.column.value)}{interval}; retrained models: {self.floor_words}"


def picture_of(run: Run) -> Picture:
    """Return the picture of a run; in each group the rows stand from the largest value to the smallest."""
    place = shown_place(run)
    columns = {label: column for label in run.record.judgments if (column := column_at(run, label, place))}
    rows = [
        PictureRow(
            label,
            run.rows[label].role,
            judgment.verdict,
            columns.get(label),
            _seeds(run, label, place),
            [*notes(run, label, place), *wording.unchanged_note(run, label)],
        )
        for label, judgment in run.verdicts.items()
    ]
    rows.sort(key=lambda row: -row.column.value if row.column else math.inf)
    methods = [row for row in rows if row.role is Role.METHOD]
    retrained = [label for label, row in run.rows.items() if row.role.retrained and label in columns]
    dots = [dot for label in retrained for dot in _seeds(run, label, place) or [columns[label].value]]
    first = next(iter(columns.values()), None)
    floor = (first.floor if first else None) or (math.nan, math.nan)
    shown = [value for row in rows for value in (*row.dots, *([row.column.value] if row.column else []))]
    neutral = 0.0 if run.form == "class" else 1.0
    return Picture(
        place,
        run.form,
        _axis([*shown, *dots, *floor, neutral], [column.interval for column in columns.values() if column.interval]),
        floor,
        neutral,
        first.retrained if first else 0,
        _title(run, place, first) if place and first else "",
        [row for row in rows if row.role is Role.ORIGINAL],
        {verdict: members for verdict in Verdict if (members := [row for row in methods if row.verdict is verdict])},
        PictureRow("retrained models", Role.REFERENCE, None, None, dots, []) if dots else None,
    )


def shown_place(run: Run) -> Place | None:
    """Return the column that shows most verdicts as they are: outside the noise floor what was found, others inside."""
    quantities: tuple[Quantity, ...] = ("r", "M")
    places = [
        Place(perturbation=name, quantity=quantity, column=k)
        for name in run.perturbations
        for quantity in quantities
        if (finding := next((f for j in run.verdicts.values() if (f := j.finding_of(name, quantity))), None))
        for k, column in enumerate(finding.columns)
        if column.floor
    ]

    def shown(place: Place) -> int:
        return sum(
            column.side in SIDES.get(judgment.verdict, (None,))
            for label, judgment in run.verdicts.items()
            if judgment.verdict and (column := column_at(run, label, place))
        )

    return max(places, key=shown, default=None)


def column_at(run: Run, label: str, place: Place | None) -> Column | None:
    """Return what the rule says of a row in a column."""
    finding = _finding(run, label, place)
    return finding.columns[place.column] if place and finding else None


def _finding(run: Run, label: str, place: Place | None) -> Finding | None:
    return run.record.judgments[label].finding_of(place.perturbation, place.quantity) if place else None


def _seeds(run: Run, label: str, place: Place | None) -> list[float]:
    """Return the values of the seeds, which the record has for levels only."""
    finding = _finding(run, label, place)
    return finding.seeds if finding and place and place.column == 0 and len(finding.seeds) > 1 else []


def _axis(shown: Sequence[float], intervals: Sequence[Bounds]) -> Axis:
    """Return an axis with everything shown; intervals get at most half of it more on each side, the rest is cut."""
    if not any(math.isfinite(value) for value in shown):
        return Axis(0.0, 1.0)
    narrow = Axis.around(shown)
    wide = Axis.around([narrow.low, narrow.high, *(end for ends in intervals for end in ends)])
    room = (narrow.high - narrow.low) / 2
    return Axis(max(wide.low, narrow.low - room), min(wide.high, narrow.high + room))


def _title(run: Run, place: Place, column: Column) -> str:
    """Return what the axis shows."""
    kind = "M" if place.quantity == "M" else "level" if column.tau is None else "radius" if column.tau else "themselves"
    words = PICTURE[kind].format(perturbation=place.perturbation, tau=f"{column.tau or 0:g}")
    crafted = [finding.crafted_on for j in run.verdicts.values() if (finding := j.finding_of(place.perturbation))]
    return f"{words}{PICTURE['attacked'] if 'unlearned' in crafted else ''}, {PICTURE[run.form]}"


def notes(run: Run, label: str, place: Place | None) -> Iterator[str]:
    """Yield where else a row was found outside the noise floor, if the column shown does not tell."""
    judgment, shown = run.verdicts[label], column_at(run, label, place)
    column, rests_on = judgment.column, judgment.rests_on
    if judgment.verdict not in SIDES or column is None or rests_on is None or not place or (shown and shown.side):
        return
    where = "memory M" if rests_on.quantity == "M" else "all radii" if column.tau is None else f"radius {column.tau:g}"
    name = "" if rests_on.perturbation == place.perturbation else f"{rests_on.perturbation}, "
    yield f"outside by {name}{where}"


@dataclass(frozen=True)
class Line:
    """One row in a plot of curves: its points on the drawing, and the height of its name at the end."""

    label: str
    kind: str
    points: list[tuple[float, float]]
    tag: float

    @property
    def name(self) -> str:
        """The row's name, shortened."""
        return self.label if len(self.label) <= LONGEST else f"{self.label[: LONGEST - 1]}…"


@dataclass(frozen=True)
class Frame:
    """Where radii and values stand on the drawing of a plot."""

    radii: Axis
    values: Axis

    def x(self, tau: float) -> float:
        """Return the place of a radius, from the left."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * self.radii.place(tau) / 100, 1)

    def y(self, value: float) -> float:
        """Return the height of a value, from the top."""
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - self.values.place(value) / 100), 1)


@dataclass(frozen=True)
class CurvePlot:
    """One measure over the radii of a perturbation."""

    measure: Measure
    perturbation: str
    x_title: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    neutral: float | None
    lines: list[Line]
    left_out: int


def measures_with_values(run: Run) -> list[Measure]:
    """Return the measures that have a value anywhere, the judged one first."""
    audits = [audit for *_, audit in run.record.each_audit()]
    first = judged_measure(run.form)[0]
    measures = summary_of(run).measures
    with_values = [m for m in measures if any(v is not None for a in audits for v in a.curve(m.key).value)]
    return sorted(with_values, key=lambda measure: measure.key != first)


def curve_plots(run: Run, measure: Measure) -> Iterator[CurvePlot]:
    """Yield one plot for each perturbation that has values; the original, retrained models and methods."""
    summary, tones = summary_of(run), tones_of(run)
    shown = [label for label in summary.first_shown(MOST) if run.rows[label].role is not Role.REFERENCE]
    for name in run.perturbations:
        rows, taus = [row for row in summary.audited(name) if row.role is not Role.REFERENCE], summary.taus[name]
        judged = judged_curves(run, name, measure)
        curves = {
            row.label: judged.get(row.label) or row.curve(name, measure.key).value for row in rows if row.label in shown
        }
        values = [value for curve in curves.values() for value in curve if value is not None]
        values += [] if measure.neutral is None else [measure.neutral]
        if not values:
            continue
        frame = Frame(Axis(0.0, max(taus) or 1.0), Axis.around(values))
        drawn = {
            label: [(frame.x(tau), frame.y(value)) for tau, value in zip(taus, curve, strict=True) if value is not None]
            for label, curve in curves.items()
        }
        tags = spread_apart({label: points[-1][1] for label, points in drawn.items() if points})
        yield CurvePlot(
            measure,
            name,
            f"{name}: {AXES.get(name, 'radius')}",
            [(frame.x(tick), f"{tick:g}") for tick in frame.radii.ticks()],
            [(frame.y(tick), f"{tick:g}") for tick in frame.values.ticks()],
            None if measure.neutral is None else frame.y(measure.neutral),
            [Line(label, tones[label], points, tags[label]) for label, points in drawn.items() if points],
            len(rows) - len(curves),
        )


def judged_curves(run: Run, perturbation: str, measure: Measure) -> dict[str, list[float | None]]:
    """Return what the rule compares of each row at each radius; empty for measures that make no verdict."""
    if measure.key != judged_measure(run.form)[0]:
        return {}
    findings = {label: finding for label, j in run.record.judgments.items() if (finding := j.finding_of(perturbation))}
    return {label: [column.value for column in finding.columns[1:]] for label, finding in findings.items()}


def tones_of(run: Run) -> dict[str, str]:
    """Return how each row is drawn: by its verdict, or as the original or a retrained model."""
    verdicts = {label: judgment.verdict for label, judgment in run.verdicts.items() if judgment.verdict}
    tones = {label: wording.TONES[verdict] for label, verdict in verdicts.items()}
    return {
        label: tones.get(label, row.role) if row.role is Role.METHOD else row.role for label, row in run.rows.items()
    }


def spread_apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Return the heights moved apart, in their order, so that no name covers another.

    >>> spread_apart({"a": 100.0, "b": 101.0})
    {'a': 100.0, 'b': 112.5}
    """
    moved: dict[str, float] = {}
    last = -math.inf
    for label in sorted(heights, key=lambda label: heights[label]):
        last = moved[label] = max(heights[label], last + TAG)
    limit = HEIGHT - BOTTOM
    for label in reversed(moved):
        moved[label] = min(moved[label], limit)
        limit = moved[label] - TAG
    return moved
