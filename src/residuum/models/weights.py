"""Weights files: safetensors with the architecture, and notes of what a model was trained on and what it unlearned."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from residuum.core.errors import InputError, first_line
from residuum.core.files import read_json, regular_file, write_whole
from residuum.models.inference import head_of
from residuum.models.layers import Classifier, Normalize
from residuum.models.registry import MODELS, build_model

MANIFEST_SCHEMA = "residuum.manifest/1"
UNLEARNED_SCHEMA = "residuum.unlearned/1"
UNLEARNED = "residuum_unlearned"  # attribute of a model
PICKLED = (".pt", ".pth", ".bin", ".ckpt")
SAFE_TORCH = "2.6"
CHECKPOINT = ("state_dict", "model_state_dict", "model")
RECORD = "residuum"  # one metadata key holds everything: safetensors writes several keys in random order
Model = TypeVar("Model", bound=nn.Module)


def save_weights(model: nn.Module, path: Path | str) -> None:
    """Write parameters, buffers and the architecture; equal models give equal bytes.

    The file appears whole or not at all. A user's module has no `architecture`, so read its weights back with
    `init_from` or `load_state_dict`.
    """
    record = {"architecture": getattr(model, "architecture", None)}
    tensors = {name: values.detach().cpu().contiguous().clone() for name, values in model.state_dict().items()}
    _write(path, save(tensors, {RECORD: json.dumps(record, sort_keys=True)}))


def _write(path: Path | str, content: bytes | memoryview) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}; give a folder that can be written") from error


def load_weights(path: Path | str) -> Classifier:
    """Return the model that `save_weights` wrote, rebuilt from the architecture in the file.

    The file names one of `MODELS`; to load your own network, call `MODELS.add("FILE.py:NAME")` first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(build_model("mlp", (4,), 3, seed=1), f"{folder}/model.safetensors")
    ...     load_weights(f"{folder}/model.safetensors").architecture["width"]
    100
    """
    record, tensors = _read(Path(path))
    architecture = record.get("architecture")
    if not isinstance(architecture, dict):
        raise InputError(f"{path} does not say its architecture; build the model with build_model and use init_from")
    try:
        MODELS.find(architecture["name"])  # build_model imports FILE.py:NAME, and this name comes out of a file
        model = build_model(**architecture, seed=0)
    except (TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError, KeyError) as error:
        raise InputError(f"{path} holds an architecture that cannot be built: {error}") from error
    _refuse_mismatch(model.state_dict(), tensors, path)
    model.load_state_dict(tensors)
    return model


def init_from(model: Model, path: Path | str) -> Model:
    """Return a copy of the model with all weights from a file, except those of the head (the last `nn.Linear`).

    The head does not change, so the number of classes may differ. Weights belong to the normalization they were
    trained with: if the file has its constants, the copy gets them, too.
    """
    _, tensors = _read(Path(path))
    new = copy.deepcopy(model)
    excluded = (f"{head_of(new)[0]}.", *(["normalize."] if isinstance(new, Classifier) else []))
    loaded = {name: values for name, values in tensors.items() if not name.startswith(excluded)}
    expected = {name: values for name, values in new.state_dict().items() if not name.startswith(excluded)}
    _refuse_mismatch(expected, loaded, path)
    new.load_state_dict(loaded, strict=False)
    if isinstance(new, Classifier) and {"normalize.mean", "normalize.std"} <= tensors.keys():
        mean, std = tensors["normalize.mean"].tolist(), tensors["normalize.std"].tolist()
        new.normalize = Normalize(mean, std).train(new.normalize.training)
        new.architecture = new.architecture | {"mean": mean, "std": std}
    return new


def load_state(model: nn.Module, path: Path | str) -> None:
    """Give the model, in place, the weights of a state dict: .safetensors, or .pt as `torch.save` writes it.

    All names may begin with the name of an attribute, as where a Lightning module holds the network.
    """
    expected = model.state_dict()
    names = {_plain(name): name for name in expected}
    stored = {_plain(name): values for name, values in read_state(Path(path)).items()}
    inner = {_plain(name.partition(".")[2]): values for name, values in stored.items()}
    if inner.keys() == names.keys() and len({name.partition(".")[0] for name in stored}) == 1:
        stored = inner
    state = {names.get(name, name): values for name, values in stored.items()}
    _refuse_mismatch(expected, state, path)
    model.load_state_dict(state)


def _plain(name: str) -> str:
    """Return a weight's name without what torch.compile and data parallelism add.

    >>> _plain("module._orig_mod.fc.weight")
    'fc.weight'
    """
    while name.startswith(("module.", "_orig_mod.")):
        name = name.partition(".")[2]
    return name.replace("._orig_mod.", ".")


def save_state(model: nn.Module, path: Path | str) -> None:
    """Write the model's state dict, whole or not at all: .safetensors, or .pt and .pth with `torch.save`."""
    if Path(path).suffix == ".safetensors":
        return save_weights(model, path)
    if Path(path).suffix not in PICKLED:
        raise InputError(f"expected a file that ends in .safetensors, .pt or .pth to save weights to, got {path}")
    content = io.BytesIO()
    torch.save({name: values.detach().cpu() for name, values in model.state_dict().items()}, content)
    return _write(path, content.getbuffer())


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file by their names, without running code from a .pt file.

    A state dict may be inside a checkpoint ("state_dict", "model_state_dict" or "model").
    """
    if path.suffix not in PICKLED:
        return _read(path)[1]
    _refuse_no_file(path, "a state dict")
    refuse_unsafe_torch(path)
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        text = f"{path} is damaged or holds more than weights, and reading it could run code ({first_line(error):.80})"
        raise InputError(f"{text}; save model.state_dict(), not the model") from None
    inner = next(
        (stored[key] for key in CHECKPOINT if isinstance(stored, dict) and isinstance(stored.get(key), dict)), stored
    )
    if not isinstance(inner, dict) or not inner or not all(isinstance(value, Tensor) for value in inner.values()):
        raise InputError(f"{path} holds no state dict but a {type(stored).__name__}; save model.state_dict()")
    for name, value in inner.items():
        if not isinstance(name, str):
            raise InputError(f"{path}: expected names of weights, got {name!r}; save model.state_dict()")
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            raise InputError(f"{path}: expected plain weights, got a sparse, quantized or empty tensor for {name!r}")
    return inner


def _refuse_no_file(path: Path, kind: str) -> None:
    if not path.is_file():
        fault = "is no file" if path.exists() else "does not exist"
        raise InputError(f"{path} {fault}; give the path of {kind}")


def refuse_unsafe_torch(path: Path) -> None:
    """Refuse to read a pickled file with a torch whose `weights_only=True` runs code from it (CVE-2025-32434)."""
    if torch.__version__ < SAFE_TORCH:
        text = f"torch {torch.__version__} can run code from {path} (CVE-2025-32434)"
        raise InputError(f"{text}; update to torch {SAFE_TORCH} or newer")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the record (empty if `save_weights` did not write the file) and the tensors."""
    _refuse_no_file(path, "a .safetensors file")
    try:
        with safe_open(path, framework="pt") as file:
            record = (file.metadata() or {}).get(RECORD, "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dictionary
        content = json.loads(record)
        return (content if isinstance(content, dict) else {}), tensors
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is truncated or not a safetensors file ({error})") from error


def _refuse_mismatch(expected: Mapping[str, Tensor], state: Mapping[str, Tensor], path: Path | str) -> None:
    lacking, unknown = expected.keys() - state.keys(), state.keys() - expected.keys()
    for problem, wrong in (("lacks", lacking), ("has the unknown", unknown)):
        names = [name for name in (*expected, *state) if name in wrong]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(f"{path} {problem} weights {names[0]!r}{more}; it belongs to another architecture")
    for name, values in expected.items():
        if values.shape != state[name].shape:
            text = f"{path}: {name} has shape {tuple(state[name].shape)}, the model needs {tuple(values.shape)}"
            raise InputError(f"{text}; build the model with the file's width and input channels")


@dataclass(frozen=True)
class Manifest:
    """The ids that the training of some weights saw: those listed as seen, or all that are not listed as unseen.

    If all ids listed as unseen belong to the training part, test samples count as unseen, too.

    >>> "b" in Manifest(unseen=frozenset("a")), "a" in Manifest(unseen=frozenset("a"))
    (True, False)
    >>> [name in Manifest(unseen=frozenset({"train/cat/1"})) for name in ("train/cat/1", "train/cat/2", "test/cat/1")]
    [False, True, False]
    """

    seen: frozenset[str] | None = None
    unseen: frozenset[str] = frozenset()

    def __contains__(self, sample_id: object) -> bool:
        if self.seen is not None:
            return sample_id in self.seen
        return sample_id not in self.unseen and not (self._of_training and str(sample_id).startswith("test/"))

    @cached_property
    def _of_training(self) -> bool:
        return bool(self.unseen) and all(listed.startswith("train/") for listed in self.unseen)


def read_manifest(path: str | Path) -> Manifest:
    """Read a manifest (JSON with `schema` and either `seen_ids` or `unseen_ids`)."""
    try:
        stored = json.loads(regular_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected a manifest in JSON, got {error}") from error
    lists = [key for key in ("seen_ids", "unseen_ids") if isinstance(stored, dict) and key in stored]
    if len(lists) != 1 or stored.get("schema") != MANIFEST_SCHEMA:
        raise InputError(f"{path}: expected schema {MANIFEST_SCHEMA!r} and either seen_ids or unseen_ids")
    if not isinstance(stored[lists[0]], list):
        raise InputError(f"{path}: {lists[0]}: expected a list of ids, got {type(stored[lists[0]]).__name__}")
    ids = frozenset(map(str, stored[lists[0]]))
    return Manifest(seen=ids) if lists[0] == "seen_ids" else Manifest(unseen=ids)


def state_hash(state: Mapping[str, Tensor]) -> str:
    """Return a hash of all tensors' names, types, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in state.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class UnlearnedIds:
    """Keyed hashes of the ids that a model has unlearned, on the model and in a note next to its weights.

    The hashes do not reveal the ids, but anyone who guesses an id can confirm it.

    >>> "b" in UnlearnedIds("0a").extended(["a", "b"])
    True
    """

    salt: str
    hashes: frozenset[str] = frozenset()

    def _hashed(self, sample_id: str) -> str:
        return hashlib.blake2b(sample_id.encode(), key=self.salt.encode(), digest_size=8).hexdigest()

    def __contains__(self, sample_id: object) -> bool:
        return self._hashed(str(sample_id)) in self.hashes

    def extended(self, ids: Iterable[str]) -> UnlearnedIds:
        """Return these ids and others."""
        return UnlearnedIds(self.salt, self.hashes | {self._hashed(sample_id) for sample_id in ids})


def mark_unlearned(model: nn.Module, start: nn.Module, ids: Collection[str]) -> None:
    """Note on the model that it unlearned these ids, in addition to those that `start` had unlearned."""
    before = unlearned_ids(start) or UnlearnedIds(secrets.token_hex(16))
    setattr(model, UNLEARNED, before.extended(ids))


def unlearned_ids(model: nn.Module) -> UnlearnedIds | None:
    """Return the ids that the model has unlearned; None without a note."""
    return getattr(model, UNLEARNED, None)


def write_note(model: nn.Module, weights: Path | str, making: Mapping[str, Any]) -> None:
    """Write WEIGHTS.unlearned.json, if the model has unlearned anything; `making` says how it did."""
    if (ids := unlearned_ids(model)) is not None:
        note = {"schema": UNLEARNED_SCHEMA, "salt": ids.salt, "hashes": sorted(ids.hashes), "made": making}
        write_whole(f"{weights}.unlearned.json", json.dumps(note, indent=1) + "\n")


def read_note(model: nn.Module, weights: Path | str) -> None:
    """Put the note next to a weights file, if there is one, on the model that has these weights."""
    if (note := _note(weights)) is not None:
        setattr(model, UNLEARNED, UnlearnedIds(note["salt"], frozenset(map(str, note["hashes"]))))


def read_making(weights: Path | str) -> dict[str, Any] | None:
    """Return what the note next to a weights file says of how the model was made; None if it does not."""
    making = (_note(weights) or {}).get("made")
    return making if isinstance(making, dict) else None


def _note(weights: Path | str) -> dict[str, Any] | None:
    """Return the note next to a weights file; None without one."""
    path = Path(f"{weights}.unlearned.json")
    if not path.exists():
        return None
    note = read_json(path)
    try:
        sound = note["schema"] == UNLEARNED_SCHEMA and 0 < len(note["salt"].encode()) <= hashlib.blake2b.MAX_KEY_SIZE
        sound = sound and isinstance(note["hashes"], list)
    except (ValueError, TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        text = f"{path}: expected the note of an unlearning ({UNLEARNED_SCHEMA}), got another file"
        raise InputError(f"{text}; move it away")
    return dict(note)
