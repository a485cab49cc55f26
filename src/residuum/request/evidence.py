"""The audit of a request: models beside each other, one record, one folder, a run like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from residuum.auditing import AuditResult, audit, estimate_cost
from residuum.auditing.probes import probe_kind
from residuum.core.console import say, tell
from residuum.core.errors import InputError, plural
from residuum.core.files import working_folder
from residuum.core.inputs import InputSpace, space_of
from residuum.core.registry import described_plugins
from residuum.core.roles import Role, refuse_reserved, retrained_label, retrained_role
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.judging import judged_record
from residuum.metrics import evaluate
from residuum.models import private_copy, save_weights, wrap_like
from residuum.perturbations import PERTURBATIONS, Perturbation, Substitution, make_perturbation
from residuum.record import ScenarioRecord, refuse_no_file_name
from residuum.record.folder import KEPT, OWN_RUN, note_written
from residuum.record.run import Run
from residuum.request.kept import KeptModels
from residuum.request.measures import audit_settings, chosen_measures, probed_models
from residuum.request.models import QUICK, Made, Unlearned
from residuum.studies.estimates import WorkLeft, seconds_to_the_end
from residuum.studies.parsing import build_perturbation
from residuum.studies.probes import with_probes
from residuum.studies.results import Result, RowFacts, assembled_record, claim_folder, write_files
from residuum.studies.stages import audit_record, measured
from residuum.training import TrainingPhase, cross_entropy, fit

if TYPE_CHECKING:
    from residuum.request.request import Request

PIXEL_RADII = (0.0, 0.03, 0.06, 0.1)
MOST_DAYS = 30.0  # of one core, that nobody is asked about
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
    accept_reference: bool = False


class Steps:
    """Says on standard error what is done, one line a step, if anybody wants to know."""

    def __init__(self, shown: bool, total: int) -> None:
        self.shown, self.total, self.number = shown, total, 0

    def done(self, what: str) -> None:
        """Count one step."""
        self.number += 1
        if self.shown:
            tell(f"[{self.number}/{self.total}] {what}", err=True)

    def say(self, text: str) -> None:
        """Say something that is no step."""
        if self.shown:
            say(text)


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
    accept_reference: bool = False,
) -> AuditPlan:
    """Return the plan of an audit, with perturbations as the model's inputs want them."""
    if not len(splits.test):
        raise InputError(
            "expected held-out samples for an audit, which tell memory from knowledge of the class; give held_out="
        )
    chosen = chosen_perturbations(perturbations, model, splits)
    radii = {name: _radii(name, each, taus) for name, each in chosen.items()}
    first = splits.forget.subset(range(min(64, len(splits.forget))))
    for perturbation in chosen.values():
        if perturbation.at is None:
            perturbation.check(first.batch(torch.arange(len(first)))[0], first.ids)
    specs = chosen_measures(measures, model, innocents)
    settings = audit_settings(specs, model, radii, draws)
    return AuditPlan(splits, chosen, specs, settings, innocents, seed, accept_reference)


def audited(
    request: Request,
    models: Mapping[str, Made],
    plan: AuditPlan,
    out: Path,
    *,
    reference: nn.Module | None,
    controls: int | Sequence[nn.Module],
    kept: Path = KEPT,
    progress: bool = False,
    most_days: float = MOST_DAYS,
) -> Run:
    """Return the run over the original, the first of the models, re-trained ones, and the others, unlearned."""
    original, *unlearned = models.items()
    models_given = _given_references(original[1].model, reference, controls)
    missing = _missing(request, models_given, controls, plan.innocents)
    store = KeptModels.of(request, original[1].model, plan.seed, plan.innocents, kept) if missing else None
    steps = Steps(progress, len(missing) + len(plan.perturbations) + len(models) + len(models_given) + len(missing))
    work = _work(request, models, plan, models_given, missing, store)
    if sum(work.seconds.values()) > most_days * 24 * 3600:
        fewer = "lower draws, controls or epochs, or start it all the same with most_days=math.inf (--yes)"
        raise InputError(f"expected work of at most {most_days:g} days, got {work}; {fewer}")
    claim_folder(out)
    note_written(out, OWN_RUN)
    trained = reference_rows(request, original[1].model, models_given, missing, store, plan, steps, work)
    recipe = asdict(request.recipe) if request.recipe else {"trained_by": "others"}
    rows = {original[0]: replace(original[1], settings=recipe)} | trained | dict(unlearned)
    roles = {original[0]: Role.ORIGINAL, **{label: retrained_role(k) for k, label in enumerate(trained)}}
    roles |= {label: Role.METHOD for label, _ in unlearned}
    with working_folder(out) as folder:
        results = list(_results(rows, plan, folder, steps))
        record = assembled_record(
            results,
            scenario=_scenario(request, original[1].model, plan),
            rows={label: RowFacts(roles[label], made.method, made.settings) for label, made in rows.items()},
            seeds=[plan.seed],
            perturbations=list(plan.perturbations),
            warnings=[
                *(_weaker(trained.values()) if plan.innocents else ()),
                *request.returning(*(made.model for made in models.values())),
            ],
            notes=["re-learn time was not measured", *_left_out(request)],
        )
        record = with_probes(record, [spec for spec in plan.measures if probe_kind(spec)], results)
        record = write_files(judged_record(record), results, out)
    return Run(out, record.scenario.name, record)


def chosen_perturbations(given: Any, model: nn.Module, splits: Splits) -> dict[str, Perturbation]:  # noqa: ANN401
    """Return the perturbations by the names that the record gives them, with the bounds of the model's inputs."""
    space = space_of(model)
    listed = given if isinstance(given, list | tuple) else ["gaussian" if given is None else given]
    found: dict[str, Perturbation] = {}
    for each in listed:
        chosen = build_perturbation(PERTURBATIONS.named(each)) if isinstance(each, str) else make_perturbation(each)
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


def _given_references(model: nn.Module, reference: nn.Module | None, controls: int | Sequence[nn.Module]) -> list[Made]:
    """Return the reference and the controls that the user brings."""
    listed = [] if isinstance(controls, int) else list(controls)
    if reference is None and listed:
        raise InputError("expected a reference beside the controls; give reference=")
    given = [*([] if reference is None else [reference]), *listed]
    return [Made(wrap_like(each, model), "retrain", {"trained_by": "others"}) for each in given]


def _missing(request: Request, given: Sequence[Made], controls: int | Sequence[nn.Module], innocents: bool) -> range:
    """Return the numbers of the models to retrain; refuse a request that cannot."""
    if not isinstance(controls, int) or (given and not request.trains):
        return range(0)
    request.refuse_untrainable(innocents)
    return range(len(given), 1 + controls)


def reference_rows(
    request: Request,
    model: nn.Module,
    given: Sequence[Made],
    missing: range,
    store: KeptModels | None,
    plan: AuditPlan,
    steps: Steps,
    work: WorkLeft,
) -> dict[str, Made]:
    """Return reference and controls: those given, those that an earlier audit kept, and the others made."""
    # how long a function of the user's takes is known after its first model only
    known = request.retrain is None or plan.innocents or not missing
    models = list(given)
    if known:
        steps.say(f"work: {work}")
    for number in missing:
        assert store is not None
        made = store.find(number)
        how = f"taken from {store.place(number)}, trained by an audit before"
        if made is None:
            (made,) = request.references(model, number + 1, seed=plan.seed, innocents=plan.innocents, known=number)
            store.keep(number, made)
            how = f"trained in {made.seconds:.0f} s"
        steps.done(f"{retrained_label(number)}: {how}")
        if number == missing[0] and not known:
            left = sum(not store.has(each) for each in missing[1:])
            steps.say(f"work: about {made.seconds * left:.0f} s for {plural(left, 'more training')}, then {work}")
        if number == missing[0] and store.reason:
            steps.say(f"if this audit is killed, the next one trains again: {store.reason}")
        models.append(replace(made, settings=_trained_how(request, plan.innocents)))
    return {retrained_label(k): replace(each, method=retrained_label(k)) for k, each in enumerate(models)}


def _work(
    request: Request,
    models: Mapping[str, Made],
    plan: AuditPlan,
    given: Sequence[Made],
    missing: range,
    store: KeptModels | None,
) -> WorkLeft:
    """Return how long training by a recipe and the audit take, from a few steps of each; a function cannot be asked."""
    model = models["original"].model
    seconds: dict[str, float] = {}
    untrained = sum(store is not None and not store.has(number) for number in missing)
    if untrained and (request.retrain is None or plan.innocents):
        recipe, retain = request.recipe or QUICK, plan.splits.retain
        phases = [TrainingPhase(cross_entropy, "train")]
        probe = private_copy(model)
        spent = seconds_to_the_end(
            lambda progress: fit(probe, {"train": retain}, recipe, phases, seed=plan.seed, progress=progress)
        )
        seconds["train"] = untrained * spent
    rows = {label: made.model for label, made in models.items()}
    rows |= {retrained_label(k): made.model for k, made in enumerate(given)}
    rows |= {retrained_label(k): model for k in missing}
    costs = [
        estimate_cost(
            rows,
            rows["retrain"],
            plan.splits.forget,
            perturbation,
            taus=plan.settings["taus"][name],
            draws=plan.settings["draws"],
            heldout=plan.splits.heldout,
            original=rows["original"],
        )
        for name, perturbation in plan.perturbations.items()
    ]
    seconds["audit"] = sum(cost.seconds for cost in costs)
    return WorkLeft(seconds, sum(cost.passes for cost in costs), at_most=False)


def _trained_how(request: Request, innocents: bool) -> dict[str, Any]:
    """Return the recipe of the models that were made, or what is known in its place."""
    if innocents:
        return {"surrogates": "trained until they fit the retained samples as the original does"}
    if request.retrain is not None:
        return {"trained_by": getattr(request.retrain, "__name__", type(request.retrain).__name__)}
    return asdict(request.recipe) if request.recipe else {}


def _weaker(made: Collection[Made]) -> list[str]:
    """Return what must be said where stand-ins take the place of re-trained models, with their cost."""
    cost = f"{sum(e.passes for e in made)} passes over single samples, {sum(e.seconds for e in made):.0f} s"
    return [
        f"no re-trained model: {len(made)} briefly trained stand-ins took its place ({cost}); all of this is weaker"
    ]


def _left_out(request: Request) -> list[str]:
    """Return what the record says of samples of earlier requests."""
    if not request.earlier_ids:
        return []
    number = plural(len(request.earlier_ids), "sample")
    return [f"{number} of earlier requests: no retrained model saw them, and this audit does not judge them"]


def _results(rows: Mapping[str, Made], plan: AuditPlan, folder: Path, steps: Steps) -> Iterator[Result]:
    """Yield what is measured of each row; counts and weights are written below `folder`."""
    models, splits = {label: made.model for label, made in rows.items()}, plan.splits
    audits: dict[str, tuple[AuditResult, list[str]]] = {}
    for name, perturbation in plan.perturbations.items():
        with measured(torch.get_num_threads()) as record:
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
        steps.done(f"audit under {name} in {record['seconds']:.0f} s")
    found = probed_models(plan.measures, models, splits, plan.settings, plan.seed)
    for number, (label, made) in enumerate(rows.items()):
        (folder / str(number)).mkdir()
        probes = {spec: own[label].record() for spec, own in found.items() if label in own}
        yield replace(_result(label, made, plan, audits, folder / str(number)), probes=probes)
        steps.done(f"evaluation of {label}")


def _result(
    label: str, made: Made, plan: AuditPlan, audits: Mapping[str, tuple[AuditResult, list[str]]], folder: Path
) -> Result:
    with measured(torch.get_num_threads()) as record:
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
        **({"surrogates": True} if plan.innocents else {}),
        **({"accept_reference": True} if plan.accept_reference else {}),
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
