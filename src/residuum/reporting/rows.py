"""The literature's results table as plain values, for the page, for LaTeX and for CSV."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from residuum.reporting.records import Record, Run, kind
from residuum.reporting.tables import relearn_text
from residuum.reporting.verdict import Point, judged_confidence, judged_points


@dataclass(frozen=True)
class Column:
    """A column: its key, title, unit, which direction is good, and what it measures."""

    key: str
    title: str
    unit: str
    direction: str
    meaning: str


METRICS = (
    Column(
        "retain_accuracy",
        "Retain accuracy",
        "%",
        "near re-train",
        "Share of the kept training samples that the model classifies correctly. A gap to re-train means lost utility.",
    ),
    Column(
        "unlearn_accuracy",
        "Unlearn accuracy",
        "%",
        "near re-train",
        "Share of the forgotten samples that the model gets wrong. Below re-train: still knows them; far above: "
        "over-forgotten, which gives them away too.",
    ),
    Column(
        "test_accuracy",
        "Test accuracy",
        "%",
        "near re-train or higher",
        "Share of unseen test samples that the model classifies correctly.",
    ),
    Column(
        "mia_accuracy",
        "MIA accuracy",
        "%",
        "near re-train",
        "Share of the forgotten samples that a membership-inference attack calls unseen. Below re-train: the attack "
        "still recognises members.",
    ),
)
RELEARN = Column(
    "relearn_epochs",
    "Re-learn time",
    "epochs",
    "near re-train",
    "Median number of epochs until the forgotten samples are learnt again; '> cap' where the cap came first "
    "(censored). Faster than re-train: traces are left.",
)
GAP = Column(
    "average_gap",
    "Average gap",
    "points",
    "lower is better",
    "Mean of the four absolute gaps to re-train (retain, unlearn, test, MIA), from the means over seeds.",
)
RESIDUAL = Column(
    "residual",
    "Residual knowledge",
    "r",
    "near 1",
    "The ratio r farthest from 1 over the radii above 0 (class form: the difference farthest from 0), mean over seeds. "
    "Above 1: perturbed forgotten samples are recognised more often than by re-train.",
)
COST = Column(
    "cost",
    "Cost",
    "% of re-training",
    "lower is better",
    "Forward-backward passes over single samples, relative to training re-train from scratch.",
)
COLUMNS = (*METRICS, RELEARN, GAP, RESIDUAL, COST)


@dataclass(frozen=True)
class Cell:
    """One value: the number itself, its spread, its gap to re-train, and its text."""

    value: float | None
    text: str
    std: float | None = None
    gap: float | None = None
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """One line of the table."""

    run: str
    label: str
    kind: str
    cells: dict[str, Cell]


NOTHING = Cell(None, "–")


def table_rows(run: Run) -> list[TableRow]:
    """Return the rows of a run; the smallest gap among the methods is marked, unless most share it."""
    rows = [TableRow(run.name, label, kind(row), row_cells(run, label)) for label, row in run.rows.items()]
    best = {key: _smallest_gap(rows, key) for key in (*(column.key for column in METRICS), GAP.key)}
    return [
        replace(row, cells={key: _marked(cell, row, best.get(key)) for key, cell in row.cells.items()}) for row in rows
    ]


def row_cells(run: Run, label: str) -> dict[str, Cell]:
    """Return the cells of one row."""
    row, reference = run.rows[label], run.rows.get("retrain", {"summary": {}, "per_seed": {}})
    summary = row.get("summary") or {}
    cells = {
        column.key: metric_cell(summary.get(column.key), reference["summary"].get(column.key)) for column in METRICS
    }
    relearn, gap = summary.get("relearn_epochs"), summary.get("average_gap")
    median = relearn["median"] if relearn else None
    cells["relearn_epochs"] = Cell(float("inf") if relearn and median is None else median, relearn_text(relearn))
    cells["average_gap"] = NOTHING if gap is None else Cell(gap, f"{gap:.2f}", gap=gap)
    cells["residual"] = residual_cell(farthest(run, label))
    cells["cost"] = cost_cell(row, reference)
    return cells


def metric_cell(value: Record | None, reference: Record | None) -> Cell:
    """Return mean ± std with the absolute gap to the reference."""
    if value is None:
        return NOTHING
    gap = None if reference is None else abs(value["mean"] - reference["mean"])
    return Cell(value["mean"], f"{value['mean']:.2f}", std=value["std"], gap=gap)


def farthest(run: Run, label: str) -> Point | None:
    """Return the radius of the first perturbation at which the mean over seeds is farthest from neutral."""
    if not run.perturbations:
        return None
    points = list(judged_points(run, label, run.perturbations[0], judged_confidence(run)))
    return max(points, key=lambda point: abs(point.mean - point.neutral)) if points else None


def residual_cell(point: Point | None) -> Cell:
    """Return the mean over seeds at that radius, with the spread over seeds."""
    if point is None:
        return NOTHING
    spread = statistics.pstdev(point.values)
    return Cell(point.mean, f"{point.mean:.2f}", std=spread, note=f"{point.perturbation} {point.tau:g}")


def cost_cell(row: Record, reference: Record) -> Cell:
    """Return the passes of all seeds as a percentage of the reference's."""
    passes, full = (sum(seed.get("passes", 0) for seed in table["per_seed"].values()) for table in (row, reference))
    return Cell(100 * passes / full, f"{100 * passes / full:.1f}") if full else NOTHING


def _smallest_gap(rows: Sequence[TableRow], key: str) -> float | None:
    gaps = [row.cells[key].gap for row in rows if row.kind == "method"]
    known = [gap for gap in gaps if gap is not None]
    most_share_it = bool(known) and 2 * known.count(min(known)) > len(known)
    return None if most_share_it else min(known, default=None)


def _marked(cell: Cell, row: TableRow, best: float | None) -> Cell:
    return replace(cell, best=row.kind == "method" and best is not None and cell.gap == best)
