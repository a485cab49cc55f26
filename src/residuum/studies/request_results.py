"""The record of a sequence of deletion requests: a run per request, and requests.json."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from residuum.auditing import Counts
from residuum.auditing.measures import difference, exact_radii, json_numbers, pooled_ratio
from residuum.auditing.statistics import normal_quantile
from residuum.core.files import write_whole
from residuum.record import (
    METRICS,
    Curve,
    Estimates,
    RequestAudit,
    RequestResult,
    RequestRow,
    Requests,
    ResidualKnowledge,
    Results,
)
from residuum.studies.experiment import Experiment
from residuum.studies.results import Result, claim_folder, fill_folder, replaced_run, results_record


def write_requests(
    steps: Sequence[Experiment], results: Sequence[Sequence[Result]], out: Path, *, gallery: bool | None = None
) -> Requests:
    """Write a complete run for each request below `out`, then requests.json; return its content."""
    claim_folder(out, Requests)
    with replaced_run(out, Requests, [result for found in results for result in found]) as aside:
        runs = []
        for number, (step, found) in enumerate(zip(steps, results, strict=True), start=1):
            (folder := aside / step_folder(number)).mkdir()
            runs.append(fill_folder(results_record(step, found), found, folder, gallery))
        sequence = requests_record(steps, results, runs)
        write_whole(aside / sequence.FILE, sequence.text())
    return sequence


def step_folder(number: int) -> str:
    """Return the name of the run's folder for the `number`-th request."""
    return f"request-{number}"


def requests_record(
    steps: Sequence[Experiment], results: Sequence[Sequence[Result]], runs: Sequence[Results]
) -> Requests:
    """Return the content of requests.json, from the steps with their results and their records."""
    audited = [_counts(found[0], next(iter(found[0].counts))) for found in results]
    first, sizes = tuple(sorted(audited[0].ids)), [len(counts) for counts in audited]
    requests = [
        RequestResult(
            number=number,
            folder=step_folder(number),
            request=step.scenario.forget.model_dump(mode="json", exclude_none=True),
            form=run.scenario.form,
            samples=size - before,
            samples_so_far=size,
            warnings=run.warnings,
            noise_floor=run.noise_floor,
            rows={label: _row(run, label, found, first) for label in run.methods},
        )
        for number, (step, found, run, size, before) in enumerate(
            zip(steps, results, runs, sizes, [0, *sizes[:-1]], strict=True), start=1
        )
    ]
    scenario = runs[-1].scenario
    return Requests(
        schema=Requests.SCHEMA,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        scenario={"name": scenario.name, "data": scenario.settings.data.name},
        seeds=runs[-1].seeds,
        requests=requests,
        **({"failed": steps[-1].failed} if steps[-1].failed else {}),
    )


def _row(run: Results, label: str, results: Sequence[Result], first: Sequence[str]) -> RequestRow:
    row = run.methods[label]
    spreads = {name: row.summary.metric(name) for name in (*METRICS, "mia_entropy_accuracy")}
    return RequestRow(
        role=row.role,
        method=row.method,
        metrics={name: spread.mean for name, spread in spreads.items() if spread},
        average_gap=row.summary.average_gap,
        per_seed={
            str(result.seed): {name: _audit(run, result, name, first) for name in result.audits}
            for result in results
            if result.label == label
        },
    )


def _audit(run: Results, result: Result, perturbation: str, first: Sequence[str]) -> RequestAudit:
    """Return r and the difference on all samples forgotten so far, and on those of the first request alone."""
    audit = run.methods[result.label].per_seed[str(result.seed)].audits[perturbation]
    counts, settings = _counts(result, perturbation).subset(first), audit.settings
    ratio = pooled_ratio(counts, confidence=settings.confidence, exact=settings.enumerated)
    certain = exact_radii(counts, settings.enumerated)
    known = audit.residual_knowledge
    return RequestAudit(
        taus=audit.taus,
        so_far=Estimates(
            residual_knowledge=ResidualKnowledge(pooled=known.pooled, low=known.low, high=known.high),
            difference=audit.difference,
        ),
        first_request=Estimates(
            residual_knowledge=ResidualKnowledge(
                **dict(zip(("pooled", "low", "high"), map(json_numbers, ratio), strict=True))
            ),
            difference=Curve(**difference(counts, certain, normal_quantile(settings.confidence))),
        ),
    )


def _counts(result: Result, perturbation: str) -> Counts:
    return Counts.load(result.counts[perturbation])
