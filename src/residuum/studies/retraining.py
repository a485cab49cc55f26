"""How the models of a request are retrained: by the user's training function, by a recipe, or as cheap surrogates."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from residuum.auditing.probes.base import Further
from residuum.auditing.probes.durability import further_epochs, trained_further
from residuum.core.errors import InputError, first_line
from residuum.core.roles import CONTROL
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed
from residuum.metrics import accuracy
from residuum.models import Classifier, check_model, private_copy, wrap_like
from residuum.models.probabilities import refuse_probabilities
from residuum.training import Hooks, Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning.start import reinitialize, trainable_parts

TrainingFunction = Callable[..., nn.Module]  # of the user's: retrain(samples, seed) -> model
QUICK = Recipe(epochs=20, lr=1e-3, optimizer="adamw", batch_size=64)  # of surrogates, where no recipe is given
NEAR = 1.0  # points of accuracy on the retained samples below the original's at which a surrogate is trained enough


@dataclass(frozen=True)
class MadeModel:
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
class TrainingData:
    """All training samples, the user's data set of the same items if there is one, and the ids to leave out."""

    samples: Samples
    items: object
    left_out: frozenset[str]

    def retained(self, also: Sequence[str] = ()) -> object:
        """Return what a training function gets: a part of the user's data set, or samples; `also` are not left out."""
        left_out = self.left_out - {*also}
        rows = [row for row, name in enumerate(self.samples.ids) if name not in left_out]
        if self.items is None:
            return self.samples.subset(rows)
        from torch.utils.data import Subset

        return Subset(self.items, rows)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Retraining:
    """How models that never saw the forgotten samples are trained, and how a model is trained further.

    The user's function does not see the original. A recipe and a surrogate copy its architecture and its frozen
    weights, and a surrogate stops at its accuracy. `epochs` are those of the original's training, if they are known.
    `identity` is the hash of everything that decides the models but their seed. Up to `most_controls` controls may be
    made where fewer do not detect the original.
    """

    original: nn.Module
    splits: Splits
    data: TrainingData
    function: TrainingFunction | None = None
    recipe: Recipe | None = None
    epochs: int | None = None
    seed: int = 1
    surrogates: bool = False
    identity: str = ""
    most_controls: int = 0

    @property
    def by_function(self) -> bool:
        """Whether the user's function trains; how long that takes cannot be estimated."""
        return self.function is not None and not self.surrogates

    @property
    def settings(self) -> dict[str, Any]:
        """The recipe of the retrained models, or what a record says in its place."""
        if self.surrogates:
            return {"surrogates": "trained until they fit the retained samples as the original does"}
        if self.function is not None:
            return {"trained_by": getattr(self.function, "__name__", type(self.function).__name__)}
        return asdict(self.recipe) if self.recipe else {}

    def refuse_impossible(self) -> None:
        """Raise an error if nothing can retrain models like the original."""
        if self.function is not None and not self.surrogates:
            refuse_other_arguments(self.function)
            return
        refuse_probabilities(self.original, "recipes and surrogates train a network", "give a function as retrain=")
        if self.recipe is None and not self.surrogates:
            ways = "retrain=, recipe= or audit(reference=...)"
            raise InputError(f"expected a way to retrain: give {ways}, or surrogates=True for cheap, weaker ones")

    def retrained(self, label: str) -> MadeModel:
        """Return the retrained model of a label, wrapped as the original is."""
        self.refuse_impossible()
        retain = self.splits.retain
        seed = child_seed(self.seed, f"{CONTROL}_1" if label == CONTROL else label)
        if self.surrogates:
            result = surrogate(self.original, retain, self.recipe, seed)
        elif self.function is not None:
            result = trained_by_function(self.function, self.data.retained(), seed)
            result = replace(result, passes=(self.epochs or 0) * len(retain))
        else:
            assert self.recipe is not None
            result = trained_by(self.recipe, self.original, retain, seed)
        result = replace(result, model=wrap_like(result.model, self.original))
        try:
            check_model(result.model, retain, self.splits.classes)
        except InputError as error:
            raise InputError(f"retrain: {error}") from None
        return result

    def further(self) -> Further | None:
        """Return what trains a model on the retained samples and some forgotten ones, given their ids.

        The recipe does for a tenth of its epochs, or else the user's function, if it takes a model to start from; it
        decides how long if it cannot be told. None without either.
        """
        splits, recipe, function = self.splits, self.recipe, self.function
        if recipe is not None:
            return lambda start, ids, seed: trained_further(start, splits, recipe, ids, seed)
        if function is None or parameter(function, "model") is None:
            return None
        epochs = further_epochs(self.epochs) if parameter(function, "epochs") is not None and self.epochs else None

        def by_function(start: nn.Module, ids: Sequence[str], seed: int) -> nn.Module:
            samples = self.data.retained(ids)
            return trained_from(start, function, samples, seed, like=self.original, epochs=epochs).eval()

        return by_function


def trained_by_function(function: TrainingFunction, samples: object, seed: int) -> MadeModel:
    """Return what the user's training function makes of the retained samples, not wrapped yet."""
    start = time.perf_counter()
    refuse_other_arguments(function)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # user code may draw on any device
        torch.manual_seed(seed % 2**63)
        try:
            network = function(samples, seed)
        except (InputError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code raises is the finding
            raise _fault(function, error) from error
    return MadeModel(network, "retrain", seconds=time.perf_counter() - start)


def _fault(function: TrainingFunction, error: BaseException) -> InputError:
    """Return the error for what the user's training function raised, with the line of theirs that raised it."""
    if isinstance(error, TypeError) and "default_collate" in str(error):
        hint = "retrain gets the items of your data set as they are; turn them into tensors there or in collate_fn"
        return InputError(f"retrain: a DataLoader cannot join the items ({first_line(error)}); {hint}")
    inner = getattr(function, "func", function)  # of a partial one
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(inner, "__code__", None), "co_filename", None)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    name, place = getattr(inner, "__name__", type(inner).__name__), f"{Path(frame.filename).name}, line {frame.lineno}"
    return InputError(f"retrain: {name} raised {first_line(error)} ({place}); correct it, then do the same again")


def trained_from(
    start: nn.Module, function: TrainingFunction, samples: object, seed: int, *, like: nn.Module, epochs: int | None
) -> nn.Module:
    """Return what the user's function makes of a network to start from, wrapped as another model is."""
    length = {} if epochs is None else {"epochs": epochs}
    from_start = partial(function, model=unwrapped(start).train(), **length)
    return wrap_like(trained_by_function(from_start, samples, seed).model, like)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return a copy of the network without what `wrap` put before and after it, as a training function expects it."""
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


def refuse_other_arguments(function: TrainingFunction) -> None:
    """Refuse a training function that cannot be called with samples and a seed."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function without one
        return
    try:
        signature.bind(None, 0)
    except TypeError as error:
        text = f"expected a function retrain(samples, seed) -> model, got one with {signature} ({error})"
        raise InputError(text) from None


def trained_by(recipe: Recipe, model: nn.Module, samples: Samples, seed: int) -> MadeModel:
    """Return a fresh network of the model's kind, trained by the recipe."""
    return _fitted(fresh_network(model, seed), samples, recipe, seed)


def surrogate(model: nn.Module, samples: Samples, recipe: Recipe | None, seed: int) -> MadeModel:
    """Return a fresh network that is trained only until it fits the retained samples about as well as the model.

    It never saw the forgotten samples, and it is cheap; but it was not trained as the model was, so that
    a difference between the two has two causes.
    """
    enough, new = accuracy(model, samples) - NEAR, fresh_network(model, seed)

    def fits(epoch: int) -> bool:
        return accuracy(new, samples) >= enough

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


def parameter(function: Callable[..., object], name: str) -> inspect.Parameter | None:
    """Return the parameter of this name that a function takes, if any.

    >>> parameter(lambda samples, seed: None, "model") is None
    True
    >>> parameter(lambda samples, seed, epochs=30: None, "epochs").default
    30
    """
    try:
        one = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):  # a function without a signature
        return None
    return one if one is not None and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) else None


def _fitted(
    model: nn.Module, samples: Samples, recipe: Recipe, seed: int, stop: Callable[[int], bool] | None = None
) -> MadeModel:
    start = time.perf_counter()
    phases, orders = [TrainingPhase(cross_entropy, "train")], child_seed(seed, "order")
    passes = fit(model, {"train": samples}, recipe, phases, seed=orders, hooks=Hooks(stop_after_epoch=stop))
    return MadeModel(model.eval(), "retrain", seconds=time.perf_counter() - start, passes=passes)
