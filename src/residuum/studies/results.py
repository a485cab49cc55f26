"""The record of a run: results.json, and the files of its counts and weights."""

import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from residuum.auditing import Counts
from residuum.auditing.measures import OWN_MEASURES, difference, exact_radii, json_numbers, pooled_ratio
from residuum.auditing.memory import completeness_above, difference_floor
from residuum.auditing.probes import probe_kind
from residuum.auditing.statistics import normal_quantile
from residuum.core.devices import Compute
from residuum.core.errors import InputError
from residuum.core.files import locked, rewritten, write_whole
from residuum.core.roles import Role
from residuum.judging import judged_record
from residuum.metrics import summarize
from residuum.record import Estimates, RequestPlace, Results, Row, ScenarioRecord
from residuum.record.folder import (
    hashes,
    refuse_foreign,
    remove_run,
    remove_sequence_pages,
    request_folder,
    request_folders,
    run_files,
)
from residuum.record.run import Run, named_apart
from residuum.studies.maintenance import noted
from residuum.studies.probes import with_probes
from residuum.studies.study import RowSpec, Study, probes_of

LIBRARIES = ("residuum", "torch", "numpy", "scipy", "scikit-learn")


class AuditOutcome(NamedTuple):
    """The audit of one row, seed and perturbation: its measures and warnings, and the files of its counts."""

    measures: dict[str, Any]
    counts: Path
    heldout: Path | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """The results of one row and one seed; `artifacts` are the folders in the store that they came from."""

    label: str
    seed: int
    metrics: dict[str, Any]
    audits: dict[str, AuditOutcome]
    seconds: float
    passes: int
    warnings: list[str]
    weights: str
    unchanged: bool
    model: Path
    notes: dict[str, Any]
    gallery: Path | None = None
    artifacts: tuple[Path, ...] = ()
    probes: dict[str, dict[str, Any]] = field(default_factory=dict)
    ensembles: dict[str, dict[str, Any]] = field(default_factory=dict)


def results_record(study: Study, results: Sequence[Result]) -> Results:
    """Return the content of results.json; everything but `created` and `seconds` is a function of the settings."""
    more: dict[str, Any] = {} if study.compute == Compute() else {"compute": asdict(study.compute)}
    more |= {"failed": dict(study.failed)} if study.failed else {}
    more |= {"decoys": dict(study.live.decoys)} if study.live and study.live.decoys else {}
    record = assembled_record(
        results,
        scenario=study.facts(),
        rows=study.all_rows(),
        seeds=study.seeds,
        perturbations=study.audit.perturbations,
        warnings=study.warnings,
        notes=study.notes,
        **more,
    )
    return judged_record(with_probes(record, probes_of(study), results))


def assembled_record(
    results: Sequence[Result],
    *,
    scenario: ScenarioRecord,
    rows: Sequence[RowSpec],
    seeds: Sequence[int],
    perturbations: Sequence[str],
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    **more: Any,  # noqa: ANN401 (further fields of the record)
) -> Results:
    """Return the record of what was measured, by the rows it is about, in their order; nothing is judged yet."""
    by_label = {row.label: [result for result in results if result.label == row.label] for row in rows}
    of_role = {role: [result for row in rows if row.role is role for result in by_label[row.label]] for role in Role}
    controls, reference = of_role[Role.CONTROL], of_role[Role.REFERENCE]
    differences = {name: [one.audits[name].measures["difference"] for one in controls] for name in perturbations}
    floors = {name: difference_floor(of_controls) for name, of_controls in differences.items() if of_controls}
    measures = [spec for spec in scenario.settings.measures if probe_kind(spec) is None]  # of the user's own
    methods: dict[str, Row] = {}
    for row in rows:
        per_seed: dict[str, Any] = {}
        for result in by_label[row.label]:
            audits: dict[str, Any] = {}
            for name, audit in sorted(result.audits.items()):
                entry = completeness_above(audit.measures, floors.get(name))
                if measures:
                    counts, heldout = Counts.load(audit.counts), Counts.load(audit.heldout) if audit.heldout else None
                    heldout = heldout if heldout is not None and len(heldout) else None
                    entry |= {"measures": {spec: OWN_MEASURES.find(spec).of(counts, heldout) for spec in measures}}
                matched = audit.measures["heldout"] | {"counts": counts_path(result, f"{name}.heldout")}
                audits[name] = entry | {"counts": counts_path(result, name), "heldout": matched}
            facts = {"metrics": result.metrics, "seconds": result.seconds, "passes": result.passes, "audits": audits}
            more_facts = {name: getattr(result, name) for name in ("notes", "warnings", "weights", "unchanged")}
            per_seed[str(result.seed)] = facts | {name: value for name, value in more_facts.items() if value}
        metrics, of_reference = ({str(r.seed): r.metrics for r in part} for part in (by_label[row.label], reference))
        methods[row.label] = Row.model_validate(
            {
                "role": row.role,
                "method": row.method,
                "settings": row.settings,
                "fields_left_open": row.left_open,
                "summary": summarize(metrics, of_reference),
                "per_seed": per_seed,
            }
        )
    more_notes = []
    if any(row.summary.relearn_epochs is None for row in methods.values() if row.method == "cr"):
        more_notes.append("cr: re-learn time is null because the method keeps no trainable body")
    audited = [audit for row in methods.values() for seed in row.per_seed.values() for audit in seed.audits.values()]
    if any(None in audit.residual_knowledge.pooled for audit in audited):
        more_notes.append("residual knowledge is null where the reference is never right: read `difference` instead")
    return Results.model_validate(
        {
            "schema": Results.SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
            "scenario": scenario,
            **more,
            "seeds": list(seeds),
            "warnings": [*warnings, *merged_warnings(results)],
            "notes": [*notes, *more_notes],
            "methods": methods,
        }
    )


def merged_warnings(results: Sequence[Result]) -> Iterator[str]:
    """Yield each warning once, after the rows or audits that raised it and, unless it was all of them, their seeds."""
    raised: dict[str, dict[str, list[str]]] = {}
    for result in results:
        audits = [(f"audit {name}", text) for name, audit in result.audits.items() for text in audit.warnings]
        for source, text in [*((result.label, text) for text in result.warnings), *audits]:
            seeds = raised.setdefault(text, {}).setdefault(source, [])
            seeds += [str(result.seed)] if str(result.seed) not in seeds else []
    every = {str(result.seed) for result in results}
    for text, sources in raised.items():
        named = (
            source if set(seeds) == every else f"{source} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"
            for source, seeds in sources.items()
        )
        yield f"{', '.join(named)}: {text}"


def counts_path(result: Result, perturbation: str) -> str:
    """Return where a counts file stands below the run's folder."""
    return f"counts/{result.seed}/{result.label}/{perturbation}.npz"


def claim_folder(out: Path, *, sequence: bool = False) -> None:
    """Create the folder of a run, or of a sequence of requests, or raise an error of one line.

    A folder has one run, or the runs of one sequence. It is refused if this run would replace files that no run wrote.
    """
    try:
        run, runs = (out / Results.FILE).exists(), request_folders(out)
        if run if sequence else runs and not run:
            what = f"a {Results.FILE}" if sequence else "the runs of a sequence of requests"
            raise InputError(f"{out} has {what}, so it holds another kind of run; choose another folder with --out")
        refuse_foreign(out)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from None


def write_run(study: Study, results: Sequence[Result], out: Path, *, gallery: bool | None = None) -> Results:
    """Write results.json, counts and weights into `out` in place of the run that is there; return the record.

    `gallery` says whether pictures of forgotten samples are written; None means of data sets with a public name only.
    """
    claim_folder(out)
    return write_files(results_record(study, results), results, out, gallery=gallery)


def write_files(record: Results, results: Sequence[Result], out: Path, *, gallery: bool | None) -> Results:
    """Write a run as `write_run` does, from its record; return the record with the hashes of all files."""
    artifacts = {artifact for result in results for artifact in result.artifacts}
    sources: dict[str, Path] = {}  # by path below the run's folder
    for result in results:
        for name, audit in result.audits.items():
            sources[counts_path(result, name)] = audit.counts
            if audit.heldout:
                sources[counts_path(result, f"{name}.heldout")] = audit.heldout
        sources[f"models/{result.seed}/{result.label}.safetensors"] = result.model
        if result.gallery and (record.scenario.public_data if gallery is None else gallery):
            sources[f"gallery/{result.seed}.npz"] = result.gallery
    try:
        with locked(out), noted(out, artifacts), rewritten(out, Results.FILE, run_files(out)) as aside:
            for name, source in sources.items():
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, aside / name)
            record = record.model_copy(update={"files": hashes(aside)})
            record = record.model_copy(update={"record_sha256": record.as_dict()["record_sha256"]})
            write_whole(aside / record.FILE, record.text())
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; free some space or choose another --out") from error
    return record


def write_requests(
    steps: Sequence[Study], results: Sequence[Sequence[Result]], out: Path, *, gallery: bool | None = None
) -> list[Run]:
    """Write a run for each request, into request-1, request-2, ... below `out`; return the runs.

    They replace the sequence in that folder; its further runs are removed.
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
                    counts = Counts.load(outcomes[label, seed][name].counts).subset(first_ids)
                    confidence, exact = audit.settings.confidence, audit.settings.enumerated
                    ends = map(json_numbers, pooled_ratio(counts, confidence=confidence, exact=exact))
                    differences = difference(counts, exact_radii(counts, exact), normal_quantile(confidence))
                    first = {"residual_knowledge": dict(zip(("pooled", "low", "high"), ends, strict=True))}
                    estimates = Estimates.model_validate(first | {"difference": differences})
                    audits[name] = audit.model_copy(update={"first_request": estimates})
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
