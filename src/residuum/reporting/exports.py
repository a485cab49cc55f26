"""The results table as LaTeX (booktabs) and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from residuum.reporting.records import Run
from residuum.reporting.rows import COLUMNS, METRICS, Cell, TableRow, table_rows
from residuum.reporting.verdict import judge

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': "''",
    "–": "--",
    "|": r"\textbar{}",
}
SHORT = {
    "retain_accuracy": "Retain acc.",
    "unlearn_accuracy": "Unlearn acc.",
    "test_accuracy": "Test acc.",
    "mia_accuracy": "MIA acc.",
    "relearn_epochs": "Re-learn",
    "average_gap": "Avg. gap",
    "residual": "Residual",
    "cost": "Cost",
}
UNITS = {"cost": "%"}
CSV_COLUMNS = ("run", "model", "method", "kind", "verdict")


def latex_text(text: str) -> str:
    r"""Return text that LaTeX prints as it is; letters that pdflatex may not know become their code.

    >>> latex_text("eu_k 50 %")
    'eu\\_k 50 \\%'
    """
    return "".join(
        SPECIAL.get(letter, letter if letter.isascii() and letter.isprintable() else f"U+{ord(letter):04X}")
        for letter in text
    )


def latex_table(runs: Sequence[Run]) -> str:
    """Return a table environment that compiles with booktabs; numbers are those of results.json, rounded."""
    several = len(runs) > 1
    head = [*(["Run"] if several else []), "Model", *(latex_text(SHORT[c.key]) for c in COLUMNS)]
    units = [*([""] if several else []), "", *(latex_text(f"({UNITS.get(c.key, c.unit)})") for c in COLUMNS)]
    lines = [
        "% Made by residuum from results.json; needs \\usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        rf"\caption{{{latex_text(caption(runs))}}}",
        rf"\begin{{tabular}}{{{'l' * (1 + several)}{'r' * len(COLUMNS)}}}",
        r"\toprule",
        " & ".join(head) + r" \\",
        " & ".join(units) + r" \\",
    ]
    for run in runs:
        lines += [r"\midrule", *(latex_row(row, several) for row in table_rows(run))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def caption(runs: Sequence[Run]) -> str:
    """Return what the table shows."""
    names = ", ".join(run.name for run in runs)
    seeds = max(len(run.seeds) for run in runs)
    shown = f"mean and standard deviation over {seeds} seeds, in parentheses the gap to re-train"
    return f"{names}: {shown}. Cost is relative to re-training. Bold: smallest gap."


def latex_row(row: TableRow, several: bool) -> str:
    """Return one line of the table."""
    names = [latex_text(row.run)] if several else []
    cells = [latex_cell(row.cells[column.key], column in METRICS) for column in COLUMNS]
    return " & ".join([*names, latex_text(row.label), *cells]) + r" \\"


def latex_cell(cell: Cell, with_gap: bool) -> str:
    r"""Return a cell.

    >>> latex_cell(Cell(99.5, "99.50", std=0.25, gap=0.1), True)
    '$99.50_{\\pm 0.25}$ (0.10)'
    """
    if cell.value is None:
        return "--"
    number = latex_text(cell.text) if cell.std is None else rf"${cell.text}_{{\pm {cell.std:.2f}}}$"
    gap = "" if not with_gap or cell.gap is None else f" ({cell.gap:.2f})"
    if cell.best:
        number, gap = (number, rf" (\textbf{{{cell.gap:.2f}}})") if gap else (rf"\textbf{{{number}}}", "")
    return number + gap


def csv_table(runs: Sequence[Run]) -> str:
    """Return the same rows with all digits: mean, standard deviation and gap in columns of their own."""
    columns = [f"{c.key}{part}" for c in COLUMNS for part in _parts(c.key)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*CSV_COLUMNS, *columns], lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerows(csv_row(run, row) for row in table_rows(run))
    return stream.getvalue()


def _parts(key: str) -> tuple[str, ...]:
    return (
        ("", "_std", "_gap")
        if any(key == column.key for column in METRICS)
        else ("", "_std")
        if key == "residual"
        else ("",)
    )


def csv_row(run: Run, row: TableRow) -> dict[str, object]:
    """Return one line; a re-learn time beyond the cap is inf, what does not exist is empty."""
    names = {"run": row.run, "model": row.label, "method": run.rows[row.label]["method"]}
    values: dict[str, object] = {name: spreadsheet_safe(str(text)) for name, text in names.items()}
    values |= {"kind": row.kind, "verdict": judge(run, row.label).word if row.kind in ("original", "method") else ""}
    for column in COLUMNS:
        cell = row.cells[column.key]
        for part in _parts(column.key):
            value = {"": cell.value, "_std": cell.std, "_gap": cell.gap}[part]
            values[f"{column.key}{part}"] = "" if value is None else repr(value)
    return values


def spreadsheet_safe(text: str) -> str:
    """Return text that no spreadsheet takes for a formula.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("rurk")
    ("'=1+1", 'rurk')
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
