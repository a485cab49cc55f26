"""`residuum unlearn` and `residuum audit`: a network of your own, its weights, its data, and what to forget."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from residuum.cli import options
from residuum.cli.options import option, split
from residuum.cli.run import print_run
from residuum.core.console import tell
from residuum.core.errors import InputError, unknown_name
from residuum.core.registry import split_specs

if TYPE_CHECKING:
    from torch import nn

    from residuum.request import Request
    from residuum.studies import Study
    from residuum.studies.subjects import LiveSubject
    from residuum.training import Recipe

SUFFIXES = (".safetensors", ".pt", ".pth")
MODEL = "FILE.py:NAME or PACKAGE.MODULE:NAME of your network's class, or of a function that returns it."
RECIPE = "How the network was trained, key=value comma-separated: optimizer=adamw,lr=0.001,epochs=20."
RETRAIN = (
    "FILE.py:NAME of your training function (samples, seed) -> network; soft_reset wants (samples, seed, model=...)."
)
BATCH = "Names of the arguments that take the parts of an input, comma-separated: input_ids,attention_mask."
MEAN = "With --std, the normalization the network expects; comma-separated, one for each channel or feature."
BOUNDS = "Lowest and highest value of the inputs, or none for standardized features."
DATA = "Training data: a folder with one folder of images per class, an .npz or a .csv file."
FORGET = "Text file with one id per line: a path below the folder, a file's name or its stem, or an id of the table."
EARLIER = "File like --forget with the ids of earlier requests: forgotten too, but not judged by the audit."
VALIDATION = "Validation data, in the format of --data; few methods need them."
SURROGATES = "Use briefly trained surrogates instead of retrained models: cheaper, weaker."

Text = str | None
of_model, of_data, of_audit = (partial(option, group=g) for g in (options.MODEL, options.DATA, options.AUDIT))
HELD_OUT = "Samples that no model was trained on, in the format of --data."
Seed = Annotated[int, option("Seed of everything random.")]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A network in a file, its weights, how it was trained, and which inputs it takes."""

    model: Annotated[str, of_model(MODEL)]
    weights: Annotated[Path, of_model("Trained weights of the network: a state dict, .safetensors or .pt.")]
    recipe: Annotated[Text, of_model(RECIPE)] = None
    retrain: Annotated[Text, of_model(RETRAIN)] = None
    logits: Annotated[Text, of_model("Attribute or key of the network's output with the logits.")] = None
    batch: Annotated[Text, of_model(BATCH)] = None
    tokens: Annotated[bool, of_model("Inputs are token ids.", "--tokens")] = False
    at: Annotated[Text, of_model("Layer whose output is perturbed if inputs are token ids.")] = None
    mean: Annotated[Text, of_model(MEAN)] = None
    std: Annotated[Text, of_model("See --mean.")] = None
    bounds: Annotated[str, of_model(BOUNDS)] = "0,1"
    scale: Annotated[Text, of_model("Unit of the radius: a number, or one for each feature, comma-separated.")] = None
    categorical: Annotated[Text, of_model("Positions of features that noise leaves alone, comma-separated.")] = None

    def networks(self, classes: int) -> Callable[[Path], nn.Module]:
        """Return a function that makes the network with the weights of a file, wrapped as the options say."""
        from residuum.models import wrap

        make, units = network_maker(self.model, classes), numbers(self.scale, "--scale")
        wrapping: dict[str, Any] = {
            "mean": numbers(self.mean, "--mean"),
            "std": numbers(self.std, "--std"),
            "bounds": bounds_of(self.bounds),
            "scale": units[0] if units and len(units) == 1 else units,
            "categorical": positions(self.categorical, "--categorical"),
            "logits": self.logits,
            "batch": split(self.batch),
            "tokens": self.tokens,
            "at": self.at,
            "fresh": make,
        }
        return lambda weights: wrap(make(), weights, **wrapping)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What the network was trained on, how to read it, and what to forget."""

    data: Annotated[Path, of_data(DATA)]
    forget: Annotated[Path, of_data(FORGET)]
    earlier: Annotated[Path | None, of_data(EARLIER)] = None
    validation: Annotated[Path | None, of_data(VALIDATION)] = None
    label: Annotated[Text, of_data("Column with the class; default: label.")] = None
    id_column: Annotated[Text, of_data("Column with the ids; default: id.")] = None
    inputs: Annotated[Text, of_data("Columns that the network takes, comma-separated; default: all others.")] = None
    size: Annotated[int | None, of_data("Side in pixels that the images of a folder are scaled to.")] = None
    channels: Annotated[int | None, of_data("Channels of a folder's images: 1 reads them as gray; default 3.")] = None
    class_names: Annotated[Text, of_data("Names of the classes in the order of the outputs, comma-separated.")] = None

    def request(self, model: ModelOptions, held_out: Path | None) -> Request:
        """Return the request that these options mean."""
        from residuum.request import Reading, Request

        names, inputs = split(self.class_names), split(self.inputs)
        return Request(
            self.data,
            self.forget,
            earlier=self.earlier,
            held_out=held_out,
            validation=self.validation,
            retrain=None if model.retrain is None else loaded(model.retrain, "--retrain", "a function"),
            recipe=read_recipe(model.recipe),
            reading=Reading(self.label, self.id_column, inputs, names, self.size, self.channels),
        )


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """What is audited, what it is compared with, and how."""

    unlearned: Annotated[list[str], of_audit("[LABEL=]FILE of unlearned weights; repeatable.")]
    reference: Annotated[Path | None, of_audit("Weights of a model retrained without the forget set.")] = None
    control: Annotated[
        list[Path] | None, of_audit("Weights of further retrained models, with other seeds; repeatable.")
    ] = None
    controls: Annotated[int, of_audit("Number of controls to train with --retrain or --recipe.", min=0)] = 3
    surrogates: Annotated[bool, of_audit(SURROGATES, "--surrogates")] = False
    perturbations: options.Perturbations = None
    taus: Annotated[Text, of_audit("Radii, comma-separated, for every perturbation.")] = None
    measures: options.Measures = None
    draws: Annotated[int, of_audit(options.DRAWS, min=1)] = 100
    until: options.Until = None
    accept_reference: options.AcceptReference = False


def unlearn_model(
    model: ModelOptions,
    data: DataOptions,
    output: Annotated[Path, option("File of the unlearned weights, .safetensors or .pt, under your own keys.")],
    method: Annotated[str, option("NAME[:key=value...]; see `residuum list methods`.")] = "soft_reset",
    held_out: Annotated[Path | None, of_data(HELD_OUT)] = None,
    seed: Seed = 1,
    as_json: options.Json = False,
) -> None:
    """Unlearn samples from your own network.

    Writes the weights and prints accuracy before and after.
    """
    from residuum.core.errors import ResiduumWarning

    if output.suffix not in SUFFIXES:
        raise InputError(f"--output: expected a file that ends in {' or '.join(SUFFIXES)}, got {output}")
    if not output.parent.is_dir() or output.is_dir():
        raise InputError(f"--output: expected a file in a folder that exists, got {output}")
    try:
        request = data.request(model, held_out)
        original = model.networks(request.splits.classes)(model.weights)
        check = request.check(original)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)  # printed below
            done = request.unlearn(original, method, seed=seed)
    except InputError as error:
        raise InputError(in_options(str(error))) from None
    done.save(output)
    texts = [in_options(text) for text in (*check.problems, *done.warnings)]
    if as_json:
        facts = {"output": str(output), "method": done.method, "settings": dict(done.settings), "seed": seed}
        facts |= {"seconds": done.seconds, "passes": done.passes, "unchanged": done.unchanged}
        facts |= {"accuracy": {name: [done.before[name], done.after[name]] for name in done.before}}
        options.print_json(facts | {"warnings": texts})
        return
    passes = f"{done.passes} passes over single samples" if done.passes else "trained by your function"
    changed = "no weight was changed" if done.unchanged else passes
    next_step = f"now audit it: residuum audit --unlearned {output} ..."
    made = f"{output}: {done.label} in {done.seconds:.0f} s, {changed}; {next_step}"
    lines = [f"{request}: {str(check).splitlines()[0]}", str(done), *(f"warning: {text}" for text in texts), made]
    tell("\n".join(lines))


def in_options(text: str) -> str:
    """Return a sentence about parameters of `Request` as one about options.

    >>> in_options("give recipe=, or a retrain= function that takes model= to start from")
    'give --recipe, or a --retrain function that takes model= to start from'
    """
    names = "recipe|retrain|held_out|validation|earlier"
    return re.sub(rf"\b({names})=(?![\w(])", lambda match: f"--{match[1].replace('_', '-')}", text)


def audit_model(
    model: ModelOptions,
    data: DataOptions,
    comparison: ComparisonOptions,
    output: options.ReportOptions,
    held_out: Annotated[Path, of_data(HELD_OUT)],
    seed: Seed = 1,
    out: Annotated[Path, option("Folder of the run.", group=options.OUTPUT)] = Path("runs/request"),
    store: options.Store = options.DEFAULT_STORE,
    workers: options.Workers = 1,
    yes: options.Yes = False,
) -> None:
    """Audit your own unlearned network.

    Compares it with the original and with retrained models; writes the run and its report.
    """
    start = time.perf_counter()
    output.check_conditions(["original", *labeled(comparison.unlearned)])
    from residuum.reporting import report
    from residuum.request.study import audited
    from residuum.studies.execution import MOST_DAYS, Resources

    resources = Resources(workers, most_days=math.inf if yes else MOST_DAYS)
    study = audited_study(model, data, comparison, held_out, seed, workers)
    run = audited(study, out, store=store, resources=resources, gallery=output.gallery, progress=True)
    report(run, samples=output.samples)
    if output.as_json:
        options.print_json(run.record.as_dict())
    else:
        print_run(run, time.perf_counter() - start)
    output.exit_if_failed([run])


def audited_study(
    model: ModelOptions, data: DataOptions, comparison: ComparisonOptions, held_out: Path, seed: int, workers: int
) -> Study:
    """Return the study that the options of `audit` mean; a worker process makes its own from the same options."""
    from residuum.request.study import AuditOptions, References, request_study

    request = data.request(model, held_out)
    network = model.networks(request.splits.classes)
    references = References(
        reference=None if comparison.reference is None else network(comparison.reference),
        controls=[network(path) for path in comparison.control] if comparison.control else comparison.controls,
        surrogates=comparison.surrogates,
    )
    audit = AuditOptions(
        perturbations=None if comparison.perturbations is None else split_specs(comparison.perturbations),
        taus=numbers(comparison.taus, "--taus"),
        measures=None if comparison.measures is None else split_specs(comparison.measures),
        draws=comparison.draws,
        until=comparison.until,
        seed=seed,
        accept_reference=comparison.accept_reference,
    )
    models = {label: network(path) for label, path in labeled(comparison.unlearned).items()}
    study = request_study(request, network(model.weights), models, references, audit, workers=workers)
    again = partial(subject_again, os.getcwd(), model, data, comparison, held_out, seed, workers)
    return study.model_copy(update={"live": replace(cast("LiveSubject", study.live), build=again)})


def subject_again(folder: str, *options: Any) -> LiveSubject:  # noqa: ANN401 (those of audited_study)
    """Return in a worker process what the command in `folder` works on."""
    with contextlib.chdir(folder):
        return cast("LiveSubject", audited_study(*options).live)


def labeled(files: list[str]) -> dict[str, Path]:
    """Return weights files by the labels of their rows, by default the file's stem; a file's path may have "=".

    >>> labeled(["new=a/b.pt", "runs/lr=0.1/c.safetensors"])
    {'new': PosixPath('a/b.pt'), 'c': PosixPath('runs/lr=0.1/c.safetensors')}
    """
    rows: dict[str, Path] = {}
    for text in files:
        label, equals, path = text.partition("=")
        if not equals or Path(text).is_file() or ("/" in label and not Path(path).is_file()):
            label, path = Path(text).stem, text  # an equals sign, if any, is in the path
        if label in rows:
            raise InputError(f"--unlearned: two rows are called {label!r}; give LABEL=FILE")
        rows[label] = Path(path)
    return rows


def numbers(text: str | None, option: str) -> list[float] | None:
    """Return the numbers of a comma-separated list."""
    try:
        return None if text is None else [float(part) for part in split(text) or []]
    except ValueError:
        raise InputError(f"{option}: expected comma-separated numbers, got {text!r}") from None


def positions(text: str | None, option: str) -> list[int]:
    """Return the whole numbers of a comma-separated list."""
    try:
        return [int(part) for part in split(text) or []]
    except ValueError:
        raise InputError(f"{option}: expected comma-separated whole numbers, got {text!r}") from None


def bounds_of(text: str) -> tuple[Any, Any] | None:
    """Return low and high, or None.

    >>> bounds_of("0,1"), bounds_of("none")
    ((0.0, 1.0), None)
    """
    if text.lower() in ("none", ""):
        return None
    bounds = numbers(text, "--bounds") or []
    if len(bounds) != 2:
        raise InputError(f"--bounds: expected LOW,HIGH or none, got {text!r}")
    return bounds[0], bounds[1]


def read_recipe(text: str | None) -> Recipe | None:
    """Return the recipe of `key=value,...`."""
    from pydantic import ValidationError

    from residuum.training import Recipe
    from residuum.unlearning import first_problem

    if text is None:
        return None
    names = [field.name for field in fields(Recipe)]
    pairs = [part.partition("=") for part in split(text) or []]
    for key, _, value in pairs:
        if not value:
            raise InputError(f"--recipe: expected key=value, comma-separated, got {text!r}")
        if key not in names:
            raise unknown_name("setting of --recipe", key, names)
    try:
        return Recipe(**{key: value for key, _, value in pairs})  # type: ignore[arg-type]
    except ValidationError as error:
        raise InputError(f"--recipe: {first_problem(error)}") from None


def loaded(source: str, option: str, kind: str) -> Callable[..., Any]:
    """Return the function or class that an option names."""
    from residuum.core.registry import load_plugin

    if ":" not in source:
        raise InputError(f"{option}: expected FILE.py:NAME or PACKAGE.MODULE:NAME, got {source!r}")
    component = load_plugin(source)
    if not callable(component):
        raise InputError(f"{option}: expected {kind} in {source}, got {type(component).__name__}")
    return component  # type: ignore[no-any-return]


def network_maker(source: str, classes: int) -> Callable[[], nn.Module]:
    """Return what builds the network: a class or function of no argument, or of the number of classes."""
    from torch import nn

    factory = loaded(source, "--model", "a class or a function")
    if isinstance(factory, nn.Module):
        raise InputError(f"--model: expected a class or a function in {source}, got {type(factory).__name__}")
    parameters = inspect.signature(factory).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    if len(needed) > 1:
        fault = f"{source} needs {len(needed)} arguments"
        raise InputError(f"--model: {fault}; name a function that takes none, or the number of classes")

    def make() -> nn.Module:
        try:
            network = factory(*[classes] * len(needed))
        except Exception as error:  # whatever a network's constructor raises is the finding
            raise InputError(f"--model: {source} cannot be built ({type(error).__name__}: {error})") from error
        if not isinstance(network, nn.Module):
            raise InputError(f"--model: {source} returned {type(network).__name__}, expected an nn.Module")
        return network

    return make
