"""The manifest of an evidence pack: what was to be forgotten, which models, data and code, and what came out."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from residuum.core.files import file_sha256
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits
from residuum.data.dataset import Dataset
from residuum.judging import gates, rule, verdict
from residuum.pack.hashing import Pseudonyms, code_sha256, ids_root, root_of
from residuum.record import Results

SCHEMA = "residuum.pack/2"
LEFT_OUT = [
    "images and the gallery",
    "ids of samples: pseudonyms under the holder's key take their place",
    "which class a sample belongs to: classes are numbered in an order of the key",
    "weights: their hashes take their place",
    "paths, names of files, hosts and users, and names of data that are not public",
    "names of classes of data that are not public, unless the holder allows them",
    "the holder's key",
]
NON_CLAIMS = [
    "no proof of deletion: other copies, backups and derived models were not looked at",
    "no differential privacy and no certificate",
    "no legal opinion",
    "nothing on perturbations or radii that were not tried, nor on an attacker who sees the weights",
    "'no residual knowledge found' means: less than the smallest level given as power, no more",
]
THREATS = [
    "found: mistakes, swapped files, edits after the seal was deposited and, with models, data and key, wrong "
    "accuracies, and wrong counts among those that a spot check counts again",
    "not found: a holder who invents counts, where models, data or key are not at hand, or counts and models together; "
    "who trains a bad reference on purpose, audits another model than the one that is served, or hides audits that "
    "failed; hashes of the models deposited before the audit narrow this",
]
NEAR = 0.02  # root-mean-square difference of two inputs, as a share of their range
ROWS = 512


def manifest_of(
    name: str,
    record: Results,
    *,
    request: Mapping[str, Any],
    models: Mapping[str, Any],
    data: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the manifest of a pack, without its seal."""
    return {
        "schema": SCHEMA,
        "name": name,
        "created": record.created,
        "tool": tool(),
        "request": request,
        "models": models,
        "data": data,
        **conclusions(record),
        "left_out": LEFT_OUT,
        "non_claims": NON_CLAIMS,
        "threat_model": THREATS,
        "files": files,
        "root": root_of(files),
    }


def conclusions(record: Results) -> dict[str, Any]:
    """Return what the manifest says that the record decides."""
    audits: dict[str, Any] = {}
    for _, seed, name, audit in record.each_audit():
        settings = audit.settings.model_dump(mode="json", exclude_unset=True)
        entry = audits.setdefault(name, {"settings": {}, "taus": audit.taus, "seeds": {}})
        keys = ("seed", "noise_check", "bootstrap_seed")
        entry["seeds"][seed] = {key: settings.pop(key, None) for key in keys} | {"draws": audit.draws}
        entry["settings"] = settings
    return {
        "audit": audits,
        "gates": [
            {"name": gate.name, "passed": gate.passed, "reason": None if gate.passed else gate.text}
            for gate in record.gates
        ],
        "thresholds": {  # every number that the rule and the gates compare with
            "error": rule.ERROR,
            "level_share": rule.LEVEL_SHARE,
            "power": rule.POWER,
            "fewest_retrained": rule.FEWEST_RETRAINED,
            "unlearn_points": verdict.UNLEARN_POINTS,
            "test_points": gates.TEST_POINTS,
            "retain_points": gates.RETAIN_POINTS,
            "control_points": gates.CONTROL_POINTS,
            "leak": gates.LEAK,
        },
        "rule_version": record.rule_version,
        "verdict": {label: judgment.verdict.name for label, judgment in record.verdicts.items() if judgment.verdict},
        "power": {label: j.finding.smallest if j.finding else None for label, j in record.verdicts.items()},
        "floor": {name: floor.model_dump(mode="json") for name, floor in record.noise_floor.items()},
    }


def tool() -> dict[str, str]:
    """Return what made the pack."""
    versions = {name: version(name) for name in ("residuum", "torch", "numpy")}
    return {**versions, "python": platform.python_version(), "code_sha256": code_sha256()}


def models_of(record: Results, folder: Path) -> dict[str, dict[str, Any]]:
    """Return hash, architecture, recipe and parent of every model, by label and seed; without a hash where no file is.

    The parent of what was unlearned is the original.
    """
    models: dict[str, dict[str, Any]] = {}
    for label, row in record.methods.items():
        for seed in row.per_seed:
            file = folder / "models" / seed / f"{label}.safetensors"
            models[f"{label}/{seed}"] = {
                "weights_sha256": file_sha256(file) if file.is_file() else None,
                "architecture": architecture(file),
                "recipe": row.settings,
                "seed": int(seed),
                "parent": f"original/{seed}" if row.role is Role.METHOD else None,
            }
    return models


def architecture(file: Path) -> object:
    """Return the architecture in the header of a weights file, without loading the weights."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size)) if size < 10_000_000 else {}
    record = json.loads(header.get("__metadata__", {}).get("residuum", "{}"))
    return record.get("architecture")


def request_of(record: Results, root: str, size: int, dates: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what was asked for, by its size and the root of its pseudonyms alone."""
    return {
        "form": record.scenario.form,
        "size": size,
        "ids_hmac_root": root,
        "received": dates.get("received"),
        "completed": record.created,
        "delete_pack_by": dates.get("delete_by"),
    }


def process_facts(record: Results, splits: Splits | None, pseudonyms: Pseudonyms) -> dict[str, Any]:
    """Return name and sizes of the data and, with the data at hand, what reference and original were trained on.

    `fingerprint_hmac` is of data and key: nobody else can tell by it which data these were. `trained_on` has for
    each set the size and the root of its pseudonyms; pre-training is known by its manifest's hash.
    """
    facts = data_facts(record)
    if splits is None:
        return facts
    sets = {"original": splits.train, "reference": splits.retain, "held_out": splits.heldout}
    return facts | {
        "fingerprint_hmac": pseudonyms(f"data {data_fingerprint(splits)}"),
        "trained_on": {
            name: {"size": len(samples), "ids_hmac_root": ids_root(map(pseudonyms, samples.ids))}
            for name, samples in sets.items()
        },
        "forgotten_among_retained": len(set(splits.forget.ids) & set(splits.retain.ids)),
        "near_duplicates": near_duplicates(splits.forget, splits.retain),
    }


def data_facts(record: Results) -> dict[str, Any]:
    """Return what the record alone says of the data."""
    return {
        "name": record.scenario.settings.data.name,
        "public": record.scenario.public_data,
        "sizes": record.scenario.sizes,
        "pretrained": (record.scenario.model_extra or {}).get("init_from"),
    }


def data_fingerprint(splits: Splits) -> str:
    """Return one hash over inputs, labels and ids of the samples that models were trained and tested on."""
    return Dataset("", splits.train, splits.test, splits.class_names).fingerprint


def near_duplicates(forgotten: Samples, retained: Samples) -> dict[str, Any]:
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
