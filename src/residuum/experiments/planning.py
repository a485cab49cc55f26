"""What a run has to do before it starts: stages finished and missing, and what the audits will cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from residuum.auditing import Cost, estimate_cost
from residuum.experiments.parsing import build_perturbation
from residuum.experiments.runner import Plans, SeedPlan, plan
from residuum.experiments.settings import Experiment
from residuum.experiments.store import Stage, Store
from residuum.models import build_model

STEP = 1e-3  # seconds that a step of training takes at least, however small the network
SHORT = 3.0  # seconds of work that are done before worker processes are there


@dataclass(frozen=True)
class Outline:
    """What a run has to do: stages in all, how many are finished, and how long the rest took when last measured."""

    total: int
    finished: int
    seconds: float | None

    def __str__(self) -> str:
        """Say it in one line.

        >>> str(Outline(45, 30, 61.0)), str(Outline(3, 0, None))
        ('45 stages: 30 finished, 15 to run, about 61 s of work', '3 stages: 0 finished, 3 to run')
        """
        time = f", about {self.seconds:.0f} s of work" if self.seconds else ""
        return f"{self.total} stages: {self.finished} finished, {self.total - self.finished} to run{time}"


def outline(experiments: Experiment | Sequence[Experiment], store: Path | str, plans: Plans | None = None) -> Outline:
    """Return what `run`, or for several `run_all`, would find in the store and what it would still have to do.

    `plans` as in `run_all`.
    """
    place, each = Store(Path(store)), [experiments] if isinstance(experiments, Experiment) else experiments
    known_plans = [plan(experiment) for experiment in each] if plans is None else plans
    stages = {stage.key: stage for own in known_plans for seed_plan in own for stage in seed_plan.stages}
    missing = [stage for stage in stages.values() if not place.has(stage)]
    measured = place.known_seconds()
    known = [measured.get((stage.kind, stage.name)) for stage in missing]
    total = None if None in known else sum(seconds for seconds in known if seconds is not None)
    return Outline(len(stages), len(stages) - len(missing), total)


def audit_cost(experiment: Experiment, store: Path | str, plans: Sequence[SeedPlan] | None = None) -> Cost:
    """Return what the missing audits will cost, from a probe of the scenario's network; nothing where none is missing.

    With a half-width the number of draws is not known yet: then this is the most that they can cost.
    `plans` are those of `plan`, if made before.
    """
    plans = plan(experiment) if plans is None else plans
    place, chosen, rows = Store(Path(store)), experiment.scenario.audit, len(experiment.labels)
    missing = [spec for seed_plan in plans for spec, stage in seed_plan.audits.items() if not place.has(stage)]
    if not missing:
        return Cost(0, 0.0)
    splits, network = experiment.splits(), experiment.scenario.model
    pair = [build_model(network.name, splits.train.shape, splits.classes, width=network.width, seed=k) for k in (0, 1)]
    total = Cost(0, 0.0)
    for spec in set(missing):
        perturbation = build_perturbation(spec)
        one = estimate_cost(
            {"model": pair[0]},
            pair[1],
            splits.forget,
            perturbation,
            taus=chosen.radii(spec),
            draws=chosen.draws or chosen.max_draws,
            crafted_on=chosen.crafted_on,
        )
        each = perturbation.crafted and chosen.crafted_on == "unlearned"
        times = missing.count(spec) * (rows if each else rows / 2)  # the probe's two models against all rows
        total = Cost(total.passes + round(one.passes * times), total.seconds + one.seconds * times)
    return total


def is_short(experiments: Sequence[Experiment], store: Path | str, plans: Plans, cost: Cost) -> bool:
    """Tell whether the stages that are missing take about as long as starting processes for them.

    `cost` is that of the missing audits; with the steps of the missing trainings it bounds the work from below.
    """
    place, samples = Store(Path(store)), len(experiments[0].splits().train)
    models = {stage.key: stage for own in plans for seed_plan in own for stage in seed_plan.models.values()}
    steps = sum(_steps(stage, samples) for stage in models.values() if not place.has(stage))
    return steps * STEP + cost.seconds < SHORT


def _steps(stage: Stage, samples: int) -> int:
    recipe = stage.settings["train" if stage.kind == "train" else "settings"]
    return int(recipe.get("epochs", 1)) * math.ceil(samples / int(recipe.get("batch_size", samples)))
