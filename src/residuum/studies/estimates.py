"""Say before a run how long it will take: a few steps of each kind of stage are measured, and scaled to all of them."""

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from residuum.auditing import Cost, estimate_cost
from residuum.core.errors import InputError, MethodError, Stopped
from residuum.core.samples import Samples, Splits
from residuum.studies.experiment import Experiment
from residuum.studies.parsing import build_perturbation, build_probe
from residuum.studies.planning import Plans, all_stages, network
from residuum.studies.settings import (
    AuditStageSettings,
    EvaluateSettings,
    ProbeSettings,
    TrainSettings,
    UnlearnSettings,
)
from residuum.studies.stages import measured
from residuum.studies.store import Stage, Store
from residuum.training import Progress, Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning import NTK, SCRUB, GradientMethod, InheritedRecipe, Method, Origin, make_method, unlearn

ENOUGH = 0.05  # seconds of steps after the first, which finds nothing prepared, that are measured
LONG = 4.0  # a first step that takes longer is enough by itself
BACKWARD = 2.0  # a backward pass takes about twice as long as a forward pass
SHORT = 3.0  # seconds of work that are done before worker processes are there
FEW = 4  # samples of a batch that is tried first
STEP = 1.0  # seconds of a step of training in a probe: larger networks are shown smaller batches
PROBED = 8  # batches of such a size in the data that methods are tried on: some look at all samples before a step
PIECES = 4  # of such a batch: methods without steps are tried on one, as theirs are of single samples, or of all
ITERATIONS = 40  # that NTK's conjugate gradients need on the digits
TINY = 1e-30  # a tolerance that is not reached
READINGS = 3  # how often an evaluation shows retained and test samples to a model

Seconds = dict[str, float]  # by kind of stage
R = TypeVar("R", Recipe, InheritedRecipe)


class _Enough(Stopped):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


def seconds_to_the_end(work: Callable[[Progress], object]) -> float:
    """Return how long `work` would take, from its first steps; it is stopped as soon as they say enough.

    `work` is called with what it has to report its progress to, steps done and steps in all.
    """
    start, first, begun = time.perf_counter(), 0.0, 0

    def clock(done: int, total: int) -> None:
        nonlocal first, begun
        now = time.perf_counter() - start
        if not begun and now > LONG:
            raise _Enough(now / done * total)
        if not begun:
            first, begun = now, done
        elif now - first > ENOUGH:
            raise _Enough(first + (now - first) / (done - begun) * (total - begun))

    try:
        work(clock)
    except _Enough as found:
        return found.seconds
    return time.perf_counter() - start


@dataclass(frozen=True)
class WorkLeft:
    """How long the missing stages will take on one core, by kind, and how many predictions their audits make.

    With a half-width, or until the verdict, the number of draws is not known: `at_most` says that audits take less.
    """

    seconds: Seconds
    passes: int
    at_most: bool

    @property
    def short(self) -> bool:
        """Whether it takes about as long as starting processes for it."""
        return sum(self.seconds.values()) < SHORT

    def __str__(self) -> str:
        """Say it in one line.

        >>> str(WorkLeft({"train": 240.0, "audit": 3600.0}, 1_200_000, at_most=True))
        'at most 64 minutes on one core: train 4 minutes, audit at most 60 minutes (1,200,000 forward passes)'
        """
        limit = "at most " if self.at_most and "audit" in self.seconds else ""
        parts = [f"{kind} {limit if kind == 'audit' else ''}{_time(spent)}" for kind, spent in self.seconds.items()]
        passes = f" ({self.passes:,} forward passes)" if self.passes else ""
        return f"{limit or 'about '}{_time(sum(self.seconds.values()))} on one core: {', '.join(parts)}{passes}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def work_left(experiments: Sequence[Experiment], store: Path | str, plans: Plans) -> WorkLeft:
    """Return how long the stages that the store lacks will take."""
    found, seconds, passes, seen = Store(Path(store)), Seconds(), 0, set[str]()
    for experiment, own in zip(experiments, plans, strict=True):
        missing = [stage for stage in all_stages([own]) if stage.key not in seen and not found.has(stage)]
        seen.update(stage.key for stage in missing)
        if not missing:
            continue
        estimate = _Estimate(experiment)
        with measured(experiment.scenario.threads):
            for stage in missing:
                seconds[stage.kind] = seconds.get(stage.kind, 0.0) + estimate.seconds(stage)
        passes += estimate.passes
    chosen = experiments[0].scenario.audit
    return WorkLeft(seconds, passes, at_most=chosen.draws is None or chosen.until is not None)


def thinned(splits: Splits, share: float) -> Splits:
    """Return this share of all parts, evenly spread, and at least two samples of each."""
    thin: dict[str, Any] = {}
    for name, part in vars(splits).items():
        if isinstance(part, Samples):
            few = min(len(part), max(2, round(share * len(part))))
            thin[name] = part.subset(np.linspace(0, len(part) - 1, few, dtype=np.int64))
    return replace(splits, **thin)


def in_small_batches(recipe: R, most: int, share: float = 1.0) -> R:
    """Return the recipe with at most so many samples in a batch, and steps for this share of the samples.

    >>> small = in_small_batches(Recipe(batch_size=128, max_iters=10), 32)
    >>> small.batch_size, small.max_iters
    (32, 40)
    """
    smaller = max(1.0, (recipe.batch_size or most) / most)
    changes: dict[str, Any] = {"batch_size": most} if smaller > 1 else {}
    if recipe.max_iters is not None:
        changes["max_iters"] = round(recipe.max_iters * smaller * share)
    return replace(recipe, **changes)


def as_probe(method: Method, batch_size: int, share: float) -> Method:
    """Return the method as it is tried: in small batches, or with as many iterations as all samples may need."""
    if isinstance(method, GradientMethod):
        changes: dict[str, Any] = {"recipe": in_small_batches(method.recipe, batch_size, share)}
        if isinstance(method, SCRUB) and method.forget_batch_size is not None:
            changes["forget_batch_size"] = min(method.forget_batch_size, batch_size)
        return replace(method, **changes)
    if isinstance(method, NTK):
        fewer: dict[str, Any] = {"max_iterations": min(method.max_iterations, ITERATIONS), "tolerance": TINY}
        return replace(method, **fewer | {"memory_mib": share * method.memory_mib})
    return method


class _Estimate:
    """Times of the stages of one experiment, by probes of its network with fresh weights; none is made twice."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.splits: Splits = experiment.splits()
        self.models: list[nn.Module] = [network(experiment, self.splits, seed) for seed in range(3)]
        self.known: dict[str, float] = {}
        self.costs: dict[str, Cost] = {}
        self.passes = 0  # of the audits asked for

    def seconds(self, stage: Stage) -> float:
        settings = stage.settings
        if isinstance(settings, TrainSettings):
            samples = self.splits.train if settings.name == "original" else self.splits.retain
            return self.per_sample(settings.recipe) * settings.recipe.epochs * len(samples)
        if isinstance(settings, UnlearnSettings):
            if settings.name not in self.known:
                self.known[settings.name] = self.unlearning(settings)
            return self.known[settings.name]
        if isinstance(settings, AuditStageSettings):
            cost = self.audit(settings)
            self.passes += cost.passes
            return cost.seconds
        if isinstance(settings, ProbeSettings):
            return self.probe(settings)
        return self.evaluation(settings) if isinstance(settings, EvaluateSettings) else 0.0

    def probe(self, settings: ProbeSettings) -> float:
        """Return the time of the gradients and predictions that a probe makes at most."""
        sizes = len(self.splits.forget), len(self.splits.heldout), len(settings.radii)
        passes = build_probe(settings.name).passes(*sizes)
        return len(settings.roles) * passes * self.per_sample(self.experiment.scenario.train)

    def per_sample(self, recipe: Recipe) -> float:
        """Return the time of one sample's forward and backward pass in training."""
        key = f"train {recipe.batch_size}"
        if key not in self.known:
            small = in_small_batches(recipe, self.batch_size)
            spent = seconds_to_the_end(lambda progress: self.train(small, progress))
            self.known[key] = spent / (recipe.epochs * len(self.splits.train))
        return self.known[key]

    @cached_property
    def batch_size(self) -> int:
        """The samples that one step of training takes `STEP` seconds for, at least a few."""
        model, samples = copy.deepcopy(self.models[0]), self.splits.train
        x, _ = samples.batch(torch.arange(FEW) % len(samples))
        for _ in range(2):  # the first finds nothing prepared
            start = time.perf_counter()
            with self.autocast():
                model(x).sum().backward()
            spent = time.perf_counter() - start
        return max(FEW, round(FEW * STEP / spent))

    def train(self, recipe: Recipe, progress: Progress) -> None:
        phases = [TrainingPhase(cross_entropy, "train")]
        with self.autocast():
            fit(copy.deepcopy(self.models[0]), {"train": self.splits.train}, recipe, phases, seed=0, progress=progress)

    def autocast(self) -> torch.autocast:
        """Return the context of training and unlearning, whose precision is that of the run."""
        compute = self.experiment.compute
        return torch.autocast(compute.accelerator, torch.bfloat16, enabled=compute.precision == "bf16-mixed")

    def unlearning(self, settings: UnlearnSettings) -> float:
        """Return the time of a method, measured on a few samples if it is one of ours, else that of every label."""
        method = make_method(settings.method, settings.settings)
        everything = self.per_sample(settings.recipe) * len(self.splits.train) * self.splits.classes
        if not type(method).__module__.startswith("residuum."):
            return everything

        steps = isinstance(method, GradientMethod)
        share = min(1.0, (PROBED if steps else 1 / PIECES) * self.batch_size / len(self.splits.train))
        few, recipe = thinned(self.splits, share), in_small_batches(settings.recipe, self.batch_size)
        small = as_probe(method, self.batch_size, share)

        def work(progress: Progress) -> None:
            origin = Origin(recipe, self.models[1].state_dict())
            with self.autocast() if steps else nullcontext():
                unlearn(self.models[0], few, small, seed=0, origin=origin, progress=progress)

        tries = 1 if steps else 2  # the first finds nothing prepared
        try:
            return min(seconds_to_the_end(work) for _ in range(tries)) / share
        except (InputError, MethodError):  # what a fresh network does not allow, an original may
            return everything

    def evaluation(self, settings: EvaluateSettings) -> float:
        """Return the time of showing all samples and of re-learning for half of the most epochs."""
        splits, one = self.splits, self.per_sample(self.experiment.scenario.train)
        relearning = 0.0 if settings.relearn is None else settings.relearn.epochs / 2 * len(splits.forget)
        return one * (READINGS * (len(splits.retain) + len(splits.test)) / (1 + BACKWARD) + relearning)

    def audit(self, settings: AuditStageSettings) -> Cost:
        """Return the cost of one audit of all rows."""
        if settings.name not in self.costs:
            self.costs[settings.name] = self.probed_audit(settings)
        return self.costs[settings.name]

    def probed_audit(self, settings: AuditStageSettings) -> Cost:
        (perturbation, space), chosen = build_perturbation(settings.name), self.experiment.scenario.audit
        model, reference, original = self.models
        each = perturbation.crafted and chosen.crafted_on == "unlearned"
        one = estimate_cost(
            {"model": model},
            reference,
            self.splits.forget,
            perturbation,
            taus=chosen.radii(settings.name),
            draws=chosen.budget(),
            crafted_on=chosen.crafted_on,
            heldout=self.splits.heldout,
            original=original if each else None,  # else it is one of the rows
            space=space,
        )
        rows = len(settings.labels)
        times = rows if each else rows / 2  # the probe's two models against all rows
        return Cost(round(one.passes * times), one.seconds * times)
