"""Conditions under which a run fails a gate: named policies on the verdicts, and comparisons with a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from residuum.errors import InputError, unknown_name
from residuum.record import METRICS
from residuum.reporting.evidence import Quantity, find
from residuum.reporting.run import Run
from residuum.reporting.verdict import FOUND, INCONCLUSIVE, MIXED, NONE_FOUND, NOT_COMPARABLE, OVER, WORDS

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
            return Condition(text, match["name"], match["row"], match["sign"], float(match["number"]))
        except ValueError:
            raise InputError(f"expected a number in the condition {text!r}, got {match['number']!r}") from None
    named = NAMED.fullmatch(text.strip())
    name = named["name"] if named else text
    if named is None or name not in (*POLICIES, WARNINGS) or (name == WARNINGS and named["row"]):
        raise unknown_name(f"policy in the condition {text!r}", name, [*POLICIES, WARNINGS, "QUANTITY>NUMBER"])
    return Condition(text, name, named["row"])


def values(run: Run, label: str, name: str) -> Iterator[tuple[str, float | None]]:
    """Yield each value of a quantity of a row, with the perturbation it was taken under if there is one."""
    if name in LEVELS:
        quantity: Quantity = next(level for level in LEVELS if level == name)
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
