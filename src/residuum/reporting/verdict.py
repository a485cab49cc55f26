"""The verdict on one row of a run, and conditions on verdicts and numbers under which a run fails: pure functions."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from residuum.errors import InputError, unknown_name
from residuum.record import METRICS, Results, Row, VerdictRecord
from residuum.reporting.evidence import Finding, Quantity, find, floor_of_r
from residuum.reporting.gates import TEST_POINTS, Gate, gates
from residuum.reporting.level_rule import FEWEST_RETRAINED
from residuum.reporting.run import Run

NOT_COMPARABLE = "reference not comparable"
FOUND = "residual knowledge found"
MIXED = "mixed"
OVER = "over-forgotten"
INCONCLUSIVE = "inconclusive"
NONE_FOUND = "no residual knowledge found at this precision"
WORDS = (NOT_COMPARABLE, FOUND, MIXED, OVER, INCONCLUSIVE, NONE_FOUND)  # as they are sorted on the page

CANNOT_SEE = (
    "it was trained on the forgotten samples, and this audit does not tell it from re-training: too few samples or "
    "re-trained models, or samples that anybody recognises"
)
UNLEARN_POINTS = 10.0  # above re-train
_RULE = {"found": FOUND, "over": OVER, "mixed": MIXED, "none": NONE_FOUND, "inconclusive": INCONCLUSIVE}

POLICIES: dict[str, tuple[str, ...]] = {
    "residual": (FOUND, MIXED),
    "over-forgotten": (OVER, MIXED),
    "inconclusive": (INCONCLUSIVE,),
    "not-comparable": (NOT_COMPARABLE,),
    "unproven": tuple(word for word in WORDS if word != NONE_FOUND),
}  # the words at which each fails
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
LEVELS: tuple[Quantity, ...] = ("r", "G", "M")
CELLS = (*METRICS, "relearn_epochs", "average_gap", "cost")
QUANTITIES = (*LEVELS, *CELLS, "smallest")
WARNINGS = "warnings"
COMPARED = re.compile(r"(?:(?P<row>.+)\.)?(?P<name>[A-Za-z_]+)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<number>[-+.\deE]+)")
NAMED = re.compile(r"(?:(?P<row>.+)\.)?(?P<name>[a-z-]+)")


@dataclass(frozen=True)
class Verdict:
    """The word, the finding it rests on, what held-out samples add to it, and why.

    `memory` (M) and `class_knowledge` (G) qualify a finding: they never make one.
    """

    word: str
    finding: Finding | None = None
    memory: Finding | None = None
    class_knowledge: Finding | None = None
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()
    failed_gates: tuple[Gate, ...] = ()


def judge(run: Run, label: str) -> Verdict:
    """Return the verdict on one row over all perturbations of the run.

    Each perturbation is judged alone, with its share of the error; evidence from one stands when another is
    inconclusive. A reference that is not comparable comes before any other word, unless the run accepted it.
    """
    judged = _judged(run, label)
    failed = tuple(gate for gate in run.gates if gate.passed is False)
    settings = run.record.scenario.settings
    refused = failed and (settings.stand_ins or not settings.accept_reference)
    return replace(judged, word=NOT_COMPARABLE if refused else judged.word, failed_gates=failed)


def with_verdicts(record: Results) -> Results:
    """Return the record with noise floors and what it says of every judged row, for readers that compute nothing."""
    run = Run(Path(), record.scenario.name, record)
    verdicts = {label: _stored(judge(run, label)) for label, row in record.methods.items() if row.judged}
    floors = {name: floor for name in run.perturbations if (floor := floor_of_r(run, name))}
    return record.model_copy(update={"verdicts": verdicts, "noise_floor": floors})


def _stored(verdict: Verdict) -> VerdictRecord:
    finding = verdict.finding
    if finding is None or finding.judgement.retrained < FEWEST_RETRAINED:
        return VerdictRecord(word=verdict.word)
    return VerdictRecord(
        word=verdict.word,
        perturbation=finding.perturbation,
        level=(finding.value(), *finding.interval()),
        explained=finding.bar(),
        smallest=finding.smallest,
        p_value=finding.judgement.p_value,
    )


def run_gates(run: Run) -> list[Gate]:
    """Return the gates of comparability of a run."""
    originals = [_judged(run, label).word for label in run.record.rows_of("original")]
    return gates(run, original_over_forgotten=any(word in (OVER, MIXED) for word in originals))


def _judged(run: Run, label: str) -> Verdict:
    row = run.rows[label]
    losses = () if row.kind == "original" else tuple(utility_losses(run, row))  # it has not unlearned anything
    found = {name: find(run, row, name, must_detect=must_detect(run, row, name)) for name in run.perturbations}
    parts = {name: _word(finding, losses) for name, finding in found.items()}
    word = _overall_word(list(parts.values()))
    unseen = (
        row.kind == "original" and word == NONE_FOUND
    )  # it knows the samples, so an audit that sees nothing is blind
    word = INCONCLUSIVE if unseen else word
    agreeing = [finding for name, finding in found.items() if finding and parts[name] == word]
    telling = _telling(agreeing or [finding for finding in found.values() if finding])
    memory, knowledge = (telling and find(run, row, telling.perturbation, quantity) for quantity in ("M", "G"))
    doubts = tuple(dict.fromkeys(_doubt(f) for name, f in found.items() if parts[name] == INCONCLUSIVE))
    doubts += (CANNOT_SEE, *_recognised(run, row)) if unseen else ()
    return Verdict(word, telling, memory, knowledge, losses, doubts, tuple(parts.items()))


def _recognised(run: Run, row: Row) -> Iterator[str]:
    """Yield how often the original and re-train are right on the forgotten samples themselves, where that differs."""
    reference = run.rows["retrain"].summary.unlearn_accuracy if "retrain" in run.rows else None
    if row.summary.unlearn_accuracy and reference and row.summary.unlearn_accuracy.mean != reference.mean:
        mine, theirs = (100 - spread.mean for spread in (row.summary.unlearn_accuracy, reference))
        yield f"on the samples as they are, it is right on {mine:.0f} % and re-train on {theirs:.0f} %"


def must_detect(run: Run, row: Row, perturbation: str) -> float | None:
    """Return the original's shift: "none found" by an audit that could not have seen the original says nothing.

    None where the original is plain at one radius alone: the audit sees it, whatever the other radii average it to.
    """
    original = next(iter(run.record.rows_of("original")), None)
    if original is None or row.kind == "original":
        return None
    finding = find(run, run.rows[original], perturbation)
    if finding is None or finding.judgement.retrained < FEWEST_RETRAINED or finding.plain_at_a_radius:
        return None
    return max(finding.shift, 0.0)


def _word(finding: Finding | None, losses: Sequence[str]) -> str:
    word = INCONCLUSIVE if finding is None else _RULE[finding.judgement.word]
    if not losses or word in (OVER, MIXED, INCONCLUSIVE):
        return word
    return MIXED if word == FOUND else OVER


def _overall_word(words: Sequence[str]) -> str:
    found, over = (any(word in (plain, MIXED) for word in words) for plain in (FOUND, OVER))
    if found and over:
        return MIXED
    if found or over:
        return FOUND if found else OVER
    return INCONCLUSIVE if INCONCLUSIVE in words or not words else NONE_FOUND


def _telling(findings: Sequence[Finding]) -> Finding | None:
    return min(findings, key=lambda finding: finding.judgement.p_value, default=None)


def _doubt(finding: Finding | None) -> str:
    """Return why nothing can be concluded, and what would help."""
    if finding is None:
        return "no second re-trained model (control) was audited at a radius above 0; give --set controls=2"
    j = finding.judgement
    many = f"{j.retrained} re-trained model{'' if j.retrained == 1 else 's'} of this kind"
    ways = [f"{n} more {noun}" for n, noun in ((j.more_controls, "controls a seed"), (j.more_seeds, "seeds")) if n]
    help_ = f"; {' or '.join(ways)} would do" if ways else "; not even 50 more controls or seeds would do"
    if j.retrained < FEWEST_RETRAINED:
        return f"{finding.perturbation}: {many} show no spread to judge by{help_}"
    return f"{finding.perturbation}: {many} could not have told even the original from re-training{help_}"


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


@dataclass(frozen=True)
class Condition:
    """A policy, or a quantity compared with a number; of one row, or of every row that was unlearned.

    >>> parse_condition("rurk.r > 1.1")
    Condition(text='rurk.r > 1.1', name='r', row='rurk', sign='>', number=1.1)
    """

    text: str
    name: str
    row: str | None = None
    sign: str | None = None
    number: float = 0.0

    def reasons(self, run: Run) -> Iterator[str]:
        """Yield why the run fails."""
        if self.name == WARNINGS:
            yield from (f"{self.text}: {text}" for text in run.record.warnings)
            return
        for label in self.rows(run):
            yield from self._policy(run, label) if self.sign is None else self._comparison(run, label)

    def rows(self, run: Run) -> list[str]:
        """Return the rows that it is about."""
        self.check_row(run.rows)
        return run.record.rows_of("method") if self.row is None else [self.row]

    def check_row(self, rows: Collection[str] | None) -> None:
        """Refuse a row that is not among these; None stands for rows that are not known yet."""
        if rows is not None and self.row is not None and self.row not in rows:
            raise unknown_name(f"row in the condition {self.text!r}", self.row, rows)

    def _policy(self, run: Run, label: str) -> Iterator[str]:
        judged = run.verdicts.get(label)
        if judged is None:
            yield f"{self.text}: {label} has no verdict: it is what the others are judged by"
        elif judged.word in POLICIES[self.name]:
            yield f"{self.text}: {label} is judged {judged.word!r}"

    def _comparison(self, run: Run, label: str) -> Iterator[str]:
        found = dict(values(run, label, self.name))
        if not found or None in found.values():
            yield f"{self.text}: {label} has no value of {self.name}, so that the gate cannot be passed"
        for where, value in found.items():
            if value is not None and COMPARISONS[self.sign or ""](value, self.number):
                yield f"{self.text}: {label} has {self.name} = {value:.4g}{where}"


def parse_condition(text: str) -> Condition:
    """Return the condition of `[ROW.]POLICY` or `[ROW.]QUANTITY<NUMBER`."""
    if match := COMPARED.fullmatch(text.strip()):
        if match["name"] not in QUANTITIES:
            raise unknown_name(f"quantity in the condition {text!r}", match["name"], QUANTITIES)
        try:
            number = float(match["number"])
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"expected a finite number in the condition {text!r}, got {match['number']!r}")
        return Condition(text, match["name"], match["row"], match["sign"], number)
    named = NAMED.fullmatch(text.strip())
    name = named["name"] if named else text
    if named is None or name not in (*POLICIES, WARNINGS) or (name == WARNINGS and named["row"]):
        raise unknown_name(f"policy in the condition {text!r}", name, [*POLICIES, WARNINGS, "QUANTITY>NUMBER"])
    return Condition(text, name, named["row"])


def values(run: Run, label: str, name: str) -> Iterator[tuple[str, float | None]]:
    """Yield each value of a quantity of a row, with the perturbation it was taken under if there is one."""
    quantity = next((level for level in LEVELS if level == name), None)
    if quantity:
        for perturbation in run.perturbations:
            finding = find(run, run.rows[label], perturbation, quantity)
            yield f" under {perturbation}", None if finding is None else finding.value()
    elif name == "smallest":
        judged = run.verdicts.get(label)
        yield "", judged.finding.smallest if judged and judged.finding else None
    else:
        (row,) = (row for row in run.summary.rows if row.label == label)
        yield "", row.cells[name].value


def gate_failures(runs: Iterable[Run], conditions: Sequence[str]) -> list[str]:
    """Return why runs fail the gate of these conditions; nothing if they pass."""
    parsed, many = [parse_condition(text) for text in conditions], list(runs)
    found = [(run.name, reason) for run in many for condition in parsed for reason in condition.reasons(run)]
    return [reason if len(many) == 1 else f"{name}: {reason}" for name, reason in found]
