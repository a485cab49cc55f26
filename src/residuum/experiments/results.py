"""The record of a run: results.json with its counts and weights beside it."""

import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from residuum.auditing import Counts, noise_floor
from residuum.data import DATASETS
from residuum.experiments.experiment import Experiment
from residuum.experiments.pretrained import KnownFile
from residuum.experiments.runner import Result
from residuum.files import write_whole
from residuum.metrics import summarise
from residuum.parallel import Compute
from residuum.record import NoiseFloor, Requests, Results, Row, ScenarioRecord, SeedResult, Stored
from residuum.types import InputError

LIBRARIES = ("residuum", "torch", "numpy", "scipy", "scikit-learn")


def results_record(experiment: Experiment, results: Sequence[Result]) -> Results:
    """Return the content of results.json; everything but `created` and `seconds` is a function of the settings."""
    by_label = {label: [r for r in results if r.label == label] for label in experiment.labels}
    rows = {label: _row(experiment, label, by_label) for label in experiment.labels}
    return Results.model_validate(
        {
            "schema": Results.SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
            "scenario": _scenario(experiment),
            **({} if experiment.compute == Compute() else {"compute": asdict(experiment.compute)}),
            "seeds": list(experiment.scenario.seeds),
            "warnings": [*experiment.warnings, *sorted({text for result in results for text in result.warnings})],
            "notes": _notes(rows),
            "noise_floor": _noise_floors(experiment, by_label),
            "methods": rows,
        }
    )


def _scenario(experiment: Experiment) -> ScenarioRecord:
    scenario, splits, start = experiment.scenario, experiment.splits(), experiment.pretrained
    unused = {field for field in ("earlier", "pretrained_on") if not getattr(scenario, field)}
    weights = {} if start is None else {"init_from": {what: file and _named(file) for what, file in start}}
    return ScenarioRecord.model_validate(
        {
            "name": scenario.name,
            "form": splits.form,
            "class_names": list(splits.class_names),
            "public_data": scenario.data.name in DATASETS,
            "settings": scenario.model_dump(mode="json", exclude={"name", "rows", *unused}),
            **weights,
        }
    )


def _named(file: KnownFile) -> dict[str, str]:
    return {"file": file.path.name, "sha256": file.sha256}


def _row(experiment: Experiment, label: str, by_label: dict[str, list[Result]]) -> Row:
    row = next((row for row in experiment.rows if row.label == label), None)
    metrics = {str(r.seed): r.metrics for r in by_label[label]}
    reference = {str(r.seed): r.metrics for r in by_label["retrain"]}
    return Row.model_validate(
        {
            "method": row.method if row else label,
            "settings": row.settings if row else asdict(experiment.scenario.training(label)),
            "fields_left_open": row.left_open if row else experiment.scenario.left_open.get("train", []),
            "summary": summarise(metrics, reference),
            "per_seed": {str(r.seed): _seed_result(r) for r in by_label[label]},
        }
    )


def _seed_result(result: Result) -> SeedResult:
    audits = {
        name: {**measures, "counts": counts_path(result, name)} for name, measures in sorted(result.audits.items())
    }
    notes = {"notes": result.notes} if result.notes else {}
    return SeedResult.model_validate(
        {"metrics": result.metrics, "seconds": result.seconds, "passes": result.passes, "audits": audits, **notes}
    )


def counts_path(result: Result, perturbation: str) -> str:
    """Return where a counts file stands below the run's folder."""
    return f"counts/{result.seed}/{result.label}/{perturbation}.npz"


def _noise_floors(experiment: Experiment, by_label: dict[str, list[Result]]) -> dict[str, NoiseFloor]:
    chosen = experiment.labels[2 : len(experiment.labels) - len(experiment.rows)]  # after original and retrain
    controls = [result for label in chosen for result in by_label[label]]
    return {name: _noise_floor(controls, name) for name in experiment.scenario.audit.perturbations}


def _noise_floor(controls: Sequence[Result], perturbation: str) -> NoiseFloor:
    settings = controls[0].audits[perturbation]["settings"]
    counts = [Counts.load(control.counts[perturbation]) for control in controls]
    floor = noise_floor(counts, confidence=settings["confidence"], exact=settings["enumerated"])
    return NoiseFloor.model_validate(floor)


def _notes(rows: dict[str, Row]) -> list[str]:
    notes = ["original: re-learn time is null because the original has nothing to re-learn"]
    if any(row.summary.relearn_epochs is None for row in rows.values() if row.kind != "original"):
        notes.append("cr: re-learn time is null because the method keeps no trainable body")
    audits = [audit for row in rows.values() for seed in row.per_seed.values() for audit in seed.audits.values()]
    if any(None in audit.residual_knowledge.pooled for audit in audits):
        notes.append("residual knowledge is null where the reference is never right: read `difference` instead")
    return notes


def claim_folder(out: Path, kind: type[Stored] = Results) -> None:
    """Create the run's folder, or say in one line why it cannot be: one folder has one kind of record."""
    other = Requests.FILE if kind is Results else Results.FILE
    if (out / other).exists():
        raise InputError(f"{out} has a {other}, so it holds another kind of run; choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from None


def write_run(experiment: Experiment, results: Sequence[Result], out: Path) -> Results:
    """Write results.json, counts and weights into `out`, results.json last; return the record."""
    claim_folder(out)
    record = results_record(experiment, results)
    try:
        for result in results:
            _copy_files(result, out)
        write_whole(out / record.FILE, record.text())
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; free some space or choose another --out") from error
    return record


def _copy_files(result: Result, out: Path) -> None:
    for name, source in result.counts.items():
        _copy(source, out / counts_path(result, name))
    if result.gallery is not None:
        _copy(result.gallery, out / "gallery" / f"{result.seed}.npz")
    if result.picture is not None:
        _copy(result.picture, out / "pictures" / f"{result.seed}.npz")
    _copy(result.model, out / "models" / str(result.seed) / f"{result.label}.safetensors")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
