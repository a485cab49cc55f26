"""The manifest of an evidence pack: hashes, and what the record does not say of the request, models, data and code."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from residuum.core.files import file_sha256
from residuum.core.samples import Splits
from residuum.data.copies import NEAR, equal_inputs, near_copies
from residuum.data.dataset import Dataset
from residuum.pack.hashing import Pseudonyms, code_sha256, ids_root, root_of, seal_of
from residuum.record import Results
from residuum.record.audits import Part

SCHEMA = "residuum.pack/4"
LEFT_OUT = [
    "images and the gallery",
    "ids of samples: pseudonyms under the holder's key take their place",
    "which class a sample belongs to: classes are numbered in an order of the key",
    "weights: their hashes take their place",
    "paths, names of files, hosts and users, and names of data that are not public",
    "names of classes, folders and rows of data that are not public, unless the holder allows them",
    "the holder's key",
]
NON_CLAIMS = [
    "no proof of deletion: other copies, backups and derived models were not looked at",
    "no differential privacy and no certificate",
    "no legal opinion",
    "nothing on perturbations or radii that were not tried, nor on an attacker who sees the weights",
    "'not detected' means: less than the smallest level given as power, no more",
]
THREATS = [
    "found: mistakes, swapped files, edits after the seal was deposited and, with models, data and key, wrong "
    "accuracies, and wrong counts among those that a spot check counts again",
    "not found: a holder who invents counts, where models, data or key are not at hand, or counts and models together; "
    "who trains a bad reference on purpose, audits another model than the one that is served, or hides audits that "
    "failed; hashes of the models deposited before the audit narrow this",
]
TEXTS = {"left_out": LEFT_OUT, "non_claims": NON_CLAIMS, "threat_model": THREATS}


class Tool(Part):
    """The software that wrote the pack."""

    residuum: str
    torch: str
    numpy: str
    python: str
    code_sha256: str

    @classmethod
    def installed(cls) -> "Tool":
        """Return the software of this process."""
        versions = {name: version(name) for name in ("residuum", "torch", "numpy")}
        return cls(**versions, python=platform.python_version(), code_sha256=code_sha256())


class RequestFacts(Part):
    """The deletion request, by its size and the root of its pseudonyms alone."""

    size: int
    ids_hmac_root: str
    received: str | None
    delete_pack_by: str | None


class ModelFacts(Part):
    """One model: hash and architecture of its weights file, where there is one."""

    weights_sha256: str | None = None
    architecture: JsonValue = None


class DataFacts(Part):
    """With the data at hand, what the models were trained on.

    `fingerprint_hmac` covers data and key: nobody else can tell by it which data these were.
    """

    fingerprint_hmac: str | None = None
    trained_on: dict[str, Any] | None = None  # size and root of the pseudonyms of each set
    forgotten_among_retained: int | None = None
    near_duplicates: dict[str, Any] | None = None


class Manifest(Part):
    """manifest.json: what the record does not say. `root` is a hash over all files, `seal` one over the manifest."""

    schema_: str = Field(alias="schema")
    name: str
    tool: Tool
    request: RequestFacts
    models: dict[str, ModelFacts]
    data: DataFacts
    files: dict[str, dict[str, Any]]
    root: str
    left_out: list[str]
    non_claims: list[str]
    threat_model: list[str]
    seal: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the manifest as plain values, with what was given and nothing else."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


def sealed_manifest(
    name: str,
    record: Results,
    *,
    forgotten: set[str],
    received: str | None,
    delete_by: str | None,
    weights: Mapping[str, Path],
    data: dict[str, Any],
    files: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Return the manifest of a pack; `forgotten` are pseudonyms, `weights` the file of every model."""
    models = {}
    for model in model_names(record):
        file = weights[model]
        digest = file_sha256(file) if file.is_file() else None
        models[model] = {"weights_sha256": digest, "architecture": architecture(file)}
    manifest = {
        **{"schema": SCHEMA, "name": name, "tool": Tool.installed().model_dump(), **TEXTS},
        "request": request_facts(forgotten) | {"received": received, "delete_pack_by": delete_by},
        **{"models": models, "data": data, "files": files, "root": root_of(files)},
    }
    return manifest | {"seal": seal_of(manifest)}


def expected_manifest(packed: Manifest, record: Results, forgotten: set[str]) -> Manifest:
    """Return the manifest that the record and the pseudonyms of the forgotten samples give.

    Taken over is what they do not decide: dates, versions, hashes of weights, architectures, and what was trained on.
    """
    models = {name: packed.models.get(name) or ModelFacts() for name in model_names(record)}
    request = packed.request.model_copy(update=request_facts(forgotten))
    return packed.model_copy(update={**TEXTS, "models": models, "request": request})


def request_facts(forgotten: set[str]) -> dict[str, Any]:
    """Return what the pseudonyms of the forgotten samples say of the request."""
    return {"size": len(forgotten), "ids_hmac_root": ids_root(forgotten)}


def model_names(record: Results) -> list[str]:
    """Return "LABEL/SEED" of every model."""
    return [f"{label}/{seed}" for label, row in record.methods.items() for seed in row.per_seed]


def weights_file(folder: Path, model: str) -> Path:
    """Return where a run, or its folder `models`, has the weights of the model "LABEL/SEED"."""
    label, _, seed = model.rpartition("/")
    home = folder / "models" if (folder / "models").is_dir() else folder
    return home / seed / f"{label}.safetensors"


def weights_by_hash(folder: Path) -> dict[str, Path]:
    """Return the weights files below a folder by their hashes: a pack may have other labels than the run."""
    return {file_sha256(file): file for file in sorted(folder.rglob("*.safetensors")) if file.is_file()}


def architecture(file: Path) -> object:
    """Return the architecture in the header of a weights file, without loading the weights."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size)) if size < 10_000_000 else {}
    record = json.loads(header.get("__metadata__", {}).get("residuum", "{}"))
    return record.get("architecture")


def training_facts(splits: Splits, pseudonyms: Pseudonyms) -> dict[str, Any]:
    """Return what the data say: their fingerprint, what the models were trained on, and near-duplicates."""
    sets = {"original": splits.train, "reference": splits.retain, "held_out": splits.heldout}
    return {
        "fingerprint_hmac": pseudonyms(f"data {data_fingerprint(splits)}"),
        "trained_on": {
            name: {"size": len(samples), "ids_hmac_root": ids_root(map(pseudonyms, samples.ids))}
            for name, samples in sets.items()
        },
        "forgotten_among_retained": len(set(splits.forget.ids) & set(splits.retain.ids)),
        "near_duplicates": {
            "identical": len(equal_inputs([splits.forget], splits.retain)[0]),
            "near": len(near_copies(splits)[0]),
            "limit": NEAR,
        },
    }


def data_fingerprint(splits: Splits) -> str:
    """Return one hash over inputs, labels and ids of the samples that models were trained and tested on."""
    return Dataset("", splits.train, splits.test, splits.class_names).fingerprint
