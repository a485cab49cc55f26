"""The manifest of an artefact: what its key is the hash of, the hash of every file, and a seal over both."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from residuum.files import file_sha256

MANIFEST = "manifest.json"


def digest(content: Mapping[str, Any]) -> str:
    """Return the hash of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def key_of(content: Mapping[str, Any]) -> str:
    """Return the key of a stage from everything its result depends on."""
    return digest(content)[:32]


class Manifest(BaseModel):
    """What is known of a finished stage; `kind`, `settings`, `parents` and `code` are the content of its key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    settings: dict[str, Any]
    parents: dict[str, str]
    code: str
    title: str
    name: str
    files: dict[str, str]
    seal: str = ""

    @classmethod
    def describe(cls, folder: Path, content: Mapping[str, Any], *, title: str, name: str) -> Self:
        """Return the sealed manifest of the files that a stage left in a folder."""
        hashes = {file: file_sha256(folder / file) for file in sorted(file_names(folder))}
        plain = cls(**content, title=title, name=name, files=hashes)
        return plain.model_copy(update={"seal": plain.expected_seal})

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the manifest of a folder if it is whole and belongs there; None if its word cannot be taken."""
        try:
            found = cls.model_validate(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return None
        in_place = (found.kind, found.key) == (folder.parent.name, folder.name)
        return found if in_place and found.seal == found.expected_seal else None

    def write(self, folder: Path) -> None:
        """Write manifest.json, and see that all files of the folder are on the disk."""
        (folder / MANIFEST).write_text(json.dumps(self.model_dump(), indent=1), encoding="utf-8")
        for name in file_names(folder):
            with (folder / name).open("rb+") as file:
                os.fsync(file.fileno())

    @property
    def key(self) -> str:
        """The key that this content has."""
        return key_of(self.model_dump(include={"kind", "settings", "parents", "code"}))

    @property
    def expected_seal(self) -> str:
        """The hash of everything else, so that a manifest cannot change unseen either."""
        return digest(self.model_dump(exclude={"seal"}))

    def broken(self, folder: Path) -> list[str]:
        """Return the files that are missing, unknown, or not what was written."""
        there = file_names(folder) - {MANIFEST}
        known = self.files.keys()
        changed = {name for name in there & known if file_sha256(folder / name) != self.files[name]}
        return sorted(changed | (there ^ known))


def file_names(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def broken_artefacts(folder: Path) -> list[str]:
    """Return the files of an artefact that are not what was written; its manifest, if that is not to be trusted."""
    manifest = Manifest.read(folder)
    return [MANIFEST] if manifest is None else manifest.broken(folder)
