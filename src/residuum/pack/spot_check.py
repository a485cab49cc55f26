"""With models and data: hashes of weights, pseudonyms of samples, and the counts of a few cells once more."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from residuum.auditing import Counts, audit
from residuum.auditing.probes import Evidence
from residuum.core.errors import InputError, ResiduumWarning, plural
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed
from residuum.metrics import accuracies, logits_of_parts
from residuum.models import load_weights
from residuum.pack.derivation import differences, repeated_probes
from residuum.pack.hashing import Pseudonyms
from residuum.pack.manifest import Manifest, architecture, training_facts, weights_file
from residuum.perturbations import PERTURBATIONS
from residuum.record import Audit, Results
from residuum.studies.parsing import build_probe
from residuum.studies.settings import AuditSettings

PROBE_TOLERANCE = 0.01
MOST_DRAWS = 10**7  # of one cell: a forged number must not keep a verifier busy for ever
Load = Callable[[Path], nn.Module]


def check_models(manifest: Manifest, weights: Mapping[str, Path], folder: Path) -> Iterator[str]:
    """Yield the models whose weights are missing or others than those that were audited; `weights` are by hash."""
    for name, model in manifest.models.items():
        file = weights.get(model.weights_sha256 or "")
        if file is None and weights_file(folder, name).is_file():
            yield f"{name}: the weights are not those that were audited"
        elif file is None:
            yield f"{name}: no weights of its hash below {folder}"
        elif architecture(file) != model.architecture:
            yield f"{name}: the weights have another architecture than the manifest says"


def check_ids(
    manifest: Manifest, record: Results, folder: Path, splits: Splits, pseudonyms: Pseudonyms
) -> Iterator[str]:
    """Yield where the forgotten samples of the data are not those of the pack."""
    forgotten = {pseudonyms(name) for name in splits.forget.ids}
    for label, seed, name, packed_audit in record.each_audit():
        others = set(Counts.load(folder / packed_audit.counts).ids) ^ forgotten
        if others:
            yield f"{label}, seed {seed}, {name}: {plural(len(others), 'sample')} of the pack or the data only"
    if manifest.data.trained_on is not None:
        facts = training_facts(splits, pseudonyms)
        yield from differences(manifest.as_dict()["data"], facts, "manifest.json.data")


@dataclass(frozen=True)
class Cells:
    """Everything that is needed to count cells of a pack again."""

    record: Results
    folder: Path
    weights: Mapping[str, Path]  # by "LABEL/SEED"
    splits: Splits
    pseudonyms: Pseudonyms
    load: Load = load_weights

    def model(self, label: str, seed: str) -> nn.Module:
        """Return the model of a row, from its weights."""
        return self.load(self.weights[f"{label}/{seed}"]).eval()


def check_cells(cells: Cells, many: int, number: int) -> Iterator[str]:
    """Yield the cells, picked by a number that the verifier names, whose counts come out differently."""
    tables = counted_tables(cells)
    rng = np.random.default_rng(number)
    shown = {True: cells.splits.heldout, False: cells.splits.forget}
    order = {held_out: {cells.pseudonyms(i): k for k, i in enumerate(part.ids)} for held_out, part in shown.items()}
    for place in sorted(rng.integers(len(tables), size=many).tolist()):
        label, seed, name, packed_audit, path = tables[place]
        held_out, counts = path != packed_audit.counts, Counts.load(cells.folder / path)
        row, column = int(rng.integers(len(counts))), int(rng.integers(len(counts.taus)))
        sample_id, tau, draws = counts.ids[row], float(counts.taus[column]), int(counts.draws[row, column])
        where = f"{label}, seed {seed}, {name}, {'held-out ' if held_out else ''}sample {sample_id[:8]}, radius {tau:g}"
        if sample_id not in order[held_out]:
            yield f"{where}: the data have no such sample"
            continue
        if draws > MOST_DRAWS:
            yield f"{where}: expected at most {MOST_DRAWS} draws, which can be counted again, got {draws}"
            continue
        sample = shown[held_out].subset([order[held_out][sample_id]])
        again = recounted(cells, label, seed, packed_audit, sample, tau, draws)
        for field in ("draws", "method_right", "reference_right", "both_right", "same_prediction", "joint"):
            packed, now = getattr(counts, field)[row, column].tolist(), getattr(again, field)[0, 0].tolist()
            if packed != now:
                yield f"{where}: {field} is {packed} in the pack, {now} when counted again"


def counted_tables(cells: Cells) -> list[tuple[str, str, str, Audit, str]]:
    """Return label, seed, perturbation, audit and path of all counts, of forgotten and of held-out samples."""
    forgotten, held_out = [], []
    for label, seed, name, packed_audit in cells.record.each_audit():
        forgotten.append((label, seed, name, packed_audit, packed_audit.counts))
        if packed_audit.heldout and packed_audit.heldout.samples and packed_audit.heldout.counts:
            held_out.append((label, seed, name, packed_audit, packed_audit.heldout.counts))
    return forgotten + held_out


def counted_cells(cells: Cells) -> int:
    """Return how many cells the counts have."""
    return sum(Counts.load(cells.folder / path).draws.size for *_, path in counted_tables(cells))


def check_accuracies(cells: Cells) -> Iterator[str]:
    """Yield the rows whose accuracies come out differently from their weights and the data."""
    for label, row in cells.record.methods.items():
        for seed, result in row.per_seed.items():
            packed = result.metrics.model_dump(mode="json") if result.metrics else {}
            again = accuracies(logits_of_parts(cells.model(label, seed), cells.splits), cells.splits)
            compared = {name: packed.get(name) for name in again}
            yield from differences(compared, again, f"{label}, seed {seed}", "its weights give")


def check_probes(cells: Cells, number: int) -> Iterator[str]:
    """Yield where a probe of models measures something else of those of one seed, picked by the number.

    Searches follow gradients and may end elsewhere on another machine: values may differ by 0.01.
    """
    record = cells.record
    seed = str(record.seeds[number % len(record.seeds)])
    rows = {label: row.per_seed[seed] for label, row in record.methods.items() if seed in row.per_seed}
    specs = repeated_probes(record)
    if not specs:
        return
    audit = AuditSettings.model_validate(record.scenario.settings.audit.model_dump(mode="json", exclude_unset=True))
    settings = next(iter(rows["original"].audits.values())).settings.model_dump(mode="json")
    models = {label: cells.model(label, seed) for label in rows}
    probe_seed = child_seed(int(seed), "witness")
    roles = {label: record.methods[label].role for label in rows}
    evidence = Evidence(cells.splits, probe_seed, roles, models, audit.search_radii, InputSpace.of_settings(settings))
    for spec in specs:
        for label, value in build_probe(spec).measure(evidence).items():
            packed, again = rows[label].probes[spec].value, value.value
            if (packed is None) != (again is None) or abs((packed or 0) - (again or 0)) > PROBE_TOLERANCE:
                yield f"{label}, seed {seed}: {spec} is {packed} in the pack, {again} when searched again"


def recounted(
    cells: Cells, label: str, seed: str, packed_audit: Audit, sample: Samples, tau: float, draws: int
) -> Counts:
    """Return the counts of one sample at one radius, from the models."""
    settings: dict[str, Any] = packed_audit.settings.model_dump(mode="json")
    kind = PERTURBATIONS.find(str(settings.get("name")))
    try:
        perturbation = kind(**{field.name: settings[field.name] for field in fields(kind) if field.name in settings})
    except (TypeError, ValueError) as error:
        raise InputError(f"the settings of {settings.get('name')} cannot be used: {error}") from None
    crafted = {} if settings.get("crafted_on") is None else {"crafted_on": settings["crafted_on"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)  # one sample says little: its counts are all that is wanted
        result = audit(
            {label: cells.model(label, seed)},
            cells.model("retrain", seed),
            sample,
            perturbation,
            taus=[tau],
            draws=draws,
            seed=settings["seed"],
            original=cells.model("original", seed),
            space=InputSpace.of_settings(settings),
            **crafted,
        )
    return result.counts[label]
