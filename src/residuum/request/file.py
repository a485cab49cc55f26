"""A request file, usually deletion.toml: model, data, what to forget and how, described once for every command."""

from __future__ import annotations

import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator
from torch import nn

from residuum.core.errors import InputError, expected, unknown_name
from residuum.core.files import regular_file
from residuum.core.registry import load_plugin
from residuum.data.ids import read_ids
from residuum.data.read import Reading
from residuum.models import wrap
from residuum.request.models import Unlearned, saved_unlearned
from residuum.request.request import Request
from residuum.request.soft_reset import BUDGET
from residuum.request.study import AuditOptions, References, request_study
from residuum.studies.execution import RUNS, STORE
from residuum.studies.parsing import field_type, read_as
from residuum.studies.settings import Radii, Strict, Texts
from residuum.studies.study import Study, parse_row
from residuum.studies.subjects import LiveSubject
from residuum.training import Recipe

SUFFIXES = (".safetensors", ".pt", ".pth")
UNLEARNED = "unlearned.safetensors"
CONTROL = re.compile(r"[\x00-\x1f]")
PLAIN_PATHS = r"in double quotes \ begins a special character: write / in paths, or use single quotes"
Numbers = float | tuple[float, ...]
Placed = Callable[[str, Path], str]  # a path or source as it is from a folder
Network = Callable[[Path | None], nn.Module]  # with the weights of a file


def _as_tuple(value: Any) -> Any:  # noqa: ANN401 (whatever the user wrote)
    return (value,) if isinstance(value, str | Path) else value


Files = Annotated[tuple[Path, ...], BeforeValidator(_as_tuple)]


def setting(about: str, default: Any = ..., example: Any = None) -> Any:  # noqa: ANN401 (values of any type)
    """Return a field with what a request file says about it; `...` is a setting that every file has."""
    return Field(default, description=about, examples=[default if example is None else example])


Seed = Annotated[int, Field(ge=0, lt=2**63)]


class TicketSection(Strict):
    """What the letter about the request says of it."""

    number: str | None = setting("number of the request", None, "2026-117")
    received: date | None = setting("day on which it was received", None, date(2026, 11, 2))
    answered_by: str | None = setting("who carries it out", None, "Example Ltd, data protection")
    checked_by: str | None = setting("who may check the evidence; default: whoever has it", None, "the regulator")


class ModelSection(Strict):
    """The network, its weights, and which inputs it takes: the arguments of `wrap`."""

    source: str = setting("FILE.py:NAME of your network's class, or of a function that returns it", ..., "")
    weights: Path | None = setting("its trained weights: a state dict, .safetensors or .pt", None, "weights.pt")
    mean: Numbers | None = setting("with std, the normalization that the network expects", None, 0.5)
    std: Numbers | None = setting("one number, or one for each channel or feature", None, 0.25)
    bounds: tuple[Numbers, Numbers] | Literal["none"] = setting(
        'lowest and highest value of the inputs; "none" for standardized features', (0.0, 1.0)
    )
    scale: Numbers | None = setting("unit of the radius: a number, or one for each feature", None, 1.0)
    categorical: tuple[int, ...] = setting("positions of the features that noise leaves alone", (), [3, 4])
    logits: str | None = setting("attribute or key of the output that holds the logits", None, "logits")
    batch: Texts = setting("arguments that take the parts of an input", (), ["input_ids", "attention_mask"])
    tokens: bool = setting("inputs are token ids", False)
    at: str | None = setting("layer whose output is perturbed where inputs are token ids", None, "embeddings")


class DataSection(Strict):
    """What the network was trained on, what no model was trained on, and how both are read."""

    train: str = setting("all training data: a folder of class folders, .npz, .csv or FILE.py:FUNCTION", ..., "")
    held_out: str | None = setting("samples that no model was trained on; an audit needs them", None, "val")
    validation: str | None = setting("held-out samples that methods may read; few need them", None, "validation")
    split: Path | None = setting("record of `residuum split`, which made train and held_out", None, "split.json")
    label: str | None = setting("column with the class", None, "label")
    id_column: str | None = setting("column with the ids", None, "id")
    inputs: Texts | None = setting("columns that the network takes; default: all others", None, ["age", "income"])
    class_names: Texts | None = setting("names of the classes, in the order of the outputs", None, ["cat", "dog"])
    size: int | None = setting("side in pixels that the images of a folder are scaled to", None, 32)
    channels: int | None = setting("1 reads the images of a folder as gray; default 3", None, 1)

    @property
    def reading(self) -> Reading:
        """How the data are read."""
        return Reading(**{field.name: getattr(self, field.name) for field in fields(Reading)})


class ForgetSection(Strict):
    """Which samples are to be forgotten."""

    ids: Path = setting("text file, one id per line: a path below the folder, a file's name or its stem", ..., "")
    earlier: Files = setting("such files of earlier requests: forgotten too, not judged", (), ["2026-10.txt"])

    @field_validator("ids", mode="before")
    @classmethod
    def _in_a_file(cls, ids: object) -> object:
        if isinstance(ids, list):
            raise ValueError("expected the name of a text file with one id per line")  # noqa: TRY004 (pydantic's)
        return ids


class RetrainSection(Strict):
    """How models are retrained without the forget set, or which retrained models there are."""

    function: str | None = setting(
        "your training function (samples, seed, model=None, epochs=30) -> network", None, "net.py:my_train"
    )
    epochs: Annotated[int, Field(ge=1)] | None = setting(
        "epochs of the original's training, where the function has no default for them", None, 30
    )
    recipe: Recipe | None = setting(
        "how the network was trained, if there is no function", None, {"optimizer": "adamw", "lr": 0.001, "epochs": 20}
    )
    reference: Path | None = setting("weights that you retrained without the forget set", None, "retrained.pt")
    controls: Literal["auto"] | Annotated[int, Field(ge=0, le=100)] | tuple[Path, ...] = setting(
        "how many further retrained models: auto (3 to 8), a number, or a list of weights", "auto"
    )
    surrogates: bool = setting("use briefly trained surrogates instead: cheaper, and no verdict", False)


class UnlearnSection(Strict):
    """How the samples are unlearned, and where the weights go."""

    method: str = setting("NAME[:key=value...] of `residuum list methods`", "soft_reset")
    budget: Annotated[float, Field(gt=0, le=1)] = setting(
        "most that soft_reset may train, as a share of the original's epochs", BUDGET
    )
    seed: Seed = setting("seed of everything random", 1)
    weights: Path | None = setting("the unlearned weights; default: in the folder of results", None, UNLEARNED)
    decoys: Annotated[int, Field(ge=0)] = setting(
        "random training samples to forget as well, for an audit without retraining (`residuum audit --decoys`)", 0, 200
    )

    @field_validator("weights")
    @classmethod
    def _has_suffix(cls, weights: Path | None) -> Path | None:
        if weights is not None and weights.suffix not in SUFFIXES:
            raise ValueError(f"expected a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        return weights


class AuditSection(Strict):
    """How the unlearned model is audited: the fields of `AuditOptions`."""

    unlearned: dict[str, Path] | Files = setting(
        "other weights to audit than those of unlearn: a list, or {label = file}", (), {"new": "new.pt"}
    )
    perturbations: Texts | None = setting("how samples are perturbed", None, "gaussian")
    taus: Radii | dict[str, Radii] | None = setting("radii of all perturbations, or by name", None, [0.0, 0.05, 0.1])
    measures: Texts | None = setting("names of `residuum list measures`, or FILE.py:FUNCTION", None, "recovery")
    draws: Annotated[int, Field(ge=1, lt=2**31)] = setting("perturbed copies per sample and radius", AuditOptions.draws)
    until: Literal["verdict"] | None = setting("stop when more draws cannot change a verdict", None, "verdict")
    seed: Seed = setting("seed of everything random", AuditOptions.seed)
    accept_reference: bool = setting("judge by a reference that is not comparable", False)
    gallery: bool = setting("write pictures of forgotten samples into the run", False)

    @property
    def options(self) -> AuditOptions:
        """How the audit measures."""
        return AuditOptions(**{field.name: getattr(self, field.name) for field in fields(AuditOptions)})


class OutputSection(Strict):
    """Where results go."""

    folder: Path = setting("weights, run, report and evidence; default: runs/FILE", ..., "runs/deletion")
    store: Path = setting("finished stages, which the same command uses again", ..., str(STORE))


WRAPPING = [name for name in ModelSection.model_fields if name not in ("source", "weights")]
PATHS = {  # settings that are paths, relative to the file; the data may be code as well
    "model": ("weights",),
    "data": ("train", "held_out", "validation", "split"),
    "forget": ("ids", "earlier"),
    "retrain": ("reference", "controls"),
    "unlearn": ("weights",),
    "audit": ("unlearned",),
    "output": ("folder", "store"),
}
CODE = {  # settings that may name FILE.py:NAME, relative to the file
    "model": ("source",),
    "data": ("train", "held_out", "validation"),
    "retrain": ("function",),
    "unlearn": ("method",),
    "audit": ("perturbations", "measures"),
}
# what Python users pass, and what it is called in a file
WORDS = {
    "retrain= function": "retrain.function",
    "retrain=": "retrain.function",
    "recipe=": "retrain.recipe",
    "reference=": "retrain.reference",
    "surrogates=True": "retrain.surrogates = true",
    "held_out=": "data.held_out",
    "unlearn(..., decoys=200)": "`--set unlearn.decoys=200`",
    "validation=": "data.validation",
    "earlier=": "forget.earlier",
    "Request(epochs=)": "retrain.epochs",
    "try budget": "try unlearn.budget",
    "inputs=": "data.inputs",
    "label=": "data.label",
    "id_column=": "data.id_column",
    "class_names": "data.class_names",
    "logits=": "model.logits",
    "at=": "model.at",
    "wrap(..., bounds=)": "model.bounds",
    "wrap(..., logits=)": "model.logits",
    "wrap(mean=, std=)": "model.mean and model.std",
    "wrap(..., fresh=) or ": "",
    "audit(retrain.reference...)": "retrain.reference",
}


class RequestFile(Strict):
    """Everything that a request file says; all paths are absolute.

    `RequestFile.read("deletion.toml")` reads it; `changes` has settings by dotted keys that replace those of the file,
    as `--set` does. Code that the file names is imported by `load` and `networks`, never by `read`.
    """

    request: TicketSection = TicketSection()
    model: ModelSection
    data: DataSection
    forget: ForgetSection
    retrain: RetrainSection = RetrainSection()
    unlearn: UnlearnSection = UnlearnSection()
    audit: AuditSection = AuditSection()
    output: OutputSection

    @classmethod
    def read(cls, path: Path | str, changes: Mapping[str, Any] | None = None) -> Self:
        """Return what a file and the changes say; relative paths are relative to the file, in changes to this folder.

        Texts among the changes are read as the types of their settings say.
        """
        file = Path(path)
        home = file.resolve().parent
        places = {"folder": str(home / RUNS / file.stem), "store": str(home / STORE)}
        tree = _joined({"output": places}, _absolute(_tree(file), home))
        read = cls.validated(_joined(tree, _read_changes(changes or {})), f"{path}: ", home)
        read._refuse_places_in_data(f"{path}: ")
        return read

    @classmethod
    def validated(cls, tree: Mapping[str, Any], where: str = "", folder: Path | None = None) -> Self:
        """Return the settings of a tree with paths from a folder, if any, or raise an InputError of one line."""
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            raise InputError(f"{where}{_problem(error, folder)}") from None

    @property
    def weights(self) -> Path:
        """The file of the unlearned weights."""
        return self.unlearn.weights or self.output.folder / UNLEARNED

    def _refuse_places_in_data(self, where: str) -> None:
        """Refuse to write into a folder of images: what lies there is taken for data the next time."""
        places = {"output.folder": self.output.folder, "output.store": self.output.store}
        places |= {} if self.unlearn.weights is None else {"unlearn.weights": self.unlearn.weights.parent}
        for source in (self.data.train, self.data.held_out, self.data.validation):
            if source is None or ".py:" in source or not (data := Path(source)).is_dir():
                continue
            for key, place in places.items():
                if _is_read(place.resolve(), data.resolve()):
                    raise InputError(f"{where}{key}: expected a place outside the data in {data}, got {place}")

    def refuse_unusable_place(self, weights: Path | None = None) -> None:
        """Refuse a place where the unlearned weights cannot be written, before anything is computed.

        `weights` is that place where the file does not say it.
        """
        place, start = weights or self.weights, self.model.weights
        if start is not None and place.exists() and start.exists() and place.samefile(start):
            raise InputError(
                f"the unlearned weights would replace the weights to start from, model.weights = {start}; name another "
                f"{'output.folder' if weights or self.unlearn.weights is None else 'file as unlearn.weights'}"
            )
        folder = self.weights.parent
        if self.unlearn.weights is None:
            folder = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        if not folder.is_dir() or self.weights.is_dir():
            raise InputError(f"unlearn.weights: expected a file in a folder that exists, got {self.weights}")
        for key, wanted in {"output.folder": self.output.folder, "output.store": self.output.store}.items():
            there = next(path for path in (wanted, *wanted.parents) if os.path.lexists(path))
            if not there.is_dir() or not os.access(there, os.W_OK) or _of_the_system(there):
                raise InputError(f"{key}: expected a folder that can be written, got {wanted}")

    def load(self) -> Request:
        """Return the request, which remembers this file; this reads the data and imports the training function."""
        section = self.retrain
        earlier = [name for file in self.forget.earlier for name in read_ids(file)]
        request = Request(
            _data(self.data.train),
            self.forget.ids,
            earlier=earlier if self.forget.earlier else None,
            held_out=_data(self.data.held_out),
            validation=_data(self.data.validation),
            retrain=None if section.function is None else _loaded(section.function, "retrain.function", "a function"),
            recipe=section.recipe,
            epochs=section.epochs,
            reading=self.data.reading,
            split=self.data.split,
        )
        request.file = self
        return request

    def networks(self, classes: int) -> Network:
        """Return a function that makes the network with the weights of a file, wrapped as the file says."""
        section = self.model
        make = _network_maker(section.source, classes)
        options = {name: getattr(section, name) for name in WRAPPING}
        options |= {"bounds": None if section.bounds == "none" else section.bounds, "fresh": make}
        return lambda weights: wrap(make(), weights, **options)

    def references(self, network: Network) -> References:
        """Return the retrained models that the file names, and how many are to be made."""
        section, controls = self.retrain, self.retrain.controls
        return References(
            reference=None if section.reference is None else network(section.reference),
            controls=controls if isinstance(controls, int | str) else [network(file) for file in controls],
            surrogates=section.surrogates,
        )

    def unlearned(self, network: Network) -> dict[str, Unlearned | nn.Module]:
        """Return the unlearned models to audit by the labels of their rows: given, noted with the weights, or stems."""
        listed = self.audit.unlearned or (self.weights,)
        if isinstance(listed, dict):
            return {label: saved_unlearned(network(file), file) for label, file in listed.items()}
        models: dict[str, Unlearned | nn.Module] = {}
        for file in listed:
            if file == self.weights and not file.is_file():
                raise InputError(f"{file} does not exist; make it with `residuum unlearn`, or name audit.unlearned")
            model = saved_unlearned(network(file), file)
            label = model.label if isinstance(model, Unlearned) else file.stem
            if label in models:
                raise InputError(f"audit.unlearned: two rows are called {label!r}; give label = file")
            models[label] = model
        return models

    def study(self, request: Request | None = None, *, workers: int = 1) -> Study:
        """Return the study of the audit; a worker process makes its own from this value."""
        request = request or self.load()
        study = self.study_of(request, self.unlearned(request.network), workers=workers)
        live = replace(cast(LiveSubject, study.live), build=partial(_subject, self, workers))
        return study.model_copy(update={"live": live})

    def audited_rows(self, request: Request) -> list[str]:
        """Return the labels of the rows that an audit of the unlearned model will have; refuse what none can audit.

        Nothing is computed, so that it can be asked before samples are unlearned.
        """
        label = parse_row(self.unlearn.method).label
        study = self.study_of(request, {label: request.model})
        return ["original", *(row.label for row in study.rows)]

    def study_of(self, request: Request, models: Mapping[str, Unlearned | nn.Module], *, workers: int = 1) -> Study:
        """Return the study of these unlearned models of the file's request."""
        references = self.references(request.network)
        return request_study(request, request.model, models, references, self.audit.options, workers=workers)


def _of_the_system(place: Path) -> bool:
    """Tell whether a folder is one of the system's file trees, which nobody can write to."""
    return any(place.is_relative_to(root) for root in ("/proc", "/sys"))


def _is_read(place: Path, data: Path) -> bool:
    """Tell whether a place is in a folder of data, and not in a hidden folder of it, which nobody reads.

    >>> _is_read(Path("/data/out"), Path("/data")), _is_read(Path("/data/.store"), Path("/data"))
    (True, False)
    """
    return place.is_relative_to(data) and not (place.relative_to(data).parts or ("",))[0].startswith(".")


def _subject(file: RequestFile, workers: int) -> LiveSubject:
    """Return in a worker process what the audit of a file works on."""
    return cast(LiveSubject, file.study(workers=workers).live)


def in_file_words(text: str) -> str:
    """Return a sentence about parameters of `Request` and `wrap` as one about the settings of a request file.

    >>> in_file_words("give recipe=, or a retrain= function that takes model= to start from")
    'give retrain.recipe, or a retrain.function that takes model= to start from'
    """
    for words, setting in WORDS.items():
        text = re.sub(rf"(?<![\w.]){re.escape(words)}(?![\w(\[])", setting, text)
    return text


def is_request_file(path: Path | str) -> bool:
    """Tell whether a .toml file is a request, rather than a scenario or something that cannot be read."""
    tree = _sections_in(path)
    return "source" in tree.get("model", {}) or "train" in tree.get("data", {}) or "retrain" in tree


def is_scenario_file(path: Path | str) -> bool:
    """Tell whether a .toml file has what only a scenario has."""
    tree = _sections_in(path)
    return not is_request_file(path) and ("name" in tree.get("data", {}) or "train" in tree or "based_on" in tree)


def _sections_in(path: Path | str) -> dict[str, Any]:
    """Return the tables of a .toml file, and its texts as empty tables; nothing where it cannot be read."""
    try:
        tree = tomllib.loads(regular_file(path).read_text(encoding="utf-8-sig")) if str(path).endswith(".toml") else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: value if isinstance(value, dict) else {} for name, value in tree.items()}


HEAD = """# A request file of Residuum. First `residuum check {name}`, then `residuum run {name}`.
# Paths are relative to this file. Code that it names is imported: run only request files that you trust.
# A line "# key = value" is a setting that you can do without; its value is the default or an example.
"""


def file_text(tree: Mapping[str, Mapping[str, Any]], file: str = "deletion.toml") -> str:
    """Return a request file with these settings by section and key, and all others as comments.

    >>> text = file_text({"model": {"source": "net.py:Net"}})
    >>> next(line.partition("  ")[0] for line in text.splitlines() if line.startswith("source"))
    'source = "net.py:Net"'
    """
    lines = [HEAD.format(name=file)]
    for section, kind in sections().items():
        settings = tree.get(section, {})
        lines.append(f"# {(kind.__doc__ or '').splitlines()[0]}\n[{section}]")
        for key, field in kind.model_fields.items():
            value = settings.get(key, (field.examples or [None])[0])
            needed = "needed: " if f"{section}.{key}" in needed_settings() else ""
            lines.append(f"{'' if key in settings else '# '}{key} = {_written(value)}  # {needed}{field.description}")
        lines.append("")
    return "\n".join(lines)


def settings_tree(changes: Mapping[str, Any], file: Path) -> dict[str, dict[str, Any]]:
    """Return settings that were given by dotted keys, by section and key, with paths relative to the file."""
    tree = _read_changes(changes)
    any_other: dict[str, Any] = {"output": {"folder": "x", "store": "x"}}
    for key in needed_settings():
        any_other = _joined(any_other, _nested(key.split("."), "x"))
    RequestFile.validated(_joined(any_other, tree))

    def relative(text: str, folder: Path) -> str:
        head, separator, tail = text.partition(".py:")
        place = Path(f"{head}{'.py' if separator else ''}")
        below = place.is_absolute() and place.is_relative_to(folder)
        return f"{place.relative_to(folder)}{separator[3:]}{tail}" if below else text

    return _with_places(tree, relative, relative, file.resolve().parent)


def sections() -> dict[str, type[BaseModel]]:
    """Return the sections of a request file by name."""
    return {name: cast(type[BaseModel], field.annotation) for name, field in RequestFile.model_fields.items()}


def about(key: str) -> str:
    """Return what a setting means, by its dotted key."""
    section, _, name = key.partition(".")
    return str(sections()[section].model_fields[name].description)


def needed_settings() -> list[str]:
    """Return the dotted keys of the settings that every request file has."""
    return [
        f"{section}.{key}"
        for section, kind in sections().items()
        for key, field in kind.model_fields.items()
        if field.is_required() and section != "output"
    ]


def _written(value: Any) -> str:  # noqa: ANN401 (plain values)
    """Return a value in TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _tree(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(regular_file(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; `residuum init` writes a request file") from None
    except (ValueError, RecursionError) as error:  # neither TOML nor UTF-8
        hint = f"; {PLAIN_PATHS}" if re.search(r"Unescaped '\\'|Invalid hex", str(error)) else ""
        raise InputError(f"{path}: it is not valid TOML: {error}{hint}") from None
    for name in RequestFile.model_fields:
        if name in tree and not isinstance(tree[name], dict):
            raise InputError(f"{path}: {name}: expected a table [{name}], got {tree[name]!r}")
    _refuse_special_characters(tree, path)
    return tree


def _refuse_special_characters(tree: Mapping[str, Any], path: Path) -> None:
    """Refuse a path with a tab or another control character, which a backslash in double quotes stands for."""
    for section, keys in (*PATHS.items(), *CODE.items()):
        for key in keys:
            value = tree.get(section, {}).get(key)
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and CONTROL.search(text):
                    fault = f"{section}.{key}: expected a text without special characters, got {text!r}"
                    raise InputError(f"{path}: {fault}; {PLAIN_PATHS}")


def _absolute(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings with absolute paths and sources."""
    return _with_places(tree, _absolute_path, _absolute_code, folder)


def _with_places(tree: Mapping[str, Any], path: Placed, code: Placed, folder: Path) -> dict[str, Any]:
    """Return the settings with every path and every source replaced."""
    whole = dict(tree)
    for keys, place in ((PATHS, path), (CODE, code)):
        for section, names in keys.items():
            if isinstance(whole.get(section), dict):
                settings = whole[section]
                replaced = {name: _replaced(settings[name], place, folder) for name in names if name in settings}
                whole[section] = {**settings, **replaced}
    return whole


def _replaced(value: Any, place: Placed, folder: Path) -> Any:  # noqa: ANN401 (whatever the user wrote)
    if isinstance(value, dict):
        return {key: _replaced(part, place, folder) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, place, folder) for part in value]
    return place(str(value), folder) if isinstance(value, str | Path) and str(value) else value


def _absolute_path(text: str, folder: Path) -> str:
    return text if ".py:" in text or text == "auto" else str(folder / Path(text).expanduser())


def _absolute_code(text: str, folder: Path) -> str:
    """Return NAME:key=value... or FILE.py:NAME:key=value... with the whole path of the file, if there is one."""
    head, separator, tail = text.partition(".py:")
    return f"{folder / Path(head).expanduser()}{separator}{tail}" if separator else text


def _read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that were given in this folder by dotted keys, by section and key, with absolute paths."""
    tree: dict[str, Any] = {}
    for key, value in changes.items():
        tree = _joined(tree, _nested(key.split(".", 2), read_as(_type_of(key), value)))
    return _absolute(tree, Path.cwd())


def _nested(parts: Sequence[str], value: object) -> dict[str, Any]:
    return {parts[0]: _nested(parts[1:], value) if parts[1:] else value}


def _joined(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the changes: tables are joined, other values replaced; keys may have dots."""
    tree = dict(base)
    for key, value in changes.items():
        old = tree.get(key)
        tree[key] = _joined(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return tree


def _type_of(key: str) -> Any:  # noqa: ANN401 (a type)
    """Return the type of a setting by its dotted key."""
    parts = key.split(".", 2)
    keys = [f"{name}.{field}" for name, kind in sections().items() for field in kind.model_fields]
    free = ".".join(parts[:2]) in ("retrain.recipe", "audit.taus", "audit.unlearned")
    if ".".join(parts[:2] if free else parts) not in keys:
        raise unknown_name("setting", key, keys)
    return field_type(RequestFile, parts)


def _names(kind: Any) -> list[str]:  # noqa: ANN401 (a type)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def _problem(error: ValidationError, folder: Path | None) -> str:
    """Return the first complaint about a file as one line; alternatives of one setting are one complaint."""
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    problems = sorted(error.errors(), key=lambda problem: problem["type"] not in unknown)  # a misspelled name first
    first = problems[0]
    place = first["loc"][: 3 if first["loc"][:2] == ("retrain", "recipe") else 2]
    where = ".".join(map(str, place))
    if first["type"] in unknown:
        *above, name = map(str, place)
        kind = field_type(RequestFile, above) if above else RequestFile
        allowed = next(names for part in (kind, *get_args(kind)) if (names := _names(part)))
        if other := next((section for section, kind in sections().items() if name in kind.model_fields), None):
            return f"{name} is a setting of [{other}]; move it there"
        return str(unknown_name(f"setting of [{'.'.join(above)}]" if above else "section", name, allowed))
    if first["type"] == "missing" and len(first["loc"]) <= len(place):
        needed = [key for key in needed_settings() if key.startswith(f"{where}.")]
        together = f"[{where}] is missing; expected it with {' and '.join(needed)}"
        return together if len(place) == 1 else f"{where} is missing: {about(where)}"
    complaints = [problem for problem in problems if problem["loc"][: len(place)] == place]
    got = repr(first["input"]) if folder is None else repr(first["input"]).replace(f"{folder}{os.sep}", "")
    return f"{where}: {expected(complaints, len(place))}, got {got}"


def _data(source: str | None) -> object:
    """Return the path of the data, or what a function of the user's returns."""
    return _loaded(source, "data", "a function")() if source is not None and ".py:" in source else source


def _loaded(source: str, setting: str, kind: str) -> Callable[..., Any]:
    """Return the function or class that a setting names."""
    if ":" not in source:
        raise InputError(f"{setting}: expected FILE.py:NAME or PACKAGE.MODULE:NAME, got {source!r}")
    component = load_plugin(source)
    if not callable(component):
        raise InputError(f"{setting}: expected {kind} in {source}, got {type(component).__name__}")
    return component  # type: ignore[no-any-return]


def _network_maker(source: str, classes: int) -> Callable[[], nn.Module]:
    """Return what builds the network: a class or function of no argument, or of the number of classes."""
    factory = _loaded(source, "model.source", "a class or a function")
    if isinstance(factory, nn.Module):
        raise InputError(f"model.source: expected a class or a function in {source}, got {type(factory).__name__}")
    parameters = inspect.signature(factory).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    if len(needed) > 1:
        fault = f"{source} needs {len(needed)} arguments"
        raise InputError(f"model.source: {fault}; name a function that takes none, or the number of classes")

    def make() -> nn.Module:
        try:
            network = factory(*[classes] * len(needed))
        except Exception as error:  # whatever a network's constructor raises is the finding
            raise InputError(f"model.source: {source} cannot be built ({type(error).__name__}: {error})") from error
        if not isinstance(network, nn.Module):
            raise InputError(f"model.source: {source} returned {type(network).__name__}, expected an nn.Module")
        return network

    return make
