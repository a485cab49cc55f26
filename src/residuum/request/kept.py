"""Retrained models of own requests, kept as they are finished: an audit that was killed trains only what is missing.

A model is found again only where everything that decides it is known and the same: the retained samples, the network
and its weights, the seed, the recipe or the training function, and all source code outside installed packages. What
cannot be compared, such as a training function that reads an object of a kind unknown here, is trained again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import shutil
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.files import ASIDE, file_sha256
from residuum.core.samples import Samples
from residuum.data.dataset import add_samples
from residuum.models import load_state, private_copy, save_state
from residuum.models.weights import state_hash
from residuum.record.folder import KEPT_FACTS, KEPT_IDS, KEPT_WEIGHTS, RETRAINED, note_written
from residuum.request.models import Made
from residuum.studies.manifest import code_fingerprint

if TYPE_CHECKING:
    from residuum.request.request import Request

PLAIN = (type(None), bool, int, float, str, Path, inspect.Parameter, torch.dtype, torch.device)


class UnknownError(Exception):
    """Something that decides a model cannot be compared with what it was at another time."""


@dataclass(frozen=True)
class KeptModels:
    """The folder of the models that one audit retrains; `reason` says why nothing is kept, if nothing is."""

    folder: Path
    decisive: Mapping[str, Any]
    model: nn.Module
    samples: Samples
    reason: str = ""

    @classmethod
    def of(cls, request: Request, model: nn.Module, seed: int, innocents: bool, folder: Path) -> KeptModels:
        """Return the models of a request; what decides them is looked at once, before the first training."""
        samples = request.splits.retain
        try:
            decisive = {"seed": seed, "innocents": innocents, **_decisive(request, model, samples)}
        except UnknownError as error:
            return cls(folder, {}, model, samples, str(error))
        return cls(folder, decisive, model, samples)

    def place(self, number: int) -> Path:
        """Return the folder of the `number`-th model."""
        text = json.dumps({"number": number, **self.decisive}, sort_keys=True)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:32]

    def has(self, number: int) -> bool:
        """Tell whether the `number`-th model is there."""
        return not self.reason and (self.place(number) / KEPT_FACTS).is_file()

    def find(self, number: int) -> Made | None:
        """Return the model if it is there, and whole."""
        place = self.place(number)
        if not self.has(number):
            return None
        try:
            facts = json.loads((place / KEPT_FACTS).read_text(encoding="utf-8"))
            if file_sha256(place / KEPT_WEIGHTS) != facts["sha256"]:
                return None
            return Made(
                _restored(self.model, place / KEPT_WEIGHTS), "retrain", seconds=facts["seconds"], passes=facts["passes"]
            )
        except (OSError, ValueError, KeyError, TypeError, InputError):
            return None  # damaged: it is trained again

    def keep(self, number: int, made: Made) -> None:
        """Keep a finished model, whole or not at all, unless its weights in the original's network answer otherwise."""
        if self.reason:
            return
        place, aside = self.place(number), self.folder / f"{ASIDE}{uuid4().hex}"
        try:
            aside.mkdir(parents=True)
            note_written(self.folder, RETRAINED)
            save_state(made.model, aside / KEPT_WEIGHTS)
            if not self._answers_alike(made.model, aside / KEPT_WEIGHTS):
                return
            facts = {"seconds": made.seconds, "passes": made.passes, "sha256": file_sha256(aside / KEPT_WEIGHTS)}
            (aside / KEPT_IDS).write_text("\n".join(sorted(self.samples.ids)) + "\n", encoding="utf-8")
            (aside / KEPT_FACTS).write_text(json.dumps(facts), encoding="utf-8")
            shutil.rmtree(place, ignore_errors=True)
            aside.rename(place)
        except OSError as error:
            raise InputError(
                f"cannot write to {self.folder}: {error.strerror}; free some space or give kept="
            ) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _answers_alike(self, made: nn.Module, weights: Path) -> bool:
        x, _ = self.samples.batch(torch.arange(min(8, len(self.samples))))
        try:
            with torch.no_grad():
                return torch.equal(_restored(self.model, weights)(x), made.eval()(x))
        except InputError:  # another architecture
            return False


def _restored(model: nn.Module, weights: Path) -> nn.Module:
    new = private_copy(model)
    load_state(new, weights)
    return new.eval()


def _decisive(request: Request, model: nn.Module, samples: Samples) -> dict[str, Any]:
    """Return everything that decides a retrained model but its number, as JSON values."""
    digest = hashlib.sha256()
    add_samples(digest, samples)
    adapter = getattr(model, "adapter", None)
    how = request.retrain if request.retrain is not None else asdict(request.recipe) if request.recipe else None
    return {
        "samples": digest.hexdigest(),
        "items": _facts(type(request.source.items)) if request.source.items is not None else None,
        "network": [_facts(type(model)), repr(model), state_hash(model.state_dict())],
        "adapter": None if adapter is None else _facts(vars(adapter)),
        "fresh": _facts(getattr(model, "fresh_network", None)),
        "how": _facts(how),
        "code": [code_fingerprint(("residuum.request.models",)), torch.__version__, _own_code()],
    }


def _own_code() -> str:
    """Return a hash over the source of every loaded module that is not an installed package."""
    installed = {Path(folder).resolve() for folder in (sys.prefix, sys.base_prefix)}
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(file).resolve() for file in loaded if file}
    own = [file for file in sorted(files) if file.suffix == ".py" and not installed & set(file.parents)]
    ours = Path(__file__).resolve().parents[1]
    shown = [file for file in own if "site-packages" not in file.parts and ours not in file.parents]
    return hashlib.sha256("\n".join(file_sha256(file) for file in shown if file.is_file()).encode()).hexdigest()


def _facts(value: Any, above: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 (anything)
    """Return a value as JSON that is the same for the same value in another process."""
    if isinstance(value, PLAIN) or id(value) in above:
        return f"{type(value).__name__} {value if isinstance(value, PLAIN) else 'itself'}"
    above = (*above, id(value))
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, dict):
        value = sorted(((str(key), each) for key, each in value.items()), key=lambda pair: pair[0])
    if isinstance(value, list | tuple):
        return [_facts(each, above) for each in value]
    if isinstance(value, Tensor):
        return state_hash({"": value})
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return value.__name__
    if inspect.isclass(value) or inspect.isfunction(value):
        return [value.__qualname__, _source_hash(value), *([] if inspect.isclass(value) else _reads(value, above))]
    raise UnknownError(f"training reads an object of type {type(value).__name__}, which cannot be compared")


def _source_hash(thing: Any) -> str:  # noqa: ANN401 (a class or a function)
    if inspect.isclass(thing) and thing.__module__ == "builtins":
        return "builtins"
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        raise UnknownError(f"{thing.__qualname__} has no source file")
    return file_sha256(Path(file))


def _reads(function: types.FunctionType, above: tuple[int, ...]) -> list[Any]:
    """Return what a function reads from outside: defaults, enclosing variables and globals."""
    names = inspect.getclosurevars(function)
    outside = [function.__defaults__, function.__kwdefaults__, dict(names.nonlocals), dict(names.globals)]
    return [_facts(each, above) for each in outside]
