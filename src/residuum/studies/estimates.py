"""Say before a run how long it will take: passes times one timed step of training."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from residuum.auditing.budget import as_many
from residuum.auditing.heldout import choose_heldout
from residuum.core.errors import plural
from residuum.core.samples import Samples
from residuum.models import forward, private_copy
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

BACKWARD = 2.0  # a backward pass takes about twice as long as a forward pass
SHORT = 3.0  # seconds of work that are done before worker processes are there
FEW = 4  # samples of the batch that is timed first
STEP = 0.5  # seconds of the step that is timed: larger networks are shown smaller batches
READINGS = 3  # how often an evaluation shows retained and test samples to a model

Seconds = dict[str, float]  # by kind of stage


@dataclass(frozen=True)
class WorkLeft:
    """How long the missing stages will take on one core, by kind, and how many predictions their audits make.

    With a half-width, or until the verdict, the number of draws is not known: `at_most` says that audits take less.
    `untimed` counts the trainings by a function of the user's, which nobody can time before the first.
    """

    seconds: Seconds
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
        parts = [f"{kind} {limit if kind == 'audit' else ''}{_time(spent)}" for kind, spent in self.seconds.items()]
        passes = f" ({self.passes:,} forward passes)" if self.passes else ""
        if self.untimed:
            passes += f", and {plural(self.untimed, 'training')} by your function"
        return f"{limit or 'about '}{_time(sum(self.seconds.values()))} on one core: {', '.join(parts)}{passes}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def work_left(studies: Sequence[Study], store: Path | str, plans: Plans) -> WorkLeft:
    """Return how long the stages that the store lacks will take."""
    finished, seconds, passes, untimed, seen = Store(Path(store)), Seconds(), 0, 0, set[str]()
    for study, seed_plans in zip(studies, plans, strict=True):
        missing = [stage for stage in all_stages([seed_plans]) if stage.key not in seen and not finished.has(stage)]
        seen.update(stage.key for stage in missing)
        if not missing:
            continue
        estimate = _Estimate(study)
        with measured(study.scenario.threads):
            for stage in missing:
                seconds[stage.kind] = seconds.get(stage.kind, 0.0) + estimate.seconds(stage)
        passes += estimate.passes
        if by_function(study):
            untimed += sum(map(trainings, missing))
    audit = studies[0].audit
    return WorkLeft(seconds, passes, audit.draws is None or audit.until is not None, untimed)


def by_function(study: Study) -> bool:
    """Tell whether a function of the user's trains, so that nobody knows how long it takes."""
    return study.live is not None and study.live.training.by_function


def trainings(stage: Stage) -> int:
    """Return how many models a stage trains, those that a probe trains further included."""
    if isinstance(stage, ProbeStage):
        return len(stage.roles) * build_probe(stage.name).epochs(1)
    return int(isinstance(stage, RetrainStage))


def seconds_per_sample(model: nn.Module, samples: Samples, recipe: Recipe) -> float:
    """Return the time of one sample's forward and backward pass in training: that of one step over its batch size.

    A few samples say how large a batch can be that takes half a second; that one is timed, at most of usual size. Where
    nothing can be trained, a forward pass is timed and the backward pass is added to it, as for a network.
    """
    if not any(weights.requires_grad for weights in model.parameters()):
        few = samples.subset(range(min(recipe.batch_size, len(samples))))
        start = time.perf_counter()
        forward(model, few)
        return (1 + BACKWARD) * (time.perf_counter() - start) / len(few)
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


class _Estimate:
    """Times of the stages of one study, from its network with fresh weights; no step is timed twice."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.splits = study.splits()
        self.model = study.network()
        self.steps: dict[int, float] = {}  # seconds per sample by batch size
        self.passes = 0  # of the audits asked for

    def seconds(self, stage: Stage) -> float:
        """Return how long a stage takes."""
        splits = self.splits
        if isinstance(stage, TrainStage | RetrainStage):
            samples = splits.train if stage.name == "original" else splits.retain
            recipe = stage.recipe
            return self.per_sample(recipe) * recipe.epochs * len(samples) if recipe else 0.0
        if isinstance(stage, UnlearnStage):
            return self.unlearning(stage)
        if isinstance(stage, AuditStage):
            return self.audit(stage)
        one = self.per_sample(self.study.scenario.train)
        if isinstance(stage, ProbeStage):
            probe, radii = build_probe(stage.name), max(len(stage.radii), len(stage.taus))
            passes = probe.passes(len(splits.forget), len(splits.heldout), radii)
            if not by_function(self.study):
                passes += probe.epochs(stage.recipe.epochs) * len(splits.retain)
            return len(stage.roles) * passes * one
        if isinstance(stage, EvaluateStage):  # all samples are shown, and re-learning takes half of its epochs
            relearning = 0.0 if stage.relearn is None else stage.relearn.epochs / 2 * len(splits.forget)
            return one * (READINGS * (len(splits.retain) + len(splits.test)) / (1 + BACKWARD) + relearning)
        return 0.0

    def per_sample(self, recipe: Recipe) -> float:
        """Return the time of one sample's forward and backward pass in training, in the precision of the run."""
        if recipe.batch_size not in self.steps:
            compute = self.study.compute
            with torch.autocast(compute.accelerator, torch.bfloat16, enabled=compute.precision == "bf16-mixed"):
                self.steps[recipe.batch_size] = seconds_per_sample(self.model, self.splits.train, recipe)
        return self.steps[recipe.batch_size]

    def unlearning(self, stage: UnlearnStage) -> float:
        """Return the time of a method's epochs over all samples; of one without a recipe, that of every label."""
        method, everything = make_method(stage.method, stage.settings), len(self.splits.train)
        if not isinstance(method, GradientMethod):
            return self.per_sample(stage.recipe) * everything * self.splits.classes
        recipe = method.recipe
        if isinstance(recipe, InheritedRecipe):
            recipe = recipe.resolved(stage.recipe)
        return self.per_sample(recipe) * recipe.epochs * everything

    def audit(self, stage: AuditStage) -> float:
        """Return the time of an audit of all rows that makes the most draws it may, and count its predictions."""
        (perturbation, _), audit, splits = stage.subject.perturbation(stage.name), self.study.audit, self.splits
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
        self.passes += passes
        gradients = perturbation.gradients * moved * (rows if crafted_on_each else 1)
        return self.per_sample(self.study.scenario.train) * (passes / (1 + BACKWARD) + gradients)
