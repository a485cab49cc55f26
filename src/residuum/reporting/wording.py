"""The sentences at the top of the page: what was forgotten, the verdicts, and what is not proved."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.judging.rule import FALSE_ALARMS, POWER, student_quantile
from residuum.judging.sentences import NONE_RECOMMENDED, sentence
from residuum.record import Finding, ForgetRequest, RowJudgment, Verdict
from residuum.record.run import Run
from residuum.reporting.summary import summary_of

SYMBOLS = {
    Verdict.NOT_COMPARABLE: "≠",
    Verdict.FOUND: "▲",
    Verdict.OVER_FORGOTTEN: "▼",
    Verdict.MIXED: "◆",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_DETECTED: "○",
}
TONES = dict(zip(SYMBOLS, ("unclear", "found", "over", "mixed", "unclear", "none"), strict=True))
CHIP_TONES = {"found": "found", "not found": "none", "kept": "none", "lost": "over", "cannot tell": "unclear"}
MEASURE_NAMES = {
    "recognition": "recognition of perturbed samples",
    "mia_accuracy": "membership inference (MIA accuracy)",
    "test_accuracy": "test accuracy",
    "forget_margin": "mean margin on forgotten samples",
    "margin_gap": "margin of forgotten minus held-out samples",
    "heldout_auc": "AUC of margins, forgotten against held-out samples",
    "depth": "depth behind the decision boundary",
    "recovery": "recovery radius",
}


class Chip(NamedTuple):
    """A few words on a colored ground, and the sentence that explains them."""

    label: str
    tone: str
    sentence: str


def forgotten(run: Run) -> str:
    """Return what was forgotten, all requests so far, from the settings and the number of audited samples."""
    settings, names = run.record.scenario.settings, run.record.scenario.class_names
    samples = next((audit.samples for *_, audit in run.record.each_audit()), 0)
    number = f"{plural(samples, 'training sample')}: " if samples else ""
    if samples and len(settings.requests) == 1 and (settings.forget.listed or settings.forget.forget_ids):
        return f"{plural(samples, 'training sample')}, listed by id"
    requests = ", then ".join(request_words(request, names, rest=k > 0) for k, request in enumerate(settings.requests))
    return f"{number}{requests} of {settings.data.name or 'the data'}"


def request_words(request: ForgetRequest, class_names: Sequence[str] = (), *, rest: bool = False) -> str:
    """Return what one request asks for; `rest` where earlier requests left only a part.

    >>> request_words(ForgetRequest(forget_class=8, forget_fraction=0.5))
    'half of class 8'
    >>> request_words(ForgetRequest(forget_fraction=0.02), rest=True)
    '2 % of all remaining training samples'
    """
    if listed := request.listed or len(request.forget_ids or ()):
        return f"a list of {plural(listed, 'id')}"
    fraction = request.forget_fraction
    share = "all of" if fraction in (None, 1) else "half of" if fraction == 0.5 else f"{100 * (fraction or 0):g} % of"
    if request.forget_class is None:
        return f"{share} all {'remaining ' if rest else ''}training samples" if fraction else "samples"
    name = str(request.forget_class)  # a name, or else a position
    if name not in class_names:
        name = {str(position): text for position, text in enumerate(class_names)}.get(name, name)
    return f"{share} {'what remains of ' if rest else ''}class {name}"


def class_name(label: int | str, names: Sequence[str]) -> str:
    """Return the name of a class, or its label if it has no name."""
    return str(names[label]) if isinstance(label, int) and 0 <= label < len(names) else str(label)


def model_words(run: Run) -> str:
    """Return the name and width of the audited network."""
    model = run.record.scenario.settings.model
    return f"{model.name or 'a model'}{f', width {model.width}' if model.width else ''}"


def verdict_badge(judgment: RowJudgment) -> str:
    """Return the verdict in a few words; "not detected" with the smallest excess that would have been noticed."""
    confidence = judgment.chips.confidence if judgment.chips else None
    if judgment.verdict is Verdict.NOT_DETECTED and confidence and confidence.smallest is not None:
        of_memory = "M " if confidence.quantity == "M" else ""
        return f"{judgment.verdict} ({of_memory}above {_with_unit(confidence.smallest, confidence.form)})"
    return str(judgment.verdict)


def verdict_sentence(run: Run, judgment: RowJudgment) -> str:
    """Return the verdict in plain sentences; lost utility comes first."""
    failed = "; ".join(gate.text for gate in run.record.gates if gate.passed is False)
    parts = list(lost(judgment))
    if judgment.verdict is Verdict.NOT_COMPARABLE:
        surrogates = run.record.scenario.settings.surrogates
        return " ".join(
            [*parts, sentence("not comparable", failed=failed), *(_indication(judgment) if surrogates else ())]
        )
    if failed:
        parts.append(sentence("conditional", failed=failed))
    if judgment.verdict is Verdict.INCONCLUSIVE:
        return " ".join([*parts, sentence("inconclusive", doubts="; ".join(judgment.doubts))])
    return " ".join([*parts, *_finding_sentences(judgment), *_memory_sentences(judgment)])


def lost(judgment: RowJudgment) -> Iterator[str]:
    """Yield the test accuracy that a row lost, if it did."""
    utility = judgment.chips.utility if judgment.chips else None
    if utility and utility.state == "lost":
        yield sentence("lost", points=utility.points)


def _indication(judgment: RowJudgment) -> Iterator[str]:
    """Compare with surrogates: weaker than any verdict, and never called residual knowledge."""
    finding, memory = judgment.finding, judgment.memory
    if finding is None:
        return
    (low, high), form = (amount(end, finding.form) for end in finding.floor()), finding.form
    often = _often(finding.value(), form, 0)
    yield sentence("surrogates", often=often, perturbation=finding.perturbation, low=low, high=high)
    if memory is not None:
        level, explained = figure_words(memory)
        yield sentence("surrogates, held out", level=level, explained=explained)


_INPUTS = {
    None: " on perturbed forgotten samples",
    "unlearned": ", each on forgotten samples perturbed to attack itself",
    "reference": " on forgotten samples perturbed to attack the retrained model",
}


def _finding_sentences(judgment: RowJudgment) -> Iterator[str]:
    """Say how far the row is from the retrained model, under what, and what retraining explains."""
    finding, column, place = judgment.finding, judgment.column, judgment.rests_on
    if finding is None or column is None or place is None or column.floor is None:
        return
    form, more = finding.form, _digits_apart(column.value, column.floor, finding.form)
    where = f"{finding.perturbation}, {'all radii' if column.tau is None else f'radius {column.tau:g}'}"
    unit = " points" if form == "class" else ""
    if place.quantity == "M":
        yield sentence("level of memory", value=amount(column.value, form, more), unit=unit, where=where)
    elif column.tau == 0:
        yield sentence("recognition of the samples", often=_often(column.value, form, more))
    else:
        inputs = _INPUTS.get(finding.crafted_on, _INPUTS[None])
        yield sentence("recognition", often=_often(column.value, form, more), inputs=inputs, where=where)
    low, high = (amount(end, form, more) for end in column.floor)
    if column.side is not None:
        yield sentence("evidence", low=low, high=high, unit=unit, p=judgment.p_value)
    elif column.smallest is None:
        yield sentence("no evidence at all", low=low, high=high, unit=unit)
    else:
        yield sentence("no evidence", low=low, high=high, unit=unit, smallest=_with_unit(column.smallest, form))


def _memory_sentences(judgment: RowJudgment) -> Iterator[str]:
    """Say whether it is memory of these samples or knowledge of their class."""
    memory, knowledge = judgment.memory, judgment.class_knowledge
    if judgment.chips and judgment.chips.memory.state == "cannot tell" and _rests_on_perturbed_samples(judgment):
        yield sentence("level alone")
    if memory is None or knowledge is None or judgment.chips is None:
        return
    M, G = (estimate_words(one.value(), *one.interval(), one.form) for one in (memory, knowledge))
    low, high = (amount(end, memory.form) for end in memory.floor())
    if memory.above and judgment.rests_on and judgment.rests_on.quantity != "M":
        yield sentence("remembers", M=M, low=low, high=high)
    elif judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and judgment.chips.memory.state == "not found":
        smallest = _with_unit(judgment.chips.memory.smallest or math.nan, memory.form)
        yield sentence("knows the class", M=M, G=G, low=low, high=high, smallest=smallest)


def _rests_on_perturbed_samples(judgment: RowJudgment) -> bool:
    """Return whether residual knowledge was found at radii above 0 alone."""
    above = [
        (quantity, column.tau)
        for quantities in judgment.findings.values()
        for quantity, finding in quantities.items()
        for column in finding.columns
        if quantity != "G" and finding.form == "sample" and column.share > 0 and column.side == "above"
    ]
    has_excess = judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and bool(above)
    return has_excess and all(quantity == "r" and tau != 0 for quantity, tau in above)


def chips(judgment: RowJudgment) -> list[Chip]:
    """Return the chips next to a verdict: memory, utility and confidence; utility comes first when it is lost."""
    if judgment.chips is None:
        return []
    memory, utility, confidence = judgment.chips.memory, judgment.chips.utility, judgment.chips.confidence
    form = confidence.form
    facts = {
        "value": "" if memory.value is None else amount(memory.value, form),
        "smallest": "" if memory.smallest is None else _with_unit(memory.smallest, form),
        "reason": memory.reason,
    }
    power = (
        sentence("no power")
        if confidence.smallest is None
        else sentence(
            "power",
            smallest=_with_unit(confidence.smallest, form),
            quantity="an excess" if form == "class" else confidence.quantity,
        )
    )
    models = plural(confidence.retrained, "retrained model")
    memory_sentence = sentence(f"memory {memory.state}", **facts)
    of_memory = Chip(f"memory: {memory.state}", CHIP_TONES[memory.state], memory_sentence)
    points = 0.0 if utility.points is None else utility.points
    lost = f" by {points:.1f} points" if utility.state == "lost" else ""
    utility_sentence = sentence(f"utility {utility.state}", points=points)
    of_utility = Chip(f"utility: {utility.state}{lost}", CHIP_TONES[utility.state], utility_sentence)
    of_confidence = Chip(models, "unclear", sentence("confidence", models=models, power=power))
    first = [of_utility, of_memory] if utility.state == "lost" else [of_memory, of_utility]
    return [*first, of_confidence]


def differs(judgment: RowJudgment) -> str:
    """Return in which further measures a row differs from retrained models; empty if in none."""
    measures = [MEASURE_NAMES.get(name.partition(":")[0], name) for name in judgment.differs]
    return sentence("differs", measures=", ".join(measures)) if measures else ""


def _digits_apart(value: float, floor: tuple[float, float], form: str) -> int:
    """Return how many more digits tell a value from both ends of the noise floor."""
    apart = [all(amount(value, form, k) != amount(end, form, k) for end in floor) for k in range(4)]
    return apart.index(True) if True in apart else 0


def _with_unit(value: float, form: str) -> str:
    return f"{amount(value, form)}{' points' if form == 'class' else ''}"


def _often(value: float, form: str, more: int) -> str:
    if form != "class":
        return f"{amount(value, form, more)} times as often as"
    return f"{abs(100 * value):.{1 + more}f} percentage points {'more' if value >= 0 else 'less'} often than"


def amount(value: float, form: str, more: int = 0) -> str:
    """Return a ratio, or in class form a difference in percentage points; `more` adds digits.

    >>> amount(1.204, "sample"), amount(0.1, "class"), amount(1.204, "sample", 1)
    ('1.20', '+10.0', '1.204')
    """
    if form == "class":
        return f"{round(100 * value, 1 + more) + 0.0:+.{1 + more}f}"
    return f"{value:.{2 + more}f}"


def unchanged_note(run: Run, label: str) -> Iterator[str]:
    """Yield the seeds with which a method left the model unchanged, if there are any."""
    per_seed = run.rows[label].per_seed
    unchanged = [seed for seed, result in per_seed.items() if result.unchanged]
    if unchanged:
        noun = "seed" if len(unchanged) == 1 else "seeds"
        seeds = "" if len(unchanged) == len(per_seed) else f"{noun} {', '.join(unchanged)}: "
        yield f"{seeds}unchanged, the model is the original"


def estimate_words(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """Return a figure with its interval; a dash where it does not exist.

    >>> estimate_words(1.204, 1.1, 1.3, "sample"), estimate_words(0.1, 0.05, 0.15, "class")
    ('1.20 [1.10, 1.30]', '+10.0 [+5.0, +15.0]')
    """
    if value is None or low is None or high is None:
        return "–"
    return f"{amount(value, form)} [{amount(low, form)}, {amount(high, form)}]"


def figure_words(finding: Finding) -> tuple[str, str]:
    """Return the level with its interval, and what retraining explains."""
    low, high = finding.floor()
    form = finding.form
    return estimate_words(finding.value(), *finding.interval(), form), f"{amount(low, form)} to {amount(high, form)}"


def recommendation(run: Run) -> str:
    """Return which method to take, the cheapest that nothing speaks against; else none, and what to try next."""
    methods = {row.label: row for row in summary_of(run).rows if row.role is Role.METHOD and row.judgment}
    judgments = {label: row.judgment for label, row in methods.items() if row.judgment}
    clean = [
        label
        for label, judgment in judgments.items()
        if judgment.verdict is Verdict.NOT_DETECTED
        and judgment.chips
        and judgment.chips.memory.state == "not found"
        and judgment.chips.utility.state == "kept"
    ]
    warned = [label for label in clean if method_warnings(run, label)]
    costs = {label: cost for label in clean if (cost := methods[label].cells["cost"].value) is not None}
    unwarned = {label: cost for label, cost in costs.items() if label not in warned}
    if unwarned:
        best = min(unwarned, key=lambda label: unwarned[label])
        spent = "less than 1" if unwarned[best] < 1 else f"{unwarned[best]:.0f}"
        return sentence("recommended", label=best, cost=spent)
    return f"{sentence('none recommended')} {NONE_RECOMMENDED[_why_none(judgments.values(), warned=bool(warned))]}"


def _why_none(judgments: Collection[RowJudgment], *, warned: bool) -> str:
    """Return why no row can be recommended, by what is nearest to a recommendation."""
    verdicts = {judgment.verdict for judgment in judgments}
    every = [judgment.chips for judgment in judgments if judgment.chips]
    not_detected = [j.chips for j in judgments if j.verdict is Verdict.NOT_DETECTED and j.chips]
    reasons = {
        "warned": warned,
        "lost": any(chips.utility.state == "lost" for chips in not_detected),
        "no memory": any(chips.memory.state == "cannot tell" for chips in not_detected),
        "not comparable": Verdict.NOT_COMPARABLE in verdicts,
        "inconclusive": verdicts <= {Verdict.INCONCLUSIVE},
        "both": Verdict.OVER_FORGOTTEN in verdicts or any(chips.utility.state == "lost" for chips in every),
        "found": True,
    }
    return next(reason for reason, holds in reasons.items() if holds)


def method_warnings(run: Run, label: str) -> list[str]:
    """Return the warnings about a method: those of its row that no retrained model raised, too."""
    retrained = [row for row in run.rows.values() if row.role.retrained]
    shared = {text for row in retrained for seed in row.per_seed.values() for text in seed.warnings}
    texts = [text for seed in run.rows[label].per_seed.values() for text in seed.warnings]
    return [text for text in dict.fromkeys(texts) if text not in shared]


def not_proved(run: Run) -> Iterator[str]:
    """Yield what the page does not prove."""
    yield sentence("absence")
    findings = [judgment.finding for judgment in run.verdicts.values() if judgment.finding]
    if findings:
        models = plural(min(finding.retrained for finding in findings), "retrained model")
        yield sentence("noise floor", models=models, false_alarms=100 * FALSE_ALARMS)
    yield sentence("other samples")
    for gate in run.record.gates:
        if gate.passed is None:
            yield sentence("alike", text=gate.text)
    yield sentence("legal")
    originals = [run.verdicts[label].verdict for label in run.record.rows_of(Role.ORIGINAL) if label in run.verdicts]
    if originals and originals[0] in (Verdict.INCONCLUSIVE, Verdict.NOT_DETECTED):
        yield sentence("no power at all")


def nothing_to_forget(run: Run) -> str:
    """Return that there may be nothing to forget; empty where the original differs in any column, or a row was found.

    A column in which the original lies further out than four of five retrained models would is a difference, too, even
    if it is no evidence.
    """
    judgments = run.verdicts.values()
    original = next((run.verdicts[label] for label in run.record.rows_of(Role.ORIGINAL) if label in run.verdicts), None)
    if original is None or any(j.verdict in (Verdict.FOUND, Verdict.MIXED, Verdict.NOT_COMPARABLE) for j in judgments):
        return ""
    columns = [
        column
        for quantities in original.findings.values()
        for quantity, finding in quantities.items()
        for column in finding.columns
        if quantity != "G" and column.share > 0 and column.statistic is not None
    ]
    if not columns or any(abs(c.statistic or 0.0) > student_quantile(POWER, c.retrained - 1) for c in columns):
        return ""
    return sentence("nothing to forget")


def not_judged(run: Run) -> str:
    """Return which samples and perturbations are left out; empty if none are."""
    texts = []
    for what, number in run.record.scenario.left_out.items():
        verb = "are" if number > 1 else "is"
        texts.append(sentence("left out", number=plural(number, f"{what} sample"), verb=verb))
    if names := run.record.blind:
        subject = "These perturbations do" if names[1:] else "This perturbation does"
        texts.append(sentence("blind", names=", ".join(names), subject=subject))
    return " ".join(texts)


def headline(run: Run) -> str:
    """Return one sentence over all methods."""
    methods = run.record.rows_of(Role.METHOD)
    verdicts = [run.verdicts[label].verdict for label in methods if label in run.verdicts]
    if not verdicts:
        return sentence("no method")
    counted = {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}
    if len(counted) == 1:
        verdict, number = next(iter(counted.items()))
        subject = "The method" if number == 1 else f"All {number} methods"
        return sentence("one verdict", subject=subject, verdict=verdict)
    counts = "; ".join(f"{verdict} in {number}" for verdict, number in counted.items())
    return sentence("several verdicts", total=len(verdicts), counts=counts)
