"""Weights to start from: which file, its hash, and what is known of the samples they have seen."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from residuum.auditing import Manifest, read_manifest
from residuum.types import InputError, ResiduumWarning


def identified(path: Path) -> dict[str, str]:
    """Return where a file lies and the SHA-256 of its content: with it in a stage's settings, no other file serves."""
    try:
        with path.open("rb") as file:
            return {"path": str(path.resolve()), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give the path of a file") from error


def same_file(known: Mapping[str, str]) -> Path:
    """Return the path of an identified file, or an error if its content is another by now."""
    path = Path(known["path"])
    if identified(path)["sha256"] != known["sha256"]:
        raise InputError(f"{path} has changed since the run was planned; start the run again")
    return path


def find_manifest(weights: Path | None, given: Path | None) -> Path | None:
    """Return the manifest that was given, or else the one beside the weights: the same name with .json."""
    if given is not None:
        if weights is None:
            raise InputError(f"a manifest says what weights have seen; give them with --init-from beside {given}")
        identified(given)
        read_manifest(given)
        return given
    beside = weights.with_suffix(".json") if weights is not None else None
    return beside if beside is not None and beside.is_file() and _is_manifest(beside) else None


def _is_manifest(path: Path) -> bool:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(stored, dict) and str(stored.get("schema")).startswith("residuum.manifest/")


def seen_in_pretraining(pretrained: Mapping[str, Any] | None) -> dict[str, Manifest]:
    """Return what the audit must know of pre-training; warn if weights were loaded and nobody says what they saw."""
    if pretrained is None:
        return {}
    if pretrained["manifest"] is None:
        warnings.warn(
            "the weights to start from have no manifest: whether the reference has seen the forgotten samples in "
            "pre-training is not known; give one with --manifest",
            ResiduumWarning,
            stacklevel=2,
        )
        return {}
    return {"pre-training": read_manifest(same_file(pretrained["manifest"]))}
