"""Check a pack: hashes, then every number again from the counts, then, with models and data, a sample of the counts."""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from residuum.auditing import Counts
from residuum.auditing.probes import probe_kind
from residuum.core.errors import InputError, first_line
from residuum.core.inputs import SPACE_SETTINGS
from residuum.core.roles import Role
from residuum.core.samples import Splits
from residuum.models import load_weights
from residuum.pack.derivation import add_measures, derived_record, differences, model_probes
from residuum.pack.hashing import Pseudonyms, canonical, code_sha256, ids_root, listed, read_key, root_of, seal_of
from residuum.pack.manifest import LEFT_OUT, NON_CLAIMS, THREATS, conclusions, data_facts, tool
from residuum.pack.reading import parsed_record, read_manifest, read_pack, unpacked
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
from residuum.record.folder import check_counts
from residuum.studies.results import LIBRARIES
from residuum.studies.settings import AuditSettings, DataSettings, ForgetSettings, ModelSettings, Scenario

MANIFEST_KEYS = [
    "schema",
    "name",
    "created",
    "tool",
    "request",
    "models",
    "data",
    "audit",
    "gates",
    "thresholds",
    "rule_version",
    "verdict",
    "power",
    "floor",
    "left_out",
    "non_claims",
    "threat_model",
    "files",
    "root",
    "seal",
]
REQUEST_KEYS = ["form", "size", "ids_hmac_root", "received", "completed", "delete_pack_by"]
MODEL_KEYS = ["weights_sha256", "architecture", "recipe", "seed", "parent"]
DATA_KEYS = ["fingerprint_hmac", "trained_on", "forgotten_among_retained", "near_duplicates"]  # beside `data_facts`
AUDIT_KEYS = [
    "name",
    "crafted_on",
    "draws",
    "half_width",
    "max_draws",
    "first_draw",
    "enumerated",
    "confidence",
    "seed",
    "bootstrap_seed",
    "noise_check",
    "heldout_chosen_from",
    "seen",
]
STATED = [
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
    pack: Path | str | Mapping[str, bytes],
    *,
    models: Path | str | None = None,
    splits: Splits | None = None,
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
        pack: the .zip file, or its content as `read_pack` returns it.
        models: folder of the run, or its folder `models`: hashes of the weights are compared.
        splits: the data; with the key, pseudonyms are compared, and with models too, counts are counted again.
        key: the holder's key.
        cells: how many cells (row, seed, perturbation, forgotten or held-out sample, radius) are counted again.
        number: picks the cells; drawn at random unless it is given, so that no holder can know it before.
        load: returns the model of a weights file; needed for networks that are none of Residuum's.
        measures: FILE.py:FUNCTION of each measure of the holder's own.
        accept_page: take a pack whose page cannot be checked, because another version of Residuum made it, for sound.
    """
    contents = pack if isinstance(pack, Mapping) else read_pack(pack)
    manifest = read_manifest(contents[MANIFEST])
    wrong = list(_hash_differences(manifest, contents))
    checked = ["hashes of all files", "every number, floor, gate and verdict from the counts"]
    with unpacked(contents) as folder:
        record, wrong_numbers, page = _number_differences(manifest, contents, folder, measures)
        wrong += wrong_numbers
        skipped = list(_unchecked_page(page, manifest))
        if page is False and not skipped:
            wrong.append(f"{PAGE}: not the page of {RECORD}")
        checked += ["the page"] if page else []
        if models is None:
            skipped.append("the weights (give --models)")
        else:
            wrong += check_models(manifest, Path(models))
            checked.append("hashes of the weights")
        picked: int | None = None
        if splits is None or key is None or record is None:
            skipped.append("ids, accuracies and counts (give --models, the data and --key)")
        else:
            pseudonyms = Pseudonyms(read_key(key), str(manifest.get("name")))
            wrong += check_ids(manifest, record, folder, splits, pseudonyms)
            checked.append("pseudonyms of all samples, and near-duplicates")
            if "trained_on" not in manifest["data"]:
                skipped.append("what the models were trained on: the pack does not say it")
            if models is None:
                skipped.append("accuracies and counts (give --models)")
            elif load is None and any(model.get("architecture") is None for model in manifest["models"].values()):
                skipped.append("accuracies and counts: the networks are the holder's own; give load= in Python")
            elif wrong:
                skipped.append("accuracies and counts from the models, because of the differences above")
            else:
                picked = secrets.randbelow(2**31) if number is None else number
                at_hand = Cells(record, folder, Path(models), splits, pseudonyms, load or load_weights)
                wrong += check_accuracies(at_hand)
                wrong += [*check_cells(at_hand, cells, picked), *check_probes(at_hand, picked)]
                checked.append(f"all accuracies, and {cells} cells of the counts, picked by {picked}")
                checked += [f"{spec}, of one seed picked by {picked}" for spec in model_probes(record)]
                skipped.append(f"the other cells of the counts: the pack has {counted_cells(at_hand)}")
        skipped += [*STATED, *(_open_probes(record, picked) if record else ())]
    return Verification(list(dict.fromkeys(wrong)), checked, skipped, picked, page is True or accept_page)


def _unchecked_page(page: bool | None, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the page was not checked: it is another one than here, and other code made it, or no page can be made.

    What code made it is the holder's word, so a page that is not checked is never sound without being accepted.
    """
    if page is None:
        yield f"{PAGE}: no page can be made of this record"
    elif not page and manifest["tool"].get("code_sha256") != code_sha256():
        yield f"{PAGE}: the pack says that other code made it, so it may say anything; accept it with --accept-page"


def _open_probes(record: Results, picked: int | None) -> Iterator[str]:
    """Yield the probes whose values were taken over."""
    for name in dict.fromkeys(name for row in record.methods.values() for name in row.probes):
        kind = probe_kind(name)
        if kind is not None and kind.reads == "margins":
            yield f"{name}: it rests on models that no pack has"
        elif kind is not None:
            yield name if picked is None else f"{name}, of the other seeds"


def _hash_differences(manifest: Mapping[str, Any], contents: Mapping[str, bytes]) -> Iterator[str]:
    stated: Any = manifest.get("files", {})
    there = listed({path: content for path, content in contents.items() if path != MANIFEST})
    for path in sorted({*stated, *there}):
        if path not in there:
            yield f"{path}: the manifest lists it, the pack has none"
        elif stated.get(path) != there[path]:
            yield f"{path}: its SHA-256 is not the one in the manifest"
    if manifest.get("root") != root_of(there):
        yield f"{MANIFEST}: the root is not that of the files"
    if manifest.get("seal") != seal_of(manifest):
        yield f"{MANIFEST}: the seal is not that of the manifest"
    if contents[MANIFEST] != canonical(manifest):
        yield f"{MANIFEST}: not in canonical form, so it was written by something else"


def _number_differences(
    manifest: Mapping[str, Any], contents: Mapping[str, bytes], folder: Path, measures: Sequence[str]
) -> tuple[Results | None, list[str], bool | None]:
    """Return the record, what differs from it, and whether the page is its page; None where there is none."""
    try:
        record = parsed_record(contents[RECORD])
    except InputError as error:
        return None, [str(error)], None
    wrong = add_measures(record, measures)
    page: bool | None = None
    try:
        wrong += _statement_differences(manifest, record)
        if json.loads(contents[RECORD]) != sealed(json.loads(contents[RECORD])):
            wrong.append(f"{RECORD}: its own hash is not that of its content")
        wrong += _derived_differences(manifest, record, folder)
        page = contents.get(PAGE) == page_of(record, folder)
        check_counts(folder, record)
    except (InputError, FileNotFoundError) as error:
        wrong.append(str(error).replace(f"{folder}/", "").replace(f"{folder}: ", ""))
    except Exception as error:  # a record may contradict itself in any way, and that is the finding
        wrong.append(f"{RECORD}: its numbers cannot be derived ({first_line(error)})")
    return record, wrong, page


def _derived_differences(manifest: Mapping[str, Any], record: Results, folder: Path) -> list[str]:
    derived = derived_record(record, folder)
    stated, again = ({**results.as_dict(), "record_sha256": None} for results in (record, derived))
    wrong = differences(stated, again)
    concluded = {name: manifest.get(name) for name in conclusions(derived)}
    wrong += differences(concluded, conclusions(derived), MANIFEST)
    ids: set[str] = set()
    for label, seed, name, audit in derived.each_audit():
        counts, audit_seed = Counts.load(folder / audit.counts), (audit.settings.model_extra or {}).get("seed")
        ids.update(counts.ids)
        if isinstance(audit_seed, int) and audit.settings.noise_check != noise_check(audit_seed):
            wrong.append(f"{label}, seed {seed}, {name}: the check value of the noise is not that of its seed")
        if label == "retrain" and (counts.method_right != counts.reference_right).any():
            wrong.append(f"retrain, seed {seed}, {name}: its counts as a row are not those of the reference")
    facts = {"form": derived.scenario.form, "size": len(ids), "ids_hmac_root": ids_root(ids)}
    wrong += differences({name: manifest["request"].get(name) for name in facts}, facts, f"{MANIFEST}.request")
    rows = {f"{label}/{seed}": row.settings for label, row in derived.methods.items() for seed in row.per_seed}
    recipes = {name: model.get("recipe") for name, model in manifest["models"].items()}
    return wrong + differences(recipes, rows, f"{MANIFEST}.models")


def _statement_differences(manifest: Mapping[str, Any], record: Results) -> list[str]:
    """Return unknown keys, changed constant texts, and facts that the record says otherwise."""
    texts = {"created": record.created, "left_out": LEFT_OUT, "non_claims": NON_CLAIMS, "threat_model": THREATS}
    wrong = differences({name: manifest.get(name) for name in texts}, texts, MANIFEST, "expected")
    for part, facts in (("data", data_facts(record)), ("request", {"completed": record.created})):
        stated = {name: manifest[part].get(name) for name in facts}
        wrong += differences(stated, facts, f"{MANIFEST}.{part}", f"{RECORD} gives")
    for name, model in manifest["models"].items():
        label, _, seed = name.rpartition("/")
        row = record.methods.get(label)
        parent = f"original/{seed}" if row is not None and row.role is Role.METHOD else None
        lineage = {key: model.get(key) for key in ("seed", "parent")}
        wanted = {"seed": int(seed) if seed.isdigit() else None, "parent": parent}
        wrong += differences(lineage, wanted, f"{MANIFEST}.models.{name}", f"{RECORD} gives")
    return [*wrong, *_unknown_keys(manifest, record)]


def _unknown_keys(manifest: Mapping[str, Any], record: Results) -> Iterator[str]:
    """Yield every key that residuum pack does not write: nobody checks what it says."""

    def strangers(keys: Collection[str], allowed: Collection[str], where: str) -> Iterator[str]:
        yield from (f"{where}.{key}: no key that residuum pack writes" for key in sorted(set(keys) - set(allowed)))

    yield from strangers(manifest, MANIFEST_KEYS, MANIFEST)
    yield from strangers(manifest["tool"], tool(), f"{MANIFEST}.tool")
    yield from strangers(manifest["request"], REQUEST_KEYS, f"{MANIFEST}.request")
    yield from strangers(manifest["data"], {*data_facts(record), *DATA_KEYS}, f"{MANIFEST}.data")
    for name, model in manifest["models"].items():
        yield from strangers(model, MODEL_KEYS, f"{MANIFEST}.models.{name}")
    settings = record.scenario.settings
    parts: list[tuple[Any, Collection[str]]] = [
        (record, {"compute"}),
        (record.scenario, {"init_from"}),
        (settings, Scenario.model_fields),
        (settings.data, DataSettings.model_fields),
        (settings.model, ModelSettings.model_fields),
        (settings.audit, AuditSettings.model_fields),
        *((request, ForgetSettings.model_fields) for request in settings.requests),
        *((one.metrics, ()) for row in record.methods.values() for one in row.per_seed.values() if one.metrics),
    ]
    for *_, audit in record.each_audit():
        name = (audit.settings.model_extra or {}).get("name")
        if name in PERTURBATIONS:  # a plug-in that is not installed has settings of its own
            options = {field.name for field in fields(PERTURBATIONS.find(str(name)))}
            parts.append((audit.settings, {*AUDIT_KEYS, *SPACE_SETTINGS, *options}))
    for part, allowed in parts:
        yield from strangers(part.model_extra or {}, allowed, f"{RECORD}: {type(part).__name__.lstrip('_')}")
    yield from strangers(record.versions, {"python", *LIBRARIES}, f"{RECORD}: versions")
    yield from strangers(record.scenario.sizes, {"retain", "forget", "validation", "test"}, f"{RECORD}: sizes")
