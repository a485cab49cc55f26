"""Everything needed to recompute a run: settings, seeds, versions, hashes, warnings, and the command."""

import hashlib
import json
from typing import Any

import numpy as np

from residuum.reporting.run import Run


def sample_count(run: Run) -> int | None:
    """Return how many samples were audited, from the first counts file; None when there is none."""
    for _, _, _, audit in run.record.each_audit():
        path = run.folder / audit.counts
        if path.is_file():
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as counts:
                return len(counts["ids"])
    return None


def provenance(run: Run) -> dict[str, Any]:
    """Return what a reader needs to repeat the run and to see that the files are the same."""
    record = run.record
    settings = record.scenario.settings.model_dump(mode="json", exclude_unset=True)
    return {
        "created": record.created,
        "versions": record.versions,
        "seeds": run.seeds,
        "warnings": record.warnings,
        "notes": record.notes,
        "settings": json.dumps(settings, indent=1, ensure_ascii=False),
        "methods": {label: row.settings for label, row in run.rows.items()},
        "checks": noise_checks(run),
        "hashes": file_hashes(run),
    }


def noise_checks(run: Run) -> dict[str, str]:
    """Return the check value of each seed's random stream."""
    found: dict[str, str] = {}
    for _, seed, _, audit in run.record.each_audit():
        if audit.settings.noise_check:
            found.setdefault(seed, audit.settings.noise_check)
    return found


def file_hashes(run: Run) -> dict[str, str]:
    """Return SHA-256 of results.json and of every counts and gallery file below the run's folder, by relative path."""
    paths = [
        run.folder / "results.json",
        *sorted(run.folder.glob("counts/**/*.npz")),
        *sorted(run.folder.glob("gallery/*.npz")),
    ]
    return {path.relative_to(run.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
