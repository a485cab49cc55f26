"""Carry out a request file: unlearn once, and say what to try if the audit does not pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

from residuum.core.files import file_sha256
from residuum.core.roles import Role
from residuum.judging import controls_missing, gate_failures
from residuum.judging.rule import FEWEST_RETRAINED, MOST_MORE
from residuum.judging.sentences import sentence
from residuum.record import Results, RowJudgment, Verdict
from residuum.record.run import Run
from residuum.reporting.statement import Deletion
from residuum.request.file import RequestFile
from residuum.request.identity import UnknownError, subject_identity, training_identity
from residuum.request.models import Unlearned, saved_unlearned
from residuum.request.request import Request
from residuum.studies.artifacts import code_fingerprint
from residuum.studies.study import parse_row
from residuum.unlearning import METHODS

PASSED = "unproven"  # the condition under which a request fails: anything but "not detected"


def unlearned_once(
    file: RequestFile, request: Request, model: nn.Module | None = None, weights: Path | None = None
) -> Unlearned:
    """Return the unlearned model of a request: the saved one where nothing changed since, or a new one, saved now.

    `model` is what to start from and `weights` where to save to, where the file does not say it.
    """
    start, place = request.model if model is None else model, weights or file.weights
    identity = unlearning_identity(file, request, start)
    if identity and place.is_file():
        saved = saved_unlearned(request.network(place), place)
        if isinstance(saved, Unlearned) and saved.identity == identity:
            return saved
    done = replace(request.unlearn(start), identity=identity)
    place.parent.mkdir(parents=True, exist_ok=True)
    done.save(place)
    return done


def unlearning_identity(file: RequestFile, request: Request, model: nn.Module) -> str:
    """Return the hash of everything that decides the unlearned model; empty where that cannot be told."""
    row = parse_row(file.unlearn.method)
    try:
        inputs = [subject_identity(request, model, {}), training_identity(request, model, surrogates=False)]
    except UnknownError:
        return ""
    code = code_fingerprint(("residuum.request.request", METHODS.find(row.method).__module__))
    settings = [file.unlearn.model_dump(mode="json", exclude={"weights"}), row.model_dump(mode="json"), request.epochs]
    coin = None if request.split is None else request.split.sha256
    return hashlib.sha256(json.dumps([*inputs, code, settings, coin]).encode()).hexdigest()


def deletion(file: RequestFile, run: Run) -> Deletion | None:
    """Return the facts of the statement that a run lacks; None where the run has several unlearned models."""
    labels = list(run.record.rows_of(Role.METHOD))
    if len(labels) != 1:
        return None
    listed = file.audit.unlearned or (file.weights,)
    (after,) = listed.values() if isinstance(listed, dict) else listed
    files = [path for path in (file.model.weights, after) if path is not None]
    return Deletion(labels[0], {path.name: file_sha256(path) for path in files}, **file.request.model_dump())


def failures(run: Run) -> list[str]:
    """Return why the audit of a request did not pass; nothing if it did."""
    lost = [f"{label}: {sentence('lost', points=points)}" for label, points in _lost(run.record).items()]
    return [*(reason.partition(": ")[2] for reason in gate_failures([run], [PASSED])), *lost]


def next_steps(file: RequestFile, run: Run, name: str) -> Iterator[str]:
    """Yield what to try where the audit did not pass, as commands on the file of this name."""
    record, again = run.record, f"residuum run {name} --set"
    verdicts = {judgment.verdict for _, judgment in _judged(record)}
    lost = bool(_lost(record))
    if Verdict.NOT_COMPARABLE in verdicts:
        yield from (f"first: {gate.text}" for gate in record.gates if gate.passed is False)
        yield "retrained models must be trained as your model was: check retrain.function or retrain.recipe"
        return
    if Verdict.INCONCLUSIVE in verdicts:
        yield from dict.fromkeys(text for _, judgment in _judged(record) for text in judgment.doubts)
        controls, missing = len(record.controls), controls_missing(record, MOST_MORE + 1)
        few = controls + 1 < FEWEST_RETRAINED
        if isinstance(file.retrain.controls, int | str) and (few or missing <= MOST_MORE):
            more = max(2, controls) if few or not missing else missing
            yield f"more retrained models: {again} retrain.controls={max(2, controls) + more}"
    for label, judgment in _judged(record):
        yield from _other_methods(record, label, judgment, again, lost=lost)
    if record.reference is not None and not record.scenario.settings.surrogates:
        place = next((path for path in record.files if Path(path).name == "retrain.safetensors"), None)
        if place is not None:
            yield f"or use the reference, which never saw the samples: {run.folder / place}"


def _other_methods(record: Results, label: str, judgment: RowJudgment, again: str, *, lost: bool) -> Iterator[str]:
    """Yield settings of soft reset to try: less of the original where it remembers, more where accuracy was lost."""
    row = record.methods[label]
    if row.method != "soft_reset":
        yield f"another method: {again} unlearn.method=soft_reset"
        return
    second = next((result.notes.get("second_start_keep") for result in row.per_seed.values()), None)
    keep = float(second or row.settings.get("keep", 0.0))
    if judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and second:
        yield f"train longer: {again} unlearn.budget=0.75"
    elif judgment.verdict in (Verdict.FOUND, Verdict.MIXED):
        yield f"keep less of the original: {again} unlearn.method=soft_reset:keep={keep / 2:g}"
    elif lost or judgment.verdict is Verdict.OVER_FORGOTTEN:
        yield f"keep more of the original: {again} unlearn.method=soft_reset:keep={min(1.0, keep + 0.3):g}"
        yield "or train the softened network for longer: more epochs in your training function where it gets a model"


def _lost(record: Results) -> dict[str, float | None]:
    """Return the points of test accuracy that unlearned models lost."""
    chips = {label: judgment.chips for label, judgment in _judged(record) if judgment.chips}
    return {label: one.utility.points for label, one in chips.items() if one.utility.state == "lost"}


def _judged(record: Results) -> list[tuple[str, RowJudgment]]:
    """Return the judgments of the unlearned models."""
    return [(label, judgment) for label, judgment in record.verdicts.items() if record.methods[label].role == "method"]
