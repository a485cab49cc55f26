"""The verdict on one row of a run: a pure function of the record, with its thresholds in one table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from residuum.reporting.levels import difference_bounds, ratio_bounds
from residuum.reporting.records import Record, Run, kind

INCONCLUSIVE = "inconclusive"
FOUND = "residual knowledge found"
OVER = "over-forgotten"
MIXED = "mixed"
NONE_FOUND = "no residual knowledge found at this precision"

FEWEST_DRAWS = 30
WIDEST = 0.05
ERROR = 0.05
SHARE = (2, 3)
UNLEARN_POINTS = 10.0
TEST_POINTS = 3.0

THRESHOLDS = (
    (
        "Draws per sample and radius",
        f"at least {FEWEST_DRAWS}",
        "fewer: inconclusive; attacks that are enumerated are exact",
    ),
    (
        "Half-width of every reported interval",
        f"at most {WIDEST:g}",
        "wider at any radius above 0 in any seed: inconclusive",
    ),
    ("Controls", "at least 1", "without a second re-trained model there is no noise floor: inconclusive"),
    (
        "Confidence of the judged intervals",
        f"1 − {ERROR:g} / number of radii",
        "so that looking at many radii is not rewarded",
    ),
    (
        "Seeds that must agree at one radius",
        f"at least {SHARE[0]} of {SHARE[1]}",
        "for residual knowledge and for over-forgetting",
    ),
    (
        "Residual knowledge",
        "low end above 1 and above the noise floor",
        "at some radius above 0 (class form: difference above 0)",
    ),
    (
        "Over-forgetting",
        "high end below 1 and below the noise floor",
        "at some radius above 0 (class form: difference below 0)",
    ),
    ("Unlearn accuracy", f"at most {UNLEARN_POINTS:g} points above re-train's", "more: over-forgotten"),
    ("Test accuracy", f"at most {TEST_POINTS:g} points below re-train's", "less: over-forgotten"),
)


@dataclass(frozen=True)
class Point:
    """What all seeds say at one radius of one perturbation; bounds are at the judged confidence."""

    perturbation: str
    tau: float
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    floor: tuple[float, float]
    neutral: float

    @property
    def bar(self) -> tuple[float, float]:
        """Return (min(neutral, floor.low), max(neutral, floor.high)): what lies between is no evidence."""
        return min(self.neutral, self.floor[0]), max(self.neutral, self.floor[1])

    @property
    def above(self) -> int:
        """Return in how many seeds the whole interval lies above the bar."""
        return sum(low > self.bar[1] for low in self.lows)

    @property
    def below(self) -> int:
        """Return in how many seeds the whole interval lies below the bar."""
        return sum(high < self.bar[0] for high in self.highs)

    @property
    def mean(self) -> float:
        """Return the mean over seeds."""
        return statistics.fmean(self.values)

    def enough(self, count: int) -> bool:
        """Return whether a count is at least two thirds of the seeds."""
        return count * SHARE[1] >= SHARE[0] * len(self.values)


@dataclass(frozen=True)
class Verdict:
    """The word, the radius it rests on, and why."""

    word: str
    confidence: float
    point: Point | None = None
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)


def judge(run: Run, label: str) -> Verdict:
    """Return the verdict on one row over all perturbations of the run.

    Each perturbation is judged alone, with intervals at 1 - 0.05 / (radii above 0 of all perturbations); evidence from
    one stands when another is inconclusive.
    """
    confidence = judged_confidence(run)
    doubts = {name: list(perturbation_doubts(run, label, name)) for name in run.perturbations}
    points = {name: list(judged_points(run, label, name, confidence)) for name in run.perturbations}
    losses = list(utility_losses(run, label))
    parts = {name: _word(points[name], losses, doubts[name]) for name in run.perturbations}
    word = _together(list(parts.values()))
    usable = [point for name in parts for point in points[name] if parts[name] != INCONCLUSIVE or word == INCONCLUSIVE]
    return Verdict(
        word,
        confidence,
        _telling(usable, word),
        tuple(losses),
        tuple(dict.fromkeys(text for texts in doubts.values() for text in texts)),
        parts,
    )


def judged_confidence(run: Run) -> float:
    """Return 1 - 0.05 / number of radii above 0 that a verdict of this run looks at."""
    baseline = next(iter(run.rows))
    audits = (run.audits(baseline, name)[:1] for name in run.perturbations)
    radii = [tau for found in audits for audit in found for tau in audit["taus"] if tau > 0]
    return 1 - ERROR / max(len(radii), 1)


def perturbation_doubts(run: Run, label: str, perturbation: str) -> Iterator[str]:
    """Yield why nothing can be concluded from one perturbation."""
    audits, measure = run.audits(label, perturbation), judged_measure(run)
    if floor(run, perturbation, measure) is None:
        yield "no second re-trained model (control) to compare with"
    drawn = [
        draws
        for audit in audits
        if not audit["settings"].get("enumerated")
        for tau, draws in zip(audit["taus"], audit["draws"], strict=True)
        if tau > 0
    ]
    if drawn and min(drawn) < FEWEST_DRAWS:
        yield f"{perturbation}: only {min(drawn)} draws of each sample at some radius, {FEWEST_DRAWS} are needed"
    widths = [half for audit in audits for half in _half_widths(audit, measure)]
    if widths and max(widths) > WIDEST:
        yield f"{perturbation}: an interval has half-width {max(widths):.3f}, more than {WIDEST:g}"
    if not widths:
        yield f"{perturbation}: no value exists at any radius above 0"


def judged_measure(run: Run) -> str:
    """Return what is judged: the pooled ratio, or the difference where re-train cannot be right (class form)."""
    return "difference" if run.form == "class" else "pooled"


def curve(audit: Record, measure: str) -> Iterator[tuple[float, float | None, float | None, float | None]]:
    """Yield (tau, value, low, high) of the judged measure."""
    table = audit["difference"] if measure == "difference" else audit["residual_knowledge"]
    values = table["value"] if measure == "difference" else table["pooled"]
    yield from zip(audit["taus"], values, table["low"], table["high"], strict=True)


def _half_widths(audit: Record, measure: str) -> list[float]:
    return [
        (high - low) / 2
        for tau, _, low, high in curve(audit, measure)
        if tau > 0 and low is not None and high is not None
    ]


def floor(run: Run, perturbation: str, measure: str) -> list[tuple[float | None, float | None]] | None:
    """Return (low, high) of the noise floor for each radius; None without a control.

    For the difference it is the union of the controls' intervals and of their mirror images (reference against
    control).
    """
    if measure == "pooled":
        stored = run.record.get("noise_floor", {}).get(perturbation)
        return list(zip(stored["low"], stored["high"], strict=True)) if stored else None
    audits = [a for label, row in run.rows.items() if kind(row) == "control" for a in run.audits(label, perturbation)]
    ends = [[max(abs(end) for end in pair) for pair in _pairs(audit)] for audit in audits]
    return [(-max(column), max(column)) for column in zip(*ends, strict=True)] if ends else None


def _pairs(audit: Record) -> Iterator[tuple[float, float]]:
    yield from zip(audit["difference"]["low"], audit["difference"]["high"], strict=True)


def judged_points(run: Run, label: str, perturbation: str, confidence: float) -> Iterator[Point]:
    """Yield every radius above 0 at which all seeds and the floor have a value."""
    measure, audits = judged_measure(run), run.audits(label, perturbation)
    neutral, widen = (0.0, difference_bounds) if measure == "difference" else (1.0, ratio_bounds)
    floors = floor(run, perturbation, measure)
    stored = [audit["settings"].get("confidence", 0.95) for audit in audits]
    for k, column in enumerate(zip(*(curve(audit, measure) for audit in audits), strict=True)):
        tau, entries = column[0][0], [_complete(*entry[1:]) for entry in column]
        ends = _complete(*floors[k]) if floors else ()
        if tau > 0 and ends and all(entries):
            bounds = [widen(v, (low, high), c, confidence) for (v, low, high), c in zip(entries, stored, strict=True)]
            lows, highs = zip(*bounds, strict=True)
            yield Point(perturbation, tau, tuple(e[0] for e in entries), lows, highs, (ends[0], ends[1]), neutral)


def _complete(*values: float | None) -> tuple[float, ...]:
    """Return the values, or nothing if one of them does not exist."""
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def utility_losses(run: Run, label: str) -> Iterator[str]:
    """Yield where the row is further from re-train than a useful, not over-forgotten model may be."""
    row, reference = (run.rows.get(name, {}).get("summary", {}) for name in (label, "retrain"))
    if _known(row, reference, "unlearn_accuracy"):
        excess = row["unlearn_accuracy"]["mean"] - reference["unlearn_accuracy"]["mean"]
        if excess > UNLEARN_POINTS:
            yield f"unlearn accuracy is {excess:.1f} points above re-train's (limit {UNLEARN_POINTS:g})"
    if _known(row, reference, "test_accuracy"):
        loss = reference["test_accuracy"]["mean"] - row["test_accuracy"]["mean"]
        if loss > TEST_POINTS:
            yield f"test accuracy is {loss:.1f} points below re-train's (limit {TEST_POINTS:g})"


def _known(row: Record, reference: Record, metric: str) -> bool:
    return bool(row.get(metric)) and bool(reference.get(metric))


def _word(points: Sequence[Point], losses: Sequence[str], doubts: Sequence[str]) -> str:
    if doubts or not points:
        return INCONCLUSIVE
    found = any(point.enough(point.above) for point in points)
    over = bool(losses) or any(point.enough(point.below) for point in points)
    return {(True, True): MIXED, (True, False): FOUND, (False, True): OVER, (False, False): NONE_FOUND}[found, over]


def _together(words: Sequence[str]) -> str:
    found, over = (any(word in (plain, MIXED) for word in words) for plain in (FOUND, OVER))
    if found and over:
        return MIXED
    if found or over:
        return FOUND if found else OVER
    return INCONCLUSIVE if INCONCLUSIVE in words or not words else NONE_FOUND


def _telling(points: Sequence[Point], word: str) -> Point | None:
    """Return the radius a verdict rests on: most seeds beyond the bar, then the largest distance from neutral."""
    if not points:
        return None
    return max(points, key=lambda p: (_beyond(p, word), abs(p.mean - p.neutral)))


def _beyond(point: Point, word: str) -> int:
    sides = {FOUND: point.above, OVER: point.below}
    return sides.get(word, max(point.above, point.below))
