"""Plain words for the top of the page: what was forgotten, what was found, and what is not proved."""

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
    asked = ", then ".join(request_words(request, names, rest=k > 0) for k, request in enumerate(settings.requests))
    return f"{number}{asked} of {settings.data.name or 'the data'}"


def request_words(request: ForgetRequest, class_names: Sequence[str] = (), *, rest: bool = False) -> str:
    """Return what one request asks for; `rest` where earlier requests left only a part.

    >>> request_words(ForgetRequest(forget_class=8, forget_fraction=0.5))
    'half of class 8'
    >>> request_words(ForgetRequest(forget_fraction=0.02), rest=True)
    '2 % of all remaining training samples'
    """
    if listed := request.listed or len(request.forget_ids or ()):
        return f"a list of {plural(listed, 'id')}"
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


def verdict_sentence(run: Run, judgment: RowJudgment) -> str:
    """Return the verdict in plain sentences."""
    failed = "; ".join(gate.text for gate in run.record.gates if gate.passed is False)
    if judgment.verdict is Verdict.NOT_COMPARABLE:
        return f"No verdict: {failed}.{''.join(_indication(run, judgment))}"
    accepted = f"Conditional on an accepted reference: {failed}. " if failed else ""
    if judgment.verdict is Verdict.INCONCLUSIVE:
        return f"{accepted}Nothing can be concluded: {'; '.join((*judgment.doubts, *judgment.reasons))}."
    parts = [_finding_sentence(judgment.finding), *_heldout_sentences(judgment)] if judgment.finding else []
    parts += [f"Its {reason}." for reason in judgment.reasons]
    return accepted + " ".join(parts)


def _indication(run: Run, judgment: RowJudgment) -> Iterator[str]:
    """Say what was seen against stand-ins: weaker than any verdict, and never called residual knowledge."""
    finding = judgment.finding
    if not run.record.scenario.settings.stand_ins or finding is None:
        return
    (low, high), form = finding.floor(), finding.form
    yield (
        f" An indication only: right {_often(finding.value(), form, 0)} a stand-in on perturbed samples to forget "
        f"({finding.perturbation}); stand-ins differ from each other by {amount(low, form)} to {amount(high, form)}."
    )
    memory = judgment.memory
    if memory is not None:
        level, floor = figure_words(memory)
        yield f" Beside held-out samples of the same classes: {level} ({floor})."


_INPUTS = {
    None: " on perturbed forgotten samples",
    "unlearned": ", each on forgotten samples perturbed to attack itself",
    "reference": " on forgotten samples perturbed to attack re-train",
}


def _finding_sentence(finding: Finding) -> str:
    """Say how far the row is from re-train, where, and what re-training explains."""
    column, form = finding.column, finding.form
    where = f"radius {finding.taus[column - 1]:g}" if column else "all radii"
    value, (low, high) = finding.value(column), finding.floor(column)
    more = _digits_apart(value, (low, high), form)
    unit = " points" if form == "class" else ""
    inputs = _INPUTS.get(finding.crafted_on, _INPUTS[None])
    text = (
        f"Right {_often(value, form, more)} re-train{inputs} ({finding.perturbation}, {where}); "
        f"re-training again explains {amount(low, form, more)} to {amount(high, form, more)}{unit}"
    )
    if low <= value <= high and finding.smallest is not None:
        smallest = amount(finding.smallest, form)
        return f"{text}, so this is no evidence; less than {smallest}{unit} could well have been missed."
    return f"{text} (p = {finding.p_value:.2g})."


def _heldout_sentences(judgment: RowJudgment) -> Iterator[str]:
    """Say whether it is memory of these samples or knowledge of their class."""
    memory, knowledge = judgment.memory, judgment.class_knowledge
    if memory is None or knowledge is None:
        return
    shown = {
        f.quantity: f"{f.quantity} = {estimate_words(f.value(), *f.interval(), f.form)}" for f in (memory, knowledge)
    }
    explained = f"re-training explains {' to '.join(amount(end, memory.form) for end in memory.floor())}"
    if memory.verdict is Verdict.FOUND:
        yield f"It remembers these very samples: {shown['M']}, {explained}."
    elif judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and knowledge.verdict is Verdict.FOUND:
        yield (
            f"It knows the class better than re-train, on held-out samples too: {shown['G']}; memory of these very "
            f"samples was not found ({shown['M']}, {explained})."
        )
    elif judgment.verdict in (Verdict.FOUND, Verdict.MIXED):
        yield f"Whether it is these samples or their class cannot be told ({shown['M']}, {shown['G']})."


def _digits_apart(value: float, bar: tuple[float, float], form: str) -> int:
    """Return how many digits more a value needs, so that it does not look like an end of the bar that it is not."""
    alike = [all(amount(value, form, k) != amount(end, form, k) for end in bar) for k in range(4)]
    return alike.index(True) if True in alike else 0


def _often(value: float, form: str, more: int) -> str:
    if form != "class":
        return f"{amount(value, form, more)} times as often as"
    return f"{abs(100 * value):.{1 + more}f} percentage points {'more' if value >= 0 else 'less'} often than"


def amount(value: float, form: str, more: int = 0) -> str:
    """Return a ratio, or in class form a difference in percentage points, with so many digits more than usual.

    >>> amount(1.204, "sample"), amount(0.1, "class"), amount(1.204, "sample", 1)
    ('1.20', '+10.0', '1.204')
    """
    if form == "class":
        return f"{round(100 * value, 1 + more) + 0.0:+.{1 + more}f}"
    return f"{value:.{2 + more}f}"


def row_notes(run: Run, label: str, perturbation: str) -> Iterator[str]:
    """Yield what must stand beside a row's verdict: that nothing was changed, and what else the verdict rests on."""
    yield from unchanged_note(run, label)
    judgment = run.verdicts[label]
    if judgment.verdict in (Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE):
        return
    finding, memory = judgment.finding, judgment.memory
    if finding and finding.perturbation != perturbation:
        yield f"rests on {finding.perturbation}"
    if finding and finding.column:
        yield f"beyond at radius {finding.taus[finding.column - 1]:g} alone"
    if judgment.verdict is Verdict.NONE_FOUND and memory and memory.verdict is Verdict.FOUND:
        yield "but M is more than re-training explains"
    yield from judgment.reasons


def unchanged_note(run: Run, label: str) -> Iterator[str]:
    """Yield with which seeds a method left the model as it was, if with any."""
    per_seed = run.rows[label].per_seed
    same = [seed for seed, result in per_seed.items() if result.unchanged]
    if same:
        seeds = "" if len(same) == len(per_seed) else f"{'seed' if len(same) == 1 else 'seeds'} {', '.join(same)}: "
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
    """Return the level with its interval, and what re-training explains."""
    low, high = finding.floor()
    form = finding.form
    return estimate_words(finding.value(), *finding.interval(), form), f"{amount(low, form)} to {amount(high, form)}"


def recommendation(run: Run) -> str:
    """Return which method to take: the cheapest that nothing speaks against, warnings of its own included."""
    clean = [row for row in summary_of(run).rows if row.role is Role.METHOD and _nothing_found(row.judgment)]
    warned = [row.label for row in clean if own_warnings(run, row.label)]
    costs = {row.label: row.cells["cost"].value for row in clean if row.label not in warned}
    known = {label: cost for label, cost in costs.items() if cost is not None}
    if not known and warned:
        shown = f"nothing was found in {', '.join(warned)}, but read the warnings of {'each' if warned[1:] else 'it'}"
        return f"No method of this run can be recommended: {shown}."
    if not known:
        return "No method of this run can be recommended: none came out clean."
    best = min(known, key=lambda label: known[label])
    return (
        "Of the methods in which nothing was found, whose test accuracy holds and that raised no warning, "
        f"{best} is the cheapest: {'less than 1' if known[best] < 1 else f'{known[best]:.0f}'} % of re-training."
    )


def _nothing_found(judgment: RowJudgment | None) -> bool:
    """Tell whether nothing was found in a row, and its memory M is what re-training explains."""
    if judgment is None or judgment.verdict is not Verdict.NONE_FOUND:
        return False
    memory = judgment.memory
    if memory is None:
        return True
    (low, high), value = memory.floor(), memory.value()
    return memory.verdict in (Verdict.NONE_FOUND, Verdict.INCONCLUSIVE) and not (value < low or value > high)


def own_warnings(run: Run, label: str) -> list[str]:
    """Return what a row warns of, without what re-trained models warn of as well: that is not about the method."""
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
        many = plural(min(finding.retrained for finding in findings), "re-trained model")
        yield (
            f"What re-training can do in general. The noise floor is what {many} of this run explain; a re-trained "
            f"model posing as unlearned is called something else in at most about {100 * FALSE_ALARMS:.0f} % of runs."
        )
    yield (
        "Anything about other samples, other models or other data. The intervals are over the random perturbations, "
        "with the forgotten samples and the trained models fixed; seeds show how models vary."
    )
    for gate in run.record.gates:
        if gate.passed is None:
            yield f"That original and re-train were trained alike: {gate.text}."
    yield "A legal conclusion. The page measures behavior; people decide whether that satisfies a deletion request."
    originals = [run.verdicts[label].verdict for label in run.record.rows_of(Role.ORIGINAL) if label in run.verdicts]
    if originals and originals[0] in (Verdict.INCONCLUSIVE, Verdict.NONE_FOUND):
        yield (
            "That this audit can see residual knowledge at all: even the original model, which was trained on the "
            "forgotten samples, was not told apart from re-train. Read the other verdicts with that in mind."
        )


def nothing_to_forget(run: Run) -> str:
    """Return why there was little or nothing to forget, by the original's fit and memory; empty if there was."""
    original = next((row for row in summary_of(run).rows if row.role is Role.ORIGINAL), None)
    if original is None:
        return ""
    memory = original.judgment.memory if original.judgment and run.form == "sample" else None
    if memory is not None and memory.verdict is Verdict.FOUND:
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
        f"forgotten samples no better than re-train does (M = {memory.value():.2f})."
    )


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
