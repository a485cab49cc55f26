"""Checkpoints: the state of a long computation in a file, from which a stopped one resumes."""

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from residuum.core.console import say
from residuum.core.files import read_sealed, write_sealed
from residuum.models.weights import refuse_unsafe_torch

Generators = Mapping[str, torch.Generator]
State = dict[str, Any]  # of tensors, numbers, names, and lists and dicts of them


@dataclass
class Checkpoint:
    """A file with the state of a computation, written at most once in `every` seconds.

    `key` says which computation it is: a file that another one wrote, or that has changed since, is ignored. `before`
    is the time in seconds that the computation had taken when the restored state was saved.
    """

    path: Path
    every: float = 60.0
    key: str = ""
    before: float = field(default=0.0, init=False)
    _begun: float = field(default_factory=time.monotonic, init=False)
    _saved: float = field(default_factory=time.monotonic, init=False)

    def save(self, state: Callable[[], State]) -> None:
        """Write the state, unless one was written within the last `every` seconds."""
        now = time.monotonic()
        if now - self._saved < self.every:
            return
        content = io.BytesIO()
        torch.save(state() | {"seconds": self.before + now - self._begun}, content)
        write_sealed(self.path, content.getbuffer(), self.key)  # torch's own writer does not say that a disk is full
        self._saved = time.monotonic()

    def restore(self) -> State | None:
        """Return the state that was saved last; None without one."""
        if not self.path.is_file():
            return None
        refuse_unsafe_torch(self.path)
        if (content := read_sealed(self.path, self.key)) is None:
            say(f"{self.path} is not the checkpoint that was written, so it is ignored and its work starts again")
            return None
        state: State = torch.load(io.BytesIO(content), weights_only=True)
        self.before = state.pop("seconds")
        return state


class Position(NamedTuple):
    """Where a training stands: epochs finished, steps done, single-sample passes made."""

    epoch: int = 0
    steps: int = 0
    passes: int = 0


def training_state(position: Position, model: nn.Module, optimizer: Optimizer, generators: Generators) -> State:
    """Return what a training needs to resume."""
    return {
        "position": tuple(position),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generators": {name: generator.get_state() for name, generator in generators.items()},
    }


def resume_training(state: State | None, model: nn.Module, optimizer: Optimizer, generators: Generators) -> Position:
    """Restore a saved training and return its position; without a state, the beginning."""
    if state is None:
        return Position()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for name, generator in generators.items():
        generator.set_state(state["generators"][name])
    return Position(*state["position"])
