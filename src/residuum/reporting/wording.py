"""The sentences at the top of the page: what was forgotten, the verdicts, and what is not proved."""

from collections.abc import Iterator, Sequence

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.judging.rule import FALSE_ALARMS
from residuum.record import Finding, ForgetRequest, RowJudgment, Verdict
from residuum.record.run import Run
from residuum.reporting.summary import summary_of

SYMBOLS = {
    Verdict.NOT_COMPARABLE: "≠",
    Verdict.FOUND: "▲",
    Verdict.OVER_FORGOTTEN: "▼",
    Verdict.MIXED: "◆",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NONE_FOUND: "○",
}
TONES = dict(zip(SYMBOLS, ("unclear", "found", "over", "mixed", "unclear", "none"), strict=True))
FITTED = 97.0  # per cent of the retained samples; below it nothing much is memorized


def forgotten(run: Run) -> str:
    """Return what was forgotten, all requests so far, from the settings and the number of audited samples."""
    settings, names = run.record.scenario.settings, run.record.scenario.class_names
    samples = next((audit.samples for *_, audit in run.record.each_audit()), 0)
    number = f"{plural(samples, 'training sample')}: " if samples else ""
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


def verdict_sentence(run: Run, judgment: RowJudgment) -> str:
    """Return the verdict in plain sentences."""
    failed = "; ".join(gate.text for gate in run.record.gates if gate.passed is False)
    if judgment.verdict is Verdict.NOT_COMPARABLE:
        surrogates = run.record.scenario.settings.surrogates
        return " ".join([f"No verdict: {failed}.", *(_indication(judgment) if surrogates else ())])
    accepted = f"Conditional on an accepted reference: {failed}. " if failed else ""
    if judgment.verdict is Verdict.INCONCLUSIVE:
        return f"{accepted}Nothing can be concluded: {'; '.join((*judgment.doubts, *judgment.reasons))}."
    parts = [*_finding_sentence(judgment), *_heldout_sentences(judgment)]
    parts += [f"Its {reason}." for reason in judgment.reasons]
    return accepted + " ".join(parts)


def _indication(judgment: RowJudgment) -> Iterator[str]:
    """Compare with surrogates: weaker than any verdict, and never called residual knowledge."""
    finding, memory = judgment.finding, judgment.memory
    if finding is None:
        return
    (low, high), form = finding.floor(), finding.form
    yield (
        f"An indication only: right {_often(finding.value(), form, 0)} a surrogate on perturbed samples to forget "
        f"({finding.perturbation}); surrogates differ from each other by {amount(low, form)} to {amount(high, form)}."
    )
    if memory is not None:
        level, floor = figure_words(memory)
        yield f"Beside held-out samples of the same classes: {level} ({floor})."


_INPUTS = {
    None: " on perturbed forgotten samples",
    "unlearned": ", each on forgotten samples perturbed to attack itself",
    "reference": " on forgotten samples perturbed to attack the retrained model",
}


def _finding_sentence(judgment: RowJudgment) -> Iterator[str]:
    """Say how far the row is from the retrained model, under what, and what retraining explains."""
    finding, column, place = judgment.finding, judgment.column, judgment.rests_on
    if finding is None or column is None or place is None or column.floor is None:
        return
    form, (low, high) = finding.form, column.floor
    more, unit = _digits_apart(column.value, column.floor, form), " points" if form == "class" else ""
    where = f"{finding.perturbation}, {'all radii' if column.tau is None else f'radius {column.tau:g}'}"
    if place.quantity == "M":
        text = f"Memory M of the forgotten samples is {amount(column.value, form, more)}{unit} ({where})"
    elif column.tau == 0:
        text = f"Right {_often(column.value, form, more)} the retrained model on the forgotten samples themselves"
    else:
        inputs = _INPUTS.get(finding.crafted_on, _INPUTS[None])
        text = f"Right {_often(column.value, form, more)} the retrained model{inputs} ({where})"
    text += f"; retraining explains {amount(low, form, more)} to {amount(high, form, more)}{unit}"
    if column.side is None and column.smallest is not None:
        smallest = amount(column.smallest, form)
        yield f"{text}, so this is no evidence; this audit can miss less than {smallest}{unit}."
    else:
        yield f"{text} (p = {judgment.p_value:.2g})."


def _heldout_sentences(judgment: RowJudgment) -> Iterator[str]:
    """Say whether it is memory of these samples or knowledge of their class."""
    memory, knowledge = judgment.memory, judgment.class_knowledge
    if memory is None or knowledge is None:
        return
    M, G = (f"{f.quantity} = {estimate_words(f.value(), *f.interval(), f.form)}" for f in (memory, knowledge))
    explained = f"retraining explains {' to '.join(amount(end, memory.form) for end in memory.floor())}"
    if memory.above and judgment.rests_on and judgment.rests_on.quantity != "M":
        yield f"It remembers these very samples: {M}, {explained}."
    elif judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and memory.has_floor and not memory.above:
        yield (
            f"It knows the class better than the retrained model ({G}); memory of these very samples was not found "
            f"({M}, {explained})."
        )


def _digits_apart(value: float, floor: tuple[float, float], form: str) -> int:
    """Return how many more digits tell a value from both ends of the noise floor."""
    apart = [all(amount(value, form, k) != amount(end, form, k) for end in floor) for k in range(4)]
    return apart.index(True) if True in apart else 0


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


def row_notes(run: Run, label: str, perturbation: str) -> Iterator[str]:
    """Yield what must stand beside a row's verdict: an unchanged model, and what else the verdict rests on."""
    yield from unchanged_note(run, label)
    judgment = run.verdicts[label]
    if judgment.verdict in (Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE):
        return
    finding = judgment.finding
    if finding and finding.perturbation != perturbation:
        yield f"rests on {finding.perturbation}"
    column, place = judgment.column, judgment.rests_on
    if column and column.side and place and place.quantity == "M":
        yield "outside by memory M"
    elif column and column.side and column.tau is not None and finding and not finding.columns[0].side:
        yield f"outside at radius {column.tau:g}"
    yield from (reason.removesuffix(" the retrained models'") for reason in judgment.reasons)


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
    """Return which method to take: the cheapest that nothing speaks against, its warnings included."""
    clean = [row for row in summary_of(run).rows if row.role is Role.METHOD and _nothing_found(row.judgment)]
    warned = [row.label for row in clean if method_warnings(run, row.label)]
    costs = {row.label: cost for row in clean if (cost := row.cells["cost"].value) is not None}
    unwarned = {label: cost for label, cost in costs.items() if label not in warned}
    if not unwarned and warned:
        pronoun = "their" if warned[1:] else "its"
        reason = f"nothing was found in {', '.join(warned)}, but read {pronoun} warnings"
        return f"No method of this run can be recommended: {reason}."
    if not unwarned:
        return "No method of this run can be recommended: something was found in every one, or none could be judged."
    best = min(unwarned, key=lambda label: unwarned[label])
    return (
        "Of the methods in which nothing was found, whose test accuracy holds and that raised no warning, "
        f"{best} is the cheapest: {'less than 1' if unwarned[best] < 1 else f'{unwarned[best]:.0f}'} % of retraining."
    )


def _nothing_found(judgment: RowJudgment | None) -> bool:
    """Tell whether nothing was found in a row, and retraining explains its memory M."""
    if judgment is None or judgment.verdict is not Verdict.NONE_FOUND:
        return False
    memory = judgment.memory
    if memory is None:
        return not judgment.reasons
    (low, high), value = memory.floor(), memory.value()
    return not judgment.reasons and not (value < low or value > high)


def method_warnings(run: Run, label: str) -> list[str]:
    """Return the warnings about a method: those of its row that no retrained model raised, too."""
    retrained = [row for row in run.rows.values() if row.role.retrained]
    shared = {text for row in retrained for seed in row.per_seed.values() for text in seed.warnings}
    texts = [text for seed in run.rows[label].per_seed.values() for text in seed.warnings]
    return [text for text in dict.fromkeys(texts) if text not in shared]


def not_proved(run: Run) -> Iterator[str]:
    """Yield what the page does not prove."""
    yield (
        "That anything was deleted. 'No residual knowledge found' is absence of evidence at this precision, for these "
        "samples, perturbations and radii; other perturbations may find more."
    )
    findings = [judgment.finding for judgment in run.verdicts.values() if judgment.finding]
    if findings:
        models = plural(min(finding.retrained for finding in findings), "retrained model")
        yield (
            f"What retraining can do in general. The noise floor comes from {models} of this run. If a retrained "
            f"model poses as unlearned, at most about {100 * FALSE_ALARMS:.0f} % of runs raise a false alarm."
        )
    yield (
        "Anything about other samples, other models or other data. The intervals are over the random perturbations, "
        "with the forgotten samples and the trained models fixed; seeds show how models vary."
    )
    for gate in run.record.gates:
        if gate.passed is None:
            yield f"That the original and the retrained model were trained alike: {gate.text}."
    yield "A legal conclusion. The page measures behavior; people decide whether that satisfies a deletion request."
    originals = [run.verdicts[label].verdict for label in run.record.rows_of(Role.ORIGINAL) if label in run.verdicts]
    if originals and originals[0] in (Verdict.INCONCLUSIVE, Verdict.NONE_FOUND):
        yield (
            "That this audit can detect residual knowledge at all: it did not tell even the original, which was "
            "trained on the forgotten samples, from the retrained model. Read the other verdicts with that in mind."
        )


def nothing_to_forget(run: Run) -> str:
    """Return why there was little or nothing to forget, by the original's fit and memory; empty if there was."""
    original = next((row for row in summary_of(run).rows if row.role is Role.ORIGINAL), None)
    if original is None:
        return ""
    memory = original.judgment.memory if original.judgment and run.form == "sample" else None
    if memory is not None and memory.above:
        return ""  # it remembers these very samples, however well it fits the others
    fit = original.cells["retain_accuracy"].value
    if fit is not None and fit < FITTED:
        return (
            f"There may be nothing to forget: the original is right on {fit:.0f} % of the retained samples it was "
            f"trained on (a model that memorizes: {FITTED:g} % or more), so r shows the balance of classes, not memory."
        )
    if memory is None or memory.value() > 1:
        return ""
    return (
        "There was nothing to forget: beyond what it knows of their class, the original recognizes copies of the "
        f"forgotten samples no better than the retrained model does (M = {memory.value():.2f})."
    )


def blind(run: Run) -> str:
    """Return which perturbations say nothing of this run; empty if all do."""
    names = run.record.blind
    if not names:
        return ""
    what = "These perturbations do" if names[1:] else "This perturbation does"
    return f"Not judged: {', '.join(names)}. {what} not tell even the original from a retrained model."


def headline(run: Run) -> str:
    """Return one sentence over all methods."""
    methods = run.record.rows_of(Role.METHOD)
    verdicts = [run.verdicts[label].verdict for label in methods if label in run.verdicts]
    if not verdicts:
        return "No unlearning method was run."
    counted = {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}
    if len(counted) == 1:
        verdict, number = next(iter(counted.items()))
        subject = "The method" if number == 1 else f"All {number} methods"
        return f"{subject}: {verdict}."
    parts = "; ".join(f"{verdict} in {number}" for verdict, number in counted.items())
    return f"Of {len(verdicts)} methods: {parts}."
