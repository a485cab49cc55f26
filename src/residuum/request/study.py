"""The study of a request: the original, retrained models, and unlearned ones, from the user's own objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import uuid4

import torch
from pydantic import ValidationError
from torch import nn

from residuum.auditing.measures import OWN_MEASURES
from residuum.auditing.probes import PROBES, probe_kind
from residuum.core.console import say
from residuum.core.errors import InputError, plural, unknown_name
from residuum.core.inputs import InputSpace, space_of
from residuum.core.roles import refuse_reserved, trained_roles
from residuum.core.samples import Splits
from residuum.data import Dataset
from residuum.data.copies import near_copies
from residuum.judging import controls_missing
from residuum.models import wrap_like
from residuum.models.probabilities import network_name, refuse_probabilities
from residuum.perturbations import PERTURBATIONS, Perturbation, make_perturbation
from residuum.record import refuse_no_file_name
from residuum.record.folder import OWN_RUN, note_written
from residuum.record.run import Run
from residuum.request.copies import copies_left_out, near_copies_found, without_copies
from residuum.request.identity import UnknownError, subject_identity, training_identity
from residuum.request.models import Unlearned
from residuum.studies.execution import STORE, Resources, run
from residuum.studies.maintenance import remove_subject
from residuum.studies.parsing import build_perturbation, check_measure
from residuum.studies.retraining import QUICK, MadeModel
from residuum.studies.settings import AuditSettings, DataSettings, ForgetSettings, ModelSettings, Scenario
from residuum.studies.study import RowSpec, Study
from residuum.studies.subjects import LiveSubject
from residuum.unlearning import first_problem

if TYPE_CHECKING:
    from residuum.request.request import Request

FEWEST_CONTROLS, MOST_CONTROLS = 3, 8  # of controls="auto"
PIXEL_RADII = (0.0, 0.03, 0.06, 0.1)
UNIT_RADII = (0.0, 0.1, 0.25, 0.5)  # in units of a feature's scale, or of the standard deviation of a layer
PIXEL_SEARCH = (0.02, 0.04, 0.06)  # radii in the l-infinity ball, as those of PGD
UNIT_SEARCH = (0.1, 0.25, 0.5)

Radii = Sequence[float] | Mapping[str, Sequence[float]] | None  # by perturbation
Placed = dict[str, tuple[Perturbation, InputSpace]]
Unlearning = Unlearned | nn.Module | Mapping[str, Any] | Sequence[Unlearned]


@dataclass(frozen=True)
class References:
    """The retrained models of an audit: those that the user brings, and how many to make.

    Args:
        reference: A model retrained without the forgotten samples; None to make it.
        controls: How many further ones to make, or the models themselves. "auto" makes three, then more until the
            original would be detected with 80 % power, at most eight.
        surrogates: Make cheap surrogates instead of retrained models.
    """

    reference: nn.Module | None = None
    controls: int | Literal["auto"] | Sequence[nn.Module] = "auto"
    surrogates: bool = False

    def brought(self, model: nn.Module) -> list[MadeModel]:
        """Return the models that the user brings, wrapped as the original is, the reference first."""
        listed = [] if isinstance(self.controls, int | str) else list(self.controls)
        if self.reference is None and listed:
            raise InputError("expected a reference as well as the controls; give reference=")
        models = [*([] if self.reference is None else [self.reference]), *listed]
        if any(_same_weights(one, model) for one in models):
            text = "expected reference and controls that never saw the forgotten samples, got the original's weights"
            raise InputError(f"{text}; give models that were retrained without them")
        return [MadeModel(wrap_like(one, model), "retrain", {"trained_by": "others"}) for one in models]

    def control_number(self, request: Request) -> int:
        """Return how many controls there are, those that the user brings among them."""
        if isinstance(self.controls, int | str):
            number = FEWEST_CONTROLS if isinstance(self.controls, str) else self.controls
            trains = request.retrain is not None or request.recipe is not None
            return number if trains or self.reference is None else 0
        return len(self.controls)

    def most_controls(self, request: Request) -> int:
        """Return how many controls there may be in the end."""
        first = self.control_number(request)
        return MOST_CONTROLS if self.controls == "auto" and first and not self.surrogates else first


def _same_weights(one: object, other: nn.Module) -> bool:
    """Tell whether two networks have weights, and all of them equal."""
    if not isinstance(one, nn.Module):
        return False
    ours, theirs = (list(model.state_dict().values()) for model in (one, other))
    return bool(ours) and len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


@dataclass(frozen=True)
class AuditOptions:
    """How an audit measures.

    Args:
        perturbations: How samples are perturbed; default: Gaussian noise on inputs, or on the embedding of tokens.
        taus: Radii, or radii by perturbation; the default fits pixels, or units of `scale`.
        measures: Probes, such as `recovery`, or FILE.py:FUNCTION of your own; default: none, but with surrogates the
            recovery radius where inputs can be searched for.
        draws: Perturbed copies of each sample at each radius.
        until: "verdict" stops drawing once more draws could not change a verdict.
        seed: Seed of everything random.
        accept_reference: Judge by a reference that is not comparable; every verdict then says so.
        gallery: Write pictures of forgotten samples into the run's folder.

    >>> AuditOptions(draws=50, taus=[0, 0.1]).seed
    1
    """

    perturbations: object = None
    taus: Radii = None
    measures: Sequence[str] | None = None
    draws: int = 100
    until: str | None = None
    seed: int = 1
    accept_reference: bool = False
    gallery: bool | None = None


def request_study(
    request: Request,
    model: nn.Module,
    unlearned: Unlearning,
    references: References,
    options: AuditOptions,
    *,
    workers: int = 1,
) -> Study:
    """Return the study that `Request.audit` computes; everything is checked here."""
    without_decoys = request
    request = without_decoys.forgotten_with(unlearned)  # retrained models do not see decoys, either
    surrogates = references.surrogates
    retraining = request.retraining(model, seed=options.seed, surrogates=surrogates)
    splits = retraining.splits
    if not len(splits.test):
        raise InputError(
            "expected held-out samples for an audit, which tell memory from knowledge of the class; give held_out="
        )
    named = len(splits.forget)
    splits, left_out = without_copies(splits)
    moved = _perturbations(options.perturbations, model, splits)
    radii = {name: _radii(name, space, options.taus) for name, (_, space) in moved.items()}
    specs = _measures(options.measures, model, surrogates)
    audit = _audit_settings(specs, model, radii, options)
    models = _unlearned_models(model, unlearned)
    retrained = references.brought(model)
    labels = list(trained_roles(references.control_number(request)))[1:]
    if len(labels) > len(retrained):
        retraining.refuse_impossible()
    recipe = asdict(request.recipe) if request.recipe else {"trained_by": "others"}
    supplied = {"original": MadeModel(model, "original", recipe)}
    supplied |= dict(zip(labels, retrained, strict=False))
    identity, how, unnamed = uuid4().hex, "", ""
    try:
        identity = subject_identity(request, model, moved)
        how = training_identity(request, model, surrogates=surrogates) if len(labels) > len(retrained) else ""
    except UnknownError as error:
        unnamed = str(error)
    live = LiveSubject(
        samples=Dataset(request.name, request.source.samples, splits.test, splits.class_names),
        parts=splits,
        perturbations=moved,
        supplied=supplied | models,
        training=replace(retraining, identity=how, most_controls=references.most_controls(request)),
        identity=identity,
        unnamed=unnamed,
        warnings=(*copies_left_out(left_out), *request.returning(model, *(result.model for result in models.values()))),
        late_warnings=partial(_near_copies_said, splits, space_of(model).tokens),
        listed=(named,) if left_out["forgotten"] else (),
        left_out={what: number for what, number in left_out.items() if number},
        decoys={
            label: without_decoys.decoy_audit(result, model, seed=options.seed)
            for label, result in models.items()
            if isinstance(result, Unlearned) and result.decoys is not None
        },
    )
    scenario = _scenario(request, model, audit, specs, options, controls=len(labels) - 1, workers=workers)
    rows = [
        RowSpec(label=label, method=result.method, settings=dict(result.settings)) for label, result in models.items()
    ]
    return Study(scenario=scenario, rows=rows, live=live)


def _near_copies_said(splits: Splits, tokens: bool) -> Iterable[str]:
    return near_copies_found(*map(len, near_copies(splits, tokens=tokens)))


def _scenario(
    request: Request,
    model: nn.Module,
    audit: AuditSettings,
    measures: Sequence[str],
    options: AuditOptions,
    *,
    controls: int,
    workers: int,
) -> Scenario:
    """Return the settings of a request as those of a scenario."""
    settings = {
        "name": request.name,
        "data": DataSettings(name=request.name),
        "forget": ForgetSettings(),
        "model": ModelSettings(name=network_name(model)),
        "train": request.recipe or QUICK,
        "audit": audit,
        "measures": measures,
        "seeds": [options.seed],
        "controls": controls,
        "accept_reference": options.accept_reference,
        "threads": min(256, max(1, torch.get_num_threads() // workers)),
    }
    try:
        return Scenario.model_validate(settings)
    except ValidationError as error:
        raise InputError(first_problem(error)) from None


def audited(
    study: Study,
    out: Path,
    *,
    store: Path = STORE,
    resources: Resources | None = None,
    gallery: bool | None = None,
    progress: bool = False,
) -> Run:
    """Return the computed run; what no other process could use again is removed from the store.

    Controls are added, up to `most_controls` of its training, until the original would be detected with 80 % power.
    Everything that was computed comes from the store again.
    """
    live = cast(LiveSubject, study.live)
    note_written(out, OWN_RUN)
    if live.unnamed:
        resources = replace(resources or Resources(), workers=1)  # no other process has the same objects
    if progress and live.unnamed:
        say(f"if this audit is killed, the next one starts again: {live.unnamed}")
    try:
        while True:
            done = run(study, store=store, out=out, resources=resources, gallery=gallery, progress=progress)
            larger = with_missing_controls(study, done, progress=progress)
            if larger is study:
                return done
            study = larger
    finally:
        if live.unnamed:
            remove_subject(store, live.identity)


def with_missing_controls(study: Study, done: Run, *, progress: bool = False) -> Study:
    """Return the study with the controls that its run lacks to detect the original, or as it is if it lacks none."""
    controls = study.scenario.controls
    more = controls_missing(done.record, cast(LiveSubject, study.live).training.most_controls - controls)
    if not more:
        return study
    if progress:
        which = f"request {done.record.sequence.number}: " if done.record.sequence else ""
        models = plural(controls + 1, "retrained model")
        say(f"{which}{models} do not tell even the original from a retrained one: {plural(more, 'control')} more")
    return with_controls(study, controls + more)


def with_controls(study: Study, number: int) -> Study:
    """Return the study with so many controls per seed."""
    return study.model_copy(update={"scenario": study.scenario.model_copy(update={"controls": number})})


def _perturbations(perturbations: object, model: nn.Module, splits: Splits) -> Placed:
    """Return the perturbations by the names that the record gives them, each with the space that it acts in."""
    space = space_of(model)
    perturbations = "gaussian" if perturbations is None else perturbations
    listed = perturbations if isinstance(perturbations, list | tuple) else [perturbations]
    placed: Placed = {}
    for one in listed:
        if isinstance(one, str):
            placed[one] = build_perturbation(PERTURBATIONS.named(one), space)
        else:
            perturbation = make_perturbation(cast(Perturbation, one))
            placed[str(perturbation.settings()["name"])] = perturbation, perturbation.space_for(space)
    if len(placed) < len(listed):
        raise InputError("expected perturbations of different names, got one twice; audit them in two runs")
    few = splits.forget.subset(range(min(64, len(splits.forget))))
    for name, (perturbation, home) in placed.items():
        if perturbation.crafted:
            noise = "expected noise such as gaussian, uniform_linf or uniform_l2, or substitution of tokens"
            refuse_probabilities(model, f"{name} follows the gradients of a network", noise)
        if home.at is None:
            perturbation.check(few.batch(torch.arange(len(few)))[0], home, few.ids)
        elif home.at not in (layers := [name for name, _ in model.named_modules() if name]):
            raise unknown_name("layer", home.at, layers)
    return placed


def _radii(name: str, space: InputSpace, taus: Radii) -> list[float]:
    radii = taus.get(name) if isinstance(taus, Mapping) else taus
    if radii is None:
        radii = PIXEL_RADII if space.at is None and space.bounds == (0.0, 1.0) else UNIT_RADII
    if any(not 0 <= tau < math.inf for tau in radii) or len(set(radii)) < len(radii) or not radii:
        raise InputError(
            f"expected different radii of 0 or more, got {', '.join(f'{tau:g}' for tau in radii) or 'none'}"
        )
    return [float(tau) for tau in radii]


def _measures(measures: Sequence[str] | None, model: nn.Module, surrogates: bool) -> list[str]:
    """Return the measures of the options; by default none, but with surrogates the recovery radius if there is one."""
    space = space_of(model)
    # no token ids, and no features of different scales or categories
    searchable = not space.tokens and space.at is None and space.scale is None and not space.fixed
    if measures is None:
        return ["recovery"] if surrogates and searchable else []
    if isinstance(measures, str):
        raise InputError(f"expected a list of measures such as ['recovery'], got {measures!r}")
    specs = [OWN_MEASURES.named(spec) for spec in measures]
    for spec in specs:
        kind = probe_kind(spec)
        if kind is not None:
            refuse_probabilities(model, f"{spec} reads weights, gradients or layers of a network", "leave it out")
        if kind is not None and kind.reads == "margins":
            possible = ", ".join(name for name, kind in PROBES.items() if kind.reads == "models")
            raise InputError(f"{spec} compares many retrained models; expected one of {possible}")
        if kind is not None and kind.searches and not searchable:
            raise InputError(f"{spec} moves all inputs alike; expected pixels or features without a scale, got others")
    return specs


def _audit_settings(
    specs: Sequence[str], model: nn.Module, radii: Mapping[str, Sequence[float]], options: AuditOptions
) -> AuditSettings:
    """Return the audit's settings, with the radii of searches if there are any."""
    taus = {name: list(values) for name, values in radii.items()}
    if any(kind is not None and kind.searches for kind in map(probe_kind, specs)):
        taus.setdefault("pgd", list(PIXEL_SEARCH if space_of(model).bounds == (0.0, 1.0) else UNIT_SEARCH))
    try:
        audit = AuditSettings.model_validate(
            {"perturbations": tuple(radii), "taus": taus, "draws": options.draws, "until": options.until}
        )
    except ValidationError as error:
        raise InputError(f"audit: {first_problem(error)}") from None
    for spec in specs:
        check_measure(spec, audit)
    return audit


def _unlearned_models(model: nn.Module, unlearned: Unlearning) -> dict[str, MadeModel]:
    """Return every unlearned model by the label of its row."""
    if isinstance(unlearned, Mapping):
        named = {str(label): one for label, one in unlearned.items()}
    else:
        listed = unlearned if isinstance(unlearned, list | tuple) else [unlearned]
        named = {one.label if isinstance(one, Unlearned) else "unlearned": one for one in listed}
        if len(named) < len(listed):
            raise InputError("expected unlearned models of different labels; give them by name: {label: model}")
    for label in named:
        refuse_reserved(refuse_no_file_name(label, "a row label"))
    return {
        label: one if isinstance(one, Unlearned) else MadeModel(wrap_like(one, model), "unlearned elsewhere")
        for label, one in named.items()
    }
