"""A sequence of deletion requests: its table, its CSV and its page, from requests.json and the runs below it."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.record import Curve, RequestResult, RequestRow, Requests, over_seeds
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.exports import csv_text
from residuum.reporting.page import policy, rendered, stylesheet
from residuum.reporting.terminal import fitting_tables

METRICS = {"unlearn_accuracy": "Unlearn acc.", "test_accuracy": "Test acc.", "retain_accuracy": "Retain acc."}
SETS = {"so_far": "", "first_request": "first_request_"}  # which forgotten samples, and their prefix in the CSV
MEASURES = {"residual_knowledge": "pooled", "difference": "difference"}


def estimate(row: RequestRow, perturbation: str, samples: str, measure: str) -> Curve:
    """Return a measure on a set of forgotten samples: the mean over seeds and the hull of the seeds' intervals."""
    return over_seeds([audit.on(samples).curve(measure) for audit in row.audits(perturbation)])


def requests_csv(record: Requests) -> str:
    """Return requests.csv; a value that does not exist is empty."""
    return csv_text(csv_lines(record))


def csv_lines(record: Requests) -> Iterator[dict[str, Any]]:
    """Yield one line per request, row, perturbation and radius; means over seeds, hulls of the seeds' intervals."""
    for request in record.requests:
        for label, row in request.rows.items():
            for perturbation, floor in request.noise_floor.items():
                curves = {
                    f"{prefix}{name}": estimate(row, perturbation, samples, measure)
                    for samples, prefix in SETS.items()
                    for name, measure in MEASURES.items()
                }
                for k, tau in enumerate(floor.taus):
                    ends = {
                        name: zip(("", "_low", "_high"), curve.at(k), strict=True) for name, curve in curves.items()
                    }
                    yield {
                        "number": request.number,
                        "samples": request.samples,
                        "samples_so_far": request.samples_so_far,
                        "form": request.form,
                        "model": label,
                        "method": row.method,
                        **row.metrics,
                        "average_gap": row.average_gap,
                        "perturbation": perturbation,
                        "radius": tau,
                        **{f"{name}{end}": value for name, parts in ends.items() for end, value in parts},
                        "noise_floor_low": floor.low[k],
                        "noise_floor_high": floor.high[k],
                    }


def figures(request: RequestResult, label: str) -> list[dict[str, str]]:
    """Return for each perturbation what a table shows of a row: largest radius, both figures and the noise floor."""
    shown = []
    for perturbation, floor in request.noise_floor.items():
        k = max(range(len(floor.taus)), key=floor.taus.__getitem__)
        texts = {samples: figure_text(request, label, perturbation, samples, k) for samples in SETS}
        noise = "" if request.form == "class" or floor.low[k] is None else f"{floor.low[k]:.2f} to {floor.high[k]:.2f}"
        shown.append({"perturbation": perturbation, "radius": f"{floor.taus[k]:g}", "floor": noise, **texts})
    return shown


def figure_text(request: RequestResult, label: str, perturbation: str, samples: str, k: int) -> str:
    """Return r, or the difference where whole classes were forgotten or the retrained model is never right."""
    row = request.rows[label]
    ratio = estimate(row, perturbation, samples, "pooled").at(k)
    if request.form != "class" and None not in ratio:
        return wording.estimate_words(*ratio, form="sample")
    return wording.estimate_words(*estimate(row, perturbation, samples, "difference").at(k), form="class")


def requests_tables(record: Requests, width: int) -> Iterator[Table]:
    """Yield all rows over all requests: accuracies beside the retrained model's, and r at the largest radius."""
    lines = [(label, request) for label in record.requests[-1].rows for request in record.requests]
    cells = [_cells(request, label) for label, request in lines]
    heads = ["Request", "Forgotten", *METRICS.values()]
    for shown in figures(record.requests[0], "retrain"):
        heads += [f"{start} {shown['perturbation']} {shown['radius']}" for start in ("r", "r (request 1)")]
    yield from fitting_tables(
        [label for label, _ in lines],
        [(head, [line[k] for line in cells]) for k, head in enumerate(heads)],
        width,
        title=f"{record.scenario['name']}: {plural(len(record.requests), 'request')}, means over "
        f"{plural(len(record.seeds), 'seed')} (the retrained model's)",
        caption="r at the largest radius with the ends of its intervals, on all samples forgotten so far and on those "
        "of request 1 alone. Where the retrained model is never right: the difference in percentage points.",
        groups_of=len(record.requests),
        repeated=2,
    )


def _cells(request: RequestResult, label: str) -> list[str]:
    mine, reference = request.rows[label].metrics, request.rows["retrain"].metrics
    accuracies = [f"{mine[name]:.1f} ({reference[name]:.1f})" for name in METRICS]
    shown = [figure[samples] for figure in figures(request, label) for samples in SETS]
    return [str(request.number), str(request.samples_so_far), *accuracies, *shown]


def index_text(record: Requests, runs: Sequence[Run]) -> str:
    """Return the page over all requests; `runs` are their runs, in order."""
    style, rows = stylesheet(), record.requests[-1].rows
    names = runs[-1].record.scenario.class_names
    texts = [wording.request_words(r.request, names, rest=k > 0) for k, r in enumerate(record.requests)]
    return rendered(
        "requests.html.j2",
        record=record,
        request_texts=texts,
        rows={label: row.role for label, row in rows.items() if row.role is not Role.REFERENCE},
        verdicts={label: [run.verdicts[label] for run in runs if label in run.verdicts] for label in rows},
        figures=figures,
        metrics=METRICS,
        style=style,
        policy=policy("", style),
    )
