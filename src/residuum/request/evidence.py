"""The audit of a request: models beside each other, one record, one folder, a run like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from residuum.auditing import AuditResult, audit
from residuum.auditing.witnesses import is_witness
from residuum.experiments.parsing import build_perturbation
from residuum.experiments.results import RowFacts, assembled_record, claim_folder, is_control, write_files
from residuum.experiments.runner import Result
from residuum.experiments.stages import audit_record, measured
from residuum.experiments.witnesses import with_witnesses
from residuum.metrics import evaluate
from residuum.models import InputSpace, save_weights, space_of, wrap_like
from residuum.perturbations import Perturbation, Substitution, make_perturbation
from residuum.plugins import described_plugins
from residuum.record import ScenarioRecord
from residuum.reporting.run import Run
from residuum.reporting.verdict import with_verdicts
from residuum.request.measures import audit_settings, chosen_measures, found_in_models
from residuum.request.references import Trained, role
from residuum.request.unlearned import Unlearned
from residuum.types import InputError, Splits, child_seed

if TYPE_CHECKING:
    from residuum.request.request import Request

PIXEL_RADII = (0.0, 0.03, 0.06, 0.1)
UNIT_RADII = (0.0, 0.1, 0.25, 0.5)  # in units of a feature's scale, or of the standard deviation of a layer
BASELINES = ("original", "retrain", "control")


@dataclass(frozen=True)
class Entry:
    """One row: a model, and how it came to be."""

    model: nn.Module
    facts: RowFacts
    seconds: float = 0.0
    passes: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    unchanged: bool = False


def audited(
    request: Request,
    model: nn.Module,
    unlearned: Any,  # noqa: ANN401 (see Request.audit)
    *,
    reference: nn.Module | None,
    controls: int | Sequence[nn.Module],
    innocents: bool,
    perturbations: Any,  # noqa: ANN401 (see Request.audit)
    taus: Any,  # noqa: ANN401 (see Request.audit)
    measures: Sequence[str] | None,
    draws: int,
    seed: int,
    out: Path,
) -> Run:
    """Return the run over the original, the re-trained models and what was unlearned."""
    splits = request.fitted(model)
    if not len(splits.test):
        raise InputError(
            "expected held-out samples for an audit, which tell memory from knowledge of the class; give held_out="
        )
    chosen = chosen_perturbations(perturbations, model, splits)
    radii = {name: _radii(name, each, taus) for name, each in chosen.items()}
    specs = chosen_measures(measures, model, innocents)
    settings = audit_settings(specs, model, radii, draws)
    rows = unlearned_rows(unlearned, model)
    claim_folder(out)
    entries = {"original": Entry(model, RowFacts("original", {}))}
    entries |= reference_rows(request, model, reference, controls, innocents, seed)
    how = _trained_how(request, reference, innocents)
    entries = {label: _with(entry, how) for label, entry in entries.items()} | rows
    with tempfile.TemporaryDirectory(dir=out) as folder:
        results = list(_results(entries, splits, chosen, radii, draws, seed, Path(folder)))
        models = {label: entry.model for label, entry in entries.items()}
        results = _with_found(results, found_in_models(specs, models, splits, settings, seed))
        record = assembled_record(
            results,
            scenario=_scenario(request, model, splits, settings, specs, innocents),
            rows={label: entry.facts for label, entry in entries.items()},
            seeds=[seed],
            perturbations=list(chosen),
            warnings=_weaker(entries) if innocents else (),
            notes=["re-learn time was not measured"],
        )
        record = with_witnesses(record, [spec for spec in specs if is_witness(spec)], results)
        record = write_files(with_verdicts(record), results, out)
    return Run(out, record.scenario.name, record)


def chosen_perturbations(given: Any, model: nn.Module, splits: Splits) -> dict[str, Perturbation]:  # noqa: ANN401
    """Return the perturbations by the names that the record gives them, with the bounds of the model's inputs."""
    space = space_of(model)
    listed = given if isinstance(given, list | tuple) else ["gaussian" if given is None else given]
    found: dict[str, Perturbation] = {}
    for each in listed:
        chosen = build_perturbation(each) if isinstance(each, str) else make_perturbation(each)
        if isinstance(each, str) and not isinstance(chosen, Substitution):
            chosen = _at_home(chosen, space, splits)
        found[each if isinstance(each, str) else str(chosen.settings()["name"])] = chosen
    if len(found) < len(listed):
        raise InputError("expected perturbations of different names, got one twice; audit them in two runs")
    return found


def _at_home(perturbation: Perturbation, space: InputSpace, splits: Splits) -> Perturbation:
    """Return the perturbation as the model's inputs want it: within bounds, in their units, or at the embedding."""
    if perturbation.at is not None:
        return perturbation
    if space.at is not None:
        return replace(perturbation, at=space.at, unit="std")
    scale = space.scale_of(splits.forget.shape)
    return replace(perturbation, bounds=space.bounds, scale=None if scale is None else scale.tolist())


def _radii(name: str, perturbation: Perturbation, taus: Any) -> list[float]:  # noqa: ANN401 (radii, or by name)
    given = taus.get(name) if isinstance(taus, Mapping) else taus
    if given is None:
        given = PIXEL_RADII if perturbation.bounds == (0.0, 1.0) else UNIT_RADII
    return [float(tau) for tau in given]


def unlearned_rows(unlearned: Any, model: nn.Module) -> dict[str, Entry]:  # noqa: ANN401 (see Request.audit)
    """Return a row for each unlearned model, by label."""
    if isinstance(unlearned, Mapping):
        named = {str(label): each for label, each in unlearned.items()}
    else:
        listed = unlearned if isinstance(unlearned, list | tuple) else [unlearned]
        named = {each.label if isinstance(each, Unlearned) else "unlearned": each for each in listed}
        if len(named) < len(listed):
            raise InputError("expected unlearned models of different labels; give them by name: {label: model}")
    for label in named:
        if label in BASELINES or label.startswith(("control_", ".")) or "/" in label or not label:
            raise InputError(f"expected labels that can name a file, other than {', '.join(BASELINES)}, got {label!r}")
    return {label: _unlearned_row(each, model) for label, each in named.items()}


def _unlearned_row(each: Any, model: nn.Module) -> Entry:  # noqa: ANN401 (see Request.audit)
    if isinstance(each, Unlearned):
        facts = RowFacts(each.method, each.settings)
        return Entry(each.model, facts, each.seconds, each.passes, each.notes, each.warnings, each.unchanged)
    return Entry(wrap_like(each, model), RowFacts("unlearned elsewhere", {}))


def reference_rows(
    request: Request,
    model: nn.Module,
    reference: nn.Module | None,
    controls: int | Sequence[nn.Module],
    innocents: bool,
    seed: int,
) -> dict[str, Entry]:
    """Return reference and controls: those given, the others made."""
    listed = [] if isinstance(controls, int) else list(controls)
    if reference is None and listed:
        raise InputError("expected a reference beside the controls; give reference=")
    given = [*([] if reference is None else [reference]), *listed]
    models = [Trained(wrap_like(each, model), 0.0) for each in given]
    if isinstance(controls, int) and (reference is None or request.trains):
        models += request.references(model, 1 + controls, seed=seed, innocents=innocents, known=len(models))
    return {
        role(k): Entry(each.model, RowFacts(role(k), {}), each.seconds, each.passes) for k, each in enumerate(models)
    }


def _trained_how(request: Request, reference: nn.Module | None, innocents: bool) -> dict[str, Any]:
    if reference is not None:
        return {"trained_by": "others"}
    if innocents:
        return {"stand_ins": "trained until they fit the retained samples as the original does"}
    if request.retrain is not None:
        return {"trained_by": getattr(request.retrain, "__name__", type(request.retrain).__name__)}
    return asdict(request.recipe) if request.recipe else {}


def _weaker(entries: Mapping[str, Entry]) -> list[str]:
    """Return what must be said where stand-ins take the place of re-trained models, with their cost."""
    made = [entry for label, entry in entries.items() if label == "retrain" or is_control(label)]
    cost = f"{sum(e.passes for e in made)} passes over single samples, {sum(e.seconds for e in made):.0f} s"
    return [
        f"no re-trained model: {len(made)} briefly trained stand-ins took its place ({cost}); all of this is weaker"
    ]


def _with(entry: Entry, settings: Mapping[str, Any]) -> Entry:
    return replace(entry, facts=entry.facts._replace(settings=settings))


def _results(
    entries: Mapping[str, Entry],
    splits: Splits,
    perturbations: Mapping[str, Perturbation],
    radii: Mapping[str, Sequence[float]],
    draws: int,
    seed: int,
    folder: Path,
) -> Iterator[Result]:
    """Yield what is measured of each row; counts and weights are written below `folder`."""
    models = {label: entry.model for label, entry in entries.items()}
    audits: dict[str, tuple[AuditResult, list[str]]] = {}
    for name, perturbation in perturbations.items():
        with measured(1) as record:
            result = audit(
                models,
                models["retrain"],
                splits.forget,
                perturbation,
                taus=radii[name],
                draws=draws,
                seed=child_seed(seed, "audit"),
                heldout=splits.heldout,
                original=models["original"],
                seen={"the retain set": set(splits.retain.ids)},
            )
        audits[name] = result, sorted({*record["warnings"], *result.warnings})
    for label, entry in entries.items():
        yield _result(label, entry, splits, audits, seed, folder / f"{len(list(folder.iterdir()))}")


def _result(
    label: str,
    entry: Entry,
    splits: Splits,
    audits: Mapping[str, tuple[AuditResult, list[str]]],
    seed: int,
    folder: Path,
) -> Result:
    folder.mkdir()
    with measured(1) as record:
        metrics = evaluate(entry.model, splits)
    paths: dict[str, dict[str, Path]] = {"counts": {}, "heldout": {}}
    for name, (result, _) in audits.items():
        for kind, tables in (("counts", result.counts), ("heldout", result.heldout)):
            paths[kind][name] = folder / f"{kind}-{name}.npz"
            tables[label].save(paths[kind][name])
    save_weights(entry.model, folder / "model.safetensors")
    return Result(
        label=label,
        seed=seed,
        metrics=metrics,
        audits={name: audit_record(result, label, splits) for name, (result, _) in audits.items()},
        seconds=entry.seconds,
        passes=entry.passes,
        warnings=[*entry.warnings, *record["warnings"]],
        audit_warnings={name: warned for name, (_, warned) in audits.items()},
        unchanged=entry.unchanged,
        model=folder / "model.safetensors",
        counts=paths["counts"],
        heldout=paths["heldout"],
        gallery=None,
        notes=dict(entry.notes),
    )


def _with_found(results: Sequence[Result], found: Mapping[str, Mapping[str, Any]]) -> list[Result]:
    """Return the results with what each witness found in their models."""
    return [
        replace(each, witnesses={spec: own[each.label] for spec, own in found.items() if each.label in own})
        for each in results
    ]


def _scenario(
    request: Request,
    model: nn.Module,
    splits: Splits,
    audit: Mapping[str, Any],
    measures: Sequence[str],
    innocents: bool,
) -> ScenarioRecord:
    return ScenarioRecord.model_validate(
        {
            "name": request.name,
            "form": splits.form,
            "class_names": list(splits.class_names),
            "sizes": {part: len(getattr(splits, part)) for part in ("retain", "forget", "validation", "test")},
            "public_data": False,
            **({"plugins": used} if (used := described_plugins([*measures, *audit["perturbations"]])) else {}),
            "settings": {
                "data": {"name": request.name},
                "forget": {"listed": len(splits.forget)},
                "model": {"name": type(model).__name__},
                "audit": audit,
                **({"measures": list(measures)} if measures else {}),
                **({"stand_ins": True} if innocents else {}),
            },
        }
    )
