"""Say before a run how long it will take: passes times one timed step of training."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from residuum.auditing.budget import as_many
from residuum.auditing.counting import rows_for
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.predictor import Predictor
from residuum.core.errors import plural
from residuum.core.samples import Samples, Splits
from residuum.models import evaluating, forward, private_copy
from residuum.studies.parsing import build_probe
from residuum.studies.planning import Plans, all_stages
from residuum.studies.stages import (
    AuditStage,
    EvaluateStage,
    ProbeStage,
    RetrainStage,
    Stage,
    TrainStage,
    UnlearnStage,
    measured,
)
from residuum.studies.store import Store
from residuum.studies.study import Study
from residuum.training import Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning import GradientMethod, InheritedRecipe, make_method

FORWARD = 1 / 3  # of a training pass: a backward pass takes about twice as long as a forward pass
SHORT = 3.0  # seconds of work that are done before worker processes are there
FEW = 4  # samples of the batch that is timed first
STEP = 0.5  # seconds of the step that is timed: larger networks are shown smaller batches
READINGS = 3  # how often an evaluation shows retained and test samples to a model


def duration(seconds: float) -> str:
    """Return a time in the unit that a person would use.

    >>> [duration(seconds) for seconds in (90, 3600, 20_000, 352_088_220)]
    ['90 s', '60 minutes', '6 hours', '4,075 days']
    """
    units = ((2 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (120, 60, "minutes"))  # from so many seconds on
    times = (f"{seconds / unit:,.0f} {name}" for least, unit, name in units if seconds >= least)
    return next(times, f"{seconds:.0f} s")


@dataclass(frozen=True)
class WorkLeft:
    """How long the missing stages will take on one core, by kind, and how many predictions their audits make.

    With a half-width, or until the verdict, the number of draws is not known: `at_most` says that audits take less.
    `untimed` counts the trainings by a function of the user's, which nobody can time before the first.
    """

    seconds: dict[str, float]
    passes: int
    at_most: bool
    untimed: int = 0

    @property
    def short(self) -> bool:
        """Whether it takes about as long as starting processes for it."""
        return not self.untimed and sum(self.seconds.values()) < SHORT

    def __str__(self) -> str:
        """Say it in one line.

        >>> str(WorkLeft({"train": 240.0, "audit": 3600.0}, 1_200_000, at_most=True))
        'at most 64 minutes on one core: train 4 minutes, audit at most 60 minutes (1,200,000 forward passes)'
        """
        limit = "at most " if self.at_most and "audit" in self.seconds else ""
        whole = duration(sum(self.seconds.values()))
        parts = [f"{kind} {limit if kind == 'audit' else ''}{duration(spent)}" for kind, spent in self.seconds.items()]
        passes = f" ({self.passes:,} forward passes)" if self.passes else ""
        if self.untimed:
            passes += f", and {plural(self.untimed, 'training')} by your function"
        return f"{limit or 'about '}{whole} on one core: {', '.join(parts)}{passes}"


@dataclass(frozen=True)
class Speed:
    """Seconds that one sample takes: in a batch of training, in one of an audit's size, and to be predicted in that."""

    training: float
    large_batches: float
    prediction: float


def speed_of(study: Study) -> Speed:
    """Return how fast the network of a study is here and now."""
    splits, compute = study.splits(), study.compute
    precision = torch.autocast(compute.accelerator, torch.bfloat16, enabled=compute.precision == "bf16-mixed")
    network, recipe = study.network(), study.scenario.train
    large = replace(recipe, batch_size=rows_for(splits.train.shape))  # in which audits show their inputs
    with measured(study.scenario.threads), precision:
        training, large_batches = (seconds_per_sample(network, splits.train, how) for how in (recipe, large))
        return Speed(training, large_batches, seconds_per_prediction(network, splits.train, large.batch_size))


def work_left(studies: Sequence[Study], store: Path | str, plans: Plans, speed: Speed | None = None) -> WorkLeft:
    """Return how long the stages that the store lacks will take, at this speed or at one that is measured."""
    finished, seconds, shown, untimed, seen = Store(Path(store)), dict[str, float](), 0, 0, set[str]()
    for study, seed_plans in zip(studies, plans, strict=True):
        missing = [stage for stage in all_stages([seed_plans]) if stage.key not in seen and not finished.has(stage)]
        seen.update(stage.key for stage in missing)
        if not missing:
            continue
        splits, by_function = study.splits(), study.live is not None and study.live.training.by_function
        now = speed or speed_of(study)
        for stage in missing:
            predictions = 0
            if isinstance(stage, AuditStage):
                refuse_failing_perturbation(stage, study.network(), splits)
                predictions, gradients = audit_passes(stage, study, splits)
                spent = now.prediction * predictions + now.training * gradients
            elif isinstance(stage, ProbeStage):
                searches, inputs, samples = probe_passes(stage, splits, by_function=by_function)
                spent = now.large_batches * searches + now.prediction * inputs + now.training * samples
            else:
                spent = now.training * training_passes(stage, splits)
            seconds[stage.kind] = seconds.get(stage.kind, 0.0) + spent
            shown += predictions
            if by_function and isinstance(stage, ProbeStage):
                untimed += len(stage.roles) * build_probe(stage.name).epochs(1)
            elif by_function:
                untimed += isinstance(stage, RetrainStage)
    audit = studies[0].audit
    return WorkLeft(seconds, shown, audit.draws is None or audit.until is not None, untimed)


def seconds_per_sample(model: nn.Module, samples: Samples, recipe: Recipe) -> float:
    """Return the time of one sample's forward and backward pass in training: that of one step over its batch size.

    A few samples say how large a batch can be that takes half a second; that one is timed, at most of usual size. Where
    nothing can be trained, a forward pass is timed and the backward pass is added to it, as for a network.
    """
    if not any(weights.requires_grad for weights in model.parameters()):
        few = samples.subset(range(min(recipe.batch_size, len(samples))))
        start = time.perf_counter()
        forward(model, few)
        return (time.perf_counter() - start) / FORWARD / len(few)
    probe, phases = private_copy(model), [TrainingPhase(cross_entropy, "train")]

    def timed(size: int) -> float:
        times: list[float] = []
        few = samples.subset(range(min(size, len(samples))))
        once = replace(recipe, epochs=3, lr=0.0, batch_size=len(few))  # an epoch is a step
        fit(probe, {"train": few}, once, phases, seed=0, progress=lambda *_: times.append(time.perf_counter()))
        return min(end - start for start, end in pairwise(times)) / len(few)

    first = timed(FEW)
    size = min(recipe.batch_size, round(STEP / first))
    return timed(size) if size > FEW else first


def seconds_per_prediction(model: nn.Module, samples: Samples, most: int) -> float:
    """Return the time in which an audit's copy of the model predicts one sample, in batches of at most `most`."""
    predictor = Predictor(model, samples.batch(torch.arange(min(FEW, len(samples))))[0])

    def timed(size: int) -> float:
        few, times = samples.batch(torch.arange(min(size, len(samples))))[0], []
        for _ in range(3):
            start = time.perf_counter()
            predictor.logits(few)
            times.append(time.perf_counter() - start)
        return min(times) / len(few)

    first = timed(FEW)
    size = min(most, round(STEP / first))
    return timed(size) if size > FEW else first


def training_passes(stage: Stage, splits: Splits) -> float:
    """Return the passes of single samples, forward and backward, that training and evaluation make."""
    everything = len(splits.train)
    if isinstance(stage, TrainStage | RetrainStage):
        samples = splits.train if stage.name == "original" else splits.retain
        return stage.recipe.epochs * len(samples) if stage.recipe else 0.0
    if isinstance(stage, UnlearnStage):  # a method without a recipe looks at every label of every sample
        method = make_method(stage.method, stage.settings)
        if not isinstance(method, GradientMethod):
            return everything * splits.classes
        recipe = method.recipe
        return everything * (recipe.resolved(stage.recipe) if isinstance(recipe, InheritedRecipe) else recipe).epochs
    if isinstance(stage, EvaluateStage):  # all samples are shown, and re-learning takes half of its epochs
        relearning = 0.0 if stage.relearn is None else stage.relearn.epochs / 2 * len(splits.forget)
        return READINGS * FORWARD * (len(splits.retain) + len(splits.test)) + relearning
    return 0.0


def probe_passes(stage: ProbeStage, splits: Splits, *, by_function: bool) -> tuple[int, int, int]:
    """Return the passes of a probe's searches in all models, the inputs it shows them, and the samples of training."""
    probe, radii = build_probe(stage.name), max(len(stage.radii), sum(tau > 0 for tau in stage.taus))
    trained = 0 if by_function else probe.epochs(stage.recipe.epochs) * len(splits.retain)
    searches = probe.passes(len(splits.forget), len(choose_heldout(splits.heldout, splits.forget)), radii)
    inputs, models = probe.predictions(splits, radii), len(stage.roles)
    return models * searches, models * inputs, models * trained


def refuse_failing_perturbation(stage: AuditStage, network: nn.Module, splits: Splits) -> None:
    """Perturb one input, so that a perturbation which cannot do it fails before anything is trained."""
    perturbation, space = stage.subject.perturbation(stage.name)
    if space.at is None:
        x, y = splits.forget.batch(torch.arange(1))
        with evaluating(network):
            perturbation(network, x, y, torch.Generator().manual_seed(0), max(stage.audit.radii(stage.name)), space)


def audit_passes(stage: AuditStage, study: Study, splits: Splits) -> tuple[int, int]:
    """Return the predictions of an audit of all rows that makes the most draws it may, and its gradients."""
    (perturbation, _), audit = stage.subject.perturbation(stage.name), study.audit
    radii, most = audit.radii(stage.name), audit.budget().most
    outcomes = perturbation.outcomes(splits.classes)
    if outcomes is not None:
        most = max(len(part) for part in outcomes if part is not None)
    n, heldout = len(splits.forget), len(choose_heldout(splits.heldout, splits.forget))
    fewer = most if audit.draws or outcomes else as_many([most], n, heldout)[0][1]
    moved = sum(tau > 0 for tau in radii) * (n * most + heldout * fewer)
    clean, rows = (n + heldout) * radii.count(0), len(stage.labels)
    crafted_on_each = perturbation.crafted and audit.crafted_on == "unlearned"
    passes = rows * (clean + (3 if crafted_on_each else 1) * moved)  # reference and original see what is crafted
    return passes, perturbation.gradients * moved * (rows if crafted_on_each else 1)
