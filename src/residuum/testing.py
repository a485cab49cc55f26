"""Check that your plug-in behaves as built-in components do.

Methods, perturbations, data sets and networks have promises (`PROMISES`) that every built-in component keeps.
`residuum check` tests yours. A promise is a function that raises `BrokenPromise`; those of methods take a `Trial`.
"""

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

from residuum.auditing import Auditor
from residuum.core.errors import InputError, MethodError, ResiduumWarning, unknown_name
from residuum.core.inputs import PIXELS
from residuum.core.registry import Registry, load_plugin
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import generator
from residuum.data import DATASETS, Dataset, load_dataset, make_splits
from residuum.models import MODELS, Classifier, build_model, check_model, forward, load_weights, save_weights
from residuum.models.weights import state_hash
from residuum.perturbations import PERTURBATIONS, Perturbation
from residuum.studies.parsing import as_text, build_perturbation, override
from residuum.studies.study import parse_row
from residuum.training import Recipe, train
from residuum.unlearning import GD, METHODS, Context, Method, Origin, make_method
from residuum.unlearning.guard import blamed, is_json

RADIUS = 0.1
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


class BrokenPromise(AssertionError):  # noqa: N818 (the name says what happened)
    """A component does not keep a promise of its kind."""


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
        spoiled = trial.run(_spoiled(trial.splits, part))
        same = state_hash(spoiled.state_dict()) == state_hash(trial.run().state_dict())
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
    _expect_rebuilt(trial.run(), trial.splits.test)


def _expect_rebuilt(model: nn.Module, samples: Samples) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_weights(model, Path(folder) / "model.safetensors")
        loaded = load_weights(Path(folder) / "model.safetensors")
    same = torch.equal(forward(loaded, samples), forward(model, samples))
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


def _spoiled(splits: Splits, part: str) -> Splits:
    """Return splits in which one part (also inside `train`) is NaN; retain inputs become negatives.

    `unlearn` tries the model on retain samples, so those must stay finite.
    """
    samples: Samples = getattr(splits, part)
    in_part = torch.tensor([name in set(samples.ids) for name in splits.train.ids])
    train_x, x = (part_samples.batch(torch.arange(len(part_samples)))[0] for part_samples in (splits.train, samples))
    spoiled = 1 - x if part == "retain" else torch.full_like(x, float("nan"))
    train_x[in_part] = spoiled[: int(in_part.sum())]
    train_samples = Samples(train_x, splits.train.y, splits.train.ids)
    changes: dict[str, Any] = {part: Samples(spoiled, samples.y, samples.ids), "train": train_samples}
    return replace(splits, **changes)


def _samples() -> Samples:
    return Trial.of(GD).splits.forget


def _black_and_white() -> Samples:
    """Return images of 0 and 1, which are pixels and token ids alike."""
    samples = _samples()
    x, y = samples.batch(torch.arange(len(samples)))
    return Samples(x.round(), y, samples.ids)


def _moved(kind: type[Perturbation], radius: float, model: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """Return black and white inputs, and what becomes of them."""
    samples = _black_and_white()
    x, y = samples.batch(torch.arange(len(samples)))
    return x, kind()(model or Trial.of(GD).original.eval(), x, y, generator(SEED), radius)


def moves_inputs_within_bounds(kind: type[Perturbation]) -> None:
    """Perturbed inputs have the shape and type of the inputs, no NaN, and lie within the bounds."""
    before, after = _moved(kind, RADIUS)
    expect(after.shape == before.shape and after.dtype == before.dtype, f"inputs became {after.dtype} {after.shape}")
    expect(not bool(after.isnan().any()), "NaN among the perturbed inputs")
    if not kind().space_for(PIXELS).tokens:
        expect(bool(((after >= 0) & (after <= 1)).all()), "perturbed inputs lie outside the bounds")
    expect(not torch.equal(before, after), f"nothing moves at radius {RADIUS}")


def moves_nothing_at_radius_0(kind: type[Perturbation]) -> None:
    """At radius 0 the inputs are the inputs."""
    before, after = _moved(kind, 0.0)
    expect(torch.equal(before, after), "inputs moved at radius 0")


def draws_from_its_generator_only(kind: type[Perturbation]) -> None:
    """The same generator gives the same inputs, and the global generators of torch, numpy and random are left alone."""
    before = global_generators()
    with torch.random.fork_rng(devices=[]):
        first = _moved(kind, RADIUS)[1]
        torch.manual_seed(SEED + 1)
        expect(torch.equal(first, _moved(kind, RADIUS)[1]), "two calls with one generator differ")
    _moved(kind, RADIUS)
    expect(global_generators() == before, "a global generator moved; use the generator that is passed")


def leaves_model_and_inputs_alone(kind: type[Perturbation]) -> None:
    """The model's weights and the inputs stay as they are."""
    model = Trial.of(GD).original.eval()
    weights = state_hash(model.state_dict())
    inputs, _ = _moved(kind, RADIUS, model)
    expect(torch.equal(inputs, _black_and_white().batch(torch.arange(len(inputs)))[0]), "the inputs changed in place")
    expect(state_hash(model.state_dict()) == weights, "the model's weights or buffers changed")


def counts_do_not_depend_on_the_batch(kind: type[Perturbation]) -> None:
    """An audit counts the same, however many inputs are perturbed at once."""
    trial, samples = Trial.of(GD), _black_and_white()
    model, start = trial.original.eval(), build_model("cnn", (1, 8, 8), 3, width=2, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)
        auditors = {size: Auditor({"m": model}, start, kind(), [0, RADIUS], SEED) for size in (1, 64)}
        counts = [auditor.count(samples, 10, batch_size=size).counts["m"] for size, auditor in auditors.items()]
    expect(counts[0] == counts[1], "the counts of a batch of 1 and of 64 inputs differ")


def perturbation_settings_go_round(kind: type[Perturbation]) -> None:
    """Settings are JSON values and survive the command line's NAME:key=value."""
    settings = {key: value for key, value in kind().settings().items() if key != "name"}
    expect(is_json(kind().settings()), f"settings are not JSON values: {kind().settings()!r}")
    text = ":".join([kind.name, *(f"{key}={as_text(value)}" for key, value in settings.items())])
    expect(build_perturbation(text)[0].settings() == kind().settings(), f"{text} gives another perturbation")


def loads_a_dataset(loader: Callable[..., Dataset]) -> None:
    """`load(root)` returns a `Dataset` whose samples are checked, with different ids for every sample."""
    data = loader(None)
    expect(isinstance(data, Dataset), f"expected a residuum.data.Dataset, got {data!r:.60}")
    ids = [*data.train.ids, *(data.test.ids if data.test else ())]
    expect(len(set(ids)) == len(ids), "an id occurs twice, or in both training and test samples")


def loads_the_same_again(loader: Callable[..., Dataset]) -> None:
    """Loading again gives the same ids, labels and pixels, and the global generators are left alone."""
    before = global_generators()
    first = loader(None).fingerprint
    expect(global_generators() == before, "a global generator moved; ids and samples must not be drawn")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        expect(loader(None).fingerprint == first, "two calls give different data")


def can_be_split(loader: Callable[..., Dataset]) -> None:
    """A tenth of the training samples can be forgotten, and inputs are finite."""
    data = loader(None)
    splits = make_splits(data, forget_fraction=0.1, test_size=None if data.test else len(data.train) // 5)
    x, y = splits.forget.batch(torch.arange(min(len(splits.forget), 16)))
    expect(bool(x.isfinite().all()), "NaN or infinite values among the inputs")
    expect(int(y.max()) < splits.classes, f"a label is not below the number of classes, {splits.classes}")


def _network(name: str, seed: int = SEED, **changes: Any) -> Classifier:  # noqa: ANN401 (fields of build_model)
    return build_model(name, (1, 8, 8), 3, seed=seed, **changes)


def returns_finite_logits(name: str) -> None:
    """Images of shape (1, 8, 8) give one finite logit for each class, and no probabilities."""
    logits = forward(_network(name), _samples())
    expect(logits.shape == (len(_samples()), 3), f"expected logits of shape (n, 3), got {tuple(logits.shape)}")
    expect(bool(logits.isfinite().all()), "NaN or infinite logits")


def weights_depend_on_the_seed_only(name: str) -> None:
    """The same seed gives the same weights, another seed gives others; global generators are left alone."""
    before = global_generators()
    first, again, other = (state_hash(_network(name, seed).state_dict()) for seed in (1, 1, 2))
    expect(first == again, "two networks of one seed differ; give layers of your own a `reset_parameters(generator)`")
    expect(first != other, "networks of different seeds are equal")
    expect(global_generators() == before, "a global generator moved")


def normalizes_its_inputs(name: str) -> None:
    """The first layer is the normalization that the network receives."""
    one, other = (forward(_network(name, mean=(mean,)), _samples()) for mean in (0.2, 0.7))
    expect(not torch.equal(one, other), "the constants of `normalize` change nothing; call self.normalize(x) first")


def judges_each_input_alone(name: str) -> None:
    """In eval mode the logits of an input do not depend on the others in its batch."""
    x = _samples().batch(torch.arange(8))[0]
    with torch.no_grad():
        together, alone = _network(name)(x), _network(name)(x[:1])
    expect(bool(torch.allclose(together[:1], alone, atol=1e-5)), "an input's logits change with its batch")


def network_survives_saving(name: str) -> None:
    """A weights file rebuilds the network bit for bit."""
    _expect_rebuilt(_network(name), _samples())


def learns(name: str) -> None:
    """Training lowers its loss on the training samples."""
    samples = Trial.of(GD).splits.train
    networks = _network(name), train(_network(name), samples, Recipe(epochs=5), seed=SEED)
    losses = [torch.nn.functional.cross_entropy(forward(network, samples), samples.y) for network in networks]
    expect(float(losses[1]) < float(losses[0]), "five epochs of training do not lower the loss")


Promise = Callable[[Any], None]
METHOD_PROMISES: tuple[Callable[[Trial], None], ...] = (
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
PROMISES: Mapping[str, tuple[Promise, ...]] = {
    "method": METHOD_PROMISES,
    "perturbation": (
        moves_inputs_within_bounds,
        moves_nothing_at_radius_0,
        draws_from_its_generator_only,
        leaves_model_and_inputs_alone,
        counts_do_not_depend_on_the_batch,
        perturbation_settings_go_round,
    ),
    "dataset": (loads_a_dataset, loads_the_same_again, can_be_split),
    "model": (
        returns_finite_logits,
        weights_depend_on_the_seed_only,
        normalizes_its_inputs,
        judges_each_input_alone,
        network_survives_saving,
        learns,
    ),
}
REGISTRIES: Mapping[str, Registry[Any]] = {
    "method": METHODS,
    "perturbation": PERTURBATIONS,
    "dataset": DATASETS,
    "model": MODELS,
}


def check_promises(method: type[Method] | Method) -> dict[str, str | None]:
    """Return the faults of a method by promise; None where it keeps the promise.

    >>> from residuum.unlearning import GD
    >>> {promise: fault for promise, fault in check_promises(GD).items() if fault}
    {}
    """
    return {promise.__name__: _fault(promise, lambda: Trial.of(method)) for promise in METHOD_PROMISES}


def check_plugin(target: str, kind: str | None = None) -> dict[Promise, str | None]:
    """Return the faults of a component by promise; None where it keeps the promise.

    `target` is a registered name, FILE.py:NAME or PACKAGE.MODULE:NAME. For a function, give its `kind`: dataset or
    perturbation.

    >>> {promise.__name__: fault for promise, fault in check_plugin("uniform_l2").items() if fault}
    {}
    """
    kind = kind or _kind_of(target)
    if kind not in PROMISES:
        raise unknown_name("kind of plug-in", kind, PROMISES)
    registry = REGISTRIES[kind]
    name = registry.add(target) if ":" in target else target
    component = registry.find(name)
    subjects: dict[str, Callable[[], Any]] = {"method": lambda: Trial.of(component), "model": lambda: name}
    return {promise: _fault(promise, subjects.get(kind, lambda: component)) for promise in PROMISES[kind]}


def _kind_of(target: str) -> str:
    if target.endswith(".toml"):
        text = f"{target} has no promises: residuum run {target} --dry-run checks it if it is a scenario"
        raise InputError(f"{text}, residuum check {target} if it is a request")
    if ":" not in target:
        for kind, registry in REGISTRIES.items():
            if target in registry or target in registry.broken:
                return kind
        names = [name for registry in REGISTRIES.values() for name in registry]
        raise unknown_name("method or other plug-in", target, names)
    component = load_plugin(target)
    for kind, base in {"method": Method, "perturbation": Perturbation, "model": Classifier}.items():
        if isinstance(component, type) and issubclass(component, base):
            return kind
    raise InputError(f"cannot tell what kind of plug-in {target} is; give --kind, one of {', '.join(PROMISES)}")


def _fault(promise: Promise, subject: Callable[[], Any]) -> str | None:
    try:
        with state_restored():
            promise(subject())
    except BrokenPromise as broken:
        return str(broken)
    except (Exception, SystemExit) as error:  # the report shows whatever the plug-in raises
        cause = error.__cause__ if isinstance(error, MethodError) and error.__cause__ else error
        return f"{type(cause).__name__}: {cause}"
    return None
