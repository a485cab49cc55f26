"""Exports of a run: the results table as LaTeX (booktabs) and CSV, a data frame, a model with its card."""

from __future__ import annotations

import csv
import io
import json
import shutil
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.core.errors import InputError, plural, unknown_name
from residuum.core.files import write_whole
from residuum.core.roles import Role
from residuum.record import RowJudgment
from residuum.record.folder import CARD_OF, note_written
from residuum.record.run import Run
from residuum.reporting.glossary import COLUMNS, MEASURES, METRICS
from residuum.reporting.page import rendered
from residuum.reporting.summary import Cell, RowSummary, summary_of
from residuum.reporting.wording import verdict_badge

if TYPE_CHECKING:
    import pandas as pd

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
WEIGHTS = "model.safetensors"
CARD = "README.md"
UNITS = {"cost": "%"}
LEVELS = ("G", "M")
PROBE_COLUMNS = ("low", "high", "p", "found")  # in addition to the value
OVER_SAMPLES = ("sample_low", "sample_high")
FURTHER = {
    **dict.fromkeys(("class_knowledge", "memory", "memory_difference"), OVER_SAMPLES),
    "completeness": ("draw_low", "draw_high"),
    "nearer": ("forgotten", "heldout"),
}  # fields of a measure's curve besides value, low and high


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
    head = [*(["Run"] if several else []), "Model", "Verdict", *(latex_text(c.short) for c in COLUMNS), *LEVELS]
    units = [*([""] if several else []), "", "", *(latex_text(f"({UNITS.get(c.key, c.unit)})") for c in COLUMNS)]
    units += ["" for _ in LEVELS]
    lines = [
        "% Made by residuum from results.json; needs \\usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        rf"\caption{{{latex_text(caption(runs))}}}",
        rf"\begin{{tabular}}{{{'l' * (2 + several)}{'r' * len((*COLUMNS, *LEVELS))}}}",
        r"\toprule",
        " & ".join(head) + r" \\",
        " & ".join(units) + r" \\",
    ]
    for run in runs:
        lines.append(r"\midrule")
        for row in summary_of(run).rows:
            cells = [latex_text(verdict_badge(row.judgment)) if row.judgment else ""]
            cells += [latex_cell(row.cells[column.key], column in METRICS) for column in COLUMNS]
            cells += [latex_cell(row.cells[quantity], False) for quantity in LEVELS]
            lines.append(" & ".join([*([latex_text(row.run)] * several), latex_text(row.label), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def caption(runs: Sequence[Run]) -> str:
    """Return what the table shows."""
    names, seeds = ", ".join(run.name for run in runs), plural(max(len(run.seeds) for run in runs), "seed")
    return (
        f"{names}: mean and standard deviation over {seeds}, in parentheses the gap to the retrained model. "
        "Cost is relative to retraining. Bold: smallest gap."
    )


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


def csv_text(lines: Iterable[Mapping[str, object]]) -> str:
    """Return lines as CSV with the columns of all of them; missing values are empty."""

    def text(value: object) -> object:
        return spreadsheet_safe(value) if isinstance(value, str) else repr(value) if isinstance(value, float) else value

    lines = list(lines)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: text(value) for key, value in line.items()} for line in lines)
    return stream.getvalue()


def csv_table(runs: Sequence[Run]) -> str:
    """Return the same rows with all digits: mean, standard deviation and gap in separate columns."""
    return csv_text(line for run in runs for line in csv_lines(run))


def csv_lines(run: Run) -> Iterator[dict[str, Any]]:
    """Yield one line for each row; a re-learn time beyond the cap is inf, and a missing value is None."""
    for row in summary_of(run).rows:
        line: dict[str, Any] = {
            "run": row.run,
            "model": row.label,
            "method": row.row.method,
            "role": str(row.role),
            **_judged(row.judgment),
        }
        for column in COLUMNS:
            cell = row.cells[column.key]
            line[column.key] = cell.value
            if column in METRICS or column.key == "residual":
                line[f"{column.key}_std"] = cell.std
            if column in METRICS:
                line[f"{column.key}_gap"] = cell.gap
        for quantity in LEVELS:
            line |= {quantity: row.cells[quantity].value, f"{quantity}_std": row.cells[quantity].std}
        line |= _user_measures(run, row)
        for name, probe in row.row.probes.items():
            line |= {name: probe.value} | {f"{name}_{part}": getattr(probe, part) for part in PROBE_COLUMNS}
        yield line


def _judged(judgment: RowJudgment | None) -> dict[str, Any]:
    """Return verdict and chips as columns; all of them are None for a retrained model."""
    chips = judgment.chips if judgment else None
    return {
        "verdict": str(judgment.verdict) if judgment else None,
        "retrained": chips.confidence.retrained if chips else None,
        "smallest": chips.confidence.smallest if chips else None,
        "memory": chips.memory.state if chips else None,
        "smallest_memory": chips.memory.smallest if chips else None,
        "utility": chips.utility.state if chips else None,
        "utility_points": chips.utility.points if chips else None,
        "differs": " ".join(judgment.differs) if judgment else None,
    }


def _user_measures(run: Run, row: RowSummary) -> dict[str, float | None]:
    """Return the measures of the user by perturbation: means over seeds and over the radii above 0."""
    means: dict[str, float | None] = {}
    for name in run.perturbations:
        taus = summary_of(run).taus[name]
        for measure in summary_of(run).measures[len(MEASURES) :]:
            curve = row.curve(name, measure.key)
            values = [value for tau, value in zip(taus, curve.value, strict=True) if tau > 0 and value is not None]
            means[f"{measure.key}_{name}"] = statistics.fmean(values) if values else None
    return means


def audit_lines(run: Run) -> Iterator[dict[str, Any]]:
    """Yield one line for each row, seed, perturbation and radius, with every measure and its interval."""
    for label, seed, perturbation, audit in run.record.each_audit():
        curves = {measure.key: audit.curve(measure.key) for measure in summary_of(run).measures}
        for k, tau in enumerate(audit.taus):
            line = {"model": label, "seed": int(seed), "perturbation": perturbation, "radius": tau}
            line |= {"samples": audit.samples, "heldout_samples": audit.heldout.samples if audit.heldout else 0}
            for key, curve in curves.items():
                ends = zip(("", "_low", "_high"), curve.at(k), strict=True)
                line |= {f"{key}{end}": value for end, value in ends}
                further = {name: getattr(curve, name, None) for name in FURTHER.get(key, ())}
                line |= {f"{key}_{name}": values[k] if values else None for name, values in further.items()}
            yield line


def to_frame(run: Run, table: str = "results") -> pd.DataFrame:
    """Return the results table, one line per row with its verdict, or with "audits" one line per seed and radius."""
    try:
        import pandas as pd
    except ImportError:
        raise InputError('a data frame needs pandas; install it with pip install ".[pandas]" in a clone') from None
    tables = {"results": csv_lines, "audits": audit_lines}
    if table not in tables:
        raise InputError(f"expected a table of {', '.join(tables)}, got {table!r}")
    return pd.DataFrame(list(tables[table](run)))


def spreadsheet_safe(text: str) -> str:
    """Return text that no spreadsheet reads as a formula.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("rurk")
    ("'=1+1", 'rurk')
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def write_model(run: Run, label: str, folder: Path | str, *, seed: int | None = None) -> list[Path]:
    """Write the weights of a row (default: of the first seed) and their model card into a folder; return the files.

    You can upload the folder to a model hub. It has `model.safetensors`, which `residuum.models.load_weights` reads,
    and `README.md`.
    """
    text = model_card(run, label)
    seed_name = str(run.record.seeds[0] if seed is None else seed)
    if seed_name not in run.rows[label].per_seed:
        raise unknown_name(f"seed of {label}", seed_name, run.rows[label].per_seed)
    weights, target = run.folder / "models" / seed_name / f"{label}.safetensors", Path(folder)
    if not weights.is_file():
        raise InputError(f"expected the weights of {label} in {weights}, but there are none; repeat the run's command")
    try:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(weights, target / WEIGHTS)
        write_whole(target / CARD, text)
        note_written(target, CARD_OF, run.folder)
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror}; choose another folder") from None
    return [target / WEIGHTS, target / CARD]


def model_card(run: Run, label: str) -> str:
    """Return the card of one row: a header for machines (JSON is YAML), then text.

    Reference: the model card guide of the Hugging Face hub (`model-index` has the results).
    """
    rows = {row.label: row for row in summary_of(run).rows}
    if label not in rows:
        raise unknown_name("row", label, rows)
    row, data = rows[label], run.record.scenario.settings.data.name or "unknown"
    metrics = [
        {"type": column.key, "name": f"{column.title} (%)", "value": round(value, 4)}
        for column in METRICS
        if (value := row.cells[column.key].value) is not None
    ]
    if row.judgment and row.judgment.finding:
        level = round(row.judgment.finding.value(), 4)
        metrics.append({"type": "residual_knowledge", "name": "Residual knowledge, all radii", "value": level})
    result = {"task": {"type": "image-classification"}, "dataset": {"name": data, "type": data}, "metrics": metrics}
    header = {
        "library_name": "residuum",
        "tags": ["machine-unlearning", "residuum", row.row.method],
        "model-index": [{"name": f"{run.name}-{row.label}", "results": [result]}],
    }
    return rendered(
        "card.md.j2",
        run=run,
        row=row,
        reference=next((row for row in rows.values() if row.role is Role.REFERENCE), None),
        head=header,
        columns=METRICS,
        weights=WEIGHTS,
        json=partial(json.dumps, ensure_ascii=False),
    )
