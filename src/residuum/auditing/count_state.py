"""What an audit has counted so far, and the checkpoint from which a stopped one resumes."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.stream import DrawBatch, Schedule, Span
from residuum.core.counts import Integers
from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data.dataset import add_samples
from residuum.models.weights import state_hash
from residuum.training.checkpoint import Checkpoint, State


class Outcome(NamedTuple):
    """What one model, the reference and, if it is asked, the original predict for a batch at the radius `column`."""

    column: int
    key: int
    predicted: Tensor
    reference: Tensor
    original: Tensor | None


@dataclass
class CountState:
    """Batches shown, predictions made, and the counts of each model, by its key; `spans` are the draws of each radius.

    `patterns`, int32 of shape (n, T, 8), has the draws of each pattern 4 [original right] + 2 [model right] +
    [reference right]; `same`, of shape (n, T), those on which model and reference give the same answer.
    """

    spans: tuple[Span, ...]
    patterns: dict[int, Integers]
    same: dict[int, Integers]
    batches: int = 0
    passes: int = 0

    @classmethod
    def begin(cls, schedule: Schedule, keys: Iterable[int]) -> "CountState":
        """Return the state before the first batch."""
        shape, keys = (len(schedule.samples), len(schedule.taus)), list(keys)
        patterns = {key: np.zeros((*shape, 8), np.int32) for key in keys}
        return cls(schedule.spans, patterns, {key: np.zeros(shape, np.int32) for key in keys})

    def add(self, batch: DrawBatch, outcomes: Iterable[Outcome], passes: int) -> None:
        """Add what the models answered for one more batch."""
        rows = batch.positions
        for column, key, predicted, reference, original in outcomes:
            n = len(self.same[key])
            before = torch.zeros_like(rows) if original is None else (original == batch.y).int()
            pattern = 8 * rows + 4 * before + 2 * (predicted == batch.y).int() + (reference == batch.y).int()
            self.patterns[key][:, column] += torch.bincount(pattern, minlength=8 * n).view(n, 8).int().numpy()
            self.same[key][:, column] += torch.bincount(rows[predicted == reference], minlength=n).int().numpy()
        self.batches += 1
        self.passes += passes

    def state(self) -> State:
        """Return what `resume` needs."""
        counts = {"patterns": self.patterns, "same": self.same}
        tensors = {name: [torch.from_numpy(array) for array in by_key.values()] for name, by_key in counts.items()}
        return {"spans": [list(span) for span in self.spans], "batches": self.batches, "passes": self.passes, **tensors}

    def resume(self, state: State) -> None:
        """Resume from this state, unless it is of other draws: another pilot may have asked for them."""
        if state["spans"] != [list(span) for span in self.spans]:
            return
        self.patterns, self.same = (
            {key: array.numpy() for key, array in zip(self.same, state[name], strict=True)}
            for name in ("patterns", "same")
        )
        self.batches, self.passes = state["batches"], state["passes"]


@dataclass
class SavedCounts:
    """The states of an audit, one set of samples and draws after the other, in one checkpoint.

    `identity` says which audit it is.
    """

    identity: str
    checkpoint: Checkpoint
    earlier: list[State] = field(init=False)
    finished: list[State] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        state = self.checkpoint.restore() or {"identity": self.identity, "states": []}
        if state["identity"] != self.identity:
            where = self.checkpoint.path
            raise InputError(f"expected the checkpoint of the same audit, got another's: {where}; name another file")
        self.earlier = state["states"]

    def resume(self, state: CountState) -> None:
        """Let the next state resume where it was stopped, if it had begun."""
        if len(self.finished) < len(self.earlier):
            state.resume(self.earlier[len(self.finished)])

    def save_if_due(self, state: CountState) -> None:
        """Save all states, the last one unfinished, unless the checkpoint was written lately."""
        self.checkpoint.save(lambda: {"identity": self.identity, "states": [*self.finished, state.state()]})

    def finish(self, state: CountState) -> None:
        """End this state; the next one is of another set of samples or draws."""
        self.finished.append(state.state())


def identity(facts: Sequence[object], models: Iterable[nn.Module], shown: Iterable[Samples]) -> str:
    """Return a hash of all that decides what is counted: settings, networks with their weights, and samples."""
    text = json.dumps(facts, sort_keys=True, default=lambda thing: type(thing).__qualname__)
    digest = hashlib.sha256(text.encode())
    for model in models:
        digest.update(f"{model}{state_hash(model.state_dict())}".encode())
    for samples in shown:
        add_samples(digest, samples)
    return digest.hexdigest()
