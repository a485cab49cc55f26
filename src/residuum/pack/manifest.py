"""The manifest of an evidence pack: who was asked to forget what, which models, which code, and what came out."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from residuum.files import file_sha256
from residuum.pack.hashing import code_sha256
from residuum.record import Results
from residuum.reporting import gates, level_rule, verdict
from residuum.reporting.run import Run

SCHEMA = "residuum.pack/1"
LEFT_OUT = [
    "images and the gallery",
    "ids of samples: pseudonyms under the holder's key take their place",
    "which class a sample belongs to: classes are numbered in an order of the key",
    "weights: their hashes take their place",
    "paths, names of files, hosts and users, and names of data that are not public",
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
    "found: mistakes, later edits, swapped files and, with models and data, wrong counts",
    "not found: a holder who invents counts and models together, trains a bad reference on purpose, audits another "
    "model than the one that is served, or hides audits that failed; hashes of the models deposited before the audit "
    "narrow this",
]


def thresholds() -> dict[str, float]:
    """Return every number that the rule and the gates compare with."""
    return {
        "error": level_rule.ERROR,
        "level_share": level_rule.LEVEL_SHARE,
        "power": level_rule.POWER,
        "fewest_retrained": level_rule.FEWEST_RETRAINED,
        "unlearn_points": verdict.UNLEARN_POINTS,
        "test_points": gates.TEST_POINTS,
        "retain_points": gates.RETAIN_POINTS,
        "twin_points": gates.TWIN_POINTS,
        "leak": gates.LEAK,
    }


def conclusions(record: Results) -> dict[str, Any]:
    """Return what the manifest says that the record decides."""
    run = Run(Path(), record.scenario.name, record)
    audits: dict[str, Any] = {}
    for _, seed, name, audit in record.each_audit():
        found = audit.settings.model_dump(mode="json", exclude_unset=True)
        entry = audits.setdefault(name, {"settings": {}, "taus": audit.taus, "seeds": {}})
        keys = ("seed", "noise_check", "bootstrap_seed")
        entry["seeds"][seed] = {key: found.pop(key, None) for key in keys} | {"draws": audit.draws}
        entry["settings"] = found
    return {
        "audit": audits,
        "gates": [
            {"name": gate.name, "passed": gate.passed, "reason": None if gate.passed else gate.text}
            for gate in run.gates
        ],
        "thresholds": thresholds(),
        "verdict": {label: found.word for label, found in record.verdicts.items()},
        "power": {label: found.smallest for label, found in record.verdicts.items()},
        "floor": {name: floor.model_dump(mode="json") for name, floor in record.noise_floor.items()},
    }


def tool() -> dict[str, str]:
    """Return what made the pack."""
    found = {name: version(name) for name in ("residuum", "torch", "numpy")}
    return {**found, "python": platform.python_version(), "code_sha256": code_sha256()}


def models_of(record: Results, folder: Path) -> dict[str, dict[str, Any]]:
    """Return hash, architecture, recipe and parent of every model, by label and seed; without a hash where no file is.

    The parent of what was unlearned is the original: its hash is that of the model before, the row's own that after.
    """
    found: dict[str, dict[str, Any]] = {}
    for label, row in record.methods.items():
        for seed in row.per_seed:
            file = folder / "models" / seed / f"{label}.safetensors"
            found[f"{label}/{seed}"] = {
                "weights_sha256": file_sha256(file) if file.is_file() else None,
                "architecture": _architecture(file),
                "recipe": row.settings,
                "seed": int(seed),
                "parent": f"original/{seed}" if row.kind == "method" else None,
            }
    return found


def _architecture(file: Path) -> Any:  # noqa: ANN401 (a JSON value)
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
