"""Models of a request, and how each was made: unlearned, re-trained without the forgotten samples, or a stand-in."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.methods.fresh import reinitialise, trainable_parts
from residuum.metrics import accuracy
from residuum.models import save_state, wrap_like
from residuum.training import Recipe, TrainingPhase, cross_entropy, fit
from residuum.types import InputError, Samples, child_seed

Retrain = Callable[[Any, int], nn.Module]
QUICK = Recipe(epochs=20, lr=1e-3, optimiser="adamw", batch_size=64)  # of stand-ins, where no recipe is given
NEAR = 1.0  # points of accuracy on the retained samples below the original's at which a stand-in is trained enough
ROLES = ("retrain", "control")


@dataclass(frozen=True)
class Made:
    """A model, how it was made, and what that cost."""

    model: nn.Module
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    passes: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unchanged: bool = False


@dataclass(frozen=True)
class Unlearned(Made):
    """An unlearned model, wrapped as the original was, and how it was made; calling it asks the model."""

    label: str = ""
    seed: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def save(self, path: Path | str) -> Path:
        """Write the weights under the keys of your own state dict: .safetensors, or .pt; return the path."""
        save_state(self.model, path)
        return Path(path)


def role(number: int) -> str:
    """Return the row of the `number`-th re-trained model.

    >>> [role(k) for k in range(3)]
    ['retrain', 'control', 'control_2']
    """
    return ROLES[number] if number < len(ROLES) else f"control_{number}"


def retrained(model: nn.Module, retrain: Retrain, samples: Any, seed: int) -> Made:  # noqa: ANN401 (as the user gave them)
    """Return what the user's training function makes of the retained samples."""
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        made = retrain(samples, seed)
    return Made(wrap_like(made, model), "retrain", seconds=time.perf_counter() - start)


def trained_by(recipe: Recipe, model: nn.Module, samples: Samples, seed: int) -> Made:
    """Return a fresh network of the model's kind, trained by the recipe."""
    return _fitted(fresh_network(model, seed), samples, recipe, seed)


def stand_in(model: nn.Module, samples: Samples, recipe: Recipe | None, seed: int) -> Made:
    """Return a fresh network that is trained only until it fits the retained samples about as well as the model.

    It is innocent, for it never saw the forgotten samples, and cheap; but it was not trained as the model was, so that
    a difference between the two has two causes.
    """
    wanted, new = accuracy(model, samples) - NEAR, fresh_network(model, seed)

    def fits(epoch: int) -> bool:
        return accuracy(new, samples) >= wanted

    return _fitted(new, samples, recipe or QUICK, seed, stop_after_epoch=fits)


def fresh_network(model: nn.Module, seed: int) -> nn.Module:
    """Return the model with weights as a new one has them."""
    new, make = copy.deepcopy(model), getattr(model, "fresh_network", None)
    if make is None:
        try:
            reinitialise(trainable_parts(new).values(), seed)
        except InputError as error:
            raise InputError(f"{error}; or give wrap(..., fresh=) or retrain=") from None
        return new
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        new.load_state_dict(make().state_dict())
    return new


def first_channels(model: nn.Module) -> int | None:
    """Return how many channels the first convolution of a network takes; None without one.

    >>> first_channels(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)))
    1
    """
    return next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)


def _fitted(model: nn.Module, samples: Samples, recipe: Recipe, seed: int, **options: Any) -> Made:  # noqa: ANN401
    start = time.perf_counter()
    phases, orders = [TrainingPhase(cross_entropy, "train")], child_seed(seed, "order")
    passes = fit(model, {"train": samples}, recipe, phases, seed=orders, **options)
    return Made(model.eval(), "retrain", seconds=time.perf_counter() - start, passes=passes)
