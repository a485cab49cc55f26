"""Conditions on verdicts and numbers under which a run fails: what --fail-if takes."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from residuum.core.errors import InputError, unknown_name
from residuum.core.roles import Role
from residuum.record import METRICS, Quantity, Results, Row, RowJudgment, Verdict
from residuum.record.run import Run

POLICIES: dict[str, tuple[Verdict, ...]] = {
    "residual": (Verdict.FOUND, Verdict.MIXED),
    "over-forgotten": (Verdict.OVER_FORGOTTEN, Verdict.MIXED),
    "inconclusive": (Verdict.INCONCLUSIVE,),
    "not-comparable": (Verdict.NOT_COMPARABLE,),
    "unproven": tuple(verdict for verdict in Verdict if verdict is not Verdict.NOT_DETECTED),
}  # the verdicts at which each fails
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
LEVELS: tuple[Quantity, ...] = ("r", "G", "M")
QUANTITIES = (*LEVELS, *METRICS, "relearn_epochs", "average_gap", "cost", "smallest")
WARNINGS = "warnings"
COMPARED = re.compile(r"(?:(?P<row>.+)\.)?(?P<name>[A-Za-z_]+)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<number>[-+.\deE]+)")
NAMED = re.compile(r"(?:(?P<row>.+)\.)?(?P<name>[a-z-]+)")


@dataclass(frozen=True)
class Condition:
    """A policy, or a quantity compared with a number; about one row, or about every unlearned row.

    >>> parse_condition("rurk.r > 1.1")
    Condition(text='rurk.r > 1.1', name='r', row='rurk', sign='>', number=1.1)
    """

    text: str
    name: str
    row: str | None = None
    sign: str | None = None
    number: float = 0.0

    def reasons(self, record: Results) -> Iterator[str]:
        """Yield why the run fails."""
        if self.name == WARNINGS:
            yield from (f"{self.text}: {text}" for text in record.warnings)
            return
        self.check_row(record.methods)
        for label in record.rows_of(Role.METHOD) if self.row is None else [self.row]:
            yield from self._policy(record, label) if self.sign is None else self._comparison(record, label)

    def check_row(self, rows: Collection[str]) -> None:
        """Raise an error if the run has no such row."""
        if self.row is not None and self.row not in rows:
            raise unknown_name(f"row in the condition {self.text!r}", self.row, rows)

    def _policy(self, record: Results, label: str) -> Iterator[str]:
        judgment = record.verdicts.get(label)
        if judgment is None:
            yield f"{self.text}: {label} has no verdict, because the others are judged by it"
        elif judgment.verdict in POLICIES[self.name]:
            yield f"{self.text}: {label} is judged {str(judgment.verdict)!r}"

    def _comparison(self, record: Results, label: str) -> Iterator[str]:
        measured = dict(values(record, label, self.name))
        if not measured or None in measured.values():
            yield f"{self.text}: {label} has no value of {self.name}, so it cannot pass"
        for where, value in measured.items():
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


def values(record: Results, label: str, name: str) -> Iterator[tuple[str, float | None]]:
    """Yield every value of a quantity of a row, with the perturbation it was measured under if there is one."""
    row, judgment = record.methods[label], record.judgments.get(label, RowJudgment())
    quantity = next((level for level in LEVELS if level == name), None)
    if quantity:
        for perturbation in record.perturbations:
            finding = judgment.finding_of(perturbation, quantity)
            yield f" under {perturbation}", None if finding is None else finding.value()
    elif name == "smallest":
        yield "", judgment.smallest if judgment.verdict else None
    elif name == "cost":
        yield "", record.cost(list(row.per_seed.values()))
    elif name == "average_gap":
        yield "", row.summary.average_gap
    elif name == "relearn_epochs":
        epochs = row.summary.relearn_epochs
        yield "", None if epochs is None else math.inf if epochs.median is None else epochs.median
    else:
        spread = None if name == "mia_accuracy" and one_answer(record, row) else row.summary.metric(name)
        yield "", None if spread is None else spread.mean


def one_answer(record: Results, row: Row) -> str:
    """Return the answer that the membership attack gives for all forgotten samples of every seed; empty if it varies.

    In class form it is empty, too: the attack learned forgotten samples as unseen, so 100 % is the reference's value.
    """
    answers = {0.0: "seen", 100.0: "unseen"}
    accuracies = [result.metrics.mia_accuracy for result in row.per_seed.values() if result.metrics]
    constant = [answers[accuracy] for accuracy in accuracies if accuracy in answers]
    if record.scenario.form == "class" or len(constant) < len(accuracies):
        return ""
    return " or ".join(sorted(set(constant)))


def gate_failures(runs: Iterable[Run], conditions: Sequence[str]) -> list[str]:
    """Return why runs fail these conditions; nothing if they pass."""
    parsed, runs = [parse_condition(text) for text in conditions], list(runs)
    failures = [(run.name, reason) for run in runs for condition in parsed for reason in condition.reasons(run.record)]
    return [reason if len(runs) == 1 else f"{name}: {reason}" for name, reason in failures]
