"""Which folders hold copies of a store's artefacts: every run notes its own before it writes there."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from residuum.experiments.runner import Result
from residuum.files import write_whole

RUNS = "runs"


@dataclass(frozen=True)
class KnownRun:
    """The folder of a run and the keys of the stages that it was made from; `note` is where a store keeps this."""

    note: Path
    folder: Path
    stages: frozenset[str]


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


def _read(note: Path) -> KnownRun | None:
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        return KnownRun(note, Path(content["folder"]), frozenset(map(str, content["stages"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
