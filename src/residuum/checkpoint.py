"""Saving a training at the end of an epoch, so that a stopped one goes on where it was."""

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from residuum.files import write_whole

Generators = Mapping[str, torch.Generator]


class Position(NamedTuple):
    """Where a training stands: epochs finished, steps done, single-sample passes made."""

    epoch: int = 0
    steps: int = 0
    passes: int = 0


@dataclass
class Checkpoint:
    """A file that holds weights, optimiser and generators; written at most once in `every` seconds."""

    path: Path
    every: float = 60.0
    _saved: float = field(default_factory=time.monotonic)

    def save(self, position: Position, model: nn.Module, optimiser: Optimizer, generators: Generators) -> None:
        """Write the state aside and rename it, unless the last one is young."""
        if time.monotonic() - self._saved < self.every:
            return
        state = {
            "position": tuple(position),
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "generators": {name: generator.get_state() for name, generator in generators.items()},
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_whole(self.path, content.getbuffer())  # torch's own writer does not say that a disk is full
        self._saved = time.monotonic()

    def restore(self, model: nn.Module, optimiser: Optimizer, generators: Generators) -> Position:
        """Put everything back as it was saved and return where that is; without a file, the beginning."""
        if not self.path.is_file():
            return Position()
        state = torch.load(self.path, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        for name, generator in generators.items():
            generator.set_state(state["generators"][name])
        return Position(*state["position"])
