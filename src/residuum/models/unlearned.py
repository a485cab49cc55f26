"""Which samples a model has unlearned: hashes of their ids, on the model and in a note beside its weights."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from residuum.core.errors import InputError
from residuum.core.files import regular_file, write_whole

ATTRIBUTE = "residuum_unlearned"
SCHEMA = "residuum.unlearned/1"


@dataclass(frozen=True)
class UnlearnedIds:
    """Keyed hashes of ids. A search does not reveal the ids, but whoever guesses one can confirm it.

    >>> "b" in UnlearnedIds("0a").extended(["a", "b"])
    True
    """

    salt: str
    hashes: frozenset[str] = frozenset()

    def _hashed(self, sample_id: str) -> str:
        return hashlib.blake2b(sample_id.encode(), key=self.salt.encode(), digest_size=8).hexdigest()

    def __contains__(self, sample_id: object) -> bool:
        return self._hashed(str(sample_id)) in self.hashes

    def extended(self, ids: Iterable[str]) -> UnlearnedIds:
        """Return these ids and others."""
        return UnlearnedIds(self.salt, self.hashes | {self._hashed(sample_id) for sample_id in ids})


def mark_unlearned(model: nn.Module, start: nn.Module, ids: Collection[str]) -> None:
    """Note on the model that it unlearned these ids, in addition to those that `start` had unlearned."""
    before = unlearned_ids(start) or UnlearnedIds(secrets.token_hex(16))
    setattr(model, ATTRIBUTE, before.extended(ids))


def unlearned_ids(model: nn.Module) -> UnlearnedIds | None:
    """Return the ids that the model has unlearned; None without a note."""
    return getattr(model, ATTRIBUTE, None)


def write_note(model: nn.Module, weights: Path | str) -> None:
    """Write the note beside a weights file, if there is anything to note."""
    if (ids := unlearned_ids(model)) is not None:
        note = {"schema": SCHEMA, "salt": ids.salt, "hashes": sorted(ids.hashes)}
        write_whole(note_path(weights), json.dumps(note, indent=1) + "\n")


def read_note(model: nn.Module, weights: Path | str) -> None:
    """Put the note beside a weights file, if there is one, on the model that has these weights."""
    path = note_path(weights)
    if not path.exists():
        return
    try:
        note = json.loads(regular_file(path).read_text(encoding="utf-8"))
        sound = note["schema"] == SCHEMA and 0 < len(note["salt"].encode()) <= hashlib.blake2b.MAX_KEY_SIZE
        ids = UnlearnedIds(note["salt"], frozenset(map(str, note["hashes"])))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise InputError(f"{path}: expected the note of an unlearning ({SCHEMA}), got another file; move it away")
    setattr(model, ATTRIBUTE, ids)


def note_path(weights: Path | str) -> Path:
    """Return where the note of a weights file is.

    >>> note_path("runs/new.pt").name
    'new.pt.unlearned.json'
    """
    return Path(f"{weights}.unlearned.json")
