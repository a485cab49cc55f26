"""What `unlearn` and `audit` share: a network in a file, its weights, data, and what to forget, from options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from residuum.errors import InputError, unknown_name

if TYPE_CHECKING:
    from torch import nn

    from residuum.request import Request
    from residuum.training import Recipe

Model = Annotated[
    str,
    typer.Option(help="FILE.py:NAME or PACKAGE.MODULE:NAME of your network's class, or of a function that returns it."),
]
Weights = Annotated[Path, typer.Option(help="Its state dict, .safetensors or .pt, as it was trained.")]
Data = Annotated[
    Path, typer.Option(help="What it was trained on: a folder of class folders of images, an .npz or a .csv file.")
]
Forget = Annotated[
    Path,
    typer.Option(
        help="Text file with one id a line: a path below the folder, a file's name or its stem, or an id of the table."
    ),
]
HeldOut = Annotated[Path | None, typer.Option(help="Samples that no model was trained on, as --data.")]
Validation = Annotated[
    Path | None, typer.Option(help="Samples that methods may validate on, as --data; few methods need them.")
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="With --std, the normalisation the network expects; comma-separated, one for each channel or feature."
    ),
]
Std = Annotated[str | None, typer.Option(help="See --mean.")]
Bounds = Annotated[str, typer.Option(help="Lowest and highest value of the inputs, or none for standardised features.")]
Scale = Annotated[
    str | None, typer.Option(help="Unit of the radius: a number, or one for each feature, comma-separated.")
]
Categorical = Annotated[
    str | None, typer.Option(help="Positions of features that noise leaves alone, comma-separated.")
]
Logits = Annotated[str | None, typer.Option(help="Attribute or key of the network's output that holds the logits.")]
Batch = Annotated[
    str | None,
    typer.Option(help="Names of the arguments that parts of an input are given as, e.g. input_ids,attention_mask."),
]
Tokens = Annotated[bool, typer.Option("--tokens", help="Inputs are token ids.")]
At = Annotated[str | None, typer.Option(help="Layer whose output noise moves where inputs are token ids.")]
Label = Annotated[str | None, typer.Option(help="Column with the class; default: label.")]
IdColumn = Annotated[str | None, typer.Option(help="Column with the ids; default: id.")]
Inputs = Annotated[
    str | None, typer.Option(help="Columns that the network takes, comma-separated; default: all others.")
]
Size = Annotated[int | None, typer.Option(help="Side in pixels that the images of a folder are scaled to.")]
ClassNames = Annotated[
    str | None, typer.Option(help="Names of the classes in the order of the outputs, comma-separated.")
]
RecipeText = Annotated[
    str | None, typer.Option(help="How it was trained, key=value comma-separated: optimiser=adamw,lr=0.001,epochs=20.")
]
Retrain = Annotated[str | None, typer.Option(help="FILE.py:NAME of your training function (samples, seed) -> network.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable output.")]


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

    from residuum.methods import first_problem
    from residuum.training import Recipe

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


def network_maker(source: str, classes: int) -> Callable[[], nn.Module]:
    """Return what builds the network: a class or function of no argument, or of the number of classes."""
    from torch import nn

    from residuum.plugins import load_plugin

    if ":" not in source:
        raise InputError(f"--model: expected FILE.py:NAME or PACKAGE.MODULE:NAME, got {source!r}")
    found = load_plugin(source)
    if isinstance(found, nn.Module) or not callable(found):
        raise InputError(f"--model: expected a class or a function in {source}, got {type(found).__name__}")
    needed = [
        p
        for p in inspect.signature(found).parameters.values()
        if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD
    ]
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


def training_function(source: str | None) -> Callable[[Any, int], nn.Module] | None:
    """Return the user's training function."""
    from residuum.plugins import load_plugin

    if source is None:
        return None
    if ":" not in source:
        raise InputError(f"--retrain: expected FILE.py:NAME or PACKAGE.MODULE:NAME, got {source!r}")
    found = load_plugin(source)
    if not callable(found):
        raise InputError(f"--retrain: expected a function in {source}, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def refuse_unwritable(path: Path, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse a file to write that could not be written, before anything is computed."""
    if suffixes and path.suffix not in suffixes:
        raise InputError(f"--out: expected a file that ends in {' or '.join(suffixes)}, got {path}")
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"--out: expected a file in a folder that exists, got {path}")


def print_json(value: Any) -> None:  # noqa: ANN401 (any JSON value)
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=1))


class Own(NamedTuple):
    """A request, and how networks of the user's kind are made from weights files."""

    request: Request
    wrapped: Callable[[Path], nn.Module]


def own_model(
    source: str,
    data: Path,
    forget: Path,
    *,
    held_out: Path | None,
    validation: Path | None,
    mean: str | None,
    std: str | None,
    bounds: str,
    scale: str | None,
    categorical: str | None,
    logits: str | None,
    batch: str | None,
    tokens: bool,
    at: str | None,
    label: str | None,
    id_column: str | None,
    inputs: str | None,
    size: int | None,
    class_names: str | None,
    recipe: str | None,
    retrain: str | None,
) -> Own:
    """Return what the options of `unlearn` and `audit` mean together, checked before anything is computed."""
    from residuum.models import wrap
    from residuum.request import Request

    request = Request(
        data,
        forget,
        held_out=held_out,
        validation=validation,
        retrain=training_function(retrain),
        recipe=read_recipe(recipe),
        class_names=split(class_names),
        label=label,
        id_column=id_column,
        inputs=split(inputs),
        size=size,
    )
    make = network_maker(source, request.splits.classes)
    units = numbers(scale, "--scale")
    options: dict[str, Any] = {
        "mean": numbers(mean, "--mean"),
        "std": numbers(std, "--std"),
        "bounds": bounds_of(bounds),
        "scale": units[0] if units and len(units) == 1 else units,
        "categorical": [int(position) for position in numbers(categorical, "--categorical") or []],
        "logits": logits,
        "batch": split(batch),
        "tokens": tokens,
        "at": at,
        "fresh": make,
    }
    return Own(request, lambda weights: wrap(make(), weights, **options))
