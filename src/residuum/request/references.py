"""Models that never saw the forgotten samples: re-trained by the user's function or by a recipe, or cheap stand-ins."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from residuum.methods.fresh import reinitialise, trainable_parts
from residuum.metrics import accuracy
from residuum.models import wrap_like
from residuum.training import Recipe, TrainingPhase, cross_entropy, fit
from residuum.types import InputError, Samples, child_seed

Retrain = Callable[[Any, int], nn.Module]
QUICK = Recipe(epochs=20, lr=1e-3, optimiser="adamw", batch_size=64)  # of stand-ins, where no recipe is given
NEAR = 1.0  # points of accuracy on the retained samples below the original's at which a stand-in is trained enough
ROLES = ("retrain", "control")


@dataclass(frozen=True)
class Trained:
    """A model that never saw the forgotten samples, and what it cost."""

    model: nn.Module
    seconds: float
    passes: int = 0


def role(number: int) -> str:
    """Return the row of the `number`-th re-trained model.

    >>> [role(k) for k in range(3)]
    ['retrain', 'control', 'control_2']
    """
    return ROLES[number] if number < len(ROLES) else f"control_{number}"


def retrained(model: nn.Module, retrain: Retrain, samples: Any, seed: int) -> Trained:  # noqa: ANN401 (as the user gave them)
    """Return what the user's training function makes of the retained samples."""
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        made = retrain(samples, seed)
    return Trained(wrap_like(made, model), time.perf_counter() - start)


def trained_by(recipe: Recipe, model: nn.Module, samples: Samples, seed: int) -> Trained:
    """Return a fresh network of the model's kind, trained by the recipe."""
    return _fitted(fresh_network(model, seed), samples, recipe, seed)


def stand_in(model: nn.Module, samples: Samples, recipe: Recipe | None, seed: int) -> Trained:
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


def _fitted(model: nn.Module, samples: Samples, recipe: Recipe, seed: int, **options: Any) -> Trained:  # noqa: ANN401
    start = time.perf_counter()
    phases, orders = [TrainingPhase(cross_entropy, "train")], child_seed(seed, "order")
    passes = fit(model, {"train": samples}, recipe, phases, seed=orders, **options)
    return Trained(model.eval(), time.perf_counter() - start, passes)
