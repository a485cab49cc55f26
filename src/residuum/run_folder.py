"""The folder of a run: what stands in it beside its record, and the hashes by which that is checked."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from residuum.errors import InputError, plural
from residuum.files import LOCK, clear_aside, file_sha256, locked, read_arrays, remove_named, write_whole
from residuum.record import Audit, Requests, Results, Stored

PACKS = "packs.txt"  # where evidence packs of the run were written to, a path a line
ARRAYS = ("ids", "draws", "method_right", "reference_right")  # of counts, that the record is compared with
REPORT = ("report.html", "table.tex", "table.csv", "samples.csv", "figures")
# beside its record, by kind: what a run wrote, and what reports made of it
BESIDE: dict[type[Stored], tuple[str, ...]] = {
    Results: ("counts", "gallery", "models", "sweep.csv", *REPORT),
    Requests: ("request-*", "index.html", "requests.csv"),
}


def remove_run(folder: Path) -> None:
    """Remove the run and its reports from a folder, and the folder if nothing else is in it."""
    with locked(folder):
        clear_aside(folder)
        for kind, beside in BESIDE.items():
            remove_named(folder, kind.FILE, beside)
        (folder / PACKS).unlink(missing_ok=True)
    if {path.name for path in folder.iterdir()} <= {LOCK}:
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()


def note_pack(folder: Path, file: Path) -> None:
    """Note in a run's folder where a pack of it goes, for whoever has to delete what was made with a sample."""
    known = noted_packs(folder)
    if file.resolve() not in known:
        write_whole(folder / PACKS, "".join(f"{path}\n" for path in (*known, file.resolve())))


def noted_packs(folder: Path) -> list[Path]:
    """Return the packs of a run that are still where they were written to."""
    lines = (folder / PACKS).read_text(encoding="utf-8").splitlines() if (folder / PACKS).is_file() else []
    return [Path(line) for line in lines if Path(line).is_file()]


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def check_files(folder: Path, record: Results) -> None:
    """Raise an error if a file of the run is not what the run wrote; one that was removed is not missed here."""
    there = {name: digest for name, digest in record.files.items() if (folder / name).is_file()}
    changed = [name for name, digest in there.items() if file_sha256(folder / name) != digest]
    if changed:
        what = f"{folder}: {plural(len(changed), 'file')} not what the run wrote, the first is {changed[0]}"
        raise InputError(f"{what}; give the run's command again")


def check_counts(folder: Path, record: Results) -> None:
    """Raise an error if the counts that a record names cannot be those of its rows.

    Every row has counts of its own, which give its accuracy on perturbed samples, with as many draws as the settings
    say. All rows of a seed have the same samples and, where they were shown the same inputs, the same answers of the
    reference. A file that was removed is not missed here.
    """
    names = Counter(path for *_, audit in record.each_audit() for path in _counts_files(audit))
    shared = [path for path, many in names.items() if many > 1]
    if shared:
        raise InputError(f"{folder}: expected counts of its own for every row, got {shared[0]} twice; run it again")
    settings: dict[str, Any] = record.scenario.settings.audit.model_extra or {}
    reference: dict[tuple[str, str, bool], Any] = {}
    for label, seed, name, audit in record.each_audit():
        where = f"{folder}: {label}, seed {seed}, {name}"
        _check_draws(where, audit, settings)
        for path in _counts_files(audit):
            if not (folder / path).is_file():
                continue
            counts, forgotten = read_arrays(folder / path, ARRAYS, "a counts file"), path == audit.counts
            if forgotten:
                _check_row(where, audit, counts)
            first = reference.setdefault((seed, name, forgotten), counts)
            if not np.array_equal(counts["ids"], first["ids"]):
                raise InputError(f"{where}: expected the samples of the other rows in {path}; run it again")
            alike = audit.settings.crafted_on in (None, "reference")
            if alike and np.any((counts["reference_right"] != first["reference_right"]) & _as_often(counts, first)):
                raise InputError(f"{where}: expected the reference's answers of the other rows in {path}; run it again")


def _counts_files(audit: Audit) -> list[str]:
    return [path for path in (audit.counts, audit.heldout.counts if audit.heldout else "") if path]


def _as_often(counts: Any, first: Any) -> Any:  # noqa: ANN401 (arrays)
    return counts["draws"] == first["draws"]


def _check_draws(where: str, audit: Audit, settings: dict[str, Any]) -> None:
    """Refuse numbers of draws that the settings of the audit and of the run do not explain."""
    stated = (audit.settings.model_extra or {}).get("draws")
    moved = [draws for tau, draws in zip(audit.taus, audit.draws, strict=True) if tau > 0]
    if stated is not None and not audit.settings.enumerated and moved and max(moved) != stated:
        raise InputError(f"{where}: expected {stated} draws, as its settings say, got {max(moved)}; run it again")
    asked = None if settings.get("until") else settings.get("draws")
    if stated is not None and asked is not None and stated != asked:
        raise InputError(f"{where}: expected {asked} draws, as the run's settings say, got {stated}; run it again")


def _check_row(where: str, audit: Audit, counts: Any) -> None:  # noqa: ANN401 (arrays)
    """Refuse counts with other draws, or with another share of wrong answers, than the row has."""
    if counts["draws"].shape != (len(counts["ids"]), len(audit.taus)) or counts["draws"].min(initial=1) < 1:
        raise InputError(f"{where}: expected counts of {len(audit.taus)} radii, got others; run it again")
    if counts["draws"].min(axis=0).tolist() != audit.draws:
        raise InputError(f"{where}: expected counts of {audit.draws} draws, got others; run it again")
    wrong = 1 - (counts["method_right"] / counts["draws"]).mean(axis=0)
    stated = audit.curve("unlearn_accuracy").value
    if None not in stated and not np.allclose(np.array(stated, float), wrong, rtol=0, atol=1e-9):
        raise InputError(f"{where}: expected the counts that its numbers come from, got others; run it again")
