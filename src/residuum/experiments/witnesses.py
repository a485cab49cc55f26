"""The other witnesses of a run: which stages they need, what these compute, and what the record says of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from residuum.auditing.heldout import choose_heldout
from residuum.auditing.witnesses.attacks import ModelWitness
from residuum.auditing.witnesses.base import Scene, Values, Witness
from residuum.auditing.witnesses.calls import call
from residuum.auditing.witnesses.ensembles import INNOCENT, Ensemble, EnsembleWitness
from residuum.auditing.witnesses.scores import margins
from residuum.experiments.parsing import build_perturbation, build_witness
from residuum.experiments.settings import StageSettings
from residuum.files import read_arrays, write_arrays
from residuum.models import forward, load_weights
from residuum.record import Results, WitnessRow, WitnessValues
from residuum.roles import Role
from residuum.types import Splits, child_seed

if TYPE_CHECKING:
    from residuum.experiments.results import Result

MODEL, MARGINS = "model.safetensors", "margins.npz"
PARTS = ("forget", "heldout", "retain", "validation")
LABELS = ("forget_labels", "heldout_labels")
Row = dict[str, Any]


class MarginsSettings(StageSettings):
    """Take the margins of one model on forgotten, held-out, retained and validation samples."""

    kind = "margins"


class WitnessSettings(StageSettings):
    """Ask one of the other witnesses, the stage's name, about the models of one seed by `labels`.

    `perturbation` is the one whose bounds the data have.
    """

    kind = "witness"
    labels: tuple[str, ...]
    radii: tuple[float, ...]
    perturbation: str


class EnsembleSettings(StageSettings):
    """Ask a witness that compares many models about all rows and seeds; the parents are SEED/LABEL."""

    kind = "ensemble"
    innocents: tuple[str, ...]


def write_margins(model: nn.Module, splits: Splits, folder: Path) -> None:
    """Write a model's margins on all parts, and the labels of forgotten and held-out samples."""
    heldout = choose_heldout(splits.heldout, splits.forget)
    parts = dict(zip(PARTS, (splits.forget, heldout, splits.retain, splits.validation), strict=True))
    found = {name: margins(forward(model, each), each.y).numpy() for name, each in parts.items() if len(each)}
    empty = {name: np.empty(0) for name in PARTS if name not in found}
    labels = dict(zip(LABELS, (splits.forget.y.numpy(), heldout.y.numpy()), strict=True))
    write_arrays(folder / MARGINS, found | empty | labels)


def witness_values(
    settings: WitnessSettings | EnsembleSettings, parents: Mapping[str, Path], splits: Splits
) -> dict[str, Any]:
    """Return what a witness finds: "values" of one seed by label, or "models" or "rows" of the whole run."""
    if isinstance(settings, EnsembleSettings):
        return ensemble_values(settings, parents)
    models = {label: load_weights(parents[label] / MODEL) for label in settings.labels}
    bounds = build_perturbation(settings.perturbation).bounds
    scene = Scene(models, splits, settings.radii, child_seed(settings.seed, "witness"), bounds)
    return {"values": model_values(settings.name, scene)}


def model_values(spec: str, scene: Scene) -> dict[str, Values]:
    """Return what a witness finds in the models of one seed, by label."""
    witness = build_witness(spec)
    if not isinstance(witness, ModelWitness):
        raise TypeError(f"{spec} reads no models")
    return witness.of_models(scene)


def ensemble_values(settings: EnsembleSettings, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Return what a witness finds in all models of a run."""
    witness = build_witness(settings.name)
    if not isinstance(witness, EnsembleWitness):
        raise TypeError(f"{settings.name} reads no margins")
    read: dict[tuple[str, str], dict[str, NDArray[Any]]] = {}
    for name, folder in parents.items():
        seed, _, label = name.partition("/")
        read[label, seed] = read_arrays(folder / MARGINS, (*PARTS, *LABELS), "margins")
    first = next(iter(read.values()))
    ensemble = Ensemble(read, frozenset(settings.innocents), *(first[name] for name in LABELS))
    return witness.of_ensemble(ensemble, seed=child_seed(settings.seed, "witness"))


def with_witnesses(record: Results, specs: Sequence[str], results: Sequence[Result]) -> Results:
    """Return the record with what the witnesses found in each model, and what is concluded of each row."""
    if not specs:
        return record
    by_label = {label: [r for r in results if r.label == label] for label in record.methods}
    said = {spec: witness_rows(spec, by_label, record) for spec in specs}
    rows = {}
    for label, row in record.methods.items():
        per_seed = {
            seed: result.model_copy(
                update={"witnesses": {s: found[label][0][seed] for s, found in said.items() if seed in found[label][0]}}
            )
            for seed, result in row.per_seed.items()
        }
        concluded = {spec: found[label][1] for spec, found in said.items()}
        rows[label] = row.model_copy(update={"per_seed": per_seed, "witnesses": concluded})
    return record.model_copy(update={"methods": rows})


def witness_rows(
    spec: str, by_label: Mapping[str, Sequence[Result]], record: Results
) -> dict[str, tuple[dict[str, WitnessValues], WitnessRow]]:
    """Return for each row the witness's values by seed, and what is concluded of the row."""
    witness, samples = build_witness(spec), max(record.scenario.sizes.get("forget", 1), 1)
    whole = next((r.ensembles[spec] for own in by_label.values() for r in own if spec in r.ensembles), {})
    models = whole.get("models", {})
    per_seed = {
        label: models.get(label) or {str(r.seed): r.witnesses[spec] for r in by_label[label] if r.witnesses.get(spec)}
        for label in by_label
    }
    further = list(models.get(INNOCENT, {}).values())
    innocents = [*([] if witness.relative else record.rows_of(Role.REFERENCE)), *record.rows_of(Role.CONTROL)]
    found = {}
    for label, own in per_seed.items():
        others = [values for name in innocents if name != label for values in per_seed[name].values()] + further
        row = whole.get("rows", {}).get(label) or concluded(witness, list(own.values()), others, samples)
        values = {seed: WitnessValues.model_validate(each) for seed, each in own.items()}
        found[label] = values, WitnessRow.model_validate({"meaning": witness.meaning, **row})
    return found


def concluded(witness: Witness, own: Sequence[Values], innocents: Sequence[Values], samples: int) -> Row:
    """Return the mean over seeds with the ends of the intervals, and the call beside what innocent models show."""
    values = [each["value"] for each in own]
    if not own or None in values:
        return {"value": None, "note": next((each["note"] for each in own if "note" in each), None)}
    ends = {
        name: choose([each[name] for each in own])
        for name, choose in (("low", min), ("high", max))
        if all(each.get(name) is not None for each in own)
    }
    row = {"value": float(np.mean(values)), **ends}
    least = 0.5 / samples if witness.stepwise else 0.0
    said = call(values, [each["value"] for each in innocents], least=least)
    return row | {"p": said.p, "found": said.found, "floor": said.floor, "innocents": said.innocents}
