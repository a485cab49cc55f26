"""Check a pack: hashes, then every number again from the counts, then, with models and data, a sample of the counts."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residuum.auditing import Counts
from residuum.errors import InputError, first_line
from residuum.models import load_weights
from residuum.pack.derivation import add_measures, derived_record, differences
from residuum.pack.hashing import Pseudonyms, canonical, code_sha256, ids_root, listed, read_key, root_of, seal_of
from residuum.pack.manifest import conclusions
from residuum.pack.reading import parsed_record, read_manifest, read_pack, unpack
from residuum.pack.spot_check import (
    Cells,
    Load,
    check_accuracies,
    check_cells,
    check_ids,
    check_models,
    check_witnesses,
    model_witnesses,
)
from residuum.pack.writing import MANIFEST, PAGE, RECORD, page_of
from residuum.perturbations import noise_check
from residuum.record import Results
from residuum.types import Splits


@dataclass(frozen=True)
class Verification:
    """What a check of a pack found: every difference, and what was and was not looked at."""

    differences: list[str]
    checked: list[str]
    not_checked: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def verify(
    pack: Path | str,
    *,
    models: Path | str | None = None,
    splits: Splits | None = None,
    key: Path | str | None = None,
    cells: int = 20,
    number: int = 0,
    load: Load | None = None,
    measures: Sequence[str] = (),
) -> Verification:
    """Recompute everything that an evidence pack states, and name each difference.

    From the pack alone: every hash and the root, all measures, intervals, floors, power, gates and verdicts from counts
    and recorded seeds, the rules that counts obey, the check values of the noise, and the page.

    Args:
        pack: the .zip file.
        models: folder of the run, or its folder `models`: hashes of the weights are compared.
        splits: the data; with the key, pseudonyms are compared, and with models too, counts are counted again.
        key: the holder's key.
        cells: how many cells (row, seed, perturbation, sample, radius) are counted again.
        number: named by the verifier after the pack was written; it picks the cells.
        load: returns the model of a weights file; needed for networks that are none of Residuum's.
        measures: FILE.py:FUNCTION of each measure of the holder's own.
    """
    contents = read_pack(pack)
    manifest = read_manifest(contents[MANIFEST])
    found = list(_hash_differences(manifest, contents))
    checked = ["hashes of all files", "every number, floor, gate and verdict from the counts"]
    with tempfile.TemporaryDirectory() as folder:
        unpack(contents, Path(folder))
        found += _number_differences(manifest, contents, Path(folder), measures)
        if models is None:
            skipped = ["the weights (give --models)"]
        else:
            found, skipped = [*found, *check_models(manifest, Path(models))], []
            checked.append("hashes of the weights")
        if splits is None or key is None:
            skipped.append("ids and counts of single samples (give --models, the data and --key)")
            return Verification(list(dict.fromkeys(found)), checked, skipped)
        record = parsed_record(contents[RECORD])
        pseudonyms = Pseudonyms(read_key(key), str(manifest.get("name")))
        found += check_ids(manifest, record, Path(folder), splits, pseudonyms)
        checked.append("pseudonyms of all samples, and near-duplicates")
        if models is not None and load is None and _has_unknown_networks(manifest):
            skipped.append("counts of single samples: the networks are the holder's own; give load= in Python")
        elif models is not None and not found:
            chosen = Cells(record, Path(folder), Path(models), splits, pseudonyms, load or load_weights)
            found += _computed_differences(chosen, cells, number)
            checked.append(f"all accuracies, and {cells} cells of the counts, picked by {number}")
            checked += [f"{spec}, of one seed picked by {number}" for spec in model_witnesses(record)]
    return Verification(list(dict.fromkeys(found)), checked, skipped)


def _computed_differences(chosen: Cells, cells: int, number: int) -> list[str]:
    return [*check_accuracies(chosen), *check_cells(chosen, cells, number), *check_witnesses(chosen, number)]


def _has_unknown_networks(manifest: Mapping[str, Any]) -> bool:
    return any(model.get("architecture") is None for model in manifest.get("models", {}).values())


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
) -> list[str]:
    try:
        record = Results.load(folder)
    except InputError as error:
        return [str(error).replace(f"{folder}/", "")]
    found = add_measures(record, measures)
    try:
        return found + _derived_differences(manifest, contents, record, folder)
    except (InputError, FileNotFoundError) as error:
        return [*found, str(error).replace(f"{folder}/", "")]
    except Exception as error:  # a record may contradict itself in any way, and that is the finding
        return [*found, f"{RECORD}: its numbers cannot be derived ({first_line(error)})"]


def _derived_differences(
    manifest: Mapping[str, Any], contents: Mapping[str, bytes], record: Results, folder: Path
) -> list[str]:
    derived = derived_record(record, folder)
    found = differences(record.as_dict(), derived.as_dict())
    stated = {name: manifest.get(name) for name in conclusions(derived)}
    found += differences(stated, conclusions(derived), MANIFEST)
    found += _request_differences(manifest, derived, folder)
    found += _noise_differences(derived)
    if contents.get(PAGE) != page_of(record, folder) and manifest.get("tool", {}).get("code_sha256") == code_sha256():
        found.append(f"{PAGE}: not the page of {RECORD}")
    return found


def _request_differences(manifest: Mapping[str, Any], record: Results, folder: Path) -> list[str]:
    ids = {name for *_, audit in record.each_audit() for name in Counts.load(folder / audit.counts).ids}
    facts = {"form": record.scenario.form, "size": len(ids), "ids_hmac_root": ids_root(ids)}
    stated = {name: manifest.get("request", {}).get(name) for name in facts}
    rows = {f"{label}/{seed}": row.settings for label, row in record.methods.items() for seed in row.per_seed}
    recipes = {name: model.get("recipe") for name, model in manifest.get("models", {}).items()}
    found = differences(stated, facts, f"{MANIFEST}.request")
    return found + differences(recipes, rows, f"{MANIFEST}.models")


def _noise_differences(record: Results) -> Iterator[str]:
    for label, seed, name, audit in record.each_audit():
        own: Any = (audit.settings.model_extra or {}).get("seed")
        if isinstance(own, int) and audit.settings.noise_check != noise_check(own):
            yield f"{label}, seed {seed}, {name}: the check value of the noise is not that of its seed"
