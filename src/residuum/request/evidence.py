"""The audit of a request: models beside each other, one record, one folder, a run like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from residuum.auditing import AuditResult, audit
from residuum.auditing.witnesses import is_witness
from residuum.experiments.parsing import build_perturbation
from residuum.experiments.results import RowFacts, assembled_record, claim_folder, write_files
from residuum.experiments.runner import Result
from residuum.experiments.stages import audit_record, measured
from residuum.experiments.witnesses import with_witnesses
from residuum.metrics import evaluate
from residuum.models import InputSpace, save_weights, space_of, wrap_like
from residuum.perturbations import Perturbation, Substitution, make_perturbation
from residuum.plugins import described_plugins
from residuum.record import ScenarioRecord, refuse_no_file_name, refuse_reserved
from residuum.reporting.run import Run
from residuum.reporting.verdict import with_verdicts
from residuum.request.measures import audit_settings, chosen_measures, found_in_models
from residuum.request.models import Made, Unlearned, role
from residuum.types import InputError, Splits, child_seed

if TYPE_CHECKING:
    from residuum.request.request import Request

PIXEL_RADII = (0.0, 0.03, 0.06, 0.1)
UNIT_RADII = (0.0, 0.1, 0.25, 0.5)  # in units of a feature's scale, or of the standard deviation of a layer


@dataclass(frozen=True)
class AuditPlan:
    """On which samples and how all models are audited; `settings` are those of the record."""

    splits: Splits
    perturbations: Mapping[str, Perturbation]
    measures: Sequence[str]
    settings: Mapping[str, Any]
    innocents: bool
    seed: int


def planned(
    model: nn.Module,
    splits: Splits,
    *,
    perturbations: Any,  # noqa: ANN401 (see Request.audit)
    taus: Any,  # noqa: ANN401 (see Request.audit)
    measures: Sequence[str] | None,
    draws: int,
    innocents: bool,
    seed: int,
) -> AuditPlan:
    """Return the plan of an audit, with perturbations as the model's inputs want them."""
    if not len(splits.test):
        raise InputError(
            "expected held-out samples for an audit, which tell memory from knowledge of the class; give held_out="
        )
    chosen = chosen_perturbations(perturbations, model, splits)
    radii = {name: _radii(name, each, taus) for name, each in chosen.items()}
    specs = chosen_measures(measures, model, innocents)
    return AuditPlan(splits, chosen, specs, audit_settings(specs, model, radii, draws), innocents, seed)


def audited(
    request: Request,
    models: Mapping[str, Made],
    plan: AuditPlan,
    out: Path,
    *,
    reference: nn.Module | None,
    controls: int | Sequence[nn.Module],
) -> Run:
    """Return the run over the original, the first of the models, re-trained ones, and the others, unlearned."""
    original, *unlearned = models.items()
    claim_folder(out)
    trained = reference_rows(request, original[1].model, reference, controls, plan.innocents, plan.seed)
    recipe = asdict(request.recipe) if request.recipe else {"trained_by": "others"}
    rows = {original[0]: replace(original[1], settings=recipe)} | trained | dict(unlearned)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        results = list(_results(rows, plan, Path(folder)))
        record = assembled_record(
            results,
            scenario=_scenario(request, original[1].model, plan),
            rows={label: RowFacts(made.method, made.settings) for label, made in rows.items()},
            seeds=[plan.seed],
            perturbations=list(plan.perturbations),
            warnings=_weaker(trained.values()) if plan.innocents else (),
            notes=["re-learn time was not measured"],
        )
        record = with_witnesses(record, [spec for spec in plan.measures if is_witness(spec)], results)
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


def compared_models(model: nn.Module, unlearned: Any) -> dict[str, Made]:  # noqa: ANN401 (see Request.audit)
    """Return the original and every unlearned model by the labels of their rows."""
    if isinstance(unlearned, Mapping):
        named = {str(label): each for label, each in unlearned.items()}
    else:
        listed = unlearned if isinstance(unlearned, list | tuple) else [unlearned]
        named = {each.label if isinstance(each, Unlearned) else "unlearned": each for each in listed}
        if len(named) < len(listed):
            raise InputError("expected unlearned models of different labels; give them by name: {label: model}")
    for label in named:
        refuse_reserved(refuse_no_file_name(label, "a row label"))
    rows = {
        label: each if isinstance(each, Unlearned) else Made(wrap_like(each, model), "unlearned elsewhere")
        for label, each in named.items()
    }
    return {"original": Made(model, "original"), **rows}


def reference_rows(
    request: Request,
    model: nn.Module,
    reference: nn.Module | None,
    controls: int | Sequence[nn.Module],
    innocents: bool,
    seed: int,
) -> dict[str, Made]:
    """Return reference and controls: those given, the others made."""
    listed = [] if isinstance(controls, int) else list(controls)
    if reference is None and listed:
        raise InputError("expected a reference beside the controls; give reference=")
    given = [*([] if reference is None else [reference]), *listed]
    models = [Made(wrap_like(each, model), "retrain", {"trained_by": "others"}) for each in given]
    if isinstance(controls, int) and (reference is None or request.trains):
        made = request.references(model, 1 + controls, seed=seed, innocents=innocents, known=len(models))
        models += [replace(each, settings=_trained_how(request, innocents)) for each in made]
    return {role(k): replace(each, method=role(k)) for k, each in enumerate(models)}


def _trained_how(request: Request, innocents: bool) -> dict[str, Any]:
    """Return the recipe of the models that were made, or what is known in its place."""
    if innocents:
        return {"stand_ins": "trained until they fit the retained samples as the original does"}
    if request.retrain is not None:
        return {"trained_by": getattr(request.retrain, "__name__", type(request.retrain).__name__)}
    return asdict(request.recipe) if request.recipe else {}


def _weaker(made: Collection[Made]) -> list[str]:
    """Return what must be said where stand-ins take the place of re-trained models, with their cost."""
    cost = f"{sum(e.passes for e in made)} passes over single samples, {sum(e.seconds for e in made):.0f} s"
    return [
        f"no re-trained model: {len(made)} briefly trained stand-ins took its place ({cost}); all of this is weaker"
    ]


def _results(rows: Mapping[str, Made], plan: AuditPlan, folder: Path) -> Iterator[Result]:
    """Yield what is measured of each row; counts and weights are written below `folder`."""
    models, splits = {label: made.model for label, made in rows.items()}, plan.splits
    audits: dict[str, tuple[AuditResult, list[str]]] = {}
    for name, perturbation in plan.perturbations.items():
        with measured(1) as record:
            result = audit(
                models,
                models["retrain"],
                splits.forget,
                perturbation,
                taus=plan.settings["taus"][name],
                draws=plan.settings["draws"],
                seed=child_seed(plan.seed, "audit"),
                heldout=splits.heldout,
                original=models["original"],
                seen={"the retain set": set(splits.retain.ids)},
            )
        audits[name] = result, sorted({*record["warnings"], *result.warnings})
    found = found_in_models(plan.measures, models, splits, plan.settings, plan.seed)
    for number, (label, made) in enumerate(rows.items()):
        (folder / str(number)).mkdir()
        witnesses = {spec: own[label] for spec, own in found.items() if label in own}
        yield replace(_result(label, made, plan, audits, folder / str(number)), witnesses=witnesses)


def _result(
    label: str, made: Made, plan: AuditPlan, audits: Mapping[str, tuple[AuditResult, list[str]]], folder: Path
) -> Result:
    with measured(1) as record:
        metrics = evaluate(made.model, plan.splits)
    paths: dict[str, dict[str, Path]] = {"counts": {}, "heldout": {}}
    for name, (result, _) in audits.items():
        for kind, tables in (("counts", result.counts), ("heldout", result.heldout)):
            paths[kind][name] = folder / f"{kind}-{name}.npz"
            tables[label].save(paths[kind][name])
    save_weights(made.model, folder / "model.safetensors")
    return Result(
        label=label,
        seed=plan.seed,
        metrics=metrics,
        audits={name: audit_record(result, label, plan.splits) for name, (result, _) in audits.items()},
        seconds=made.seconds,
        passes=made.passes,
        warnings=[*made.warnings, *record["warnings"]],
        audit_warnings={name: warned for name, (_, warned) in audits.items()},
        unchanged=made.unchanged,
        model=folder / "model.safetensors",
        counts=paths["counts"],
        heldout=paths["heldout"],
        gallery=None,
        notes=dict(made.notes),
    )


def _scenario(request: Request, model: nn.Module, plan: AuditPlan) -> ScenarioRecord:
    parts = ("retain", "forget", "validation", "test")
    settings = {
        "data": {"name": request.name},
        "forget": {"listed": len(plan.splits.forget)},
        "model": {"name": type(model).__name__},
        "audit": plan.settings,
        **({"measures": list(plan.measures)} if plan.measures else {}),
        **({"stand_ins": True} if plan.innocents else {}),
    }
    record = {
        "name": request.name,
        "form": plan.splits.form,
        "class_names": list(plan.splits.class_names),
        "sizes": {part: len(getattr(plan.splits, part)) for part in parts},
        "public_data": False,
        **({"plugins": used} if (used := described_plugins([*plan.measures, *plan.perturbations])) else {}),
        "settings": settings,
    }
    return ScenarioRecord.model_validate(record)
