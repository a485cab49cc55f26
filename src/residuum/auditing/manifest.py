"""Manifests: which samples a set of pre-trained weights has seen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from residuum.types import InputError

SCHEMA = "residuum.manifest/1"


@dataclass(frozen=True)
class Manifest:
    """The ids that pre-training saw: those listed as seen, or else all that are not listed as unseen.

    >>> "b" in Manifest(unseen=frozenset("a")), "a" in Manifest(unseen=frozenset("a"))
    (True, False)
    """

    seen: frozenset[str] | None = None
    unseen: frozenset[str] = frozenset()

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self.seen if self.seen is not None else sample_id not in self.unseen


def read_manifest(path: str | Path) -> Manifest:
    """Read a manifest (JSON with `schema` and either `seen_ids` or `unseen_ids`)."""
    try:
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a manifest in JSON, got {error}") from error
    lists = [key for key in ("seen_ids", "unseen_ids") if isinstance(stored, dict) and key in stored]
    if len(lists) != 1 or stored.get("schema") != SCHEMA:
        raise InputError(f"{path}: expected schema {SCHEMA!r} and either seen_ids or unseen_ids")
    ids = frozenset(map(str, stored[lists[0]]))
    return Manifest(seen=ids) if lists[0] == "seen_ids" else Manifest(unseen=ids)
