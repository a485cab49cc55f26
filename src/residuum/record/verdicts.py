"""The conclusions about the rows of a run: verdicts, the findings they rest on, and the gates of comparability.

All of it is computed once, when the record is assembled, by the rule whose version the record names.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Literal, Self

from residuum.record.audits import Below, Part

Quantity = Literal["r", "G", "M"]
Bounds = tuple[float, float]


class Conclusion(Enum):
    """A conclusion with a label and a sentence; records store the name."""

    label: str
    sentence: str

    def __new__(cls, name: str, label: str, sentence: str) -> Self:
        """Make a conclusion whose value is its name."""
        conclusion = object.__new__(cls)
        conclusion._value_ = name
        conclusion.label, conclusion.sentence = label, sentence
        return conclusion

    def __str__(self) -> str:
        """Return the label."""
        return self.label


class Verdict(Conclusion):
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
        "the model recognizes forgotten samples more often than retraining explains, or remembers them.",
    )
    MIXED = ("MIXED", "mixed", "residual knowledge was found, and the model is over-forgotten as well.")
    OVER_FORGOTTEN = (
        "OVER_FORGOTTEN",
        "over-forgotten",
        "the model recognizes them less often than retraining explains: that, too, gives the deletion away.",
    )
    INCONCLUSIVE = (
        "INCONCLUSIVE",
        "inconclusive",
        "too few retrained models, or an audit that could not have seen even the original: nothing can be said.",
    )
    NOT_DETECTED = (
        "NOT_DETECTED",
        "not detected",
        "the model could pass for a retrained one, as far as this audit can tell; never proof of deletion.",
    )


class Gate(Part):
    """One condition of comparability: what was measured, its limit, and why it matters where it does not hold.

    `passed` is None where the record cannot tell: such a gate refuses nothing, and was not passed either.
    """

    name: str
    passed: bool | None
    text: str


class Column(Part):
    """One column of the rule for one row: the level over all radii above 0 (`tau` is None), or one radius.

    `value` is the mean over seeds: a ratio, or in class form a difference. `share` is the part of the error that the
    column has; 0 means that it is not judged. G has the share of a level, for its noise floor, and makes no verdict.
    `statistic` is Student's T against so many `retrained` models, `floor` the noise floor, `side` where the value lies
    outside it, and `interval` the row's own 95 % interval.
    `smallest` is the power statement: a value below it could well have been missed. None with too few retrained models.
    """

    tau: float | None
    share: float
    retrained: int
    value: float
    statistic: float | None = None
    floor: Bounds | None = None
    interval: Bounds | None = None
    smallest: float | None = None
    side: Literal["above", "below"] | None = None


class Finding(Part):
    """What the rule says of one quantity of one row under one perturbation: the level first, then each radius.

    G and M have the level alone. `seeds` are the levels of each seed, `neutral` is what a retrained model shows.
    """

    quantity: Quantity
    perturbation: str
    form: Literal["sample", "class"]
    crafted_on: str | None = None
    columns: list[Column]
    seeds: list[float]
    neutral: float

    def value(self, column: int = 0) -> float:
        """Return the mean over seeds: a ratio, or in class form a difference."""
        return self.columns[column].value

    def floor(self, column: int = 0) -> Bounds:
        """Return the noise floor, what retrained models explain; not a number where it does not exist."""
        return self.columns[column].floor or (math.nan, math.nan)

    def interval(self, column: int = 0) -> Bounds:
        """Return the 95 % interval of the mean, if the row varies from seed to seed as retrained models do."""
        return self.columns[column].interval or (math.nan, math.nan)

    @property
    def above(self) -> bool:
        """Whether any column lies above what retraining explains."""
        return any(column.side == "above" for column in self.columns)

    @property
    def below(self) -> bool:
        """Whether any column lies below what retraining explains."""
        return any(column.side == "below" for column in self.columns)

    @property
    def retrained(self) -> int:
        """How many retrained models the level was compared with."""
        return self.columns[0].retrained

    @property
    def has_floor(self) -> bool:
        """Whether the level has a noise floor."""
        return self.columns[0].floor is not None


class Place(Part):
    """Where a column stands: 0 is the level."""

    perturbation: str
    quantity: Quantity = "r"
    column: int = 0


class Difficulty(Part):
    """Whether forgotten samples are as hard for retrained models, which saw neither, as held-out ones of their classes.

    `auc` is the chance that a forgotten sample has the larger margin, with its 95 % interval over samples. M is judged
    only if the interval reaches into what is `fair`.
    """

    auc: float
    low: float
    high: float
    fair: bool


class MemoryChip(Part):
    """Memory of these very samples, by M: found; not found, where an M below `smallest` may be missed; cannot tell.

    `perturbation` is the one under which M was found, or would have been found first. `reason` says why nothing can be
    told.
    """

    state: Literal["found", "not found", "cannot tell"]
    perturbation: str | None = None
    value: float | None = None
    smallest: float | None = None
    reason: str = ""


class UtilityChip(Part):
    """Test accuracy against retrained models: `points` is how far it lies below their mean, negative above it."""

    state: Literal["kept", "lost", "cannot tell"]
    points: float | None = None


class ConfidenceChip(Part):
    """How many retrained models the row was compared with, and the smallest excess that would have been noticed.

    `smallest` is found with 80 % power: the least r of levels and radius 0, or M where these show no excess.
    """

    retrained: int
    smallest: float | None
    quantity: Quantity = "r"
    form: Literal["sample", "class"]


class Chips(Part):
    """The three facts that a page shows next to a verdict."""

    memory: MemoryChip
    utility: UtilityChip
    confidence: ConfidenceChip


class Difference(Part):
    """One measure of a row and its noise floor, two-sided: no evidence of memory, and no part of the verdict.

    Values are those of the record, in per cent for accuracies. `statistic` is Student's T.
    """

    measure: str
    value: float
    floor: Bounds
    retrained: int
    statistic: float
    differs: bool


class RowJudgment(Part):
    """What was concluded of one row; retrained models, by which the others are judged, have findings alone.

    `rests_on` is the column with the smallest p among those that make the verdict, and where none does, the one that
    would have shown the smallest excess. `p_value` covers all columns and both directions. `chips` say what the verdict
    does not, `differences` compare other measures with retrained models, and `doubts` say why nothing can be concluded,
    and what would help.
    """

    verdict: Verdict | None = None
    rests_on: Place | None = None
    p_value: float | None = None
    doubts: list[str] = []
    chips: Chips | None = None
    differences: list[Difference] = []
    findings: dict[Below, dict[Quantity, Finding]] = {}

    def finding_of(self, perturbation: str | None, quantity: Quantity = "r") -> Finding | None:
        """Return the finding of a quantity under a perturbation, if there is one."""
        return self.findings.get(perturbation or "", {}).get(quantity)

    @property
    def differs(self) -> list[str]:
        """The measures in which the row differs from retrained models.

        `recognition` is one of them where perturbed samples are recognized more often than retraining explains, and
        this is no evidence because M is judged in place of it.
        """
        measures = [one.measure for one in self.differences if one.differs]
        return ["recognition", *measures] if any(map(self.recognizes_more, self.findings)) else measures

    def recognizes_more(self, perturbation: str) -> bool:
        """Return whether perturbed samples are recognized more often than retraining explains, which is no evidence."""
        finding, memory = self.finding_of(perturbation), self.finding_of(perturbation, "M")
        if finding is None or memory is None or finding.form == "class":
            return False
        return memory.columns[0].share > 0 and any(
            column.side == "above" and column.tau != 0 for column in finding.columns
        )

    @property
    def perturbation(self) -> str | None:
        """The perturbation whose findings the verdict rests on."""
        return self.rests_on.perturbation if self.rests_on else None

    @property
    def finding(self) -> Finding | None:
        """The finding of r under that perturbation."""
        return self.finding_of(self.perturbation)

    @property
    def memory(self) -> Finding | None:
        """The finding of memory M under that perturbation."""
        return self.finding_of(self.perturbation, "M")

    @property
    def class_knowledge(self) -> Finding | None:
        """The finding of class knowledge G under that perturbation; it is shown, but it is no part of the verdict."""
        return self.finding_of(self.perturbation, "G")

    @property
    def column(self) -> Column | None:
        """The column that the verdict rests on."""
        place = self.rests_on
        finding = self.finding_of(place.perturbation, place.quantity) if place else None
        return finding.columns[place.column] if finding and place else None

    @property
    def smallest(self) -> float | None:
        """The smallest value that the audit would have found in that column, or at its level, with 80 % power."""
        return self.column.smallest if self.column else None
