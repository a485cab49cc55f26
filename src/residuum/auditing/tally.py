"""The tally: what an audit has counted so far, which a stopped one goes on from."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.counts import INTEGER_FIELDS, METHOD, REFERENCE, Integers
from residuum.auditing.stream import Group, Span, Work
from residuum.checkpoint import Checkpoint, State
from residuum.data.dataset import add_samples
from residuum.models.weights import state_hash
from residuum.types import InputError, Samples


class Outcome(NamedTuple):
    """What one model, the reference and, where it is known, the original predict for a group at the radius `column`."""

    column: int
    key: int
    predicted: Tensor
    reference: Tensor
    original: Tensor | None


@dataclass
class Tally:
    """Groups shown, predictions made, and the sums of each model, by its key; `spans` are the draws of each radius."""

    spans: tuple[Span, ...]
    sums: dict[int, dict[str, Integers]]
    groups: int = 0
    passes: int = 0

    @classmethod
    def begin(cls, work: Work, keys: Iterable[int], *, joint: bool) -> "Tally":
        """Return the tally of nothing; `joint` sums are those with the original's answers."""
        shape = (len(work.samples), len(work.taus))
        shapes = dict.fromkeys(INTEGER_FIELDS, shape) | ({"joint": (*shape, 8)} if joint else {})
        return cls(work.spans, {key: {name: np.zeros(size, np.int32) for name, size in shapes.items()} for key in keys})

    def go_on(self, state: State) -> None:
        """Go on from this state, unless it is of other draws: another pilot may have asked for them."""
        if state["spans"] == [list(span) for span in self.spans]:
            for own, saved in zip(self.sums.values(), state["sums"], strict=True):
                own.update({name: array.numpy() for name, array in saved.items()})
            self.groups, self.passes = state["groups"], state["passes"]

    def state(self) -> State:
        """Return what `go_on` needs."""
        sums = [{name: torch.from_numpy(array) for name, array in own.items()} for own in self.sums.values()]
        spans = [list(span) for span in self.spans]
        return {"spans": spans, "sums": sums, "groups": self.groups, "passes": self.passes}

    def add(self, group: Group, outcomes: Iterable[Outcome], passes: int) -> None:
        """Add what the models answered for one more group."""
        for outcome in outcomes:
            add_outcome(self.sums[outcome.key], group, outcome)
        self.groups += 1
        self.passes += passes


@dataclass
class Tallies:
    """The tallies of an audit, one set of samples and draws after the other, kept together in one checkpoint.

    `identity` says which audit it is.
    """

    identity: str
    checkpoint: Checkpoint
    found: list[State] = field(init=False)
    finished: list[State] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        state = self.checkpoint.restore() or {"identity": self.identity, "tallies": []}
        if state["identity"] != self.identity:
            where = self.checkpoint.path
            raise InputError(f"expected the checkpoint of the same audit, got another's: {where}; name another file")
        self.found = state["tallies"]

    def go_on(self, tally: Tally) -> None:
        """Let the next tally go on from where it was, if it had begun."""
        if len(self.finished) < len(self.found):
            tally.go_on(self.found[len(self.finished)])

    def keep(self, tally: Tally) -> None:
        """Save all of them, the last one unfinished, unless that was done lately."""
        self.checkpoint.save(lambda: {"identity": self.identity, "tallies": [*self.finished, tally.state()]})

    def finish(self, tally: Tally) -> None:
        """Go over to the next."""
        self.finished.append(tally.state())


def identity(facts: Sequence[object], models: Iterable[nn.Module], shown: Iterable[Samples]) -> str:
    """Return a hash of all that decides what is counted: settings, networks with their weights, and samples."""
    known = json.dumps(facts, sort_keys=True, default=lambda thing: type(thing).__qualname__)
    digest = hashlib.sha256(known.encode())
    for model in models:
        digest.update(f"{model}{state_hash(model.state_dict())}".encode())
    for samples in shown:
        add_samples(digest, samples)
    return digest.hexdigest()


def add_outcome(sums: Mapping[str, Integers], group: Group, outcome: Outcome) -> None:
    """Add one batch of predictions of a model, paired with those of the reference, to its sums in place."""
    n, rows = len(sums["draws"]), group.positions
    m, a = outcome.predicted == group.y, outcome.reference == group.y
    before = torch.zeros_like(m) if outcome.original is None else outcome.original == group.y
    patterns = 8 * rows + 4 * before.int() + 2 * m.int() + a.int()
    joint = torch.bincount(patterns, minlength=8 * n).view(n, 8).numpy()
    same = torch.bincount(rows[outcome.predicted == outcome.reference], minlength=n).numpy()
    events = (joint.sum(1), joint @ METHOD, joint @ REFERENCE, joint @ (METHOD * REFERENCE), same)
    found = dict(zip(INTEGER_FIELDS, events, strict=True)) | {"joint": joint}
    for name, total in sums.items():
        total[:, outcome.column] += found[name].astype(np.int32)
