"""The record of a sequence of deletion requests: a run per request, and requests.json (schema residuum.requests/1)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from residuum.auditing import Counts
from residuum.auditing.intervals import normal_quantile
from residuum.auditing.measures import difference, listed, nothing_left_to_chance, pooled_ratio
from residuum.experiments.experiment import Experiment
from residuum.experiments.results import claim_folder, write_run
from residuum.experiments.runner import Result

SCHEMA = "residuum.requests/1"
Record = dict[str, Any]


def step_folder(number: int) -> str:
    """Return the name of the run's folder for the `number`-th request."""
    return f"request-{number}"


def write_requests(steps: Sequence[Experiment], results: Sequence[Sequence[Result]], out: Path | str) -> Record:
    """Write a complete run for each request below `out`, then requests.json; return its content."""
    out = Path(out)
    claim_folder(out, apart_from="results.json")
    records = [
        write_run(step, found, out / step_folder(number))
        for number, (step, found) in enumerate(zip(steps, results, strict=True), start=1)
    ]
    record = requests_record(steps, results, records)
    aside = out / ".requests.json.writing"
    aside.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(aside, out / "requests.json")
    return record


def requests_record(
    steps: Sequence[Experiment], results: Sequence[Sequence[Result]], records: Sequence[Mapping[str, Any]]
) -> Record:
    """Return the content of requests.json, from the steps with their results and their results.json."""
    sizes = [len(_counts(found[0], next(iter(found[0].counts)))) for found in results]
    first = tuple(sorted(_counts(results[0][0], next(iter(results[0][0].counts))).ids))
    requests = [
        {
            "number": number,
            "folder": step_folder(number),
            "request": step.scenario.forget.model_dump(mode="json", exclude_none=True),
            "form": record["scenario"]["form"],
            "samples": size - before,
            "samples_so_far": size,
            "warnings": record["warnings"],
            "noise_floor": record["noise_floor"],
            "rows": {label: _row(row, label, found, first) for label, row in record["methods"].items()},
        }
        for number, (step, found, record, size, before) in enumerate(
            zip(steps, results, records, sizes, [0, *sizes[:-1]], strict=True), start=1
        )
    ]
    scenario = records[-1]["scenario"]
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "scenario": {"name": scenario["name"], "data": scenario["settings"]["data"]["name"]},
        "seeds": records[-1]["seeds"],
        "requests": requests,
    }


def _row(row: Mapping[str, Any], label: str, results: Sequence[Result], first: Sequence[str]) -> Record:
    summary = row["summary"]
    return {
        "method": row["method"],
        "metrics": {name: value["mean"] for name, value in summary.items() if name.endswith("accuracy")},
        "average_gap": summary["average_gap"],
        "per_seed": {
            str(result.seed): {name: _audit(result, name, first) for name in result.audits}
            for result in results
            if result.label == label
        },
    }


def _audit(result: Result, perturbation: str, first: Sequence[str]) -> Record:
    """Return r and the difference on all samples forgotten so far, and on those of the first request alone."""
    audit = result.audits[perturbation]
    settings = audit["settings"]
    counts = _counts(result, perturbation).subset(first)
    pooled, low, high = pooled_ratio(counts, confidence=settings["confidence"], exact=settings["enumerated"])
    certain = nothing_left_to_chance(counts, settings["enumerated"])
    return {
        "taus": audit["taus"],
        "so_far": {
            "residual_knowledge": {key: audit["residual_knowledge"][key] for key in ("pooled", "low", "high")},
            "difference": audit["difference"],
        },
        "first_request": {
            "residual_knowledge": {"pooled": listed(pooled), "low": listed(low), "high": listed(high)},
            "difference": difference(counts, certain, normal_quantile(settings["confidence"])),
        },
    }


def _counts(result: Result, perturbation: str) -> Counts:
    return Counts.load(result.counts[perturbation])
