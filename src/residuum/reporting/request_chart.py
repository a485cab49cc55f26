"""A row over a sequence of requests: what the chart draws, and after which request to retrain instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from residuum.core.roles import Role
from residuum.record import Quantity, Results, Verdict
from residuum.record.run import Run
from residuum.reporting.plots import Axis

LEFT = (Verdict.FOUND, Verdict.MIXED, Verdict.OVER_FORGOTTEN)  # verdicts of a model that retraining does not explain
WIDTH, HEIGHT, MARGIN = 280.0, 150.0, 34.0  # of a panel, in the units of its drawing
RETRAINING = 100.0  # per cent


@dataclass(frozen=True)
class Retraining:
    """After which request of a sequence a row should be retrained instead, counted from 1, and why; None: not yet."""

    label: str
    after: int | None
    reason: str

    def __str__(self) -> str:
        """Say it in one sentence."""
        when = "no need to retrain yet" if self.after is None else f"retrain after request {self.after}"
        return f"{self.label}: {when}, {self.reason}"


def retraining(runs: Sequence[Run]) -> dict[str, Retraining]:
    """Return for every unlearned row when to retrain.

    A row should be retrained after the first request whose cost was above that of retraining, because the next request
    is expected to cost as much, or whose result left what retraining explains: by its verdict, or by lost utility.
    """
    return {label: _retraining(runs, label) for label in runs[-1].record.rows_of(Role.METHOD)}


def _retraining(runs: Sequence[Run], label: str) -> Retraining:
    costs = [cost(run.record, label) for run in runs]
    for number, (run, spent) in enumerate(zip(runs, costs, strict=True), start=1):
        judgment = run.verdicts.get(label)
        if judgment is not None and judgment.verdict in LEFT:
            return Retraining(label, number, f"because the result left the noise floor ({judgment.verdict})")
        if judgment is not None and judgment.chips and judgment.chips.utility.state == "lost":
            points = judgment.chips.utility.points
            return Retraining(label, number, f"because utility was lost ({points:.1f} points of test accuracy)")
        if spent is not None and spent > RETRAINING:
            reason = f"because the next request is expected to cost as much as this one, {spent:.0f} % of retraining"
            return Retraining(label, number, reason)
    last = (
        f"the last request cost {costs[-1]:.0f} % of retraining" if costs[-1] is not None else "its cost is not known"
    )
    open_ = [number for number, run in enumerate(runs, start=1) if not _judged(run, label)]
    unclear = f"; the audit of request {', '.join(map(str, open_))} could not tell" if open_ else ""
    return Retraining(label, None, f"{last}, and no result left the noise floor{unclear}")


def _judged(run: Run, label: str) -> bool:
    judgment = run.verdicts.get(label)
    return judgment is not None and judgment.verdict in (*LEFT, Verdict.NOT_DETECTED)


def cost(record: Results, label: str) -> float | None:
    """Return the cost of unlearning in per cent of retraining, by passes or else by seconds; None if it is unknown."""
    results = list(record.methods[label].per_seed.values())
    return record.cost(results) or record.cost(results, "seconds")


@dataclass(frozen=True)
class Panel:
    """One quantity over the requests: its values, what retraining explains, and a line to compare with."""

    title: str
    values: list[float | None]
    floors: list[tuple[float, float] | None]
    line: float | None = None

    @property
    def axis(self) -> Axis:
        """The range of everything drawn."""
        ends = [end for floor in self.floors if floor for end in floor]
        line = [] if self.line is None else [self.line]
        return Axis.around([*(value for value in self.values if value is not None), *ends, *line])

    def x(self, number: int) -> float:
        """Return where a request stands, counted from 0."""
        steps = max(1, len(self.values) - 1)
        return round(MARGIN + 8 + (WIDTH - MARGIN - 16) * number / steps, 1)

    def y(self, value: float) -> float:
        """Return the height of a value, from the top."""
        return round(8 + (HEIGHT - 32) * (1 - self.axis.place(value) / 100), 1)

    @property
    def points(self) -> list[tuple[float, float, str]]:
        """Where each value stands, and the value as text."""
        shown = [(number, value) for number, value in enumerate(self.values) if value is not None]
        return [(self.x(number), self.y(value), f"{value:.3g}") for number, value in shown]

    @property
    def floor_outline(self) -> str:
        """The outline of what retraining explains, as points of a polygon."""
        floors = [(number, floor) for number, floor in enumerate(self.floors) if floor]
        top = [f"{self.x(number)},{self.y(high)}" for number, (_, high) in floors]
        bottom = [f"{self.x(number)},{self.y(low)}" for number, (low, _) in reversed(floors)]
        return " ".join([*top, *bottom]) if len(floors) > 1 else ""


def panels(runs: Sequence[Run], label: str) -> list[Panel]:
    """Return r, M, test accuracy and cumulative cost of a row over the requests; one without any value is left out."""
    costs = [cost(run.record, label) for run in runs]
    known_costs = [spent for spent in costs if spent is not None]
    so_far: list[float | None] = [*accumulate(known_costs)] if len(known_costs) == len(costs) else [None] * len(costs)
    drawn = [
        _levels(runs, label, "r", "Residual knowledge r"),
        _levels(runs, label, "M", "Memory M"),
        _utility(runs, label),
        Panel("Cost so far, % of one retraining", so_far, [None] * len(runs), RETRAINING),
    ]
    return [panel for panel in drawn if any(value is not None for value in panel.values)]


def _levels(runs: Sequence[Run], label: str, quantity: Quantity, title: str) -> Panel:
    values: list[float | None] = []
    floors: list[tuple[float, float] | None] = []
    neutral = None
    for run in runs:
        judgment = run.record.judgments.get(label)
        finding = judgment.finding_of(next(iter(run.perturbations), None), quantity) if judgment else None
        values.append(finding.value() if finding and math.isfinite(finding.value()) else None)
        floors.append(finding.floor() if finding and finding.has_floor else None)
        neutral = finding.neutral if finding else neutral
    return Panel(title, values, floors, neutral)


def _utility(runs: Sequence[Run], label: str) -> Panel:
    values, floors = [], []
    for run in runs:
        retrained = [row for row in run.rows.values() if row.role.retrained]
        spreads = [spread.mean for row in retrained if (spread := row.summary.metric("test_accuracy"))]
        accuracy = run.rows[label].summary.metric("test_accuracy")
        values.append(accuracy.mean if accuracy else None)
        floors.append((min(spreads), max(spreads)) if spreads else None)
    return Panel("Test accuracy, %", values, floors)
