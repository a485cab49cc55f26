"""Plain words for the top of the page: what was forgotten, what was found, and what is not proved."""

from collections.abc import Iterator, Sequence
from functools import partial

from residuum.errors import plural
from residuum.record import ForgetRequest
from residuum.reporting.evidence import Point
from residuum.reporting.run import Run
from residuum.reporting.verdict import FOUND, INCONCLUSIVE, MIXED, NONE_FOUND, OVER, Verdict

SYMBOLS = {FOUND: "▲", OVER: "▼", MIXED: "◆", INCONCLUSIVE: "?", NONE_FOUND: "○"}
TONES = {FOUND: "found", OVER: "over", MIXED: "mixed", INCONCLUSIVE: "unclear", NONE_FOUND: "none"}


def forgotten(run: Run, samples: int | None = None) -> str:
    """Return what was forgotten, all requests so far, from the settings and the number of audited samples."""
    settings, names = run.record.scenario.settings, run.record.scenario.class_names
    number = "" if samples is None else f"{plural(samples, 'training sample')}: "
    asked = ", then ".join(request_words(request, names, rest=k > 0) for k, request in enumerate(settings.requests))
    return f"{number}{asked} of {settings.data.name or 'the data'}"


def request_words(request: ForgetRequest, class_names: Sequence[str] = (), *, rest: bool = False) -> str:
    """Return what one request asks for; `rest` where earlier requests left only a part.

    >>> request_words(ForgetRequest(forget_class=8, forget_fraction=0.5))
    'half of class 8'
    >>> request_words(ForgetRequest(forget_fraction=0.02), rest=True)
    '2 % of all remaining training samples'
    """
    if request.forget_ids:
        return f"a list of {plural(len(request.forget_ids), 'id')}"
    share, remaining = request.forget_fraction, "remaining " if rest else ""
    if request.forget_class is None:
        return f"{_share(share)} all {remaining}training samples" if share else "samples"
    name = _asked_class(request.forget_class, class_names)
    return f"{_share(share)} {'what remains of ' if rest else ''}class {name}"


def _asked_class(asked: int | str, names: Sequence[str]) -> str:
    """Return the name of the class that a request gives by its name or else by its position."""
    by_position = {str(position): name for position, name in enumerate(names)}
    return str(asked) if str(asked) in names else by_position.get(str(asked), str(asked))


def _share(fraction: float | None) -> str:
    if fraction is None or fraction == 1:
        return "all of"
    return "half of" if fraction == 0.5 else f"{100 * fraction:g} % of"


def class_name(label: int | str, names: Sequence[str]) -> str:
    """Return the name of a class where it is known, else what is given."""
    return str(names[label]) if isinstance(label, int) and 0 <= label < len(names) else str(label)


def model_words(run: Run) -> str:
    """Return the audited network."""
    model = run.record.scenario.settings.model
    return f"{model.name or 'a model'}{f', width {model.width}' if model.width else ''}"


def verdict_sentence(run: Run, verdict: Verdict) -> str:
    """Return the verdict in one or two plain sentences."""
    if verdict.word == INCONCLUSIVE:
        return f"Nothing can be concluded: {'; '.join((*verdict.doubts, *verdict.reasons))}."
    parts = [_point_sentence(run, verdict.point)] if verdict.point else []
    parts += [f"Its {reason}." for reason in verdict.reasons]
    return " ".join(parts)


def _point_sentence(run: Run, point: Point) -> str:
    many, (low, high) = len(point.values), point.bar
    unit = " points" if run.form == "class" else ""
    how = f"Right {_often(point.mean, run.form)} re-train on perturbed forgotten samples; re-training again explains"
    if point.enough(point.above):
        return f"{how} at most {amount(high, run.form)}{unit} ({point.above} of {many} seeds)."
    if point.enough(point.below):
        return f"{how} no less than {amount(low, run.form)}{unit} ({point.below} of {many} seeds)."
    return f"{how} {amount(low, run.form)} to {amount(high, run.form)}{unit}, so this is no evidence."


def _often(value: float, form: str) -> str:
    if form != "class":
        return f"{value:.2f} times as often as"
    return f"{abs(100 * value):.1f} percentage points {'more' if value >= 0 else 'less'} often than"


def amount(value: float, form: str) -> str:
    """Return a ratio, or in class form a difference in percentage points.

    >>> amount(1.204, "sample"), amount(0.1, "class")
    ('1.20', '+10.0')
    """
    return f"{round(100 * value, 1) + 0.0:+.1f}" if form == "class" else f"{value:.2f}"


def estimate_words(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """Return a figure with its interval; a dash where it does not exist.

    >>> estimate_words(1.204, 1.1, 1.3, "sample"), estimate_words(0.1, 0.05, 0.15, "class")
    ('1.20 [1.10, 1.30]', '+10.0 [+5.0, +15.0]')
    """
    if value is None or low is None or high is None:
        return "–"
    return f"{amount(value, form)} [{amount(low, form)}, {amount(high, form)}]"


def figure_words(point: Point, form: str) -> tuple[str, str, str]:
    """Return figure with interval, noise floor, and the threshold it was judged by.

    >>> point = Point("gaussian", 0.1, (1.2, 1.3), (1.1, 1.2), (1.3, 1.4), (0.9, 1.05), 1.0)
    >>> figure_words(point, "sample")
    ('1.25 [1.10, 1.40]', '0.90 to 1.05', 'low end above 1.05')
    """
    show = partial(amount, form=form)
    low, high = point.bar
    figure = estimate_words(point.mean, min(point.lows), max(point.highs), form)
    over = point.enough(point.below) and not point.enough(point.above)
    threshold = f"high end below {show(low)}" if over else f"low end above {show(high)}"
    return figure, f"{show(point.floor[0])} to {show(point.floor[1])}", threshold


def not_proved(run: Run) -> Iterator[str]:
    """Yield what the page does not prove."""
    yield (
        "That anything was deleted. 'No residual knowledge found' is absence of evidence at this precision, for these "
        "samples, perturbations and radii; other perturbations may find more."
    )
    pairs = min((floor.pairs for floor in run.record.noise_floor.values()), default=0)
    if pairs:
        yield (
            f"What re-training can do in general. The noise floor is the range of {plural(pairs, 'comparison')} with a "
            f"second re-trained model; one more re-train would fall outside it with chance about "
            f"{100 * 2 / (pairs + 1):.0f} %."
        )
    yield (
        "Anything about other samples, other models or other data. The intervals are over the random perturbations, "
        "with the forgotten samples and the trained models fixed; seeds show how models vary."
    )
    yield "A legal conclusion. The page measures behaviour; people decide whether that satisfies a deletion request."
    originals = [verdict.word for label, verdict in run.verdicts.items() if run.rows[label].kind == "original"]
    if originals and originals[0] not in (FOUND, MIXED):
        yield (
            "That this audit can see residual knowledge at all: even the original model, which was trained on the "
            "forgotten samples, was not told apart from re-train. Read the other verdicts with that in mind."
        )


def headline(run: Run) -> str:
    """Return one sentence over all methods."""
    words = [verdict.word for label, verdict in run.verdicts.items() if run.rows[label].kind == "method"]
    if not words:
        return "No unlearning method was run."
    counted = {word: words.count(word) for word in (FOUND, MIXED, OVER, INCONCLUSIVE, NONE_FOUND) if word in words}
    if len(counted) == 1:
        word, number = next(iter(counted.items()))
        subject = "The method" if number == 1 else f"All {number} methods"
        return f"{subject}: {word}."
    return f"Of {len(words)} methods: " + "; ".join(f"{word} in {number}" for word, number in counted.items()) + "."
