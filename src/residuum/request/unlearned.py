"""What unlearning made of a model, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from residuum.models import save_state


@dataclass(frozen=True)
class Unlearned:
    """An unlearned model, wrapped as the original was, and how it was made; calling it asks the model."""

    model: nn.Module
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    seed: int = 0
    seconds: float = 0.0
    passes: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unchanged: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def save(self, path: Path | str) -> Path:
        """Write the weights under the keys of your own state dict: .safetensors, or .pt; return the path."""
        save_state(self.model, path)
        return Path(path)
