"""The probes in the record of a run: the values of each model, and how each row compares with retrained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.auditing.probes import FURTHER
from residuum.auditing.probes.durability import after_minus_before
from residuum.auditing.statistics import SIGNIFICANCE, compare_with_retrained
from residuum.core.roles import Role
from residuum.record import ProbeRow, ProbeValues, Results
from residuum.studies.parsing import build_probe

if TYPE_CHECKING:
    from residuum.studies.results import Result

RecordedValue = Mapping[str, Any]  # `Value.record`, or what a pack says


def with_probes(record: Results, specs: Sequence[str], results: Sequence[Result]) -> Results:
    """Return the record with the values of each probe by seed, and how each row compares with retrained models."""
    if not specs:
        return record
    by_label = {label: [result for result in results if result.label == label] for label in record.methods}
    probed = {spec: probe_rows(spec, by_label, record) for spec in specs}
    rows = {}
    for label, row in record.methods.items():
        per_seed = {
            seed: result.model_copy(
                update={"probes": {s: of[label][0][seed] for s, of in probed.items() if seed in of[label][0]}}
            )
            for seed, result in row.per_seed.items()
        }
        summary = {spec: of_probe[label][1] for spec, of_probe in probed.items()}
        rows[label] = row.model_copy(update={"per_seed": per_seed, "probes": summary})
    return record.model_copy(update={"methods": rows})


def probe_rows(
    spec: str, by_label: Mapping[str, Sequence[Result]], record: Results
) -> dict[str, tuple[dict[str, ProbeValues], ProbeRow]]:
    """Return for each row the probe's values by seed, and their summary with a test against retrained models."""
    probe, samples = build_probe(spec), max(record.scenario.sizes.get("forget", 1), 1)
    least = 0.5 / samples if probe.stepwise else 0.0
    ensemble = next((r.ensembles[spec] for of_row in by_label.values() for r in of_row if spec in r.ensembles), {})
    models = ensemble.get("models", {})
    per_seed: dict[str, dict[str, RecordedValue]] = {
        label: models.get(label) or {str(r.seed): r.probes[spec] for r in by_label[label] if r.probes.get(spec)}
        for label in by_label
    }
    retrained = [*([] if probe.relative else record.rows_of(Role.REFERENCE)), *record.rows_of(Role.CONTROL)]
    rows = {}
    for label, values in per_seed.items():
        others = [value for name in retrained if name != label for value in per_seed[name].values()]
        others += models.get(FURTHER, {}).values()
        summary = ensemble.get("rows", {}).get(label) or _summary(list(values.values()), others, least)
        if probe.columns and summary["value"] is not None:
            summary |= _of_columns(probe.columns, list(values.values()), others, least)
            for hint in probe.hints:
                numbers = [value[hint] for value in values.values() if hint in value]
                summary |= {hint: float(np.mean(numbers))} if numbers else {}
        recorded = {seed: ProbeValues.model_validate(value) for seed, value in values.items()}
        rows[label] = recorded, ProbeRow.model_validate({"meaning": probe.meaning, **summary})
    return rows


def _of_columns(
    shares: Mapping[str, float], values: Sequence[RecordedValue], retrained: Sequence[RecordedValue], least: float
) -> dict[str, Any]:
    """Return of each column the means before and after, of the retrained models too, and p; the smallest p of all.

    p of a column is the larger one of its change and of its end, over the column's share of the error. A column without
    a share is shown, not judged.
    """
    summary: dict[str, Any] = {"p": None, "found": None, "column": None}
    for column, share in shares.items():
        for who, of in (("", values), ("_retrained", retrained)):
            for when in ("before", "after"):
                numbers = [v[f"{column}_{when}"] for v in of if f"{column}_{when}" in v]
                if numbers:
                    summary[f"{column}{who}_{when}"] = float(np.mean(numbers))
        if share == 0:
            continue
        changes, other_changes = ([after_minus_before(v, column) for v in of] for of in (values, retrained))
        ends, other_ends = ([v.get(f"{column}_after") for v in of] for of in (values, retrained))
        of_change = compare_with_retrained(changes, other_changes, least=least).p
        of_end = compare_with_retrained(ends, other_ends, least=least).p
        if of_change is None or of_end is None:
            continue
        p = min(1.0, max(of_change, of_end) / share)
        summary |= {f"{column}_p": p, f"{column}_end_p": min(1.0, of_end / share)}
        if summary["p"] is None or p < summary["p"]:
            summary |= {"p": p, "found": p <= SIGNIFICANCE, "column": column}
    return summary


def _summary(values: Sequence[RecordedValue], retrained: Sequence[RecordedValue], least: float) -> dict[str, Any]:
    """Return the mean over seeds with the outermost ends of the intervals, and the test against retrained models."""
    numbers = [value["value"] for value in values]
    if not values or None in numbers:
        return {"value": None, "note": next((value["note"] for value in values if "note" in value), None)}
    ends = {
        name: outermost([value[name] for value in values])
        for name, outermost in (("low", min), ("high", max))
        if all(value.get(name) is not None for value in values)
    }
    compared = compare_with_retrained(numbers, [value["value"] for value in retrained], least=least)
    tested = {"p": compared.p, "found": compared.more, "floor": compared.floor, "retrained": compared.retrained}
    return {"value": float(np.mean(numbers)), **ends, **tested}
