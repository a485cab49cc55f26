"""Promises that perturbations, data sets and networks keep."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.auditing import Auditor
from residuum.core.errors import ResiduumWarning
from residuum.core.inputs import PIXELS
from residuum.core.samples import Samples
from residuum.core.seeds import generator
from residuum.data import Dataset, make_splits
from residuum.models import Classifier, build_model, forward, load_weights, save_weights
from residuum.models.weights import state_hash
from residuum.perturbations import Perturbation
from residuum.studies.parsing import as_text, build_perturbation
from residuum.testing.method_promises import SEED, Trial, expect, global_generators
from residuum.training import Recipe, train
from residuum.unlearning import GD
from residuum.unlearning.guard import is_json

RADIUS = 0.1


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


def survives_saving(name: str) -> None:
    """A weights file rebuilds the network bit for bit."""
    model = _network(name)
    with tempfile.TemporaryDirectory() as folder:
        save_weights(model, Path(folder) / "model.safetensors")
        loaded = load_weights(Path(folder) / "model.safetensors")
    same = torch.equal(forward(loaded, _samples()), forward(model, _samples()))
    expect(same, "the network loaded from its weights file predicts something else")


def learns(name: str) -> None:
    """Training lowers its loss on the training samples."""
    samples = Trial.of(GD).splits.train
    networks = _network(name), train(_network(name), samples, Recipe(epochs=5), seed=SEED)
    losses = [torch.nn.functional.cross_entropy(forward(network, samples), samples.y) for network in networks]
    expect(float(losses[1]) < float(losses[0]), "five epochs of training do not lower the loss")


PROMISES_OF: dict[str, tuple[Callable[[Any], None], ...]] = {
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
        survives_saving,
        learns,
    ),
}
