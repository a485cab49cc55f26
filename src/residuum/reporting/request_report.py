"""A sequence of deletion requests: its verdicts, its CSV and its page, from the runs of the requests."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.record import METRICS, Audit, Curve, Estimates, Results, Row, over_seeds
from residuum.record.run import Run
from residuum.reporting import request_chart, wording
from residuum.reporting.exports import csv_lines, csv_text
from residuum.reporting.page import policy, rendered, stylesheet

SHOWN = {"unlearn_accuracy": "Unlearn acc.", "test_accuracy": "Test acc.", "retain_accuracy": "Retain acc."}
ORDER = (Role.METHOD, Role.ORIGINAL, Role.CONTROL)  # of the sections of the page
COLUMN = 15  # characters that a verdict needs at least, to be read between the lines of a table
SETS = ("so_far", "first_request")  # which forgotten samples


def estimate(row: Row, perturbation: str, samples: str, measure: str) -> Curve:
    """Return a measure on a set of forgotten samples: the mean over seeds and the hull of the seeds' intervals."""
    audits: list[Audit | Estimates | None] = [
        audit.first_request if samples == "first_request" else audit for audit in row.audits(perturbation)
    ]
    return over_seeds([audit.curve(measure) for audit in audits if audit is not None])


def forgotten(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """Return for each request how many samples it took, and how many are forgotten so far."""
    so_far = [run.record.scenario.sizes.get("forget", 0) for run in runs]
    return [(after - before, after) for before, after in pairwise([0, *so_far])]


def metrics_of(row: Row) -> dict[str, float]:
    """Return the means over seeds of the row's accuracies, in per cent."""
    spreads = {name: row.summary.metric(name) for name in (*METRICS, "mia_entropy_accuracy")}
    return {name: spread.mean for name, spread in spreads.items() if spread}


def requests_csv(runs: Sequence[Run]) -> str:
    """Return requests.csv: the lines of table.csv of every request."""
    sizes = enumerate(zip(runs, forgotten(runs), strict=True), start=1)
    return csv_text(
        {"number": number, "samples": samples, "samples_so_far": so_far, **line}
        for number, (run, (samples, so_far)) in sizes
        for line in csv_lines(run)
    )


def figures(record: Results, label: str) -> list[dict[str, str]]:
    """Return for each perturbation what a table shows of a row: largest radius, both figures and the noise floor."""
    shown = []
    for perturbation, floor in record.noise_floor.items():
        k = max(range(len(floor.taus)), key=floor.taus.__getitem__)
        texts = {samples: figure_text(record, label, perturbation, samples, k) for samples in SETS}
        in_class_form = record.scenario.form == "class"
        noise = "" if in_class_form or floor.low[k] is None else f"{floor.low[k]:.2f} to {floor.high[k]:.2f}"
        shown.append({"perturbation": perturbation, "radius": f"{floor.taus[k]:g}", "floor": noise, **texts})
    return shown


def figure_text(record: Results, label: str, perturbation: str, samples: str, k: int) -> str:
    """Return r, or the difference where whole classes were forgotten or the retrained model is never right."""
    row = record.methods[label]
    ratio = estimate(row, perturbation, samples, "pooled").at(k)
    if record.scenario.form != "class" and None not in ratio:
        return wording.estimate_words(*ratio, form="sample")
    return wording.estimate_words(*estimate(row, perturbation, samples, "difference").at(k), form="class")


def requests_tables(runs: Sequence[Run], width: int) -> Iterator[Table]:
    """Yield the verdict on each row after each request, in tables of as many requests as fit the width."""
    record, at_once = runs[-1].record, max(1, width // COLUMN - 1)
    for first in range(0, len(runs), at_once):
        shown = runs[first : first + at_once]
        about = "continued" if first else plural(len(runs), "request")
        table = Table(title=Text(f"{record.scenario.name}{',' if first else ':'} {about}"), show_lines=True)
        for head in ("Model", *(f"Request {first + k}" for k, _ in enumerate(shown, start=1))):
            table.add_column(head, overflow="fold")
        for label in runs[-1].verdicts:
            verdicts = [run.verdicts.get(label) for run in shown]
            texts = (wording.verdict_badge(verdict) if verdict else "–" for verdict in verdicts)
            table.add_row(Text(label), *map(Text, texts))
        yield table


def index_text(runs: Sequence[Run]) -> str:
    """Return the page over all requests, from their runs in order."""
    style, record = stylesheet(), runs[-1].record
    # a request may have more controls than another
    rows = {label: role for role in ORDER for run in runs for label in run.record.rows_of(role)}
    steps = [
        {
            "number": number,
            "asked": wording.request_words(request, record.scenario.class_names, rest=number > 1),
            "samples": samples,
            "samples_so_far": so_far,
            "record": run.record,
        }
        for number, (run, request, (samples, so_far)) in enumerate(
            zip(runs, record.scenario.settings.requests, forgotten(runs), strict=True), start=1
        )
    ]
    return rendered(
        "requests.html.j2",
        record=record,
        steps=steps,
        rows=rows,
        verdicts={label: [run.verdicts[label] for run in runs if label in run.verdicts] for label in rows},
        figures=figures,
        first_record=lambda label: next(run.record for run in runs if label in run.record.methods),
        chart=request_chart,
        panels=partial(request_chart.panels, runs),
        retraining=request_chart.retraining(runs),
        metrics=SHOWN,
        metrics_of=metrics_of,
        style=style,
        policy=policy("", style),
    )
