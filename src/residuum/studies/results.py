"""The record of a run: results.json with its counts and weights beside it."""

import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from residuum.auditing import Counts
from residuum.auditing.completeness import completeness_above, difference_floor
from residuum.auditing.own_measures import OWN_MEASURES
from residuum.auditing.probes import probe_kind
from residuum.core.errors import InputError
from residuum.core.files import locked, rewritten, write_whole
from residuum.core.parallel import Compute
from residuum.core.registry import described_plugins
from residuum.core.roles import Role
from residuum.data import DATASETS
from residuum.judging import judged_record
from residuum.metrics import summarize
from residuum.record import Requests, Results, Row, ScenarioRecord, SeedResult, Stored
from residuum.record.folder import hashes, refuse_foreign, run_files
from residuum.studies.experiment import Experiment
from residuum.studies.known_runs import noted
from residuum.studies.pretrained import KnownFile
from residuum.studies.probes import with_probes

Floors = dict[str, list[float]]  # by perturbation
LIBRARIES = ("residuum", "torch", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Result:
    """What is known of one row and one seed; `artefacts` are the folders in the store that it came from."""

    label: str
    seed: int
    metrics: dict[str, Any]
    audits: dict[str, dict[str, Any]]
    seconds: float
    passes: int
    warnings: list[str]
    audit_warnings: dict[str, list[str]]
    unchanged: bool
    model: Path
    counts: dict[str, Path]
    heldout: dict[str, Path]
    gallery: Path | None
    notes: dict[str, Any]
    artefacts: tuple[Path, ...] = ()
    witnesses: dict[str, dict[str, Any]] = field(default_factory=dict)
    ensembles: dict[str, dict[str, Any]] = field(default_factory=dict)


class RowFacts(NamedTuple):
    """What a row is, beside what was measured: role, method, hyper-parameters, and which of them were left open."""

    role: Role
    method: str
    settings: Mapping[str, Any]
    left_open: Sequence[str] = ()


def results_record(experiment: Experiment, results: Sequence[Result]) -> Results:
    """Return the content of results.json; everything but `created` and `seconds` is a function of the settings."""
    more = {} if experiment.compute == Compute() else {"compute": asdict(experiment.compute)}
    more |= {"failed": experiment.failed} if experiment.failed else {}
    record = assembled_record(
        results,
        scenario=_scenario(experiment),
        rows={label: _facts(experiment, label) for label in experiment.labels},
        seeds=experiment.scenario.seeds,
        perturbations=experiment.scenario.audit.perturbations,
        warnings=experiment.warnings,
        notes=["original: re-learn time is null because the original has nothing to re-learn"],
        **more,
    )
    return judged_record(with_probes(record, experiment.probes(), results))


def assembled_record(
    results: Sequence[Result],
    *,
    scenario: ScenarioRecord,
    rows: Mapping[str, RowFacts],
    seeds: Sequence[int],
    perturbations: Sequence[str],
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    **more: Any,  # noqa: ANN401 (further fields of the record)
) -> Results:
    """Return the record of what was measured, by the rows it is about, in their order."""
    by_label = {label: [r for r in results if r.label == label] for label in rows}
    controls = [result for label, facts in rows.items() if facts.role is Role.CONTROL for result in by_label[label]]
    reference = [result for label, facts in rows.items() if facts.role is Role.REFERENCE for result in by_label[label]]
    differences = {name: [control.audits[name]["difference"] for control in controls] for name in perturbations}
    floors = {name: difference_floor(found) for name, found in differences.items() if found}
    own = [spec for spec in scenario.settings.measures if probe_kind(spec) is None]
    made = {label: _row(facts, by_label[label], reference, floors, own) for label, facts in rows.items()}
    return Results.model_validate(
        {
            "schema": Results.SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
            "scenario": scenario,
            **more,
            "seeds": list(seeds),
            "warnings": [*warnings, *merged_warnings(results)],
            "notes": [*notes, *_notes(made)],
            "methods": made,
        }
    )


def _facts(experiment: Experiment, label: str) -> RowFacts:
    row = next((row for row in experiment.rows if row.label == label), None)
    role = experiment.roles[label]
    if row is not None:
        return RowFacts(role, row.method, row.settings, row.left_open)
    scenario = experiment.scenario
    return RowFacts(role, label, asdict(scenario.training(label)), scenario.left_open.get("train", []))


def _scenario(experiment: Experiment) -> ScenarioRecord:
    scenario, splits, start = experiment.scenario, experiment.splits(), experiment.pretrained
    used = {scenario.data.name, scenario.model.name, *scenario.measures, *(row.method for row in experiment.rows)}
    own = described_plugins(used | {spec.partition(":")[0] for spec in scenario.audit.perturbations})
    unused = {field for field in ("earlier", "pretrained_on", "measures", "references") if not getattr(scenario, field)}
    weights = {} if start is None else {"init_from": {what: file and _named(file) for what, file in start}}
    return ScenarioRecord.model_validate(
        {
            "name": scenario.name,
            "form": splits.form,
            "class_names": list(splits.class_names),
            "sizes": {part: len(getattr(splits, part)) for part in ("retain", "forget", "validation", "test")},
            "public_data": scenario.data.name in DATASETS.ours,
            "settings": scenario.model_dump(mode="json", exclude={"name", "rows", *unused}),
            **weights,
            **({"plugins": own} if own else {}),
        }
    )


def _named(file: KnownFile) -> dict[str, str]:
    return {"file": file.path.name, "sha256": file.sha256}


def _row(
    facts: RowFacts, results: Sequence[Result], reference: Sequence[Result], floors: Floors, own: Sequence[str]
) -> Row:
    metrics, reference_metrics = ({str(r.seed): r.metrics for r in models} for models in (results, reference))
    return Row.model_validate(
        {
            "role": facts.role,
            "method": facts.method,
            "settings": dict(facts.settings),
            "fields_left_open": list(facts.left_open),
            "summary": summarize(metrics, reference_metrics),
            "per_seed": {str(r.seed): _seed_result(r, floors, own) for r in results},
        }
    )


def _seed_result(result: Result, floors: Floors, own: Sequence[str]) -> SeedResult:
    audits = {
        name: {
            **_judged_completeness(measures, floors.get(name)),
            **({"measures": _own_measures(own, result, name)} if own else {}),
            "counts": counts_path(result, name),
            "heldout": measures["heldout"] | {"counts": counts_path(result, f"{name}.heldout")},
        }
        for name, measures in sorted(result.audits.items())
    }
    found = {name: getattr(result, name) for name in ("notes", "warnings", "unchanged")}
    return SeedResult.model_validate(
        {"metrics": result.metrics, "seconds": result.seconds, "passes": result.passes, "audits": audits}
        | {name: value for name, value in found.items() if value}
    )


def _judged_completeness(measures: Mapping[str, Any], floor: Sequence[float] | None) -> dict[str, Any]:
    """Return the measures; completeness only where a control says how far re-trained models are apart."""
    if floor is None:
        return {name: found for name, found in measures.items() if name != "completeness"}
    return completeness_above(measures, floor)


def _own_measures(names: Sequence[str], result: Result, perturbation: str) -> dict[str, Any]:
    counts, heldout = (Counts.load(paths[perturbation]) for paths in (result.counts, result.heldout))
    return {name: OWN_MEASURES.find(name).of(counts, heldout if len(heldout) else None) for name in names}


def merged_warnings(results: Sequence[Result]) -> Iterator[str]:
    """Yield each warning once, after the rows or audits that raised it and, unless it was all of them, their seeds."""
    raised: dict[str, dict[str, list[str]]] = {}
    for result in results:
        audits = [(f"audit {name}", text) for name, texts in result.audit_warnings.items() for text in texts]
        for source, text in [*((result.label, text) for text in result.warnings), *audits]:
            seeds = raised.setdefault(text, {}).setdefault(source, [])
            seeds += [str(result.seed)] if str(result.seed) not in seeds else []
    every = {str(result.seed) for result in results}
    for text, sources in raised.items():
        named = (source if set(seeds) == every else f"{source} ({_seeds(seeds)})" for source, seeds in sources.items())
        yield f"{', '.join(named)}: {text}"


def _seeds(seeds: Sequence[str]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}"


def counts_path(result: Result, perturbation: str) -> str:
    """Return where a counts file stands below the run's folder."""
    return f"counts/{result.seed}/{result.label}/{perturbation}.npz"


def _notes(rows: dict[str, Row]) -> list[str]:
    notes = []
    if any(row.summary.relearn_epochs is None for row in rows.values() if row.method == "cr"):
        notes.append("cr: re-learn time is null because the method keeps no trainable body")
    audits = [audit for row in rows.values() for seed in row.per_seed.values() for audit in seed.audits.values()]
    if any(None in audit.residual_knowledge.pooled for audit in audits):
        notes.append("residual knowledge is null where the reference is never right: read `difference` instead")
    return notes


def claim_folder(out: Path, kind: type[Stored] = Results) -> None:
    """Create the run's folder, or say in one line why it cannot be: one folder has one kind of record.

    A folder with files of others where the run would write its own is refused.
    """
    other = Requests.FILE if kind is Results else Results.FILE
    try:
        if (out / other).exists():
            raise InputError(f"{out} has a {other}, so it holds another kind of run; choose another folder with --out")
        refuse_foreign(out)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from None


def write_run(experiment: Experiment, results: Sequence[Result], out: Path, *, gallery: bool | None = None) -> Results:
    """Write results.json, counts and weights into `out` in place of the run that is there; return the record.

    `gallery` says whether pictures of forgotten samples are written; None means of data sets with a public name only.
    """
    claim_folder(out)
    return write_files(results_record(experiment, results), results, out, gallery=gallery)


def write_files(record: Results, results: Sequence[Result], out: Path, *, gallery: bool | None = None) -> Results:
    """Write a run as `write_run` does, from its record; return the record with the hashes of all files."""
    with replaced_run(out, Results, results) as aside:
        return fill_folder(record, results, aside, gallery)


@contextmanager
def replaced_run(out: Path, kind: type[Stored], results: Sequence[Result]) -> Iterator[Path]:
    """Yield an empty folder, whose content then replaces the run in `out`; the store knows of it from here on."""
    artefacts = {artefact for result in results for artefact in result.artefacts}
    try:
        with locked(out), noted(out, artefacts), rewritten(out, kind.FILE, run_files(out)) as aside:
            yield aside
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; free some space or choose another --out") from error


def fill_folder(record: Results, results: Sequence[Result], folder: Path, gallery: bool | None) -> Results:
    """Write counts and weights into an empty folder, and then the record with their hashes; return that."""
    with_gallery = record.scenario.public_data if gallery is None else gallery
    for result in results:
        for name, source in _sources(result, with_gallery).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    record = record.model_copy(update={"files": hashes(folder)})
    record = record.model_copy(update={"record_sha256": record.as_dict()["record_sha256"]})
    write_whole(folder / record.FILE, record.text())
    return record


def _sources(result: Result, with_gallery: bool) -> dict[str, Path]:
    """Return, by path below the run's folder, the artefacts that the run has copies of."""
    found = {counts_path(result, name): source for name, source in result.counts.items()}
    found |= {counts_path(result, f"{name}.heldout"): source for name, source in result.heldout.items()}
    found |= {f"models/{result.seed}/{result.label}.safetensors": result.model}
    if with_gallery and result.gallery:
        found[f"gallery/{result.seed}.npz"] = result.gallery
    return found
