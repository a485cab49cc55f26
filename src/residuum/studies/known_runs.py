"""Which folders hold copies of a store's artefacts: every run notes its own before it writes there; others are read."""

import hashlib
import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from residuum.auditing import Counts
from residuum.core.errors import InputError
from residuum.core.files import ASIDE, write_whole
from residuum.record import Results
from residuum.record.folder import half_written
from residuum.studies.manifest import Manifest

RUNS = "runs"
PICTURES = {"gallery", "pictures"}  # folders of .npz files that are no counts


@dataclass(frozen=True)
class Note:
    """What a store knows of a run: its folder, the stages it was made from, the hashes of what it copied.

    `store` is where the store was when the run was written: a copy of the store has not written it.
    """

    file: Path
    folder: Path
    store: str
    stages: frozenset[str]
    copies: frozenset[str]


@contextmanager
def noted(folder: Path, artefacts: AbstractSet[Path]) -> Iterator[None]:
    """Note that a folder gets copies of a store's artefacts; afterwards, that it has nothing else. It is locked."""
    manifests = [Manifest.read(artefact) for artefact in artefacts]
    if any(manifest and manifest.settings.get("unnamed") for manifest in manifests):  # which does not stay in the store
        yield
        return
    store, keys = min(artefacts).parents[1], {artefact.name for artefact in artefacts}
    copies = {digest for manifest in manifests if manifest for digest in manifest.files.values()}
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    file = store / RUNS / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    before = _read(file)
    _write(file, folder, keys | (before.stages if before else set()), copies | (before.copies if before else set()))
    yield
    _write(file, folder, keys, copies)


def _write(file: Path, folder: Path, keys: AbstractSet[str], copies: AbstractSet[str]) -> None:
    where = {"folder": str(folder.resolve()), "store": store_path(file.parents[1])}
    write_whole(file, json.dumps(where | {"stages": sorted(keys), "copies": sorted(copies)}, indent=1))


def store_path(root: Path) -> str:
    """Return the path by which notes know their store."""
    return str(root.resolve())


def known_runs(root: Path) -> list[Note]:
    """Return the notes of runs whose folders still exist."""
    notes = [_read(file) for file in sorted((root / RUNS).glob("*.json"))]
    return [note for note in notes if note and note.folder.is_dir()]


def _read(file: Path) -> Note | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        stages, copies = (frozenset(map(str, content.get(name, ()))) for name in ("stages", "copies"))
        return Note(file, Path(content["folder"]), str(content.get("store")), stages, copies)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def run_folders(place: Path) -> set[Path]:
    """Return the folders below a place that have a run, or part of one."""
    homes = {path.parent for path in place.rglob(Results.FILE)}
    homes |= {path for path in place.rglob(f"{ASIDE}*") if half_written(path.parent)}
    return {_home(path, place) for path in homes}


def _home(folder: Path, place: Path) -> Path:
    parts = folder.relative_to(place).parts
    half = next((k for k, name in enumerate(parts) if name.startswith(ASIDE)), len(parts))
    return place.joinpath(*parts[:half]).resolve()


@dataclass(frozen=True)
class Named:
    """Which samples the counts and records of a run name, and whether all of these could be read."""

    ids: frozenset[str]
    whole: bool


def named_in(folder: Path) -> Named:
    """Return whom the run in a folder, or what is half-written there, names."""
    ids: set[str] = set()
    whole = True
    half = (path for place in half_written(folder) for path in place.rglob("*.npz"))
    files = {*folder.glob("counts/**/*.npz"), *(path for path in half if not PICTURES & set(path.parts))}
    if (folder / Results.FILE).exists():
        try:
            record = Results.load(folder)
            files |= {folder / audit.counts for *_, audit in record.each_audit()}
            ids |= {name for request in record.scenario.settings.requests for name in request.forget_ids or ()}
        except InputError:
            whole = False
    for file in sorted(files):
        try:
            ids |= set(Counts.load(file).ids)
        except (InputError, OSError):
            whole = False
    return Named(frozenset(ids), whole)
