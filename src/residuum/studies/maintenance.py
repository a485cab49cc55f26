"""Looking after a store: list it, verify it, and clear out what nobody can use."""

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import Timeout

from residuum.core.errors import InputError
from residuum.core.files import file_sha256
from residuum.studies import scratch
from residuum.studies.manifest import MANIFEST, Manifest, broken_artefacts
from residuum.studies.stages import IDS, STAGES, code_of
from residuum.studies.store import WRITING, Store

STRAY = "not written by residuum"


@dataclass(frozen=True)
class Artefact:
    """A finished stage in a store."""

    folder: Path

    @property
    def key(self) -> str:
        """The stage's content key."""
        return self.folder.name

    @cached_property
    def manifest(self) -> Manifest | None:
        """What it was made from; None where the manifest is damaged or not this artefact's."""
        return Manifest.read(self.folder)

    @property
    def title(self) -> str:
        """What a person calls it."""
        unreadable = f"{self.folder.parent.name} {self.key}, whose manifest cannot be trusted"
        return self.manifest.title if self.manifest else unreadable

    @property
    def made(self) -> datetime:
        """When it was finished."""
        return datetime.fromtimestamp((self.folder / MANIFEST).stat().st_mtime, UTC)

    @property
    def current(self) -> bool:
        """Whether the installed code would still give it this key."""
        if self.manifest is None or self.manifest.settings.get("unnamed"):
            return False
        try:
            return self.manifest.code == code_of(self.manifest.settings)
        except (InputError, KeyError):
            return False  # made by a method or a stage that is no longer installed

    @cached_property
    def ids(self) -> frozenset[str] | None:
        """The ids of all samples that the stage read; None where that cannot be told."""
        path = self.folder / IDS
        if self.manifest is None or not path.is_file() or file_sha256(path) != self.manifest.files.get(IDS):
            return None
        return frozenset(path.read_text(encoding="utf-8").splitlines())

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The deletion requests that the stage knows of, in order."""
        return list(self.manifest.settings.get("requests", ())) if self.manifest else []

    def record(self) -> dict[str, Any]:
        """Return the entry for machine-readable output."""
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        made = self.made.isoformat(timespec="seconds")
        return {"key": self.key, "title": self.title, "bytes": size, "made": made, "current": self.current}


def artefacts(root: Path) -> list[Artefact]:
    """Return what a store holds, oldest first; folders without a manifest are left to `leftovers`."""
    found = [Artefact(folder) for folder in _folders(root) if _is_whole(folder)]
    return sorted(found, key=lambda artefact: (artefact.made, artefact.key))


def leftovers(root: Path) -> list[Path]:
    """Return the half-written folders that no run is working on: a killed run left them."""
    half = [folder for folder in _folders(root) if not _is_whole(folder)] + _unfinished(root)
    return [folder for folder in half if not Store(root).busy(key_in(folder))]


def strays(root: Path) -> list[Path]:
    """Return the files and links that stand where a store has folders only."""
    return [path for path in _entries(root) if path.is_symlink() or not path.is_dir()]


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise InputError(f"expected a store folder, got {root}, which does not exist; name it with --store")
    return [path for path in _entries(root) if path.is_dir() and not path.is_symlink()]


def _entries(root: Path) -> list[Path]:
    return [path for kind in STAGES for path in sorted((root / kind).glob("*"))]


def _unfinished(root: Path) -> list[Path]:
    return [path for path in sorted((root / scratch.FOLDER).glob("*")) if path.is_dir()]


def _is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and not folder.name.startswith(WRITING)


def key_in(folder: Path) -> str:
    """Return the key of the stage that a half-written folder belongs to."""
    return folder.name.removeprefix(WRITING).partition("-")[0]


def verify(root: Path) -> dict[str, list[str]]:
    """Return the broken files of every artefact and checkpoint that is not what was written, by key, and strays."""
    checked = {artefact.key: broken_artefacts(artefact.folder) for artefact in artefacts(root)}
    for folder in _unfinished(root):
        if broken := scratch.unsealed_files(folder):
            checked[folder.name] = [*checked.get(folder.name, []), *broken]
    checked |= {path.relative_to(root).as_posix(): [STRAY] for path in strays(root)}
    return {key: broken for key, broken in checked.items() if broken}


def collect_garbage(root: Path, *, dry_run: bool = False) -> list[str]:
    """Remove half-written folders and artefacts that the installed code would never use; return what they were.

    A run that is under way is an error: it could be about to use them. What a single stage is working on stays.
    """
    artefacts(root)  # a store that does not exist is not made
    store, removed = Store(root), []
    with nullcontext() if dry_run else store.alone(stages=True):
        half = {folder: f"half-written {key_in(folder)}" for folder in leftovers(root)}
        stale = {artefact.folder: artefact.title for artefact in artefacts(root) if not artefact.current}
        if dry_run:
            return [*half.values(), *stale.values()]
        for folder, title in (half | stale).items():
            with suppress(Timeout), store.lock(key_in(folder)).acquire(blocking=False):  # else somebody began with it
                if folder.exists() and (folder in stale or not _is_whole(folder)):
                    store.remove([folder])
                    removed.append(title)
    return removed


def remove_subject(root: Path, identity: str) -> None:
    """Remove what was computed for a request whose objects no other process can tell to be the same."""
    doomed = [
        one.folder for one in artefacts(root) if one.manifest and one.manifest.settings.get("identity") == identity
    ]
    Store(root).remove(doomed)
