"""Promises that every method keeps: functions of a `Trial` that raise `BrokenPromise`."""

import copy
import json
import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples, Splits
from residuum.data import load_dataset, make_splits
from residuum.models import build_model, check_model, forward, load_weights, save_weights
from residuum.models.weights import state_hash
from residuum.studies.parsing import as_text, override
from residuum.studies.study import parse_row
from residuum.training import Recipe, train
from residuum.unlearning import METHODS, Context, Method, Origin, make_method
from residuum.unlearning.guard import blamed, is_json

SEED = 5
RECIPE = Recipe(epochs=10, lr=0.05, batch_size=16)
# settings of the whole process that a method must leave alone: how to read and how to restore each
STATE: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's gradient switch": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the current folder": (os.getcwd, os.chdir),
}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class BrokenPromise(AssertionError):  # noqa: N818 (the name of what happened)
    """A component does not do what all components of its kind promise."""


@dataclass(frozen=True)
class Trial:
    """A method with its defaults, and a small trained network and data to try it on."""

    method: Method
    original: nn.Module
    initial: Mapping[str, Tensor]
    splits: Splits
    class_splits: Splits
    next_splits: Splits

    @classmethod
    def of(cls, method: type[Method] | Method) -> Self:
        """Return the trial of a method; networks and data are the same for every method."""
        return cls(method() if isinstance(method, type) else method, *copy.deepcopy(_bench()))

    def context(self) -> Context:
        """Return a new context."""
        return Context(SEED, Origin(RECIPE, self.initial))

    def run(self, splits: Splits | None = None, context: Context | None = None) -> nn.Module:
        """Return the unlearned model."""
        splits = splits or self.splits
        with blamed(self.method), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)
            if reason := self.method.refusal(splits):
                raise InputError(reason)
            return self.method.edit(copy.deepcopy(self.original), splits, context or self.context())


@cache
def _bench() -> tuple[nn.Module, dict[str, Tensor], Splits, Splits, Splits]:
    cut = partial(
        make_splits, load_dataset("digits"), train_size=60, validation_size=30, test_size=30, classes=[1, 3, 8]
    )
    splits = cut(forget_class=2, forget_fraction=0.5)
    whole_class = cut(forget_class=2)
    second = cut(forget_fraction=0.1, earlier=[{"forget_class": 2, "forget_fraction": 0.5}])
    start = build_model("cnn", (1, 8, 8), 3, width=2, seed=1)
    original = train(start, splits.train, RECIPE, seed=2)
    return original, start.state_dict(), splits, whole_class, second


Promise = Callable[[Trial], None]


def keeps_the_input_model(trial: Trial) -> None:
    """The input model stays bit-identical, its flags and gradients included."""
    trial.original.get_submodule("bn1").eval()
    before, flags = state_hash(trial.original.state_dict()), _flags(trial.original)
    trial.run()
    expect(state_hash(trial.original.state_dict()) == before, "the input model's weights or buffers changed")
    expect(_flags(trial.original) == flags, "a train, requires_grad or grad flag of the input model changed")


def _flags(model: nn.Module) -> tuple[list[bool], list[tuple[bool, bool]]]:
    weights = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    return [module.training for module in model.modules()], weights


def repeats_itself(trial: Trial) -> None:
    """The same seed gives the same weights, whatever the global generators say."""
    hashes = set()
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            hashes.add(state_hash(trial.run().state_dict()))
    expect(len(hashes) == 1, "two runs with one seed differ; draw from context.noise_seed and context.batch_seed")


def leaves_global_generators_alone(trial: Trial) -> None:
    """The global generators of torch, numpy and random are not drawn from."""
    before = global_generators()
    trial.run()
    expect(global_generators() == before, "a global generator moved; use a generator of your own")


def leaves_global_state_alone(trial: Trial) -> None:
    """Threads, default type, gradient switch, current folder stay as they are, and no hook stays on the result."""
    with state_restored() as changes:
        result = trial.run()
    expect(not changes, f"it changed {', '.join(changes)}")
    hooked = [name for name, module in result.named_modules() if any(getattr(module, kind) for kind in HOOKS)]
    expect(not hooked, f"it left a hook on {', '.join(name or 'the model' for name in hooked)}")


def reads_only_what_it_says(trial: Trial) -> None:
    """Samples outside `reads` do not influence the result: NaN or negatives in their place change nothing."""
    for part in {"retain", "forget", "validation"} - trial.method.parts_read:
        spoilt = trial.run(_spoilt(trial.splits, part))
        same = state_hash(spoilt.state_dict()) == state_hash(trial.run().state_dict())
        expect(same, f"reads does not name {part!r}, but {part} samples influence the result")


def leaves_bystanders_alone(trial: Trial) -> None:
    """Data, initial weights and a retrained reference keep their hash."""
    reference = train(trial.original, trial.splits.retain, Recipe(epochs=1), seed=3).state_dict()
    parts = ("train", "retain", "forget", "validation", "test")
    data = {f"{part}.{axis}": getattr(getattr(trial.splits, part), axis) for part in parts for axis in ("x", "y")}
    bystanders = {"the reference": reference, "the initial weights": trial.initial, "the data": data}
    before = {name: state_hash(tensors) for name, tensors in bystanders.items()}
    trial.run()
    for name, tensors in bystanders.items():
        expect(state_hash(tensors) == before[name], f"{name} changed")


def returns_a_usable_model(trial: Trial) -> None:
    """The result takes the same inputs, returns finite logits, and has the input model's mode and no gradients left."""
    model = trial.run()
    expect(isinstance(model, nn.Module), f"it must return an nn.Module, got {type(model).__name__}")
    check_model(model, trial.splits.test, trial.splits.classes)
    expect(model.training == trial.original.training, "train or eval mode of the result differs from the input's")
    expect(all(p.grad is None for p in model.parameters()), "gradients are left on the result's parameters")


def survives_saving(trial: Trial) -> None:
    """A weights file rebuilds the result bit for bit."""
    model = trial.run()
    with tempfile.TemporaryDirectory() as folder:
        save_weights(model, Path(folder) / "model.safetensors")
        loaded = load_weights(Path(folder) / "model.safetensors")
    same = torch.equal(forward(loaded, trial.splits.test), forward(model, trial.splits.test))
    expect(same, "the model loaded from its weights file predicts something else")


def goes_on_from_its_result(trial: Trial) -> None:
    """The method can unlearn the next request from its result, and a weights file rebuilds that result, too."""
    survives_saving(replace(trial, original=trial.run(), splits=trial.next_splits))


def accounts_for_itself(trial: Trial) -> None:
    """Passes are a whole number, and notes are values that JSON can hold."""
    context = trial.context()
    trial.run(context=context)
    expect(type(context.passes) is int and context.passes >= 0, f"context.passes is {context.passes!r}")
    expect(is_json(context.notes), f"context.notes are not JSON values: {context.notes!r}")


def settings_go_round(trial: Trial) -> None:
    """Settings survive the configuration, the table row and the command line."""
    method, name = trial.method, trial.method.name
    expect(is_json(method.settings), f"settings are not JSON values: {method.settings!r}")
    expect(type(method).configured(json.loads(json.dumps(method.settings))) == method, "the configuration differs")
    with METHODS.having(name, type(method)):
        tree: dict[str, Any] = {"methods": {}}
        for key, value in method.settings.items():
            override(tree, f"{name}.{key}", as_text(value))
        expect(make_method(name, tree["methods"].get(name, {})) == method, "--set gives another method")
        plain = [f"{k}={as_text(v)}" for k, v in method.settings.items() if not isinstance(v, list | tuple)]
        row = parse_row(":".join([name, *plain]), {name: method.settings})
        expect(row.build() == method, f"the row {row.label!r} gives another method")


def refuses_unknown_settings(trial: Trial) -> None:
    """An unknown setting raises an error that names the existing ones."""
    try:
        type(trial.method).configured({"no_such_setting": 1})
    except InputError as error:
        expect(all(key in str(error) for key in trial.method.settings), f"the error names no settings: {error}")
    else:
        raise BrokenPromise("no_such_setting=1 was accepted")


def forgets_a_class_or_says_no(trial: Trial) -> None:
    """The method forgets a whole class, or raises a clear error."""
    try:
        model = trial.run(trial.class_splits)
    except InputError as error:
        expect(trial.method.name in str(error), f"the refusal does not name the method: {error}")
    else:
        check_model(model, trial.class_splits.test, trial.class_splits.classes)


PROMISES: tuple[Promise, ...] = (
    keeps_the_input_model,
    repeats_itself,
    leaves_global_generators_alone,
    leaves_global_state_alone,
    reads_only_what_it_says,
    leaves_bystanders_alone,
    returns_a_usable_model,
    survives_saving,
    goes_on_from_its_result,
    accounts_for_itself,
    settings_go_round,
    refuses_unknown_settings,
    forgets_a_class_or_says_no,
)


def expect(condition: bool, fault: str) -> None:
    """Raise `BrokenPromise` unless the condition holds."""
    if not condition:
        raise BrokenPromise(fault)


def global_generators() -> tuple[bytes, bytes, object, object]:
    """Return the states of the global generators of torch, numpy and random."""
    state = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), state["key"].tobytes(), state["pos"], random.getstate()


@contextmanager
def state_restored() -> Iterator[list[str]]:
    """Restore the settings of the process that change within the context; they end up in the list yielded."""
    before, changes = {what: read() for what, (read, _) in STATE.items()}, list[str]()
    try:
        yield changes
    finally:
        for what, (read, write) in STATE.items():
            if (now := read()) != before[what]:
                changes.append(f"{what} ({before[what]} to {now})")
                write(before[what])


def _spoilt(splits: Splits, part: str) -> Splits:
    """Return splits in which one part (also inside `train`) is NaN; retain inputs become negatives.

    `unlearn` tries the model on retain samples, so those must stay finite.
    """
    samples: Samples = getattr(splits, part)
    in_part = torch.tensor([name in set(samples.ids) for name in splits.train.ids])
    train_x, x = (them.batch(torch.arange(len(them)))[0] for them in (splits.train, samples))
    spoilt = 1 - x if part == "retain" else torch.full_like(x, float("nan"))
    train_x[in_part] = spoilt[: int(in_part.sum())]
    train_samples = Samples(train_x, splits.train.y, splits.train.ids)
    changes: dict[str, Any] = {part: Samples(spoilt, samples.y, samples.ids), "train": train_samples}
    return replace(splits, **changes)
