"""Weights to start from: which file, its hash, and which samples they have seen."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from residuum.auditing import Manifest, read_manifest
from residuum.core.errors import InputError, warn
from residuum.core.files import file_sha256, read_json


class KnownFile(BaseModel):
    """A file and the SHA-256 of its content: with it in a stage's settings, no other file serves, wherever it lies."""

    model_config = ConfigDict(frozen=True)
    path: Path = Field(exclude=True)
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the file with the hash of its content now."""
        try:
            return cls(path=path.resolve(), sha256=file_sha256(path))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; give the path of a file") from error

    def checked_path(self) -> Path:
        """Return the path, or an error if the file's content is another by now."""
        if self.read(self.path).sha256 != self.sha256:
            raise InputError(f"{self.path} has changed since the run was planned; start the run again")
        return self.path

    def named(self) -> dict[str, str]:
        """Return the file's name and hash for a record."""
        return {"file": self.path.name, "sha256": self.sha256}


class Pretrained(BaseModel):
    """The weights that all models start from, and the manifest of the samples that these have seen."""

    model_config = ConfigDict(frozen=True)
    weights: KnownFile
    manifest: KnownFile | None

    def ids_seen(self) -> Manifest | None:
        """Return the manifest, None where there is none."""
        return None if self.manifest is None else read_manifest(self.manifest.checked_path())

    def seen(self) -> dict[str, Manifest]:
        """Return which samples the weights saw in pre-training, for the audit; warn if there is no manifest."""
        if seen := self.ids_seen():
            return {"pre-training": seen}
        warn(
            "the weights to start from have no manifest: whether the reference has seen the forgotten samples in "
            "pre-training is not known; give one with --manifest"
        )
        return {}


def find_manifest(weights: Path | None, manifest: Path | None) -> Path | None:
    """Return this manifest, or else the file with the name of the weights and the suffix .json, if it is one."""
    if manifest is not None:
        if weights is None:
            raise InputError(f"a manifest says what weights have seen; give them with --init-from, besides {manifest}")
        KnownFile.read(manifest)
        read_manifest(manifest)
        return manifest
    if weights is None or not (file := weights.with_suffix(".json")).is_file():
        return None
    content = read_json(file)
    is_manifest = isinstance(content, dict) and str(content.get("schema")).startswith("residuum.manifest/")
    return file if is_manifest else None
