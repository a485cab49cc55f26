"""Read a pack that may come from anybody: nothing is written where its names say, nothing is run, sizes are limited."""

import json
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from residuum.auditing import Counts
from residuum.data import DATASETS, load_dataset
from residuum.errors import InputError
from residuum.experiments.settings import DataSettings, ForgetSettings, split_data
from residuum.files import regular_file
from residuum.pack.hashing import Pseudonyms, canonical, merkle_path, read_key, root_by_path
from residuum.pack.manifest import SCHEMA
from residuum.pack.writing import MANIFEST, RECORD
from residuum.record import Results
from residuum.types import Splits

MEMBER = re.compile(r"(?:counts/\d{4}(?:-heldout)?\.npz|results\.json|report\.html|manifest\.json)")
OBJECTS = ("files", "models", "data", "tool", "request")  # of the manifest, that are read by name
PRESENCE = "residuum.presence/1"
MOST_FILES = 20_002
MOST_BYTES = 4 * 2**30


def read_pack(path: Path | str) -> dict[str, bytes]:
    """Return the content of every file of a pack; refuse anything but the files that a pack has."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            entries = archive.infolist()
            _refuse_strange(path, entries)
            return {entry.filename: archive.read(entry) for entry in entries}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a pack written by residuum pack") from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected a pack written by residuum pack, got {error}") from None


def _refuse_strange(path: Path | str, entries: list[zipfile.ZipInfo]) -> None:
    names = [entry.filename for entry in entries]
    strange = next((name for name in names if not MEMBER.fullmatch(name)), None)
    if strange is not None:
        raise InputError(f"{path}: expected the files of a pack only, got {strange!r}; nothing was unpacked")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a file stands in it twice; nothing was unpacked")
    if len(names) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise InputError(f"{path}: expected at most {MOST_FILES} files and {MOST_BYTES // 2**30} GiB, got more")
    if MANIFEST not in names:
        raise InputError(f"{path}: expected a pack with {MANIFEST}, got a .zip file without one")
    if RECORD not in names:
        raise InputError(f"{path}: expected {RECORD} in it")


def read_json(content: bytes, what: str) -> dict[str, Any]:
    """Return an object from JSON."""
    try:
        value = json.loads(content)
        canonical(value)  # refuses NaN, Infinity and texts that are none
    except (ValueError, RecursionError):
        raise InputError(f"{what}: expected JSON written by residuum pack, got something else") from None
    if not isinstance(value, dict):
        raise InputError(f"{what}: expected a JSON object, got {type(value).__name__}")
    return value


def parsed_record(content: bytes) -> Results:
    """Return the record of a pack."""
    try:
        return Results.model_validate(read_json(content, RECORD))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{RECORD}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def read_manifest(content: bytes) -> dict[str, Any]:
    """Return the manifest of a pack, with a schema that this version knows."""
    manifest = read_json(content, MANIFEST)
    if manifest.get("schema") != SCHEMA:
        raise InputError(f"{MANIFEST}: expected schema {SCHEMA!r}, got {manifest.get('schema')!r}")
    for name in OBJECTS:
        if not isinstance(manifest.get(name), dict):
            raise InputError(f"{MANIFEST}: expected an object for {name!r}, got {manifest.get(name)!r:.60}")
    if not all(isinstance(model, dict) for model in manifest["models"].values()):
        raise InputError(f"{MANIFEST}: expected an object for every model, got something else")
    return manifest


def unpack(contents: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a pack, whose names `read_pack` has checked, into an empty folder."""
    (folder / "counts").mkdir()
    for path, content in contents.items():
        (folder / path).write_bytes(content)


def read_record(path: Path | str) -> Results:
    """Return the record of the run in a pack."""
    return parsed_record(read_pack(path).get(RECORD, b""))


def splits_of(record: Results, root: Path | None = None) -> Splits:
    """Return the splits of a scenario's run; data that a record does not name are given in Python, as `splits`."""
    settings: Any = record.scenario.settings.model_dump(mode="json", exclude_unset=True)
    requests = [*settings.get("earlier", []), settings.get("forget", {})]
    if not record.scenario.public_data or any(request.get("listed") for request in requests):
        raise InputError("the pack does not name its data or its ids: give them in Python, verify(..., splits=...)")
    try:
        data = DataSettings.model_validate(settings["data"])
        wanted = tuple(ForgetSettings.model_validate(request) for request in requests)
    except (ValidationError, KeyError):
        raise InputError("the record does not say how its data were cut: give splits=... in Python") from None
    DATASETS.find(data.name)  # load_dataset imports FILE.py:NAME and reads paths, and this name comes out of a file
    return split_data(load_dataset(data.name, root=root, size=data.size), data, wanted)


def prove_presence(pack: Path | str, sample_id: str, *, key: Path | str) -> dict[str, Any]:
    """Return the proof that a sample is among those of a pack's request: its pseudonym and the path to the root.

    Whoever has the pack, its manifest or only the root can check it with `root_by_path`. That the pseudonym is this
    sample's is known to the holder of the key alone.
    """
    contents = read_pack(pack)
    manifest = read_manifest(contents[MANIFEST])
    pseudonym, listed = Pseudonyms(read_key(key), str(manifest.get("name")))(sample_id), forgotten_ids(contents)
    if pseudonym not in listed:
        raise InputError(f"{sample_id!r} is not in the request of this pack, or the key is another one's")
    return {
        "schema": PRESENCE,
        "pack": manifest.get("name"),
        "seal": manifest.get("seal"),
        "pseudonym": pseudonym,
        "path": merkle_path(listed, pseudonym),
    }


def forgotten_ids(contents: Mapping[str, bytes]) -> set[str]:
    """Return the pseudonyms of all forgotten samples in a pack."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(contents, Path(folder))
        files = [path for path in Path(folder, "counts").iterdir() if not path.stem.endswith("-heldout")]
        return {name for path in files for name in Counts.load(path).ids}


def presence_differences(manifest: Mapping[str, Any], file: Path | str) -> list[str]:
    """Return what is wrong with a proof of presence beside the manifest of its pack."""
    try:
        content = regular_file(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; expected what `residuum prove` wrote") from None
    proof = read_json(content, str(file))
    if proof.get("schema") != PRESENCE:
        raise InputError(f"{file}: expected schema {PRESENCE!r}, got {proof.get('schema')!r}")
    if proof.get("pack") != manifest.get("name") or proof.get("seal") != manifest.get("seal"):
        return [f"{file}: a proof for another pack"]
    try:
        found = root_by_path(proof["pseudonym"], proof["path"])
    except (KeyError, TypeError, ValueError):
        return [f"{file}: no pseudonym with a path of hashes"]
    stated = manifest.get("request", {}).get("ids_hmac_root")
    return [] if found == stated else [f"{file}: its path does not lead to the root of the request"]
