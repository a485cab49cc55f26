"""Which folders hold copies of a store's artefacts: every run notes its own before it writes there; others are read."""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from residuum.auditing import Counts
from residuum.experiments.runner import Result
from residuum.files import write_whole
from residuum.record import Results
from residuum.types import InputError

RUNS = "runs"


@dataclass(frozen=True)
class KnownRun:
    """The folder of a run and the keys of the stages that it was made from; `note` is where a store keeps this.

    A run that no store knows, of models made elsewhere, has no note; `named` are those of the ids looked for in it.
    """

    note: Path | None
    folder: Path
    stages: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


@contextmanager
def noted(folder: Path, results: Sequence[Result]) -> Iterator[None]:
    """Note that a folder gets what came of these results; afterwards, that it has nothing else. It is locked."""
    artefacts = [artefact for result in results for artefact in result.artefacts]
    if not artefacts:  # models that were made elsewhere
        yield
        return
    store, keys = artefacts[0].parents[1], {artefact.name for artefact in artefacts}
    note = store / RUNS / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]}.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    before = _read(note)
    _write(note, folder, keys | (before.stages if before else set()))
    yield
    _write(note, folder, keys)


def _write(note: Path, folder: Path, keys: AbstractSet[str]) -> None:
    write_whole(note, json.dumps({"folder": str(folder.resolve()), "stages": sorted(keys)}, indent=1))


def known_runs(store: Path) -> list[KnownRun]:
    """Return the runs whose folders still exist."""
    found = [_read(note) for note in sorted((store / RUNS).glob("*.json"))]
    return [run for run in found if run and run.folder.is_dir()]


def runs_naming(place: Path, ids: Collection[str]) -> list[KnownRun]:
    """Return the runs below a folder whose counts are of one of these samples, or cannot be read."""
    found = []
    for file in sorted(place.rglob(Results.FILE)):
        named = _ids_counted(file.parent)
        if named is None or not named.isdisjoint(ids):
            found.append(KnownRun(None, file.parent.resolve(), named=(named or frozenset()) & set(ids)))
    return found


def _ids_counted(folder: Path) -> frozenset[str] | None:
    try:
        files = [audit.counts for *_, audit in Results.load(folder).each_audit()]
        return frozenset(name for file in files for name in Counts.load(folder / file).ids)
    except (InputError, OSError):
        return None


def _read(note: Path) -> KnownRun | None:
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        return KnownRun(note, Path(content["folder"]), frozenset(map(str, content["stages"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
