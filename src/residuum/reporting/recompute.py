"""Everything needed to recompute a run: settings, seeds, versions, hashes, warnings, and the command."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from residuum.reporting.records import Run


def sample_count(run: Run) -> int | None:
    """Return how many samples were audited, from the first counts file; None when there is none."""
    for row in run.rows.values():
        for seed in row["per_seed"].values():
            for audit in seed["audits"].values():
                path = run.folder / audit.get("counts", "missing")
                if path.is_file():
                    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as counts:
                        return len(counts["ids"])
    return None


def provenance(run: Run) -> dict[str, Any]:
    """Return what a reader needs to repeat the run and to see that the files are the same."""
    record = run.record
    return {
        "created": record.get("created", ""),
        "versions": dict(record.get("versions", {})),
        "seeds": run.seeds,
        "warnings": list(record.get("warnings", [])),
        "notes": list(record.get("notes", [])),
        "settings": json.dumps(record["scenario"]["settings"], indent=1, ensure_ascii=False),
        "methods": {label: row.get("settings", {}) for label, row in run.rows.items()},
        "checks": noise_checks(run),
        "hashes": file_hashes(run),
    }


def noise_checks(run: Run) -> dict[str, str]:
    """Return the check value of each seed's random stream."""
    found: dict[str, str] = {}
    for row in run.rows.values():
        for seed, entry in row["per_seed"].items():
            for audit in entry["audits"].values():
                if audit["settings"].get("noise_check"):
                    found.setdefault(seed, str(audit["settings"]["noise_check"]))
    return found


def file_hashes(run: Run) -> dict[str, str]:
    """Return SHA-256 of results.json and of every counts and gallery file below the run's folder, by relative path."""
    paths = [
        run.folder / "results.json",
        *sorted(run.folder.glob("counts/**/*.npz")),
        *sorted(run.folder.glob("gallery/*.npz")),
    ]
    return {path.relative_to(run.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
