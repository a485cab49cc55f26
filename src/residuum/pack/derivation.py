"""From counts to the record: everything of results.json that counts, seeds and metrics decide, derived once more."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from residuum.auditing import AuditResult, Counts, first_radius
from residuum.auditing.measures import OWN_MEASURES
from residuum.auditing.probes import probe_kind
from residuum.core.errors import InputError
from residuum.core.registry import described_plugins
from residuum.judging import judged_record
from residuum.record import Audit, Results, Row
from residuum.studies.decoys import judged_decoys
from residuum.studies.probes import with_probes
from residuum.studies.results import AuditOutcome, Result, assembled_record
from residuum.studies.study import RowSpec

# counts of forgotten and of held-out samples, by label, seed and perturbation
Tables = dict[tuple[str, str, str], tuple[Counts, Counts | None]]


def load_tables(record: Results, folder: Path) -> Tables:
    """Return all counts that a record names, from the files below a folder."""
    return {
        (label, seed, name): (
            Counts.load(folder / audit.counts),
            Counts.load(folder / audit.heldout.counts) if audit.heldout and audit.heldout.counts else None,
        )
        for label, seed, name, audit in record.each_audit()
    }


def derived_record(record: Results, folder: Path, tables: Tables | None = None) -> Results:
    """Return the record as its counts, seeds, settings and metrics give it, by the functions that a run uses.

    The counts are those of the files below the folder, unless they were loaded already.

    Taken over is what counts cannot say: settings, sizes, metrics of each seed, what probes measured of models, scores
    of decoys, costs, notes. Derived are all measures with their intervals, what probes and decoys come to, summaries,
    floors, gates and verdicts.
    """
    tables = tables or load_tables(record, folder)
    rows = record.methods
    specs = [
        RowSpec(label=k, method=row.method, settings=row.settings, left_open=row.fields_left_open, role=row.role)
        for k, row in rows.items()
    ]
    results = [_result(record, label, seed, tables, folder) for label, row in rows.items() for seed in row.per_seed]
    derived = assembled_record(
        results, scenario=record.scenario, rows=specs, seeds=record.seeds, perturbations=record.perturbations
    )
    derived = with_probes(derived, model_probes(record), results)
    copied = record.model_dump(include={"created", "versions", "warnings", "notes"}) | (record.model_extra or {})
    if record.decoys:
        copied["decoys"] = {label: judged_decoys(audit) for label, audit in record.decoys.items()}
    methods = {label: _with_paths(row, rows[label]) for label, row in derived.methods.items()}
    return judged_record(derived.model_copy(update={**copied, "methods": methods}))


def model_probes(record: Results) -> list[str]:
    """Return the probes of a record that read models."""
    names = dict.fromkeys(name for row in record.methods.values() for name in row.probes)
    return [name for name in names if (kind := probe_kind(name)) and kind.reads == "models"]


def repeated_probes(record: Results) -> list[str]:
    """Return the probes that are measured again from the models; those that treat models are not."""
    return [name for name in model_probes(record) if (kind := probe_kind(name)) and not kind.columns]


def _result(record: Results, label: str, seed: str, tables: Tables, folder: Path) -> Result:
    seed_result = record.methods[label].per_seed[seed]
    audits = {}
    for name, audit in seed_result.audits.items():
        measures = _measured(audit, *tables[label, seed, name])
        heldout = folder / audit.heldout.counts if audit.heldout else None
        audits[name] = AuditOutcome(measures, folder / audit.counts, heldout)
    return Result(
        label=label,
        seed=int(seed),
        metrics=_plain(seed_result.metrics) if seed_result.metrics else {},
        audits=audits,
        seconds=seed_result.seconds,
        passes=seed_result.passes,
        warnings=seed_result.warnings,
        weights=seed_result.weights,
        unchanged=seed_result.unchanged,
        model=folder,
        notes=seed_result.notes,
        probes={spec: _plain(values) for spec, values in seed_result.probes.items()},
    )


def _plain(part: BaseModel) -> dict[str, Any]:
    return part.model_dump(mode="json", exclude_unset=True)


def _measured(audit: Audit, counts: Counts, heldout: Counts | None) -> dict[str, Any]:
    exact, tables = audit.settings.enumerated, {} if heldout is None else {"": heldout}
    measures = AuditResult({"": counts}, _plain(audit.settings), [], exact, tables).measures("")
    of_heldout = measures.get("heldout", {})
    left_out = [f"class {number} of the pack" for number in of_heldout.get("left_out", [])]
    first = first_radius(counts, exact=exact)
    return measures | {"first_radius": first, "heldout": of_heldout | {"left_out": left_out}}


def _with_paths(row: Row, packed: Row) -> Row:
    """Return a derived row whose audits name the files of the packed row, with its probes of many models."""
    seeds = {}
    for seed, result in row.per_seed.items():
        audits = {}
        for name, audit in result.audits.items():
            before = packed.per_seed[seed].audits[name]
            update: dict[str, Any] = {"counts": before.counts}
            if audit.heldout and before.heldout:
                update["heldout"] = audit.heldout.model_copy(update={"counts": before.heldout.counts})
            audits[name] = audit.model_copy(update=update)
        probes = _with_others(result.probes, packed.per_seed[seed].probes)
        seeds[seed] = result.model_copy(update={"audits": audits, **probes})
    return row.model_copy(update={"per_seed": seeds, **_with_others(row.probes, packed.probes)})


def _with_others(derived: Mapping[str, Any], packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the packed probes in their order, with the derived values where there are any."""
    return {"probes": {name: derived.get(name, value) for name, value in packed.items()}} if packed else {}


def differences(packed: object, derived: object, where: str = "", by: str = "its counts give") -> list[str]:
    """Return where two JSON values differ: texts and whole numbers at all, other numbers by more than 1e-9.

    `by` says what the second value rests on.

    >>> differences({"r": [1.0, 2]}, {"r": [1.0 + 1e-12, 3]}, "gd")
    ['gd.r.1: the pack says 2, its counts give 3']
    """
    if isinstance(packed, Mapping) and isinstance(derived, Mapping):
        keys = list(dict.fromkeys([*packed, *derived]))
        return [text for key in keys for text in differences(packed.get(key), derived.get(key), f"{where}.{key}", by)]
    if isinstance(packed, list) and isinstance(derived, list) and len(packed) == len(derived):
        pairs = enumerate(zip(packed, derived, strict=True))
        return [text for k, (one, other) in pairs for text in differences(one, other, f"{where}.{k}", by)]
    if isinstance(packed, float | int) and isinstance(derived, float | int) and float in (type(packed), type(derived)):
        same = abs(packed - derived) <= 1e-9 * max(1.0, abs(packed), abs(derived))
    else:
        same = packed == derived and type(packed) is type(derived)
    texts = [text if len(text) <= 60 else f"{text[:57]}..." for text in (repr(packed), repr(derived))]
    return [] if same else [f"{where.lstrip('.')}: the pack says {texts[0]}, {by} {texts[1]}"]


def add_measures(record: Results, sources: Sequence[str]) -> list[str]:
    """Add the functions, FILE.py:FUNCTION each, and return which of them stand in another file than the run used.

    Refuse a record with a measure that is not there.
    """
    for source in sources:
        if OWN_MEASURES.named(source) not in OWN_MEASURES:
            raise InputError(f"--measures: expected FILE.py:FUNCTION of a measure of your own, got {source!r}")
    specs = [spec for spec in record.scenario.settings.measures if probe_kind(spec) is None]
    for name in specs:
        if name not in OWN_MEASURES:
            raise InputError(f"measure {name} is none of Residuum's; give its function with --measures FILE.py:{name}")
    now, then = described_plugins(specs).get("measure", {}), record.scenario.plugins.get("measure", {})
    other = [name for name in now if name in then and now[name].get("sha256") != then[name].get("sha256")]
    return [f"measure {name}: its file is not the one that the run used" for name in other]
