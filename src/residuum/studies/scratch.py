"""What an unfinished stage keeps: the ids it may read and how far it is, each in a file named by its own hash."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from residuum.core.console import say
from residuum.training.checkpoint import Checkpoint

FOLDER = "scratch"  # in a store: a folder for each unfinished stage, named by its key
IDS = "ids.txt"


def seal(path: Path) -> Path:
    """Give a file a name with the hash of its folder's name and its content; return its new path.

    The folder's name is the stage's key: a file of another stage is as wrong as a changed one.
    """
    return path.rename(path.with_name(f"{path.stem}-{_hash(path)}{path.suffix}"))


def is_sealed(path: Path) -> bool:
    """Tell whether a file is what was sealed, where it was sealed."""
    return path.is_file() and path.stem.rpartition("-")[2] == _hash(path)


def unsealed_files(folder: Path) -> list[str]:
    """Return the names of the files that are not what was written; those not finished begin with a dot."""
    return sorted(path.name for path in folder.glob("[!.]*") if not is_sealed(path))


def _hash(path: Path) -> str:
    digest = hashlib.sha256(path.parent.name.encode() + b"\0")
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()[:32]


def write_ids(folder: Path, ids: Iterable[str]) -> None:
    """Note the ids of all samples that a stage may read, so that what it leaves when it is killed can be told."""
    if read_ids(folder) is None:
        (folder / IDS).write_text("".join(f"{sample_id}\n" for sample_id in ids), encoding="utf-8")
        seal(folder / IDS)


def read_ids(folder: Path) -> frozenset[str] | None:
    """Return the ids that were noted; None where none are, or not as they were written."""
    found = [path for path in folder.glob("ids-*.txt") if is_sealed(path)]
    return frozenset(found[0].read_text(encoding="utf-8").splitlines()) if found else None


def has_checkpoint(folder: Path) -> bool:
    """Tell whether there is something to go on with."""
    return any(folder.glob("*-*.pt"))


@dataclass
class SealedCheckpoint(Checkpoint):
    """A checkpoint that a stage goes on from only if every byte is as it was saved."""

    def _write(self, content: memoryview) -> None:
        """Write and seal the state; the one before is kept until this one is whole."""
        super()._write(content)
        newest = seal(self.path)
        for older in set(self._sealed()) - {newest}:
            older.unlink(missing_ok=True)

    def _newest(self) -> Path | None:
        """Return the file that was sealed last; one that has changed is left out, and one that never was sealed."""
        found = self._sealed()
        unsealed = [self.path] if self.path.is_file() else []
        for path in [*unsealed, *(path for path in found if not is_sealed(path))]:
            say(f"{path} is not the checkpoint that was written and is left out; its work starts again")
        whole = [path for path in found if is_sealed(path)]
        return max(whole, key=lambda path: path.stat().st_mtime_ns, default=None)

    def _sealed(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}-*{self.path.suffix}"))
