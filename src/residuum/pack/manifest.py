"""The manifest of an evidence pack: what was to be forgotten, which models, data and code, and what came out."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, JsonValue

from residuum.core.files import file_sha256
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits
from residuum.data.dataset import Dataset
from residuum.judging import gates, rule
from residuum.pack.hashing import Pseudonyms, code_sha256, ids_root, root_of, seal_of
from residuum.record import Results
from residuum.record.audits import Part

SCHEMA = "residuum.pack/3"
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
SEEDS = ("seed", "noise_check", "bootstrap_seed")  # the settings of an audit that differ from seed to seed
NEAR = 0.02  # root-mean-square difference of two inputs, as a share of their range
ROWS = 512


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

    form: str
    size: int
    ids_hmac_root: str
    received: str | None
    completed: str
    delete_pack_by: str | None


class ModelFacts(Part):
    """One model: hash and architecture of its weights file, where there is one, its recipe, and what it started from.

    The parent of an unlearned model is the original.
    """

    weights_sha256: str | None = None
    architecture: JsonValue = None
    recipe: dict[str, Any]
    seed: int
    parent: str | None


class DataFacts(Part):
    """The data by name and sizes and, with the data at hand, what the models were trained on.

    `fingerprint_hmac` covers data and key: nobody else can tell by it which data these were.
    """

    name: str
    public: bool
    sizes: dict[str, int]
    pretrained: JsonValue  # hashes of the weights that every model starts from
    fingerprint_hmac: str | None = None
    trained_on: dict[str, Any] | None = None  # size and root of the pseudonyms of each set
    forgotten_among_retained: int | None = None
    near_duplicates: dict[str, Any] | None = None


class Conclusions(Part):
    """What the record decides: the audits with their seeds, the thresholds of the rule, gates, verdicts and power."""

    created: JsonValue
    audit: dict[str, Any]
    gates: list[Any]
    thresholds: dict[str, Any]
    rule_version: int | None
    verdict: dict[str, Any]
    power: dict[str, Any]
    floor: dict[str, Any]
    left_out: list[str]
    non_claims: list[str]
    threat_model: list[str]


class Manifest(Conclusions):
    """manifest.json. `root` is a hash over all files, and `seal` one over the rest of the manifest."""

    schema_: str = Field(alias="schema")
    name: str
    tool: Tool
    request: RequestFacts
    models: dict[str, ModelFacts]
    data: DataFacts
    files: dict[str, dict[str, Any]]
    root: str
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
    for model, facts in model_facts(record).items():
        file = weights[model]
        digest = file_sha256(file) if file.is_file() else None
        models[model] = facts | {"weights_sha256": digest, "architecture": architecture(file)}
    manifest = Manifest.model_validate(
        conclusions(record)
        | {
            "schema": SCHEMA,
            "name": name,
            "tool": Tool.installed(),
            "request": request_facts(record, forgotten) | {"received": received, "delete_pack_by": delete_by},
            "models": models,
            "data": data,
            "files": files,
            "root": root_of(files),
        }
    ).as_dict()
    return manifest | {"seal": seal_of(manifest)}


def expected_manifest(stated: Manifest, record: Results, forgotten: set[str]) -> Manifest:
    """Return the manifest that the record and the pseudonyms of the forgotten samples give.

    Taken over is what they do not decide: dates, versions, hashes of weights, architectures, and what was trained on.
    """
    models = {
        name: (stated.models.get(name) or ModelFacts(**facts)).model_copy(update=facts)
        for name, facts in model_facts(record).items()
    }
    request = stated.request.model_copy(update=request_facts(record, forgotten))
    data = stated.data.model_copy(update=data_facts(record))
    return stated.model_copy(update=conclusions(record) | {"models": models, "request": request, "data": data})


def conclusions(record: Results) -> dict[str, Any]:
    """Return the fields of `Conclusions` that a record gives."""
    audits: dict[str, Any] = {}
    for _, seed, name, audit in record.each_audit():
        settings = audit.settings.model_dump(mode="json", exclude_unset=True)
        entry = audits.setdefault(name, {"taus": audit.taus, "seeds": {}})
        entry["seeds"][seed] = {key: settings.pop(key, None) for key in SEEDS} | {"draws": audit.draws}
        entry["settings"] = settings
    return {
        "created": record.created,
        "audit": audits,
        "gates": [
            {"name": gate.name, "passed": gate.passed, "reason": None if gate.passed else gate.text}
            for gate in record.gates
        ],
        "thresholds": {  # every number that the rule and the gates compare with
            "error": rule.ERROR,
            "level_share": rule.LEVEL_SHARE,
            "radius_0_share": rule.RADIUS_0_SHARE,
            "radii_share": rule.RADII_SHARE,
            "memory_share": rule.MEMORY_SHARE,
            "power": rule.POWER,
            "fewest_retrained": rule.FEWEST_RETRAINED,
            "test_points": gates.TEST_POINTS,
            "retain_points": gates.RETAIN_POINTS,
            "control_points": gates.CONTROL_POINTS,
            "leak": gates.LEAK,
        },
        "rule_version": record.rule_version,
        "verdict": {label: judgment.verdict.name for label, judgment in record.verdicts.items() if judgment.verdict},
        "power": {label: j.smallest for label, j in record.verdicts.items()},
        "floor": {name: floor.model_dump(mode="json") for name, floor in record.noise_floor.items()},
        "left_out": LEFT_OUT,
        "non_claims": NON_CLAIMS,
        "threat_model": THREATS,
    }


def request_facts(record: Results, forgotten: set[str]) -> dict[str, Any]:
    """Return what a record and the pseudonyms of the forgotten samples say of the request."""
    root = ids_root(forgotten)
    return {"form": record.scenario.form, "size": len(forgotten), "ids_hmac_root": root, "completed": record.created}


def model_facts(record: Results) -> dict[str, dict[str, Any]]:
    """Return recipe, seed and parent of every model, by "LABEL/SEED"."""
    return {
        f"{label}/{seed}": {
            "recipe": row.settings,
            "seed": int(seed),
            "parent": f"original/{seed}" if row.role is Role.METHOD else None,
        }
        for label, row in record.methods.items()
        for seed in row.per_seed
    }


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


def data_facts(record: Results) -> dict[str, Any]:
    """Return what the record alone says of the data."""
    return {
        "name": record.scenario.settings.data.name,
        "public": record.scenario.public_data,
        "sizes": record.scenario.sizes,
        "pretrained": (record.scenario.model_extra or {}).get("init_from"),
    }


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
        "near_duplicates": near_duplicates(splits.forget, splits.retain),
    }


def data_fingerprint(splits: Splits) -> str:
    """Return one hash over inputs, labels and ids of the samples that models were trained and tested on."""
    return Dataset("", splits.train, splits.test, splits.class_names).fingerprint


def near_duplicates(forgotten: Samples, retained: Samples) -> dict[str, float]:
    """Return how many forgotten samples have an identical, or a nearly identical, input among the retained ones.

    Near means a root-mean-square difference of at most 2 % of the range of the inputs. A model that keeps such a
    duplicate keeps what was to be forgotten, and so does the reference.

    >>> x = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.0, 0.0]])
    >>> some = Samples(x, torch.zeros(3), ("a", "b", "c"))
    >>> others = Samples(x[:2] + torch.tensor([[0.0], [0.01]]), torch.zeros(2), ("d", "e"))
    >>> near_duplicates(some, others)
    {'identical': 1, 'near': 2, 'limit': 0.02}
    """
    nearest = torch.full((len(forgotten),), float("inf"))
    low, high = float("inf"), float("-inf")
    rows = torch.split(torch.arange(len(forgotten)), ROWS)
    inputs = [forgotten.batch(part)[0].flatten(1).float() for part in rows]
    for x, _, _ in retained.batches(torch.split(torch.arange(len(retained)), ROWS)):
        flat = x.flatten(1).float()
        low, high = min(low, float(flat.min())), max(high, float(flat.max()))
        for part, flat_forgotten in zip(rows, inputs, strict=True):
            squared = (torch.cdist(flat_forgotten, flat, compute_mode="donot_use_mm_for_euclid_dist") ** 2).amin(1)
            nearest[part] = torch.minimum(nearest[part], squared / flat.shape[1])
    limit = (NEAR * (high - low)) ** 2 if len(retained) else 0.0
    return {"identical": int((nearest == 0).sum()), "near": int((nearest <= limit).sum()), "limit": NEAR}
