"""The tally: what an audit has counted so far, which a stopped one goes on from."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from residuum.auditing.counts import INTEGER_FIELDS, METHOD, REFERENCE, Integers
from residuum.auditing.stream import Group, Work
from residuum.checkpoint import State
from residuum.types import InputError


class Outcome(NamedTuple):
    """What one model, the reference and, where it is known, the original predict for a group at the radius `column`."""

    column: int
    key: int
    predicted: Tensor
    reference: Tensor
    original: Tensor | None


@dataclass
class Tally:
    """Groups shown, predictions made, and the sums of each model, by its key; `of` names what is counted."""

    of: str
    sums: dict[int, dict[str, Integers]]
    groups: int = 0
    passes: int = 0

    @classmethod
    def begin(cls, work: Work, names: Mapping[str, int], *, joint: bool) -> "Tally":
        """Return the tally of nothing; `joint` sums are those with the original's answers."""
        shape = (len(work.samples), len(work.taus))
        shapes = dict.fromkeys(INTEGER_FIELDS, shape) | ({"joint": (*shape, 8)} if joint else {})
        sums = {key: {field: np.zeros(size, np.int32) for field, size in shapes.items()} for key in names.values()}
        return cls(fingerprint(work, list(names)), sums)

    def go_on(self, state: State) -> None:
        """Take the place of the tally that left this state; refuse that of other work."""
        if state["of"] != self.of:
            raise InputError("expected the checkpoint of the same audit, got another's; remove it to start again")
        for own, saved in zip(self.sums.values(), state["sums"], strict=True):
            own.update({field: array.numpy() for field, array in saved.items()})
        self.groups, self.passes = state["groups"], state["passes"]

    def state(self) -> State:
        """Return what `go_on` needs."""
        sums = [{field: torch.from_numpy(array) for field, array in own.items()} for own in self.sums.values()]
        return {"of": self.of, "sums": sums, "groups": self.groups, "passes": self.passes}

    def add(self, group: Group, outcomes: Iterable[Outcome], passes: int) -> None:
        """Add what the models answered for one more group."""
        for outcome in outcomes:
            add_outcome(self.sums[outcome.key], group, outcome)
        self.groups += 1
        self.passes += passes


def fingerprint(work: Work, names: Sequence[str]) -> str:
    """Return a hash of what is shown in which order, and of who is asked."""
    shown = (work.perturbation.settings(), work.taus, work.spans, work.seed, work.rows, work.samples.ids)
    return hashlib.sha256(repr((names, *shown)).encode()).hexdigest()


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
    for field, total in sums.items():
        total[:, outcome.column] += found[field].astype(np.int32)
