"""What was concluded of the rows of a run: verdicts, the findings they rest on, and the gates of comparability.

All of it is computed once, when the record is assembled, by the rule whose version the record names.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Literal

from residuum.record.audits import Below, Part, Values

Quantity = Literal["r", "G", "M"]
Bounds = tuple[float, float]


class Verdict(Enum):
    """The conclusion about one row, in the order in which pages sort them; records store the name.

    >>> Verdict("FOUND").label
    'residual knowledge found'
    """

    NOT_COMPARABLE = (
        "NOT_COMPARABLE",
        "reference not comparable",
        "the retrained model was not trained as the original was, or its training failed: no difference could be put "
        "down to forgetting.",
    )
    FOUND = (
        "FOUND",
        "residual knowledge found",
        "the model recognizes perturbed forgotten samples more often than retraining explains.",
    )
    MIXED = ("MIXED", "mixed", "residual knowledge was found, and the model is over-forgotten as well.")
    OVER_FORGOTTEN = (
        "OVER_FORGOTTEN",
        "over-forgotten",
        "the model recognizes them less often than retraining explains, or has lost utility: that, too, gives the "
        "deletion away.",
    )
    INCONCLUSIVE = (
        "INCONCLUSIVE",
        "inconclusive",
        "too few retrained models, or an audit that could not have seen even the original: nothing can be said.",
    )
    NONE_FOUND = (
        "NONE_FOUND",
        "no residual knowledge found at this precision",
        "none of these; never proof of deletion.",
    )

    label: str
    sentence: str

    def __new__(cls, name: str, label: str, sentence: str) -> Verdict:
        """Make a verdict whose value is its name."""
        made = object.__new__(cls)
        made._value_ = name
        made.label, made.sentence = label, sentence
        return made

    def __str__(self) -> str:
        """Return the label."""
        return self.label


class Gate(Part):
    """One condition of comparability: what was measured, its limit, and why it matters where it does not hold.

    `passed` is None where the record cannot tell: such a gate refuses nothing, and was not passed either.
    """

    name: str
    passed: bool | None
    text: str


class Finding(Part):
    """What the rule says of one quantity of one row under one perturbation.

    Lists have T + 1 columns: the level over all radii above 0, then each of these radii (`taus`). `values` are means
    over seeds: ratios, or differences in class form. `floor_low` and `floor_high` are the noise floor, and
    `interval_low` and `interval_high` the row's own 95 % interval; None where too few models were `retrained`.
    `column` is what the verdict of the rule rests on, and `smallest` the power statement: a level below it could well
    have been missed. `neutral` is what a retrained model shows.
    """

    quantity: Quantity
    perturbation: str
    form: Literal["sample", "class"]
    crafted_on: str | None = None
    verdict: Verdict
    retrained: int
    taus: list[float]
    column: int
    values: list[float]
    floor_low: Values
    floor_high: Values
    interval_low: Values
    interval_high: Values
    seeds: list[float]
    neutral: float
    smallest: float | None
    p_value: float

    def value(self, column: int = 0) -> float:
        """Return the mean over seeds: a ratio, or in class form a difference."""
        return self.values[column]

    def floor(self, column: int = 0) -> Bounds:
        """Return the noise floor, what retrained models explain; not a number where too few were trained."""
        return _number(self.floor_low[column]), _number(self.floor_high[column])

    def interval(self, column: int = 0) -> Bounds:
        """Return the 95 % interval of the mean, if the row varies from seed to seed as retrained models do."""
        return _number(self.interval_low[column]), _number(self.interval_high[column])

    @property
    def has_floor(self) -> bool:
        """Whether there were retrained models enough to judge by."""
        return self.floor_low[0] is not None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


class RowJudgment(Part):
    """What was concluded of one row; retrained models, by which the others are judged, have findings alone.

    `perturbation` is the one whose findings the verdict rests on, `by_perturbation` has the verdict of each alone.
    `reasons` are losses of utility, and `doubts` say why nothing can be concluded, and what would help.
    """

    verdict: Verdict | None = None
    perturbation: str | None = None
    by_perturbation: dict[Below, Verdict] = {}
    reasons: list[str] = []
    doubts: list[str] = []
    findings: dict[Below, dict[Quantity, Finding]] = {}

    def found(self, perturbation: str | None, quantity: Quantity = "r") -> Finding | None:
        """Return the finding of a quantity under a perturbation, if there is one."""
        return self.findings.get(perturbation or "", {}).get(quantity)

    @property
    def finding(self) -> Finding | None:
        """The finding of r that the verdict rests on."""
        return self.found(self.perturbation)

    @property
    def memory(self) -> Finding | None:
        """Memory M beside it: it qualifies a finding, and never makes one."""
        return self.found(self.perturbation, "M")

    @property
    def class_knowledge(self) -> Finding | None:
        """Class knowledge G beside it."""
        return self.found(self.perturbation, "G")
