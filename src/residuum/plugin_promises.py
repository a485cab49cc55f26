"""Promises that perturbations, data sets, models, measures and scenarios keep, as `checks` has those of methods."""

import copy
import tempfile
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residuum.auditing import Counts, audit
from residuum.auditing.own_measures import OwnMeasure
from residuum.checks import SEED, Trial, expect, global_generators
from residuum.data import Dataset, make_splits
from residuum.experiments.experiment import SCENARIOS, Experiment, load_scenario
from residuum.experiments.parsing import as_text, build_perturbation
from residuum.methods import GD
from residuum.methods.guard import is_json
from residuum.models import Classifier, build_model, forward, load_weights, save_weights
from residuum.models.weights import state_hash
from residuum.perturbations import Perturbation, Substitution
from residuum.training import Recipe, train
from residuum.types import ResiduumWarning, Samples, generator

RADIUS = 0.1


def _samples(kind: type[Perturbation] | None = None) -> Samples:
    """Return samples to try something on: pixels, or whole numbers for a perturbation of token ids."""
    samples = Trial.of(GD).splits.forget
    if kind is None or not issubclass(kind, Substitution):
        return samples
    x, y = samples.batch(torch.arange(len(samples)))
    return Samples((16 * x).round(), y, samples.ids)


def _moved(kind: type[Perturbation], tau: float, seed: int = SEED) -> tuple[Tensor, Tensor]:
    trial, samples = Trial.of(GD), _samples(kind)
    x, y = samples.batch(torch.arange(len(samples)))
    return x, kind(tau)(trial.original.eval(), x, y, generator(seed))


def moves_inputs_within_bounds(kind: type[Perturbation]) -> None:
    """Perturbed inputs have the shape and type of the inputs, no NaN, and lie within the bounds."""
    before, after = _moved(kind, RADIUS)
    expect(after.shape == before.shape and after.dtype == before.dtype, f"inputs became {after.dtype} {after.shape}")
    expect(not bool(after.isnan().any()), "NaN among the perturbed inputs")
    if (bounds := kind().bounds) is not None:
        low, high = (torch.as_tensor(end) for end in bounds)
        expect(bool(((after >= low) & (after <= high)).all()), "perturbed inputs lie outside the bounds")
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
    expect(global_generators() == before, "a global generator moved; use the generator given")


def leaves_model_and_inputs_alone(kind: type[Perturbation]) -> None:
    """The model's weights and the inputs given stay as they are."""
    trial, samples = Trial.of(GD), _samples(kind)
    x, y = samples.batch(torch.arange(len(samples)))
    kept, weights = x.clone(), state_hash(trial.original.state_dict())
    kind(RADIUS)(trial.original.eval(), x, y, generator(SEED))
    expect(torch.equal(kept, x), "the inputs given were changed in place")
    expect(state_hash(trial.original.state_dict()) == weights, "the model's weights or buffers changed")


def counts_do_not_depend_on_the_batch(kind: type[Perturbation]) -> None:
    """An audit counts the same, however many inputs are perturbed at once."""
    trial, samples = Trial.of(GD), _samples(kind)
    model, start = trial.original.eval(), build_model("cnn", (1, 8, 8), 3, width=2, seed=1)
    options: Any = {"taus": [0, RADIUS], "draws": 10, "seed": SEED}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)
        found = [audit({"m": model}, start, samples, kind(), **options, batch_size=n).counts["m"] for n in (1, 64)]
    expect(found[0] == found[1], "the counts of a batch of 1 and of 64 inputs differ")


def perturbation_settings_go_round(kind: type[Perturbation]) -> None:
    """Settings are JSON values and survive the command line's NAME:key=value."""
    settings = {key: value for key, value in kind().settings().items() if key not in ("name", "bounds")}
    expect(is_json(kind().settings()), f"settings are not JSON values: {kind().settings()!r}")
    text = ":".join([kind.name, *(f"{key}={as_text(value)}" for key, value in settings.items())])
    expect(build_perturbation(text).settings() == kind().settings(), f"{text} gives another perturbation")


def loads_a_dataset(loader: Callable[..., Dataset]) -> None:
    """`load(root)` returns a `Dataset` whose samples are checked, with different ids for every sample."""
    data = loader(None)
    expect(isinstance(data, Dataset), f"expected a residuum.data.Dataset, got {data!r:.60}")
    ids = [*data.train.ids, *(data.test.ids if data.test else ())]
    expect(len(set(ids)) == len(ids), "an id stands twice, or in both training and test samples")


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
    """The same seed gives the same weights, another one others; global generators are left alone."""
    before = global_generators()
    first, again, other = (state_hash(_network(name, seed).state_dict()) for seed in (1, 1, 2))
    expect(first == again, "two networks of one seed differ; give layers of your own a `reset_parameters(generator)`")
    expect(first != other, "networks of different seeds are equal")
    expect(global_generators() == before, "a global generator moved")


def normalises_its_inputs(name: str) -> None:
    """The first layer is the normalisation that it is given."""
    one, other = (forward(_network(name, mean=(mean,)), _samples()) for mean in (0.2, 0.7))
    expect(not torch.equal(one, other), "the constants of `normalise` change nothing; call self.normalise(x) first")


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
    expect(torch.equal(forward(loaded, _samples()), forward(model, _samples())), "read back it predicts otherwise")


def learns(name: str) -> None:
    """Training lowers its loss on the training samples."""
    samples = Trial.of(GD).splits.train
    before, after = (model for model in (_network(name), train(_network(name), samples, Recipe(epochs=5), seed=SEED)))
    losses = [torch.nn.functional.cross_entropy(forward(m, samples), samples.y) for m in (before, after)]
    expect(float(losses[1]) < float(losses[0]), "five epochs of training do not lower the loss")


def _counts(samples: int = 12) -> tuple[Counts, Counts]:
    rng, both = np.random.default_rng(SEED), []
    for part in ("forgotten", "held-out"):
        joint = rng.multinomial(20, [1 / 8] * 8, size=(samples, 2)).astype(np.int32)
        right = {"method_right": joint[..., [2, 3, 6, 7]].sum(-1), "reference_right": joint[..., 1::2].sum(-1)}
        shared = joint[..., [3, 7]].sum(-1)
        integers = {**right, "both_right": shared, "same_prediction": shared, "joint": joint}
        ids = [f"{part}/{k:02d}" for k in range(samples)]
        draws = np.full((samples, 2), 20)
        both.append(Counts.of(ids, np.arange(samples) % 2, [0.05, 0.1], draws=draws, **integers))
    return both[0], both[1]


def gives_a_number_for_each_radius(measure: OwnMeasure) -> None:
    """It gives one number for each radius, with an interval around it or without, with and without held-out samples."""
    counts, heldout = _counts()
    for found in (measure.of(counts, heldout), measure.of(counts)):
        expect(is_json(found), f"expected numbers that JSON can hold, got {found!r}")
        ends = zip(found.get("low", []), found["value"], found.get("high", []), strict=False)
        expect(all(None in end or end[0] <= end[1] <= end[2] for end in ends), "an interval does not hold its value")


def does_not_depend_on_the_order(measure: OwnMeasure) -> None:
    """The order of the samples does not matter, and the same counts give the same numbers."""
    counts, heldout = _counts()
    first, again = measure.of(counts, heldout), measure.of(counts.rows(np.arange(len(counts))[::-1]), heldout)
    values, others = (np.array(found["value"], float) for found in (first, again))
    same = np.allclose(values, others, equal_nan=True, atol=1e-12)
    expect(
        bool(same) and measure.of(counts, heldout) == first, "the value changes with the order, or from call to call"
    )


def leaves_the_counts_alone(measure: OwnMeasure) -> None:
    """The counts stay as they are."""
    counts, heldout = _counts()
    kept = copy.deepcopy((counts, heldout))
    measure.of(counts, heldout)
    expect(kept == (counts, heldout), "the counts given were changed in place")


def is_valid_in_every_profile(name: str) -> None:
    """Every profile has valid settings: known methods, perturbations with radii, a known network."""
    file = Path(name) if name.endswith(".toml") else SCENARIOS.find(name)
    load_scenario(name)
    for profile in tomllib.loads(file.read_text(encoding="utf-8")).get("profiles", {}):
        load_scenario(name, profile=profile)


def fits_its_data(name: str) -> None:
    """The data can be loaded and split, the request forgets something, and the network takes the inputs."""
    experiment = Experiment.create(name)
    splits, model = experiment.splits(), experiment.scenario.model
    expect(len(splits.forget) > 0, "the request forgets nothing")
    build_model(model.name, splits.train.shape, splits.classes, width=model.width, seed=0)


def has_rows_to_compare(name: str) -> None:
    """It names the methods that run by default, and says in `description` what it is about."""
    scenario = load_scenario(name)
    expect(bool(scenario.rows), "`rows` is empty: nothing is unlearned without --methods")
    expect(bool(scenario.description), "`description` is empty")


Promise = Callable[[Any], None]
PROMISES_OF: dict[str, tuple[Promise, ...]] = {
    "perturbation": (
        *(moves_inputs_within_bounds, moves_nothing_at_radius_0, draws_from_its_generator_only),
        *(leaves_model_and_inputs_alone, counts_do_not_depend_on_the_batch, perturbation_settings_go_round),
    ),
    "dataset": (loads_a_dataset, loads_the_same_again, can_be_split),
    "model": (
        *(returns_finite_logits, weights_depend_on_the_seed_only, normalises_its_inputs),
        *(judges_each_input_alone, survives_saving, learns),
    ),
    "measure": (gives_a_number_for_each_radius, does_not_depend_on_the_order, leaves_the_counts_alone),
    "scenario": (is_valid_in_every_profile, fits_its_data, has_rows_to_compare),
}
