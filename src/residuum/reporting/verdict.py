"""The verdict on one row of a run: a pure function of the record and of the thresholds below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from residuum.record import Audit, Row
from residuum.reporting.evidence import Point, judged_confidence, judged_measure, judged_points, noise_floor
from residuum.reporting.run import Run

INCONCLUSIVE = "inconclusive"
FOUND = "residual knowledge found"
OVER = "over-forgotten"
MIXED = "mixed"
NONE_FOUND = "no residual knowledge found at this precision"

FEWEST_DRAWS = 30
WIDEST = 0.05  # half-width of an interval
UNLEARN_POINTS = 10.0  # above re-train
TEST_POINTS = 3.0  # below re-train


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
    row, confidence = run.rows[label], judged_confidence(run)
    doubts = {name: list(perturbation_doubts(run, row, name)) for name in run.perturbations}
    points = {name: list(judged_points(run, row, name, confidence)) for name in run.perturbations}
    losses = list(utility_losses(run, row))
    parts = {name: _word(points[name], losses, doubts[name]) for name in run.perturbations}
    word = _overall_word(list(parts.values()))
    usable = [point for name in parts for point in points[name] if parts[name] != INCONCLUSIVE or word == INCONCLUSIVE]
    return Verdict(
        word,
        confidence,
        _telling(usable, word),
        tuple(losses),
        tuple(dict.fromkeys(text for texts in doubts.values() for text in texts)),
        parts,
    )


def perturbation_doubts(run: Run, row: Row, perturbation: str) -> Iterator[str]:
    """Yield why nothing can be concluded from one perturbation."""
    audits, (measure, _) = row.audits(perturbation), judged_measure(run.form)
    if noise_floor(run, perturbation, measure) is None:
        yield "no second re-trained model (control) to compare with"
    drawn = [
        draws
        for audit in audits
        if not audit.settings.enumerated
        for tau, draws in zip(audit.taus, audit.draws, strict=True)
        if tau > 0
    ]
    if drawn and min(drawn) < FEWEST_DRAWS:
        yield f"{perturbation}: only {min(drawn)} draws of each sample at some radius, {FEWEST_DRAWS} are needed"
    widths = [half for audit in audits for half in _half_widths(audit, measure)]
    if widths and max(widths) > WIDEST:
        yield f"{perturbation}: an interval has half-width {max(widths):.3f}, more than {WIDEST:g}"
    if not widths:
        yield f"{perturbation}: no value exists at any radius above 0"


def _half_widths(audit: Audit, measure: str) -> list[float]:
    curve = audit.curve(measure)
    ends = zip(audit.taus, curve.low, curve.high, strict=True)
    return [(high - low) / 2 for tau, low, high in ends if tau > 0 and low is not None and high is not None]


def utility_losses(run: Run, row: Row) -> Iterator[str]:
    """Yield where the row is further from re-train than a useful, not over-forgotten model may be."""
    if "retrain" not in run.rows:
        return
    mine, reference = row.summary, run.rows["retrain"].summary
    if mine.unlearn_accuracy and reference.unlearn_accuracy:
        excess = mine.unlearn_accuracy.mean - reference.unlearn_accuracy.mean
        if excess > UNLEARN_POINTS:
            yield f"unlearn accuracy is {excess:.1f} points above re-train's (limit {UNLEARN_POINTS:g})"
    if mine.test_accuracy and reference.test_accuracy:
        loss = reference.test_accuracy.mean - mine.test_accuracy.mean
        if loss > TEST_POINTS:
            yield f"test accuracy is {loss:.1f} points below re-train's (limit {TEST_POINTS:g})"


def _word(points: Sequence[Point], losses: Sequence[str], doubts: Sequence[str]) -> str:
    if doubts or not points:
        return INCONCLUSIVE
    found = any(point.enough(point.above) for point in points)
    over = bool(losses) or any(point.enough(point.below) for point in points)
    return {(True, True): MIXED, (True, False): FOUND, (False, True): OVER, (False, False): NONE_FOUND}[found, over]


def _overall_word(words: Sequence[str]) -> str:
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
    return max(points, key=lambda p: (_beyond(p, word), p.distance))


def _beyond(point: Point, word: str) -> int:
    sides = {FOUND: point.above, OVER: point.below}
    return sides.get(word, max(point.above, point.below))
