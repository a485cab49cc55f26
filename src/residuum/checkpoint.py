"""A file that says how far a long computation is, so that a stopped one goes on from there."""

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.optim import Optimizer

from residuum.files import write_whole

Generators = Mapping[str, torch.Generator]
State = dict[str, Any]  # of tensors, numbers, names, and lists and dicts of them


@dataclass
class Checkpoint:
    """A file with the state of a computation, written at most once in `every` seconds."""

    path: Path
    every: float = 60.0
    _saved: float = field(default_factory=time.monotonic)

    def save(self, state: Callable[[], State]) -> None:
        """Write the state aside and rename it, unless the last one is young."""
        if time.monotonic() - self._saved < self.every:
            return
        content = io.BytesIO()
        torch.save(state(), content)
        write_whole(self.path, content.getbuffer())  # torch's own writer does not say that a disk is full
        self._saved = time.monotonic()

    def restore(self) -> State | None:
        """Return the state that was saved last; None without a file."""
        return torch.load(self.path, weights_only=True) if self.path.is_file() else None

    def of_part(self, name: str) -> Self:
        """Return the checkpoint of a part of the computation, in a file of its own."""
        return replace(self, path=self.path.with_stem(f"{self.path.stem}-{name}"))


class Position(NamedTuple):
    """Where a training stands: epochs finished, steps done, single-sample passes made."""

    epoch: int = 0
    steps: int = 0
    passes: int = 0


def training_state(position: Position, model: nn.Module, optimiser: Optimizer, generators: Generators) -> State:
    """Return all that a training needs to go on."""
    return {
        "position": tuple(position),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "generators": {name: generator.get_state() for name, generator in generators.items()},
    }


def resume_training(state: State | None, model: nn.Module, optimiser: Optimizer, generators: Generators) -> Position:
    """Put everything back as it was saved and return where that is; without a state, the beginning."""
    if state is None:
        return Position()
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    for name, generator in generators.items():
        generator.set_state(state["generators"][name])
    return Position(*state["position"])
