"""Check a pack: hashes, then every number again from the counts, then, with models and data, a sample of the counts."""

import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from residuum.auditing.probes import probe_kind
from residuum.core.errors import InputError, first_line
from residuum.core.inputs import SPACE_SETTINGS
from residuum.core.samples import Splits
from residuum.models import load_weights
from residuum.pack.derivation import add_measures, derived_record, differences, load_tables, repeated_probes
from residuum.pack.hashing import Pseudonyms, code_sha256, read_key, root_of, seal_of
from residuum.pack.manifest import Manifest, expected_manifest, weights_by_hash
from residuum.pack.reading import StrangeFieldError, parsed_record, read_manifest, unpacked
from residuum.pack.spot_check import (
    Cells,
    Load,
    check_accuracies,
    check_cells,
    check_ids,
    check_models,
    check_probes,
    counted_cells,
)
from residuum.pack.writing import MANIFEST, PAGE, RECORD, page_of
from residuum.perturbations import PERTURBATIONS, noise_check
from residuum.record import Results, sealed
from residuum.record.audits import Part
from residuum.record.folder import check_counts, counts_files
from residuum.studies.results import LIBRARIES
from residuum.studies.settings import AuditSettings, DataSettings, ForgetSettings, ModelSettings, Scenario

# keys of an audit's settings that are fields neither of `record.AuditSettings` nor of the perturbation
AUDIT_KEYS = ("name", "draws", "half_width", "max_draws", "first_draw", "seed", "bootstrap_seed", "heldout_chosen_from")
NOT_CHECKED = [
    "what the holder states: dates, versions, recipes, warnings, notes, seconds and passes",
    "membership attacks and re-learn times of single models",
    "rows, seeds and audits that the holder left out, and whether these models are the ones that are served",
]


@dataclass(frozen=True)
class Verification:
    """What a check of a pack found: every difference, and what was and was not looked at.

    `number` picked the cells that were counted again. `page` tells whether report.html is the page of the record, or
    was accepted without a check.
    """

    differences: list[str]
    checked: list[str]
    not_checked: list[str]
    number: int | None = None
    page: bool = True

    @property
    def sound(self) -> bool:
        """Whether nothing differs, the page included."""
        return self.page and not self.differences


def verify(
    pack: Path | str,
    *,
    models: Path | str | None = None,
    splits: Splits | Callable[[Results], Splits] | None = None,
    key: Path | str | None = None,
    cells: int = 20,
    number: int | None = None,
    load: Load | None = None,
    measures: Sequence[str] = (),
    accept_page: bool = False,
) -> Verification:
    """Recompute everything that an evidence pack states, and name each difference.

    From the pack alone: every hash and the root, all measures, intervals, floors, power, gates and verdicts from counts
    and recorded seeds, the rules that counts obey, the check values of the noise, the constant texts, and the page.

    Args:
        pack: the .zip file.
        models: folder of the run, or its folder `models`: hashes of the weights are compared.
        splits: the data, or a function that returns them for the pack's record; with the key, pseudonyms are compared,
            and with models too, counts are counted again.
        key: the holder's key.
        cells: how many cells (row, seed, perturbation, forgotten or held-out sample, radius) are counted again.
        number: picks the cells; drawn at random unless it is given, so that no holder can know it before.
        load: returns the model of a weights file; needed for networks that are none of Residuum's.
        measures: FILE.py:FUNCTION of each measure of the holder's own.
        accept_page: take a pack whose page cannot be checked, because another version of Residuum made it, for sound.
    """
    with unpacked(pack) as at_hand:
        try:
            manifest, record = read_manifest(at_hand.read(MANIFEST)), parsed_record(at_hand.read(RECORD))
        except StrangeFieldError as error:
            return Verification([str(error)], [], ["all else, because of the difference above", *NOT_CHECKED])
        folder, splits = at_hand.folder, splits(record) if callable(splits) else splits
        wrong_numbers, page = _number_differences(manifest, record, folder, measures)
        wrong = [*_hash_differences(manifest, record, at_hand.files), *wrong_numbers]
        checked = ["hashes of all files", "every number, floor, gate and verdict from the counts"]
        skipped = list(_unchecked_page(page, manifest))
        if page is False and not skipped:
            wrong.append(f"{PAGE}: not the page of {RECORD}")
        checked += ["the page"] if page else []
        if models is None:
            skipped.append("the weights (give --models)")
        else:
            by_hash = weights_by_hash(Path(models))
            wrong += check_models(manifest, by_hash, Path(models))
            checked.append("hashes of the weights")
        picked: int | None = None
        if splits is None or key is None:
            skipped.append("ids, accuracies and counts (give --models, the data and --key)")
        else:
            pseudonyms = Pseudonyms(read_key(key), manifest.name)
            wrong += check_ids(manifest, record, folder, splits, pseudonyms)
            checked.append("pseudonyms of all samples, and near-duplicates")
            if manifest.data.trained_on is None:
                skipped.append("what the models were trained on: the pack does not say it")
            if models is None:
                skipped.append("accuracies and counts (give --models)")
            elif load is None and any(model.architecture is None for model in manifest.models.values()):
                skipped.append("accuracies and counts: the networks are the holder's own; give load= in Python")
            elif wrong:
                skipped.append("accuracies and counts from the models, because of the differences above")
            else:
                picked = secrets.randbelow(2**31) if number is None else number
                weights = {name: by_hash[model.weights_sha256 or ""] for name, model in manifest.models.items()}
                to_count = Cells(record, folder, weights, splits, pseudonyms, load or load_weights)
                wrong += check_accuracies(to_count)
                wrong += [*check_cells(to_count, cells, picked), *check_probes(to_count, picked)]
                checked.append(f"all accuracies, and {cells} cells of the counts, picked by {picked}")
                checked += [f"{spec}, of one seed picked by {picked}" for spec in repeated_probes(record)]
                skipped.append(f"the other cells of the counts: the pack has {counted_cells(to_count)}")
        skipped += [*NOT_CHECKED, *_open_probes(record, picked)]
    return Verification(list(dict.fromkeys(wrong)), checked, skipped, picked, page is True or accept_page)


def _unchecked_page(page: bool | None, manifest: Manifest) -> Iterator[str]:
    """Yield why the page was not checked: it is another one than here, and other code made it, or no page can be made.

    What code made it is the holder's word, so a page that is not checked is never sound without being accepted.
    """
    if page is None:
        yield f"{PAGE}: no page can be made of this record"
    elif not page and manifest.tool.code_sha256 != code_sha256():
        yield f"{PAGE}: the pack says that other code made it, so it may say anything; accept it with --accept-page"


def _open_probes(record: Results, picked: int | None) -> Iterator[str]:
    """Yield the probes whose values were taken over."""
    for name in dict.fromkeys(name for row in record.methods.values() for name in row.probes):
        kind = probe_kind(name)
        if kind is not None and kind.reads == "margins":
            yield f"{name}: it rests on models that no pack has"
        elif kind is not None and kind.columns:
            yield f"{name}: models are not treated again"
        elif kind is not None:
            yield name if picked is None else f"{name}, of the other seeds"


def _hash_differences(manifest: Manifest, record: Results, files: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    named = {RECORD, PAGE, *(path for *_, audit in record.each_audit() for path in counts_files(audit))}
    for path in sorted({*manifest.files, *files}):
        if path not in files:
            yield f"{path}: the manifest lists it, the pack has none"
        elif manifest.files.get(path) != files[path]:
            yield f"{path}: its SHA-256 is not the one in the manifest"
    for path in sorted(path for path in files if path not in named):
        yield f"{path}: no audit names it"
    if manifest.root != root_of(files):
        yield f"{MANIFEST}: the root is not that of the files"
    if manifest.seal != seal_of(manifest.as_dict()):
        yield f"{MANIFEST}: the seal is not that of the manifest"


def _number_differences(
    manifest: Manifest, record: Results, folder: Path, measures: Sequence[str]
) -> tuple[list[str], bool | None]:
    """Return what differs from the record, and whether the page is its page; None where no page can be made."""
    wrong = add_measures(record, measures)
    page: bool | None = None
    try:
        wrong += _unknown_keys(manifest, record)
        if sealed(json.loads((folder / RECORD).read_bytes()))["record_sha256"] != record.record_sha256:
            wrong.append(f"{RECORD}: its own hash is not that of its content")
        wrong += _derived_differences(manifest, record, folder)
        page = (folder / PAGE).read_bytes() == page_of(record, folder)
        check_counts(folder, record)
    except (InputError, FileNotFoundError) as error:
        wrong.append(str(error).replace(f"{folder}/", "").replace(f"{folder}: ", ""))
    except Exception as error:  # a record may contradict itself in any way, and that is the finding
        wrong.append(f"{RECORD}: its numbers cannot be derived ({first_line(error)})")
    return wrong, page


def _derived_differences(manifest: Manifest, record: Results, folder: Path) -> Iterator[str]:
    """Yield where record and manifest are not what the counts give."""
    tables = load_tables(record, folder)
    derived = derived_record(record, folder, tables)
    packed, again = ({**results.as_dict(), "record_sha256": None} for results in (record, derived))
    yield from differences(packed, again)
    forgotten: set[str] = set()
    for label, seed, name, audit in derived.each_audit():
        (counts, _), audit_seed = tables[label, seed, name], (audit.settings.model_extra or {}).get("seed")
        forgotten.update(counts.ids)
        if isinstance(audit_seed, int) and audit.settings.noise_check != noise_check(audit_seed):
            yield f"{label}, seed {seed}, {name}: the check value of the noise is not that of its seed"
        if label == "retrain" and (counts.method_right != counts.reference_right).any():
            yield f"retrain, seed {seed}, {name}: its counts as a row are not those of the reference"
    expected = expected_manifest(manifest, derived, forgotten)
    yield from differences(manifest.as_dict(), expected.as_dict(), MANIFEST, "its record gives")


def _unknown_keys(manifest: Manifest, record: Results) -> Iterator[str]:
    """Yield every key that residuum pack does not write, because no check covers its value."""
    settings = record.scenario.settings
    parts: list[tuple[str, Part, Collection[str]]] = [
        (MANIFEST, manifest, ()),
        *((f"{MANIFEST}.{name}", getattr(manifest, name), ()) for name in ("tool", "request", "data")),
        *((f"{MANIFEST}.models.{name}", model, ()) for name, model in manifest.models.items()),
        (RECORD, record, ["compute"]),
        (f"{RECORD}.scenario", record.scenario, ["init_from"]),
        (f"{RECORD}.scenario.settings", settings, Scenario.model_fields),
        (f"{RECORD}.scenario.settings.data", settings.data, DataSettings.model_fields),
        (f"{RECORD}.scenario.settings.model", settings.model, ModelSettings.model_fields),
        (f"{RECORD}.scenario.settings.audit", settings.audit, AuditSettings.model_fields),
        *((f"{RECORD}: request", request, ForgetSettings.model_fields) for request in settings.requests),
    ]
    for label, row in record.methods.items():
        metrics = ((f"{RECORD}: {label}, seed {seed}", result.metrics) for seed, result in row.per_seed.items())
        parts += [(where, part, ()) for where, part in metrics if part]
    for label, seed, name, audit in record.each_audit():
        perturbation = str((audit.settings.model_extra or {}).get("name"))
        if perturbation in PERTURBATIONS:  # the settings of a plug-in that is not installed are not known
            allowed = [
                *AUDIT_KEYS,
                *SPACE_SETTINGS,
                *(field.name for field in fields(PERTURBATIONS.find(perturbation))),
            ]
            parts.append((f"{RECORD}: {label}, seed {seed}, {name}", audit.settings, allowed))
    keys = [(where, key) for where, part, allowed in parts for key in part.model_extra or () if key not in allowed]
    keys += [(f"{RECORD}.versions", key) for key in record.versions if key not in ("python", *LIBRARIES)]
    sizes = ("retain", "forget", "validation", "test")
    keys += [(f"{RECORD}.scenario.sizes", key) for key in record.scenario.sizes if key not in sizes]
    yield from (f"{where}.{key}: no key that residuum pack writes" for where, key in sorted(keys))
