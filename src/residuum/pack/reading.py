"""Read a pack that may come from anybody: nothing is written where its names say, nothing is run, sizes are limited."""

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from residuum.core.errors import InputError, first_line
from residuum.core.files import canonical, regular_file
from residuum.core.samples import Splits
from residuum.data import DATASETS, load_dataset
from residuum.pack.manifest import SCHEMA, Manifest
from residuum.pack.writing import (
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    MOST_IN_ONE,
    MOST_IN_RECORD,
    MOST_LISTS,
    MOST_MODELS,
    MOST_ROWS,
    PAGE,
    RECORD,
    temporary_space,
)
from residuum.record import Results
from residuum.studies.settings import DataSettings, ForgetSettings, split_data

MEMBER = re.compile(r"counts/\d{4}(?:-heldout)?\.json|results\.json|report\.html|manifest\.json")
MOST_RATIO, SMALL = 50, 16 * 2**20  # of bytes unpacked to bytes packed, beyond the first SMALL ones
END, END_64, MOST_DIRECTORY = b"PK\5\6", b"PK\6\7", 2**20
CHUNK = 2**16


class StrangeFieldError(InputError):
    """JSON in the form of a pack has a field of another kind than packs have: a difference like any other."""


@dataclass(frozen=True)
class Unpacked:
    """A pack in a temporary folder, with hash and size of every file but the manifest."""

    folder: Path
    files: dict[str, dict[str, Any]]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self.folder / name).read_bytes()


@contextmanager
def unpacked(path: Path | str) -> Iterator[Unpacked]:
    """Yield the files of a pack in a temporary folder; refuse anything but the files that a pack has.

    What is refused is refused before it is unpacked or, where only its content tells, after at most `CHUNK` bytes more
    than allowed: files are hashed and written in pieces.
    """
    with temporary_space():
        home = tempfile.TemporaryDirectory()
    with home as name:
        folder = Path(name)
        (folder / "counts").mkdir()
        try:
            _refuse_directory(regular_file(path))
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
                _refuse_strange(entries, Path(path).stat().st_size)
                files, lists = {}, 0
                for entry in entries:
                    files[entry.filename], more = _copied(archive, entry, folder / entry.filename, MOST_LISTS - lists)
                    lists += more
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}; expected a pack written by residuum pack"
            ) from None
        except Exception as error:  # a damaged archive may raise anything
            raise InputError(f"{path}: expected a pack written by residuum pack, got {first_line(error)}") from None
        files.pop(MANIFEST)
        yield Unpacked(folder, files)


def _copied(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, most: int) -> tuple[dict[str, Any], int]:
    """Write a file; return its hash and size, and the number of lists and objects in its JSON, at most `most`."""
    digest, lists = hashlib.sha256(), 0
    most = min(most, MOST_IN_RECORD) if entry.filename in (RECORD, MANIFEST) else most
    with archive.open(entry) as source, target.open("wb") as file:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
            if entry.filename != PAGE:
                lists += chunk.count(b"[") + chunk.count(b"{")
            if lists > most:
                limits = f"{MOST_LISTS} lists and objects in all JSON, {MOST_IN_RECORD} in {RECORD} or {MANIFEST}"
                raise InputError(f"expected at most {limits}")
    return {"sha256": digest.hexdigest(), "bytes": entry.file_size}, lists


def _refuse_directory(path: Path) -> None:
    """Refuse a list of members that is too long to be read: a pack has no comment, and ends with the list's size."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 42, 0))
        before, end = (tail := file.read())[:20], tail[20:]
    if len(end) < 22 or not end.startswith(END) or before.startswith(END_64):
        raise InputError("expected a pack written by residuum pack, which is a .zip file without a comment")
    if int.from_bytes(end[12:16], "little") > MOST_DIRECTORY:
        raise InputError(f"expected a list of at most {MOST_FILES} files")


def _refuse_strange(entries: list[zipfile.ZipInfo], packed: int) -> None:
    names = [entry.filename for entry in entries]
    strange = next((name for name in names if not MEMBER.fullmatch(name)), None)
    if strange is not None:
        raise InputError(f"expected the files of a pack only, got {strange!r}; nothing was unpacked")
    if len(set(names)) < len(names):
        raise InputError("the archive has a file twice; nothing was unpacked")
    if len(names) > MOST_FILES:
        raise InputError(f"expected at most {MOST_FILES} files, got {len(names)}")
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise InputError("expected files that are stored or deflated; nothing was unpacked")
    total, largest = sum(entry.file_size for entry in entries), max(entry.file_size for entry in entries)
    if largest > MOST_IN_ONE or total > min(MOST_BYTES, max(SMALL, MOST_RATIO * packed)):
        limits = (
            f"{MOST_IN_ONE // 2**20} MiB in one file, {MOST_BYTES // 2**20} MiB in all, {MOST_RATIO} times its size"
        )
        raise InputError(f"it unpacks to {total / 2**20:.3g} MiB; expected at most {limits}")
    if missing := [name for name in (MANIFEST, RECORD, PAGE) if name not in names]:
        raise InputError(f"expected a pack with {missing[0]}, got a .zip file without one")


def read_json(content: bytes, what: str, schema: str, *, sort_keys: bool = True) -> dict[str, Any]:
    """Return an object of this schema from canonical JSON."""
    try:
        value = json.loads(content)
        as_written = canonical(value, sort_keys=sort_keys)  # refuses NaN, Infinity and texts that are none
    except (ValueError, RecursionError):
        raise InputError(f"{what}: expected JSON written by residuum pack, got something else") from None
    if not isinstance(value, dict):
        raise InputError(f"{what}: expected a JSON object, got {type(value).__name__}")
    if value.get("schema") != schema:
        raise InputError(f"{what}: expected schema {schema!r}, got {value.get('schema')!r:.60}")
    if as_written != content:
        raise InputError(f"{what}: expected canonical JSON, as residuum pack writes it, got another form")
    return value


def parsed_record(content: bytes) -> Results:
    """Return the record of a pack."""
    value = read_json(content, RECORD, Results.SCHEMA, sort_keys=False)
    try:
        record = Results.model_validate(value)
    except ValidationError as error:
        raise StrangeFieldError(f"{RECORD}: {_first_problem(error)}") from None
    rows, models = len(record.methods), sum(len(row.per_seed) for row in record.methods.values())
    if rows > MOST_ROWS or models > MOST_MODELS:
        raise InputError(
            f"{RECORD}: expected at most {MOST_ROWS} rows and {MOST_MODELS} models, got {rows} and {models}"
        )
    return record


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest of a pack."""
    value = read_json(content, MANIFEST, SCHEMA)
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        raise StrangeFieldError(
            f"{MANIFEST}: expected what residuum pack writes, got {_first_problem(error)}"
        ) from None


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def splits_of(record: Results, root: Path | None = None) -> Splits:
    """Return the splits of a scenario's run; data that a record does not name are given in Python, as `splits`."""
    settings: Any = record.scenario.settings.model_dump(mode="json", exclude_unset=True)
    requests = [*settings.get("earlier", []), settings.get("forget", {})]
    if not record.scenario.public_data or any(request.get("listed") for request in requests):
        raise InputError("the pack does not name its data or its ids: give them in Python, verify(..., splits=...)")
    try:
        data = DataSettings.model_validate(settings["data"])
        forget = tuple(ForgetSettings.model_validate(request) for request in requests)
    except (ValidationError, KeyError):
        raise InputError("the record does not say how its data were cut: give splits=... in Python") from None
    DATASETS.find(data.name)  # load_dataset imports FILE.py:NAME and reads paths, and this name comes out of a file
    return split_data(load_dataset(data.name, root=root, size=data.size), data, forget)
