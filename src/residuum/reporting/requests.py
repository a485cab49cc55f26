"""A sequence of deletion requests: its table, its CSV and its page, from requests.json and the runs below it."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from residuum.reporting import words
from residuum.reporting.exports import spreadsheet_safe
from residuum.reporting.page import environment, policy, stylesheet
from residuum.reporting.records import Record, Run, kind, read_record
from residuum.reporting.verdict import Verdict, judge

SCHEMA = "residuum.requests/1"
FILE = "requests.json"
METRICS = {"unlearn_accuracy": "Unlearn acc.", "test_accuracy": "Test acc.", "retain_accuracy": "Retain acc."}
AUDITED = {"so_far": "", "first_request": "first_request_"}


@dataclass(frozen=True)
class Estimate:
    """A number at one radius: the mean over seeds and the hull of the seeds' intervals; None where it does not exist.

    >>> Estimate(1.204, 1.1, 1.3).text("sample"), Estimate(0.1, 0.05, 0.15).text("class")
    ('1.20 [1.10, 1.30]', '+10.0 [+5.0, +15.0]')
    """

    value: float | None
    low: float | None
    high: float | None

    def text(self, form: str) -> str:
        """Return the ratio, or in class form the difference in percentage points."""
        if self.value is None or self.low is None or self.high is None:
            return "–"
        value, low, high = (words.amount(number, form) for number in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def load_requests(folder: Path) -> Record:
    """Return the content of requests.json in this folder."""
    return read_record(folder / FILE, SCHEMA, "finished requests")


def estimate(row: Record, perturbation: str, audited: str, measure: str, place: int) -> Estimate:
    """Return a measure of a row at the radius in this place, over all seeds."""
    seeds = [seed[perturbation][audited][measure] for seed in row["per_seed"].values()]
    value = "pooled" if measure == "residual_knowledge" else "value"
    values, lows, highs = ([seed[key][place] for seed in seeds] for key in (value, "low", "high"))
    if None in (*values, *lows, *highs):
        return Estimate(None, None, None)
    return Estimate(statistics.fmean(values), min(lows), max(highs))


def csv_lines(record: Record) -> Iterator[dict[str, Any]]:
    """Yield one line per request, row, perturbation and radius; means over seeds, hulls of the seeds' intervals."""
    for request in record["requests"]:
        for label, row in request["rows"].items():
            for perturbation, floor in request["noise_floor"].items():
                for place, tau in enumerate(floor["taus"]):
                    yield {
                        **{key: request[key] for key in ("number", "samples", "samples_so_far", "form")},
                        "model": spreadsheet_safe(label),
                        "method": spreadsheet_safe(row["method"]),
                        **row["metrics"],
                        "average_gap": row["average_gap"],
                        "perturbation": spreadsheet_safe(perturbation),
                        "radius": tau,
                        **_measures(row, perturbation, place),
                        "noise_floor_low": floor["low"][place],
                        "noise_floor_high": floor["high"][place],
                    }


def _measures(row: Record, perturbation: str, place: int) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for audited, prefix in AUDITED.items():
        for measure in ("residual_knowledge", "difference"):
            found = estimate(row, perturbation, audited, measure, place)
            name = f"{prefix}{measure}"
            columns |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return columns


def requests_csv(record: Record) -> str:
    """Return requests.csv; a value that does not exist is empty."""
    lines = list(csv_lines(record))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def figures(request: Record, label: str) -> list[dict[str, str]]:
    """Return for each perturbation what a table shows of a row: largest radius, both figures and the noise floor."""
    shown = []
    for perturbation, floor in request["noise_floor"].items():
        place = max(range(len(floor["taus"])), key=floor["taus"].__getitem__)
        texts = {audited: figure_text(request, label, perturbation, audited, place) for audited in AUDITED}
        noise = "" if request["form"] == "class" or floor["low"][place] is None else _range(floor, place)
        shown.append({"perturbation": perturbation, "radius": f"{floor['taus'][place]:g}", "floor": noise, **texts})
    return shown


def figure_text(request: Record, label: str, perturbation: str, audited: str, place: int) -> str:
    """Return r, or the difference where whole classes were forgotten or re-train is never right."""
    row = request["rows"][label]
    ratio = estimate(row, perturbation, audited, "residual_knowledge", place)
    if request["form"] != "class" and ratio.value is not None:
        return ratio.text("sample")
    return estimate(row, perturbation, audited, "difference", place).text("class")


def _range(floor: Record, place: int) -> str:
    return f"{floor['low'][place]:.2f} to {floor['high'][place]:.2f}"


def requests_table(record: Record) -> Table:
    """Return all rows over all requests: accuracies with re-train's in parentheses, r at the largest radius."""
    table = Table(
        title=f"{record['scenario']['name']}: {len(record['requests'])} requests, means over "
        f"{len(record['seeds'])} seeds (re-train's)",
        caption="r at the largest radius with the ends of its intervals, on all samples forgotten so far and on those "
        "of request 1 alone; where re-train is never right, the difference in percentage points, with its sign.",
    )
    table.add_column("Model", no_wrap=True)
    titles = [f"{tail} {each['perturbation']} {each['radius']}" for each in figures(record["requests"][0], "retrain")
              for tail in ("r", "r (request 1)")]  # fmt: skip
    for title in ("Request", "Forgotten", *METRICS.values(), *titles):
        table.add_column(title, justify="right", no_wrap=True)
    for label in record["requests"][-1]["rows"]:
        table.add_section()
        for request in record["requests"]:
            table.add_row(label, str(request["number"]), str(request["samples_so_far"]), *_cells(request, label))
    return table


def _cells(request: Record, label: str) -> Iterator[str]:
    mine, reference = (request["rows"][row]["metrics"] for row in (label, "retrain"))
    yield from (f"{mine[name]:.1f} ({reference[name]:.1f})" for name in METRICS)
    for each in figures(request, label):
        yield from (each[audited] for audited in AUDITED)


def index_text(record: Record, runs: Sequence[Run]) -> str:
    """Return the page over all requests; `runs` are their runs, in order."""
    style = stylesheet()
    names = runs[-1].record["scenario"].get("class_names") or []
    asked = [words.request_words(r["request"], names, rest=k > 0) for k, r in enumerate(record["requests"])]
    rows = record["requests"][-1]["rows"]
    return (
        environment()
        .get_template("requests.html.j2")
        .render(
            record=record,
            asked=asked,
            rows={label: kind(row) for label, row in rows.items() if kind(row) != "retrain"},
            verdicts={label: _verdicts(label, row, runs) for label, row in rows.items()},
            figures=figures,
            metrics=METRICS,
            words=words,
            style=style,
            policy=policy("", style),
        )
    )


def _verdicts(label: str, row: Mapping[str, Any], runs: Sequence[Run]) -> list[Verdict] | None:
    return [judge(run, label) for run in runs] if kind(row) in ("original", "method") else None
