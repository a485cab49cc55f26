"""The folder of a run: what stands in it beside its record, and the hashes by which that is checked."""

from pathlib import Path

from residuum.errors import InputError, plural
from residuum.files import LOCK, clear_aside, file_sha256, locked, remove_named, write_whole
from residuum.record import Requests, Results, Stored

PACKS = "packs.txt"  # where evidence packs of the run were written to, a path a line
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
