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
from typing import TYPE_CHECKING, Annotated, Any

from residuum.cli import options
from residuum.cli.options import option
from residuum.cli.run import ACCEPT, UNTIL, print_run
from residuum.core.console import tell
from residuum.core.errors import InputError, unknown_name
from residuum.core.registry import split_specs

if TYPE_CHECKING:
    from torch import nn

    from residuum.request import Request
    from residuum.request.study import RequestStudy
    from residuum.studies.subjects import LiveSubject
    from residuum.training import Recipe

SUFFIXES = (".safetensors", ".pt", ".pth")
MODEL = "FILE.py:NAME or PACKAGE.MODULE:NAME of your network's class, or of a function that returns it."
DATA = "What it was trained on: a folder of class folders of images, an .npz or a .csv file."
FORGET = "Text file with one id a line: a path below the folder, a file's name or its stem, or an id of the table."
EARLIER = "Ids of earlier requests, as --forget: forgotten as well, never retained, and not judged by the audit."
RETRAIN = (
    "FILE.py:NAME of your training function (samples, seed) -> network; soft_reset wants (samples, seed, model=...)."
)
HELD_OUT = "Samples that no model was trained on, as --data."
MEAN = "With --std, the normalization the network expects; comma-separated, one for each channel or feature."
BATCH = "Names of the arguments that parts of an input are given as, e.g. input_ids,attention_mask."
RECIPE = "How it was trained, key=value comma-separated: optimizer=adamw,lr=0.001,epochs=20."
VALIDATION = "Samples that methods may validate on, as --data; few methods need them."

Text = str | None
of_model, of_data = (partial(option, group=group) for group in (options.MODEL, options.DATA))
of_audit, of_output = (partial(option, group=group) for group in (options.AUDIT, options.OUTPUT))


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """What both commands are given: a network in a file, its weights and data, what to forget, and how inputs are."""

    model: Annotated[str, of_model(MODEL)]
    weights: Annotated[Path, of_model("Its state dict, .safetensors or .pt, as it was trained.")]
    data: Annotated[Path, of_data(DATA)]
    forget: Annotated[Path, of_data(FORGET)]
    earlier: Annotated[Path | None, option(EARLIER)] = None
    validation: Annotated[Path | None, of_data(VALIDATION)] = None
    mean: Annotated[Text, of_model(MEAN)] = None
    std: Annotated[Text, of_model("See --mean.")] = None
    bounds: Annotated[str, of_model("Lowest and highest value of the inputs, or none for standardized features.")] = (
        "0,1"
    )
    scale: Annotated[Text, of_model("Unit of the radius: a number, or one for each feature, comma-separated.")] = None
    categorical: Annotated[Text, of_model("Positions of features that noise leaves alone, comma-separated.")] = None
    logits: Annotated[Text, of_model("Attribute or key of the network's output that holds the logits.")] = None
    batch: Annotated[Text, of_model(BATCH)] = None
    tokens: Annotated[bool, of_model("Inputs are token ids.", "--tokens")] = False
    at: Annotated[Text, of_model("Layer whose output noise moves where inputs are token ids.")] = None
    label: Annotated[Text, of_data("Column with the class; default: label.")] = None
    id_column: Annotated[Text, of_data("Column with the ids; default: id.")] = None
    inputs: Annotated[Text, of_data("Columns that the network takes, comma-separated; default: all others.")] = None
    size: Annotated[int | None, of_data("Side in pixels that the images of a folder are scaled to.")] = None
    channels: Annotated[int | None, of_data("Channels of a folder's images: 1 reads them as gray; default 3.")] = None
    class_names: Annotated[Text, of_data("Names of the classes in the order of the outputs, comma-separated.")] = None
    recipe: Annotated[Text, of_model(RECIPE)] = None
    seed: Annotated[int, option("Seed of everything random.")] = 1

    def request(self, held_out: Path | None, retrain: str | None = None) -> Request:
        """Return the request that these options mean."""
        from residuum.request import Request

        return Request(
            self.data,
            self.forget,
            earlier=self.earlier,
            held_out=held_out,
            validation=self.validation,
            retrain=None if retrain is None else loaded(retrain, "--retrain", "a function"),
            recipe=read_recipe(self.recipe),
            class_names=split(self.class_names),
            label=self.label,
            id_column=self.id_column,
            inputs=split(self.inputs),
            size=self.size,
            channels=self.channels,
        )

    def networks(self, classes: int) -> Callable[[Path], nn.Module]:
        """Return what makes the network with given weights, wrapped as the options say."""
        from residuum.models import wrap

        make, units = network_maker(self.model, classes), numbers(self.scale, "--scale")
        given: dict[str, Any] = {
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
        return lambda weights: wrap(make(), weights, **given)


@options.with_options
def unlearn_model(
    own: OwnModel,
    output: Annotated[Path, option("File of the unlearned weights, .safetensors or .pt, under your own keys.")],
    method: Annotated[str, option("NAME[:key=value...]; see `residuum list methods`.")] = "soft_reset",
    held_out: Annotated[Path | None, option(HELD_OUT)] = None,
    retrain: Annotated[str | None, option(RETRAIN)] = None,
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
        request = own.request(held_out, retrain)
        original = own.networks(request.splits.classes)(own.weights)
        check = request.check(original)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)  # printed below
            done = request.unlearn(original, method, seed=own.seed)
    except InputError as error:
        raise InputError(in_options(str(error))) from None
    done.save(output)
    texts = [in_options(text) for text in (*check.problems, *done.warnings)]
    if as_json:
        facts = {"output": str(output), "method": done.method, "settings": dict(done.settings), "seed": own.seed}
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


@dataclass(frozen=True, kw_only=True)
class AuditedModels(OwnModel):
    """What `audit` is given in addition: the unlearned weights, retrained models or how to make them, and the audit."""

    held_out: Annotated[Path, option(HELD_OUT)]
    unlearned: Annotated[list[str], option("[LABEL=]FILE of unlearned weights; repeatable.")]
    reference: Annotated[Path | None, of_audit("Weights of a model retrained without the forget set.")] = None
    control: Annotated[
        list[Path] | None, of_audit("Weights of further retrained models, with other seeds; repeatable.")
    ] = None
    retrain: Annotated[str | None, option("FILE.py:NAME of your training function (samples, seed) -> network.")] = None
    controls: Annotated[int, of_audit("Number of controls to train with --retrain or --recipe.", min=0)] = 3
    surrogates: Annotated[
        bool, of_audit("Use briefly trained surrogates instead of retrained models: cheaper, weaker.", "--surrogates")
    ] = False
    perturbations: options.Perturbations = None
    taus: Annotated[str | None, of_audit("Radii, comma-separated, for every perturbation.")] = None
    measures: options.Measures = None
    draws: Annotated[int, of_audit("Perturbed copies of each forgotten sample at each radius.", min=1)] = 100
    until: Annotated[str | None, of_audit(UNTIL)] = None
    accept_reference: Annotated[bool, of_audit(ACCEPT, "--accept-reference")] = False
    workers: Annotated[int, option(options.WORKERS, group=options.RESOURCES, min=1, max=1024)] = 1

    def study(self) -> RequestStudy:
        """Return the study that these options mean."""
        from residuum.request.study import AuditOptions, request_study

        request = self.request(self.held_out, self.retrain)
        network = self.networks(request.splits.classes)
        asked = AuditOptions(
            reference=None if self.reference is None else network(self.reference),
            controls=[network(path) for path in self.control] if self.control else self.controls,
            surrogates=self.surrogates,
            perturbations=None if self.perturbations is None else split_specs(self.perturbations),
            taus=numbers(self.taus, "--taus"),
            measures=None if self.measures is None else split_specs(self.measures),
            draws=self.draws,
            until=self.until,
            seed=self.seed,
            accept_reference=self.accept_reference,
        )
        models = {label: network(path) for label, path in labeled(self.unlearned).items()}
        study = request_study(request, network(self.weights), models, asked, workers=self.workers)
        return replace(study, live=replace(study.live, build=partial(subject_again, self, os.getcwd())))


def subject_again(own: AuditedModels, folder: str) -> LiveSubject:
    """Return in a worker process what the command in `folder` works on."""
    with contextlib.chdir(folder):
        return own.study().live


@options.with_options
def audit_model(
    own: AuditedModels,
    out: Annotated[Path, of_output("Folder of the run.")] = Path("runs/request"),
    store: Annotated[Path, option("Folder of finished stages.", group=options.RESOURCES)] = options.DEFAULT_STORE,
    yes: Annotated[bool, option("Start even if the estimate is more than a month.", "--yes")] = False,
    gallery: options.Gallery = None,
    samples: options.SampleList = None,
    fail_if: options.FailIf = None,
    as_json: options.RecordJson = False,
) -> None:
    """Audit your own unlearned network.

    Compares it with the original and with retrained models; writes the run and its report.
    """
    start = time.perf_counter()
    options.check_conditions(fail_if, ["original", *labeled(own.unlearned)])
    from residuum.reporting import report
    from residuum.request.study import audited
    from residuum.studies.execution import MOST_DAYS, Resources

    resources = Resources(own.workers, most_days=math.inf if yes else MOST_DAYS)
    run = audited(own.study(), out, store=store, resources=resources, gallery=gallery, progress=True)
    report(run, samples=samples)
    if as_json:
        options.print_json(run.record.as_dict())
    else:
        print_run(run, time.perf_counter() - start)
    options.exit_if_failed([run], fail_if)


def labeled(files: list[str]) -> dict[str, Path]:
    """Return weights files by the labels of their rows, by default the file's stem; a file's path may have "=".

    >>> labeled(["new=a/b.pt", "runs/lr=0.1/c.safetensors"])
    {'new': PosixPath('a/b.pt'), 'c': PosixPath('runs/lr=0.1/c.safetensors')}
    """
    named: dict[str, Path] = {}
    for text in files:
        label, equals, path = text.partition("=")
        if Path(text).is_file() or ("/" in label and not Path(path).is_file()):  # an equals sign in the path
            equals = ""
        found = Path(path if equals else text)
        if (name := label if equals else found.stem) in named:
            raise InputError(f"--unlearned: two rows are called {name!r}; give LABEL=FILE")
        named[name] = found
    return named


def split(text: str | None) -> list[str] | None:
    """Return the parts of a comma-separated text.

    >>> split("a, b"), split(None)
    (['a', 'b'], None)
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str | None, what: str) -> list[float] | None:
    """Return the numbers of a comma-separated text."""
    try:
        return None if text is None else [float(part) for part in split(text) or []]
    except ValueError:
        raise InputError(f"{what}: expected comma-separated numbers, got {text!r}") from None


def positions(text: str | None, what: str) -> list[int]:
    """Return the whole numbers of a comma-separated text.

    >>> positions("0, 3", "--categorical")
    [0, 3]
    """
    try:
        return [int(part) for part in split(text) or []]
    except ValueError:
        raise InputError(f"{what}: expected comma-separated whole numbers, got {text!r}") from None


def bounds_of(text: str) -> tuple[Any, Any] | None:
    """Return low and high, or None.

    >>> bounds_of("0,1"), bounds_of("none")
    ((0.0, 1.0), None)
    """
    if text.lower() in ("none", ""):
        return None
    found = numbers(text, "--bounds") or []
    if len(found) != 2:
        raise InputError(f"--bounds: expected LOW,HIGH or none, got {text!r}")
    return found[0], found[1]


def read_recipe(text: str | None) -> Recipe | None:
    """Return the recipe of `key=value,...`."""
    from pydantic import ValidationError

    from residuum.training import Recipe
    from residuum.unlearning import first_problem

    if text is None:
        return None
    pairs = [part.partition("=") for part in split(text) or []]
    known = [field.name for field in fields(Recipe)]
    for key, equals, value in pairs:
        if not equals or not value:
            raise InputError(f"--recipe: expected key=value, comma-separated, got {text!r}")
        if key not in known:
            raise unknown_name("setting of --recipe", key, known)
    try:
        return Recipe(**{key: value for key, _, value in pairs})  # type: ignore[arg-type]
    except ValidationError as error:
        raise InputError(f"--recipe: {first_problem(error)}") from None


def loaded(source: str, option: str, kind: str) -> Callable[..., Any]:
    """Return the function or class that an option names."""
    from residuum.core.registry import load_plugin

    if ":" not in source:
        raise InputError(f"{option}: expected FILE.py:NAME or PACKAGE.MODULE:NAME, got {source!r}")
    found = load_plugin(source)
    if not callable(found):
        raise InputError(f"{option}: expected {kind} in {source}, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def network_maker(source: str, classes: int) -> Callable[[], nn.Module]:
    """Return what builds the network: a class or function of no argument, or of the number of classes."""
    from torch import nn

    found = loaded(source, "--model", "a class or a function")
    if isinstance(found, nn.Module):
        raise InputError(f"--model: expected a class or a function in {source}, got {type(found).__name__}")
    parameters = inspect.signature(found).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    if len(needed) > 1:
        fault = f"{source} needs {len(needed)} arguments"
        raise InputError(f"--model: {fault}; name a function that takes none, or the number of classes")

    def make() -> nn.Module:
        try:
            made = found(*[classes] * len(needed))
        except Exception as error:  # whatever a network's constructor raises is the finding
            raise InputError(f"--model: {source} cannot be built ({type(error).__name__}: {error})") from error
        if not isinstance(made, nn.Module):
            raise InputError(f"--model: {source} returned {type(made).__name__}, expected an nn.Module")
        return made

    return make
