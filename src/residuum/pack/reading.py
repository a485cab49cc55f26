"""Read a pack that may come from anybody: nothing is written where its names say, nothing is run, sizes are limited."""

import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from residuum.core.errors import InputError, first_line
from residuum.core.files import canonical, refuse_inflated, regular_file
from residuum.core.samples import Splits
from residuum.data import DATASETS, load_dataset
from residuum.pack.manifest import SCHEMA, Manifest
from residuum.pack.writing import MANIFEST, RECORD, temporary_space
from residuum.record import Results
from residuum.studies.settings import DataSettings, ForgetSettings, split_data

MEMBER = re.compile(r"(?:counts/\d{4}(?:-heldout)?\.npz|results\.json|report\.html|manifest\.json)")
MOST_FILES = 20_002


def read_pack(path: Path | str) -> dict[str, bytes]:
    """Return the content of every file of a pack; refuse anything but the files that a pack has."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            entries = archive.infolist()
            _refuse_strange(path, entries)
            contents = {entry.filename: archive.read(entry) for entry in entries}
        for name, content in contents.items():
            if name.endswith(".npz"):
                _refuse_compressed(path, name, content)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a pack written by residuum pack") from None
    except Exception as error:  # a damaged archive may raise anything
        raise InputError(f"{path}: expected a pack written by residuum pack, got {first_line(error)}") from None
    return contents


def _refuse_compressed(path: Path | str, name: str, content: bytes) -> None:
    """Refuse counts that are not stored as they are: the limit on the pack's own files then covers them too."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
    if any(e.compress_type != zipfile.ZIP_STORED or e.file_size != e.compress_size for e in entries):
        raise InputError(f"{path}: expected arrays that are not compressed in {name}, as residuum pack writes them")


def _refuse_strange(path: Path | str, entries: list[zipfile.ZipInfo]) -> None:
    names = [entry.filename for entry in entries]
    strange = next((name for name in names if not MEMBER.fullmatch(name)), None)
    if strange is not None:
        raise InputError(f"{path}: expected the files of a pack only, got {strange!r}; nothing was unpacked")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a file stands in it twice; nothing was unpacked")
    if len(names) > MOST_FILES:
        raise InputError(f"{path}: expected at most {MOST_FILES} files, got {len(names)}")
    try:
        refuse_inflated(sum(entry.file_size for entry in entries), os.stat(path).st_size)
    except InputError as error:
        raise InputError(f"{path}: it unpacks to {error}") from None
    if MANIFEST not in names:
        raise InputError(f"{path}: expected a pack with {MANIFEST}, got a .zip file without one")
    if RECORD not in names:
        raise InputError(f"{path}: expected {RECORD} in it")


def read_json(content: bytes, what: str, schema: str) -> dict[str, Any]:
    """Return an object of this schema from JSON."""
    try:
        value = json.loads(content)
        canonical(value)  # refuses NaN, Infinity and texts that are none
    except (ValueError, RecursionError):
        raise InputError(f"{what}: expected JSON written by residuum pack, got something else") from None
    if not isinstance(value, dict):
        raise InputError(f"{what}: expected a JSON object, got {type(value).__name__}")
    if value.get("schema") != schema:
        raise InputError(f"{what}: expected schema {schema!r}, got {value.get('schema')!r:.60}")
    return value


def parsed_record(content: bytes) -> Results:
    """Return the record of a pack."""
    value = read_json(content, RECORD, Results.SCHEMA)
    try:
        return Results.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{RECORD}: {_first_problem(error)}") from None


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest of a pack."""
    value = read_json(content, MANIFEST, SCHEMA)
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{MANIFEST}: expected what residuum pack writes, got {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


@contextmanager
def unpacked(contents: Mapping[str, bytes]) -> Iterator[Path]:
    """Yield a temporary folder with the files of a pack, whose names `read_pack` has checked."""
    with ExitStack() as stack:
        with temporary_space():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "counts").mkdir()
            for path, content in contents.items():
                (folder / path).write_bytes(content)
        yield folder


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
