"""Looking after a store: list it, verify it, clear out what nobody can use, and forget what was made with given ids."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from residuum.experiments.stages import IDS, SCRATCH, STAGES, code_of
from residuum.experiments.store import MANIFEST, WRITING, Store, broken_artefacts, manifest_of
from residuum.types import InputError


@dataclass(frozen=True)
class Artefact:
    """A finished stage in a store."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        """The stage's content key."""
        return self.folder.name

    @property
    def title(self) -> str:
        """What a person calls it."""
        return str(self.manifest["title"])

    @property
    def made(self) -> datetime:
        """When it was finished."""
        return datetime.fromtimestamp((self.folder / MANIFEST).stat().st_mtime, UTC)

    @property
    def current(self) -> bool:
        """Whether the installed code would still give it this key."""
        kind, settings = self.manifest["kind"], self.manifest["settings"]
        try:
            return bool(self.manifest["code"] == code_of(kind, settings))
        except (InputError, KeyError):
            return False  # made by a method or a stage that is no longer installed

    def ids(self) -> frozenset[str]:
        """Return the ids of all samples that the stage read."""
        return frozenset((self.folder / IDS).read_text(encoding="utf-8").splitlines())

    def record(self) -> dict[str, Any]:
        """Return the entry for machine-readable output."""
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        made = self.made.isoformat(timespec="seconds")
        return {"key": self.key, "title": self.title, "bytes": size, "made": made, "current": self.current}


def artefacts(root: Path) -> list[Artefact]:
    """Return what a store holds, oldest first; folders without a readable manifest are left to `leftovers`."""
    if not root.is_dir():
        raise InputError(f"expected a store folder, got {root}, which does not exist; name it with --store")
    found = [Artefact(folder, manifest_of(folder)) for folder in _folders(root) if _is_whole(folder)]
    return sorted(found, key=lambda artefact: (artefact.made, artefact.key))


def leftovers(root: Path) -> list[Path]:
    """Return the half-written folders that no run is working on: a killed run left them."""
    half = [folder for folder in _folders(root) if not _is_whole(folder)] + sorted((root / SCRATCH).glob("*"))
    return [folder for folder in half if not Store(root).busy(_key_of(folder))]


def _folders(root: Path) -> list[Path]:
    return [folder for kind in STAGES for folder in sorted((root / kind).glob("*")) if folder.is_dir()]


def _is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and not folder.name.startswith(WRITING)


def _key_of(folder: Path) -> str:
    return folder.name.removeprefix(WRITING).partition("-")[0]


def verify(root: Path) -> dict[str, list[str]]:
    """Return the broken files of every artefact that is not what was written, by key."""
    checked = {artefact.key: broken_artefacts(artefact.folder) for artefact in artefacts(root)}
    return {key: broken for key, broken in checked.items() if broken}


def collect_garbage(root: Path, *, dry_run: bool = False) -> list[str]:
    """Remove half-written folders and artefacts that the installed code would never use; return what they were."""
    half, stale = leftovers(root), [artefact for artefact in artefacts(root) if not artefact.current]
    for folder in () if dry_run else (*half, *(artefact.folder for artefact in stale)):
        shutil.rmtree(folder)
    return [*(f"half-written {_key_of(folder)}" for folder in half), *(artefact.title for artefact in stale)]


def made_with(root: Path, ids: Collection[str]) -> list[Artefact]:
    """Return the artefacts that read one of these samples, or were made from one that did."""
    wanted, everything = frozenset(ids), artefacts(root)
    tainted = {artefact.key for artefact in everything if artefact.ids() & wanted}
    while more := {a.key for a in everything if tainted & set(a.manifest["parents"].values())} - tainted:
        tainted |= more
    return [artefact for artefact in everything if artefact.key in tainted]


def forget(root: Path, ids: Collection[str], *, dry_run: bool = False) -> list[Artefact]:
    """Remove the artefacts made with these samples; return them."""
    if not ids:
        raise InputError("expected at least one id to forget, got none")
    doomed = made_with(root, ids)
    for artefact in () if dry_run else doomed:
        shutil.rmtree(artefact.folder)
    return doomed
