"""The record of a run: results.json (schema residuum.results/1) with its counts and weights beside it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from residuum.auditing import Counts, noise_floor
from residuum.data import DATASETS
from residuum.experiments.experiment import Experiment
from residuum.experiments.pretrained import KnownFile
from residuum.experiments.runner import Result
from residuum.experiments.settings import Scenario
from residuum.metrics import summarise
from residuum.parallel import Compute
from residuum.types import InputError

SCHEMA = "residuum.results/1"
LIBRARIES = ("residuum", "torch", "numpy", "scipy", "scikit-learn")


def results_record(experiment: Experiment, results: Sequence[Result]) -> dict[str, Any]:
    """Return the content of results.json; everything but `created` and `seconds` is a function of the settings."""
    scenario, splits = experiment.scenario, experiment.splits()
    by_label = {label: [r for r in results if r.label == label] for label in experiment.labels}
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        "scenario": {
            "name": scenario.name,
            "form": splits.form,
            "class_names": list(splits.class_names),
            "public_data": scenario.data.name in DATASETS,
            "settings": scenario.model_dump(mode="json", exclude={"name", "rows", *_unused(scenario)}),
            **_start(experiment),
        },
        **({} if experiment.compute == Compute() else {"compute": asdict(experiment.compute)}),
        "seeds": list(scenario.seeds),
        "warnings": sorted({text for result in results for text in result.warnings}),
        "notes": _notes(by_label),
        "noise_floor": _noise_floors(experiment, by_label),
        "methods": {label: _row_record(experiment, label, by_label) for label in experiment.labels},
    }


def _unused(scenario: Scenario) -> set[str]:
    return set() if scenario.earlier else {"earlier"}


def _start(experiment: Experiment) -> dict[str, Any]:
    """Return which weights all models started from, if they did not start from scratch."""
    known = experiment.pretrained
    return {} if known is None else {"init_from": {what: file and _named(file) for what, file in known}}


def _named(file: KnownFile) -> dict[str, str]:
    return {"file": file.path.name, "sha256": file.sha256}


def _row_record(experiment: Experiment, label: str, by_label: dict[str, list[Result]]) -> dict[str, Any]:
    row = next((row for row in experiment.rows if row.label == label), None)
    metrics = {str(r.seed): r.metrics for r in by_label[label]}
    reference = {str(r.seed): r.metrics for r in by_label["retrain"]}
    return {
        "method": row.method if row else label,
        "settings": row.settings if row else asdict(experiment.scenario.training(label)),
        "fields_left_open": row.left_open if row else experiment.scenario.left_open.get("train", []),
        "summary": summarise(metrics, reference),
        "per_seed": {str(r.seed): _seed_record(r) for r in by_label[label]},
    }


def _seed_record(result: Result) -> dict[str, Any]:
    audits = {
        name: {**measures, "counts": counts_path(result, name)} for name, measures in sorted(result.audits.items())
    }
    record = {"metrics": result.metrics, "seconds": result.seconds, "passes": result.passes, "audits": audits}
    return record | ({"notes": result.notes} if result.notes else {})


def counts_path(result: Result, perturbation: str) -> str:
    """Return where a counts file stands below the run's folder."""
    return f"counts/{result.seed}/{result.label}/{perturbation}.npz"


def _noise_floors(experiment: Experiment, by_label: dict[str, list[Result]]) -> dict[str, Any]:
    chosen = experiment.labels[2 : len(experiment.labels) - len(experiment.rows)]  # after original and retrain
    controls = [result for label in chosen for result in by_label[label]]
    return {name: _noise_floor(controls, name) for name in experiment.scenario.audit.perturbations}


def _noise_floor(controls: Sequence[Result], perturbation: str) -> dict[str, Any]:
    settings = controls[0].audits[perturbation]["settings"]
    counts = [Counts.load(control.counts[perturbation]) for control in controls]
    return noise_floor(counts, confidence=settings["confidence"], exact=settings["enumerated"])


def _notes(by_label: dict[str, list[Result]]) -> list[str]:
    notes = ["original: re-learn time is null because the original has nothing to re-learn"]
    if any(not r.metrics["relearn_epochs"] for label, rs in by_label.items() if label != "original" for r in rs):
        notes.append("cr: re-learn time is null because the method keeps no trainable body")
    pooled = [
        value
        for results in by_label.values()
        for result in results
        for measures in result.audits.values()
        for value in measures["residual_knowledge"]["pooled"]
    ]
    if None in pooled:
        notes.append("residual knowledge is null where the reference is never right: read `difference` instead")
    return notes


def claim_folder(out: Path, *, apart_from: str = "requests.json") -> None:
    """Create the run's folder, or say in one line why it cannot be: one folder has one kind of record."""
    if (out / apart_from).exists():
        raise InputError(f"{out} has a {apart_from}, so it holds another kind of run; choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from None


def write_run(experiment: Experiment, results: Sequence[Result], out: Path) -> dict[str, Any]:
    """Write results.json, counts and weights into `out`, results.json last; return the record."""
    claim_folder(out)
    record = results_record(experiment, results)
    try:
        _write_files(record, results, out)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; free some space or choose another --out") from error
    return record


def _write_files(record: dict[str, Any], results: Sequence[Result], out: Path) -> None:
    for result in results:
        for name, source in result.counts.items():
            _copy(source, out / counts_path(result, name))
        if result.gallery is not None:
            _copy(result.gallery, out / "gallery" / f"{result.seed}.npz")
        if result.picture is not None:
            _copy(result.picture, out / "pictures" / f"{result.seed}.npz")
        _copy(result.model, out / "models" / str(result.seed) / f"{result.label}.safetensors")
    text = json.dumps(record, indent=1, allow_nan=False)
    aside = out / ".results.json.writing"
    aside.write_text(text + "\n", encoding="utf-8")
    os.replace(aside, out / "results.json")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
