"""Tables for the terminal, made from a results record alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

Record = Mapping[str, Any]

COLUMNS = {
    "retain_accuracy": "Retain acc.",
    "unlearn_accuracy": "Unlearn acc.",
    "test_accuracy": "Test acc.",
    "mia_accuracy": "MIA acc.",
}
AXES = {"gaussian": "Gaussian std", "uniform_l2": "l2 radius"}


def metrics_table(record: Record) -> Table:
    """Return the literature's table: mean ± standard deviation (gap to re-train) over the seeds, in per cent."""
    seeds = len(record["seeds"])
    table = Table(title=f"{record['scenario']['name']}: mean ± std over {seeds} seeds (gap to re-train)")
    table.add_column("Model", no_wrap=True)
    for title in (*COLUMNS.values(), "Re-learn", "Avg. gap", "Cost"):
        table.add_column(title, justify="right", no_wrap=True)
    reference = record["methods"]["retrain"]
    for label, row in record["methods"].items():
        cells = [_cell(row["summary"][name], reference["summary"][name]) for name in COLUMNS]
        gap = f"{row['summary']['average_gap']:.2f}"
        table.add_row(label, *cells, relearn_text(row["summary"]["relearn_epochs"]), gap, _cost(row, reference))
    return table


def _cell(value: Record, reference: Record) -> str:
    gap = abs(value["mean"] - reference["mean"])
    return f"{value['mean']:.2f} ± {value['std']:.2f} ({gap:.2f})"


def relearn_text(summary: Record | None) -> str:
    """Return the median number of epochs, with the share of seeds that never got there.

    >>> relearn_text({"median": 4.0, "censored": 1, "n": 3}), relearn_text({"median": None, "censored": 3, "n": 3})
    ('4 (1/3 > cap)', '> cap')
    """
    if summary is None:
        return "–"
    if summary["median"] is None:
        return "> cap"
    tail = f" ({summary['censored']}/{summary['n']} > cap)" if summary["censored"] else ""
    return f"{summary['median']:g}{tail}"


def _cost(row: Record, reference: Record) -> str:
    passes = [seed["passes"] for seed in row["per_seed"].values()]
    full = [seed["passes"] for seed in reference["per_seed"].values()]
    return f"{100 * sum(passes) / sum(full):.1f} %"


def residual_table(record: Record, perturbation: str) -> Table:
    """Return r(tau) per row: the mean of the seeds' pooled ratios, [lowest low, highest high] of their intervals."""
    floor = record["noise_floor"][perturbation]
    axis = AXES.get(perturbation, "radius")
    table = Table(
        title=f"Residual knowledge r under {perturbation}: mean over seeds [lowest, highest end of the intervals]",
        caption=f"r > 1: recognises perturbed forgotten samples more often than re-train. Columns: {axis}.",
    )
    table.add_column("Model", no_wrap=True)
    for tau in floor["taus"]:
        table.add_column(f"{tau:g}", justify="right", no_wrap=True)
    for label, row in record["methods"].items():
        table.add_row(label, *residual_cells(row, perturbation))
    floor_cells = [_interval(low, high) for low, high in zip(floor["low"], floor["high"], strict=True)]
    table.add_section()
    table.add_row("noise floor", *floor_cells)
    return table


def residual_cells(row: Record, perturbation: str) -> list[str]:
    """Return one text per radius: mean pooled ratio and the hull of the seeds' intervals."""
    audits = [seed["audits"][perturbation]["residual_knowledge"] for seed in row["per_seed"].values()]
    cells = []
    for k in range(len(audits[0]["pooled"])):
        pooled = [audit["pooled"][k] for audit in audits]
        if None in pooled:
            cells.append("–")
            continue
        low, high = min(audit["low"][k] for audit in audits), max(audit["high"][k] for audit in audits)
        cells.append(f"{statistics.fmean(pooled):.2f} {_interval(low, high)}")
    return cells


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def prevalence_table(record: Record, perturbation: str) -> Table:
    """Return the share of forgotten samples that a model recognises significantly more often than re-train does."""
    table = Table(
        title=f"Forgotten samples recognised more often than by re-train under {perturbation} (%, mean over seeds)",
        caption="Sign test per sample, false discoveries at most 5 %. Chance alone does what the control shows.",
    )
    table.add_column("Model", no_wrap=True)
    for tau in record["noise_floor"][perturbation]["taus"]:
        table.add_column(f"{tau:g}", justify="right", no_wrap=True)
    for label, row in record["methods"].items():
        audits = [seed["audits"][perturbation]["prevalence_significant"] for seed in row["per_seed"].values()]
        shares = zip(*audits, strict=True)
        table.add_row(label, *("–" if None in share else f"{100 * statistics.fmean(share):.1f}" for share in shares))
    return table


def names_table(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Return a two-column list of names and what they are."""
    table = Table(title=title, show_header=False)
    for name, text in rows:
        table.add_row(name, text)
    return table
