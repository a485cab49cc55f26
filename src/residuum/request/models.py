"""Unlearned models of a request, and the notes that are saved with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.files import file_sha256
from residuum.models import save_state
from residuum.models.weights import UnlearnedIds, read_making, unlearned_ids, write_note
from residuum.record.audits import Part
from residuum.record.folder import WEIGHTS, note_written
from residuum.studies.retraining import MadeModel
from residuum.unlearning import first_problem


@dataclass(frozen=True)
class Unlearned(MadeModel):
    """An unlearned model, wrapped as the original was, and how it was made; calling it asks the model.

    `before` and `after` hold accuracy in per cent on the `retain` set and, where there are any, on `validation` and
    `held_out` samples of its classes. `decoys` are the samples that were forgotten with the request for a decoy audit.
    """

    label: str = ""
    seed: int = 0
    identity: str = ""  # hash of everything that decided it, if that can be told
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    decoys: UnlearnedIds | None = None

    def __str__(self) -> str:
        """Say which accuracy it had and has."""
        parts = [
            f"{name.replace('_', '-')} accuracy {self.before[name]:.1f} % before, {self.after[name]:.1f} % after"
            for name in self.before
        ]
        again = self.notes.get("second_start_keep")
        start = f"; started a second time, from {again:g} of the original, because accuracy was lost" if again else ""
        return f"{self.label}: {'; '.join(parts)}{start}"

    def __call__(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def save(self, path: Path | str) -> Path:
        """Write the weights under the keys of your own state dict: .safetensors, or .pt; return the path.

        The note PATH.unlearned.json holds hashes of the forgotten ids and how the model was made.
        `wrap(..., weights=PATH)` reads it, so that a later request that retains these samples again gets a warning.
        """
        save_state(self.model, path)
        fields = {name: getattr(self, name) for name in SavedNote.model_fields if name not in ("sha256", "decoys")}
        decoys = None if self.decoys is None else sorted(self.decoys.hashes)
        note = SavedNote(**fields, decoys=decoys, sha256=file_sha256(Path(path)))
        write_note(self.model, path, note.model_dump(mode="json"))
        note_written(Path(path), WEIGHTS)
        return Path(path)


class SavedNote(Part):
    """How an unlearned model was made: the note of its weights, whose hash is `sha256`.

    `decoys` has their hashes, keyed as those of all forgotten ids.
    """

    sha256: str
    method: str
    label: str
    seed: int
    identity: str
    settings: dict[str, Any]
    seconds: float
    passes: int
    notes: dict[str, Any]
    warnings: tuple[str, ...]
    unchanged: bool
    before: dict[str, float]
    after: dict[str, float]
    decoys: list[str] | None = None


def saved_unlearned(model: nn.Module, path: Path) -> Unlearned | nn.Module:
    """Return how the model of a weights file was unlearned, if its note says so, or the model alone."""
    content = read_making(path)
    if content is None or content.get("sha256") != file_sha256(path):
        return model
    try:
        note = SavedNote.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}.unlearned.json: {first_problem(error)}; move it away") from None
    fields = {name: getattr(note, name) for name in SavedNote.model_fields if name not in ("sha256", "decoys")}
    noted = unlearned_ids(model)
    keyed = None if note.decoys is None or noted is None else UnlearnedIds(noted.salt, frozenset(note.decoys))
    return Unlearned(model, **fields, decoys=keyed)


def first_channels(model: nn.Module) -> int | None:
    """Return how many channels the first convolution of a network takes; None without one.

    >>> first_channels(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)))
    1
    """
    return next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)
