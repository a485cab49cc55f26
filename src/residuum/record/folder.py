"""The folder of a run: its files, and the hashes by which they are checked.

Notes in a folder of the user's say what else Residuum wrote, for whoever has to delete what was made with a sample.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from residuum.core.counts import Counts
from residuum.core.errors import InputError, plural, warn
from residuum.core.files import ASIDE, LOCK, clear_aside, file_sha256, locked, read_json, remove_files, write_whole
from residuum.record import Audit, Results

PACKS = "packs.txt"  # where evidence packs of the run were written to, a path a line
COPIES = ("counts/**/*.npz", "gallery/*.npz", "models/*/*.safetensors")
STATEMENT = "statement.html"  # for whoever answers a deletion request
REPORT = ("report.html", STATEMENT, "table.tex", "table.csv", "samples.csv")
DECOYS = ("decoys.json", "decoys.html")  # of `audit --decoys`, in the folder of the request's run
SEQUENCE = ("index.html", "requests.csv")  # above the runs of a sequence of requests
HOLDERS = ("counts", "gallery", "models")
TAKEN = (*HOLDERS, "request-*", *SEQUENCE, *REPORT)


def refuse_foreign(folder: Path) -> None:
    """Raise an error if a folder has files where a run would write its own, and no run wrote them."""
    names = _foreign(folder)
    if names and (folder / LOCK).is_file():  # another command may be replacing a run just now
        with locked(folder):
            names = _foreign(folder)
    if names:
        text = f"{folder} has {', '.join(names[:3])} that no run of residuum wrote"
        raise InputError(f"{text}; choose another folder with --out, or move them away")


def _foreign(folder: Path) -> list[str]:
    """Return the names in a folder that a run would take, unless a run of ours is there."""
    unreadable = os.path.lexists(folder / Results.FILE) and _record(folder) is None
    if _records(folder) and not unreadable:
        return []
    runs = {path.name for path in request_folders(folder)}
    names = sorted(path.name for name in TAKEN for path in folder.glob(name))
    begun = {  # nothing is there but what a killed command leaves before it has written a run
        path.name
        for path in folder.glob("request-*")
        if path.is_dir() and all(inner.name.startswith((LOCK, ASIDE)) for inner in path.iterdir())
    }
    ours = {*runs, *(SEQUENCE if runs else ()), *begun}
    return [*([Results.FILE] if unreadable else []), *(name for name in names if name not in ours)]


def _record(place: Path) -> dict[str, Any] | None:
    """Return the record in this place as far as it need be known here, whether or not its numbers are as expected."""
    content = read_json(place / Results.FILE)
    family = Results.SCHEMA.partition("/")[0]
    ours = isinstance(content, dict) and str(content.get("schema")).startswith(f"{family}/")
    return content if ours else None


def _records(folder: Path) -> list[dict[str, Any]]:
    """Return the records in the folder, and in those in which killed processes left the parts of its run."""
    aside = (path for path in folder.glob(f"{ASIDE}*") if path.is_dir() and not path.is_symlink())
    return [record for place in (folder, *aside) if (record := _record(place)) is not None]


def request_folder(out: Path, number: int) -> Path:
    """Return the folder of the run of one request of a sequence, counted from 1."""
    return out / f"request-{number}"


def request_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs of a sequence of requests, in order; none where no sequence was written."""
    runs = {path: number for path in folder.glob("request-*") if (number := _request_number(path)) is not None}
    return sorted(runs, key=runs.__getitem__)


def _request_number(folder: Path) -> int | None:
    """Return the number that the name of a folder has, if a run of a sequence is in it."""
    number = folder.name.removeprefix("request-")
    in_sequence = any(isinstance(record.get("sequence"), dict) for record in _records(folder))
    return int(number) if in_sequence and number.isdecimal() else None


def copied_hashes(folder: Path) -> frozenset[str]:
    """Return the SHA-256 of what the run in a folder copied from a store."""
    return frozenset(str(digest) for record in _records(folder) for digest in dict(record.get("files") or {}).values())


def run_files(folder: Path) -> list[str]:
    """Return the files of a run of ours below its folder: its record first, what that lists, and what reports wrote.

    Nothing that a link leads to outside of the folder is one of them.
    """
    records = _records(folder)
    names = [Results.FILE] if records else []
    names += [name for record in records for name in _listed(record)]
    return [name for name in dict.fromkeys(names) if _is_file_in(folder, name)]


def _listed(record: dict[str, Any]) -> Iterator[str]:
    """Yield the files that a record lists, and those of its report; other names than a run gives are left out."""
    for name in map(str, record.get("files") or ()):
        if name.split("/")[0] in HOLDERS and ".." not in name.split("/"):
            yield name
    yield from REPORT


def _is_file_in(folder: Path, name: str) -> bool:
    path = folder / name
    there = path.is_symlink() or (path.exists() and not path.is_dir())
    return there and path.parent.resolve().is_relative_to(folder.resolve())


def has_run(folder: Path) -> bool:
    """Tell whether a folder has the record of a run."""
    return bool(_records(folder))


def remove_run(folder: Path, *, only_half: bool = False, unreadable: bool = False) -> None:
    """Remove the run and its reports from a folder, and the folder if nothing else is in it.

    With `only_half`, what killed commands left is all that goes. With `unreadable`, a run whose record cannot be read
    goes too: everything that has the name of a run's file. With a run of a sequence go the pages over all of them.
    """
    in_sequence = not only_half and _request_number(folder) is not None
    with locked(folder):
        names = [] if only_half else run_files(folder)
        if unreadable and not names and (folder / Results.FILE).is_file():
            patterns = (Results.FILE, *COPIES, *REPORT)
            names = [path.relative_to(folder).as_posix() for name in patterns for path in folder.glob(name)]
        if names:
            remove_files(folder, [*names, *(name for name in (*DECOYS, PACKS) if _is_file_in(folder, name))])
        clear_aside(folder)
    _remove_if_empty(folder)
    if in_sequence:
        remove_sequence_pages(folder.parent)
        _remove_if_empty(folder.parent)


def _remove_if_empty(folder: Path) -> None:
    if {path.name for path in folder.iterdir()} <= {LOCK}:
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()


def remove_sequence_pages(folder: Path) -> None:
    """Remove the pages over a sequence of requests: they are about runs that change or go."""
    for name in SEQUENCE:
        (folder / name).unlink(missing_ok=True)


def half_written(folder: Path) -> list[Path]:
    """Return the folders in which a process writes, or a killed one wrote, something of a run."""
    aside = (path for path in sorted(folder.glob(f"{ASIDE}*")) if path.is_dir())
    return [path for path in aside if any(file.name != LOCK for file in path.rglob("*") if file.is_file())]


def note_pack(folder: Path, file: Path) -> None:
    """Note in a run's folder where a pack of it is written, so that `residuum forget` can name the pack."""
    packs = noted_packs(folder)
    if file.resolve() not in packs:
        write_whole(folder / PACKS, "".join(f"{path}\n" for path in (*packs, file.resolve())))


def noted_packs(folder: Path) -> list[Path]:
    """Return the packs of a run that are still where they were written to."""
    note = folder / PACKS
    lines = note.read_text(encoding="utf-8").splitlines() if note.is_file() else []
    return [Path(line) for line in lines if Path(line).is_file()]


@dataclass(frozen=True)
class Written:
    """Something that was written outside of a store and of a run's folder; `run` is what it was made from, if known."""

    note: Path
    path: Path
    what: str
    run: Path | None = None


OWN_RUN, REPORT_OF, CARD_OF, WEIGHTS = "run", "report", "model card", "unlearned weights"
DECOY_AUDIT = "decoy audit"
OWN_STORE = "store"  # of finished stages of audits of own models


def notes_folder() -> Path:
    """Return where notes of what was written are kept: below XDG_STATE_HOME, by default ~/.local/state."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "residuum" / "written"


def note_written(path: Path, what: str, run: Path | None = None) -> None:
    """Note a path that was made with samples, so that `residuum forget` can name it; warn if that fails."""
    place, source = path.resolve(), run and run.resolve()
    if source and place.is_relative_to(source):
        return
    content = {"path": str(place), "what": what, "run": source and str(source)}
    try:
        notes_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(_note_of(path, run), json.dumps(content))
    except (OSError, RuntimeError) as error:  # pathlib's where there is no home
        warn(f"cannot note that {place} was written ({error}): residuum forget will not name it; set XDG_STATE_HOME")


def was_noted(path: Path, run: Path) -> bool:
    """Tell whether something made from a run was written here before, or this is in the run's own folder."""
    try:
        return path.resolve().is_relative_to(run.resolve()) or _note_of(path, run).is_file()
    except RuntimeError:
        return False


def _note_of(path: Path, run: Path | None) -> Path:
    pair = f"{path.resolve()}\0{run.resolve() if run else ''}"
    return notes_folder() / f"{hashlib.sha256(pair.encode()).hexdigest()[:32]}.json"


def written_places() -> list[Written]:
    """Return what was noted and is still there."""
    try:
        notes = sorted(notes_folder().glob("*.json"))
    except RuntimeError:
        return []
    entries = []
    for note in notes:
        with suppress(KeyError, TypeError):  # it is no note
            content = read_json(note)
            run = content["run"] and Path(content["run"])
            entries.append(Written(note, Path(content["path"]), str(content["what"]), run))
    return [entry for entry in entries if os.path.lexists(entry.path)]


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def check_files(folder: Path, record: Results) -> None:
    """Raise an error if a file of the run is not what the run wrote; a file that was removed is no error."""
    there = {name: digest for name, digest in record.files.items() if os.path.lexists(folder / name)}
    changed = []
    for name, digest in there.items():
        try:
            sound = file_sha256(folder / name) == digest
        except OSError:  # a folder, a pipe, or a link that leads nowhere
            sound = False
        changed += [] if sound else [name]
    if changed:
        what = f"{folder}: {plural(len(changed), 'file')} not what the run wrote, the first is {changed[0]}"
        raise InputError(f"{what}; give the run's command again")


def check_counts(folder: Path, record: Results) -> None:
    """Raise an error if the counts that a record names cannot be those of its rows.

    Every row has different counts, which give its accuracy on perturbed samples, with as many draws as the settings
    say. All rows of a seed have the same samples and, where they were shown the same inputs, the same answers of the
    reference. A file that was removed is no error.
    """
    names = Counter(path for *_, audit in record.each_audit() for path in counts_files(audit))
    shared = [path for path, many in names.items() if many > 1]
    if shared:
        raise InputError(f"{folder}: expected different counts for every row, got {shared[0]} twice; run it again")
    settings: dict[str, Any] = record.scenario.settings.audit.model_extra or {}
    reference: dict[tuple[str, str, bool], Counts] = {}
    for label, seed, name, audit in record.each_audit():
        where = f"{folder}: {label}, seed {seed}, {name}"
        _check_draws(where, audit, settings)
        for path in counts_files(audit):
            if not os.path.lexists(folder / path):
                continue
            counts, forgotten = Counts.load(folder / path), path == audit.counts
            if forgotten:
                _check_row(where, audit, counts)
            first = reference.setdefault((seed, name, forgotten), counts)
            if counts.ids != first.ids:
                raise InputError(f"{where}: expected the samples of the other rows in {path}; run it again")
            alike = audit.settings.crafted_on in (None, "reference")
            as_often = counts.draws == first.draws
            if alike and np.any((counts.reference_right != first.reference_right) & as_often):
                raise InputError(f"{where}: expected the reference's answers of the other rows in {path}; run it again")


def counts_files(audit: Audit) -> list[str]:
    """Return the paths of an audit's counts."""
    return [path for path in (audit.counts, audit.heldout.counts if audit.heldout else "") if path]


def _check_draws(where: str, audit: Audit, settings: dict[str, Any]) -> None:
    """Refuse numbers of draws that the settings of the audit and of the run do not explain."""
    of_audit = (audit.settings.model_extra or {}).get("draws")
    of_run = None if settings.get("until") else settings.get("draws")
    moved = [draws for tau, draws in zip(audit.taus, audit.draws, strict=True) if tau > 0]
    if of_audit is None:
        return
    if not audit.settings.enumerated and moved and max(moved) != of_audit:
        raise InputError(f"{where}: expected {of_audit} draws, as its settings say, got {max(moved)}; run it again")
    if of_run is not None and of_audit != of_run:
        raise InputError(f"{where}: expected {of_run} draws, as the run's settings say, got {of_audit}; run it again")


def _check_row(where: str, audit: Audit, counts: Counts) -> None:
    """Refuse counts with other draws, or with another share of wrong answers, than the row has."""
    if len(counts.taus) != len(audit.taus) or counts.draws.min(initial=1) < 1:
        raise InputError(f"{where}: expected counts of {len(audit.taus)} radii, got others; run it again")
    if counts.draws.min(axis=0).tolist() != audit.draws:
        raise InputError(f"{where}: expected counts of {audit.draws} draws, got others; run it again")
    wrong = 1 - (counts.method_right / counts.draws).mean(axis=0)
    recorded = audit.curve("unlearn_accuracy").value
    if None not in recorded and not np.allclose(np.array(recorded, float), wrong, rtol=0, atol=1e-9):
        raise InputError(f"{where}: expected the counts that its numbers come from, got others; run it again")
