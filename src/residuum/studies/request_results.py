"""The runs of a sequence of deletion requests: one folder for each request."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from residuum.auditing import Counts
from residuum.auditing.measures import difference, exact_radii, json_numbers, pooled_ratio
from residuum.auditing.statistics import normal_quantile
from residuum.record import Audit, Estimates, RequestPlace
from residuum.record.folder import remove_run, remove_sequence_pages, request_folder, request_folders
from residuum.record.run import Run, named_apart
from residuum.studies.results import Result, claim_folder, results_record, write_files
from residuum.studies.study import Study


def write_requests(
    steps: Sequence[Study], results: Sequence[Sequence[Result]], out: Path, *, gallery: bool | None = None
) -> list[Run]:
    """Write a run for each request, into request-1, request-2, ... below `out`; return the runs.

    They take the place of the sequence that is there: what it has beyond them goes.
    """
    claim_folder(out, sequence=True)
    first_ids = sorted(Counts.load(next(iter(results[0][0].audits.values())).counts).ids)
    remove_sequence_pages(out)
    runs = []
    for number, (step, step_results) in enumerate(zip(steps, results, strict=True), start=1):
        record = results_record(step, step_results)
        outcomes = {(result.label, str(result.seed)): result.audits for result in step_results}
        rows = {}
        for label, row in record.methods.items():
            per_seed = {}
            for seed, result in row.per_seed.items():
                audits = {}
                for name, audit in result.audits.items():
                    first_request = _on(first_ids, outcomes[label, seed][name].counts, audit)
                    audits[name] = audit.model_copy(update={"first_request": first_request})
                per_seed[seed] = result.model_copy(update={"audits": audits})
            rows[label] = row.model_copy(update={"per_seed": per_seed})
        more: dict[str, Any] = {"methods": rows, "sequence": RequestPlace(number=number, of=len(steps))}
        folder = request_folder(out, number)
        claim_folder(folder)
        record = write_files(record.model_copy(update=more), step_results, folder, gallery=gallery)
        runs.append(Run(folder, record.scenario.name, record))
    for folder in request_folders(out):
        if folder not in [run.folder for run in runs]:
            remove_run(folder)
    return named_apart(runs)


def _on(ids: Sequence[str], counts_file: Path, audit: Audit) -> Estimates:
    """Return r and the difference of an audit on these of its samples."""
    counts, settings = Counts.load(counts_file).subset(ids), audit.settings
    ratio = pooled_ratio(counts, confidence=settings.confidence, exact=settings.enumerated)
    certain = exact_radii(counts, settings.enumerated)
    return Estimates.model_validate(
        {
            "residual_knowledge": dict(zip(("pooled", "low", "high"), map(json_numbers, ratio), strict=True)),
            "difference": difference(counts, certain, normal_quantile(settings.confidence)),
        }
    )
