"""The identity of the user's own objects: a hash that another process gives the same data, network and training.

It covers the samples, the network and its weights, the recipe or the training function with everything that it reads,
and all source code outside installed packages. What cannot be compared, such as a training function that reads an
object of a kind unknown here, is an `UnknownError`: its audit is computed anew each time.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from residuum.core.files import file_sha256
from residuum.core.inputs import InputSpace
from residuum.data.dataset import add_samples
from residuum.models.weights import state_hash
from residuum.perturbations import Perturbation
from residuum.studies.artifacts import code_fingerprint

if TYPE_CHECKING:
    from residuum.request.request import Request

PLAIN = (type(None), bool, int, float, str, Path, inspect.Parameter, torch.dtype, torch.device)
Placed = Mapping[str, tuple[Perturbation, InputSpace]]
JSON = Any  # a plain value, or lists and dictionaries of such


class UnknownError(Exception):
    """Something that decides a result cannot be compared with what it was at another time."""


def subject_identity(request: Request, model: nn.Module, placed: Placed) -> str:
    """Return the hash of the samples, what is forgotten, the network without its weights, and the perturbations."""
    digest = hashlib.sha256()
    for part in (request.source.samples, request.held_out, request.validation):
        digest.update(b"part")
        if part is not None:
            add_samples(digest, part)
    moved = {name: [facts(type(one)), facts(vars(one)), facts(vars(space))] for name, (one, space) in placed.items()}
    content = [request.forget_ids, request.earlier_ids, request.class_names, _network(model), moved, own_code()]
    digest.update(json.dumps(content).encode())
    return digest.hexdigest()


def training_identity(request: Request, model: nn.Module, *, surrogates: bool) -> str:
    """Return the hash of everything that decides a retrained model but its seed and the samples."""
    trainable = [weights.requires_grad for weights in model.parameters()]
    items = None if request.source.items is None else facts(type(request.source.items))
    how = [facts(request.retrain), facts(request.recipe and vars(request.recipe)), items, surrogates]
    network = [_network(model), state_hash(model.state_dict()), trainable, facts(getattr(model, "fresh_network", None))]
    code = [code_fingerprint(("residuum.studies.retraining",)), torch.__version__, own_code()]
    return hashlib.sha256(json.dumps([how, network, code]).encode()).hexdigest()


def _network(model: nn.Module) -> JSON:
    adapter = getattr(model, "adapter", None)
    return [facts(type(model)), repr(model), None if adapter is None else facts(vars(adapter))]


def own_code() -> str:
    """Return a hash over the source of every loaded module that is not an installed package."""
    installed = {Path(folder).resolve() for folder in (sys.prefix, sys.base_prefix)}
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(file).resolve() for file in loaded if file}
    outside = [file for file in sorted(files) if file.suffix == ".py" and not installed & set(file.parents)]
    residuum = Path(__file__).resolve().parents[1]
    code = [file for file in outside if "site-packages" not in file.parts and residuum not in file.parents]
    return hashlib.sha256("\n".join(file_sha256(file) for file in code if file.is_file()).encode()).hexdigest()


def facts(value: object, above: tuple[int, ...] = ()) -> JSON:
    """Return a value as JSON that is the same for the same value in another process."""
    if isinstance(value, PLAIN) or id(value) in above:
        return f"{type(value).__name__} {value if isinstance(value, PLAIN) else 'itself'}"
    above = (*above, id(value))
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, dict):
        value = sorted(((str(key), item) for key, item in value.items()), key=lambda pair: pair[0])
    if isinstance(value, list | tuple):
        return [facts(item, above) for item in value]
    if isinstance(value, Tensor):
        return state_hash({"": value})
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return value.__name__
    if inspect.isclass(value) or inspect.isfunction(value):
        return [value.__qualname__, _source_hash(value), *([] if inspect.isclass(value) else _reads(value, above))]
    raise UnknownError(f"training reads an object of type {type(value).__name__}, which cannot be compared")


def _source_hash(thing: type | types.FunctionType) -> str:
    if inspect.isclass(thing) and thing.__module__ == "builtins":
        return "builtins"
    try:
        file = inspect.getsourcefile(thing)
    except (TypeError, OSError):  # a class of a notebook is in a module without a file
        file = None
    if file is None or not Path(file).is_file():
        raise UnknownError(f"{thing.__qualname__} has no source file")
    return file_sha256(Path(file))


def _reads(function: types.FunctionType, above: tuple[int, ...]) -> list[JSON]:
    """Return what a function reads from outside: defaults, enclosing variables and globals."""
    names = inspect.getclosurevars(function)
    outside = [function.__defaults__, function.__kwdefaults__, dict(names.nonlocals), dict(names.globals)]
    return [facts(item, above) for item in outside]
