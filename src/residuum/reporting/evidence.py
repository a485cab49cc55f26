"""What all seeds say at one radius, beside the noise floor: what verdicts, tables and plots are made of."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from residuum.record import Audit, Curve, Row, Values, over_seeds
from residuum.reporting.run import Run

ERROR = 0.05
SHARE = (2, 3)
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """What all seeds say at one radius of one perturbation; bounds are at the judged confidence."""

    perturbation: str
    tau: float
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    floor: Bounds
    neutral: float

    @property
    def bar(self) -> Bounds:
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

    @property
    def distance(self) -> float:
        """Return how far the mean over seeds lies from neutral."""
        return abs(self.mean - self.neutral)

    def enough(self, count: int) -> bool:
        """Return whether a count is at least two thirds of the seeds."""
        return count * SHARE[1] >= SHARE[0] * len(self.values)


def judged_measure(form: str) -> tuple[str, float]:
    """Return what is judged and its neutral value: the pooled ratio, or the difference in class form.

    >>> judged_measure("sample"), judged_measure("class")
    (('pooled', 1.0), ('difference', 0.0))
    """
    return ("difference", 0.0) if form == "class" else ("pooled", 1.0)


def judged_confidence(run: Run) -> float:
    """Return 1 - 0.05 / number of radii above 0 that a verdict of this run looks at."""
    baseline = next(iter(run.rows.values()))
    first = (audit for name in run.perturbations for audit in baseline.audits(name)[:1])
    return 1 - ERROR / max(sum(tau > 0 for audit in first for tau in audit.taus), 1)


def noise_floor(run: Run, perturbation: str, measure: str) -> Curve | None:
    """Return low and high of a measure between re-trained models, for each radius; None without a control.

    The ratio's is recorded. The difference's is the union of the controls' intervals and of their mirror images
    (reference against control); any other measure's is what the controls show.
    """
    if measure == "pooled":
        stored = run.record.noise_floor.get(perturbation)
        return Curve(value=[], low=stored.low, high=stored.high) if stored else None
    audits = [audit for label in run.record.rows_of("control") for audit in run.rows[label].audits(perturbation)]
    if not audits:
        return None
    curves = [audit.curve(measure) for audit in audits]
    if measure == "difference":
        columns = zip(*(c.low for c in curves), *(c.high for c in curves), strict=True)
        width = [max(abs(end) for end in column if end is not None) for column in columns]
        return Curve(value=[], low=[-end for end in width], high=list(width))
    return over_seeds([c if c.low else Curve(value=c.value, low=c.value, high=c.value) for c in curves])


def judged_points(run: Run, row: Row, perturbation: str, confidence: float) -> Iterator[Point]:
    """Yield every radius above 0 at which all seeds and the floor have a value."""
    (measure, neutral), audits = judged_measure(run.form), row.audits(perturbation)
    floor = noise_floor(run, perturbation, measure)
    if floor is None or not audits:
        return
    for k, tau in enumerate(audits[0].taus):
        ends, entries = _complete(floor.low[k], floor.high[k]), [_complete(*a.curve(measure).at(k)) for a in audits]
        if tau > 0 and ends and all(entries):
            bounds = [_widened(measure, e, audit, confidence) for e, audit in zip(entries, audits, strict=True)]
            lows, highs = zip(*bounds, strict=True)
            yield Point(perturbation, tau, tuple(e[0] for e in entries), lows, highs, (ends[0], ends[1]), neutral)


def _widened(measure: str, entry: tuple[float, ...], audit: Audit, confidence: float) -> Bounds:
    widen = difference_bounds if measure == "difference" else ratio_bounds
    return widen(entry[0], (entry[1], entry[2]), audit.settings.confidence, confidence)


def _complete(*values: float | None) -> tuple[float, ...]:
    """Return the values, or nothing if one of them does not exist."""
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def farthest_value(taus: Sequence[float], values: Values, neutral: float) -> float | None:
    """Return the value at a radius above 0 that is farthest from neutral."""
    known = [value for tau, value in zip(taus, values, strict=True) if tau > 0 and value is not None]
    return max(known, key=lambda value: abs(value - neutral)) if known else None


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def ratio_bounds(r: float, bounds: Bounds, confidence: float, wanted: float) -> Bounds:
    """Return the interval of a pooled ratio at the wanted confidence.

    The record has r exp(-+ z se/r); with f = z'/z the wanted one is r (low/r)^f, r (high/r)^f, and [0, f high]
    at r = 0.

    >>> [round(end, 4) for end in ratio_bounds(1.0, (0.5, 2.0), 0.95, 0.95)]
    [0.5, 2.0]
    """
    factor, (low, high) = _quantile(wanted) / _quantile(confidence), bounds
    if r == 0:
        return 0.0, factor * high
    return r * (low / r) ** factor, r * (high / r) ** factor


def difference_bounds(value: float, bounds: Bounds, confidence: float, wanted: float) -> Bounds:
    """Return the interval value -+ z se of a difference at the wanted confidence, cut to [-1, 1].

    The recorded ends may be cut too: the longer side has the full width.

    >>> difference_bounds(0.0, (-0.1, 0.1), 0.95, 0.95)
    (-0.1, 0.1)
    """
    half = max(value - bounds[0], bounds[1] - value) * _quantile(wanted) / _quantile(confidence)
    return max(-1.0, value - half), min(1.0, value + half)
