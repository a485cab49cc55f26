"""Models of a request, and how each was made: unlearned, retrained without the forgotten samples, or a surrogate."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from residuum.core.errors import InputError, first_line
from residuum.core.files import file_sha256
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.metrics import accuracy
from residuum.models import Classifier, private_copy, save_state
from residuum.models.weights import UnlearnedIds, read_making, unlearned_ids, write_note
from residuum.record.audits import Part
from residuum.record.folder import WEIGHTS, note_written
from residuum.studies.subjects import Made
from residuum.training import Hooks, Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning import first_problem
from residuum.unlearning.start import reinitialize, trainable_parts

Retrain = Callable[..., nn.Module]
QUICK = Recipe(epochs=20, lr=1e-3, optimizer="adamw", batch_size=64)  # of surrogates, where no recipe is given
NEAR = 1.0  # points of accuracy on the retained samples below the original's at which a surrogate is trained enough


@dataclass(frozen=True)
class Unlearned(Made):
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

        A note beside them, PATH.unlearned.json, holds hashes of the forgotten ids and how the model was made.
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
    """How an unlearned model was made, in the note beside its weights, whose hash is `sha256`.

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
    """Return how the model of a weights file was unlearned, if the note beside the file says so, or the model alone."""
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


def retrained(retrain: Retrain, samples: object, seed: int) -> Made:
    """Return what the user's training function makes of the retained samples, not wrapped yet."""
    start = time.perf_counter()
    refuse_other_arguments(retrain)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # user code may draw on any device
        torch.manual_seed(seed % 2**63)
        try:
            network = retrain(samples, seed)
        except TypeError as error:
            if "default_collate" not in str(error):
                raise
            hint = "retrain gets the items of your data set as they are; turn them into tensors there or in collate_fn"
            raise InputError(f"retrain: a DataLoader cannot join the items ({first_line(error)}); {hint}") from error
    return Made(network, "retrain", seconds=time.perf_counter() - start)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return a copy of the network without what `wrap` put before and after it, as its training function expects it."""
    network = private_copy(model)
    adapter = getattr(network, "adapter", None)
    if adapter is None:
        return network
    for hooks in (network._forward_pre_hooks, network._forward_hooks):
        for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is adapter]:
            del hooks[key]
            network._forward_pre_hooks_with_kwargs.pop(key, None)
    del network.input_space, network.adapter, network.fresh_network
    return network


def refuse_other_arguments(retrain: Retrain) -> None:
    """Refuse a training function that cannot be called with samples and a seed."""
    try:
        signature = inspect.signature(retrain)
    except (TypeError, ValueError):  # a function without one
        return
    try:
        signature.bind(None, 0)
    except TypeError as error:
        text = f"expected a function retrain(samples, seed) -> model, got one with {signature} ({error})"
        raise InputError(text) from None


def trained_by(recipe: Recipe, model: nn.Module, samples: Samples, seed: int) -> Made:
    """Return a fresh network of the model's kind, trained by the recipe."""
    return _fitted(fresh_network(model, seed), samples, recipe, seed)


def surrogate(model: nn.Module, samples: Samples, recipe: Recipe | None, seed: int) -> Made:
    """Return a fresh network that is trained only until it fits the retained samples about as well as the model.

    It never saw the forgotten samples, and it is cheap; but it was not trained as the model was, so that
    a difference between the two has two causes.
    """
    wanted, new = accuracy(model, samples) - NEAR, fresh_network(model, seed)

    def fits(epoch: int) -> bool:
        return accuracy(new, samples) >= wanted

    return _fitted(new, samples, recipe or QUICK, seed, fits)


def fresh_network(model: nn.Module, seed: int) -> nn.Module:
    """Return the model with weights as a new one has them."""
    new, make = private_copy(model), getattr(model, "fresh_network", None)
    if make is None:
        try:
            reinitialize(trainable_parts(new).values(), seed, by_layer=not isinstance(model, Classifier))
        except InputError as error:
            raise InputError(f"{error}; or give wrap(..., fresh=) or retrain=") from None
        return new
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # user code may draw on any device
        torch.manual_seed(seed % 2**63)
        new.load_state_dict(make().state_dict())
    return new


def first_channels(model: nn.Module) -> int | None:
    """Return how many channels the first convolution of a network takes; None without one.

    >>> first_channels(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)))
    1
    """
    return next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)


def _fitted(
    model: nn.Module, samples: Samples, recipe: Recipe, seed: int, stop: Callable[[int], bool] | None = None
) -> Made:
    start = time.perf_counter()
    phases, orders = [TrainingPhase(cross_entropy, "train")], child_seed(seed, "order")
    passes = fit(model, {"train": samples}, recipe, phases, seed=orders, hooks=Hooks(stop_after_epoch=stop))
    return Made(model.eval(), "retrain", seconds=time.perf_counter() - start, passes=passes)
