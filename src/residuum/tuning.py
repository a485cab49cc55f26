"""Choose settings without a retrained model: cheap surrogates take its place.

Whether a model has forgotten is a comparison with a retrained model, but with a retrained model you need no unlearning.
Cheap surrogates are good enough to choose by: fresh weights, the retain set, a quarter of the epochs. They are worse
than a retrained model in general. So their recognition rate of the forgotten samples is raised by as much as the
original is better than they are on held-out samples of classes that lost next to nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.core import devices
from residuum.core.errors import InputError, MethodError
from residuum.core.seeds import child_seed
from residuum.studies import Stage, Study, plan
from residuum.studies.engines import engine
from residuum.studies.execution import STORE, Resources, shown
from residuum.studies.runner import run_stages
from residuum.studies.stages import ScoreStage, read_record
from residuum.studies.store import Store
from residuum.studies.study import RowSpec
from residuum.unlearning import SoftReset

MUCH_WORSE = 5.0  # points of validation accuracy
TINY = 1e-9
Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """Scores of one model: validation accuracy in per cent, and recognition rates by radius."""

    validation: float
    forgotten: Floats
    unaffected: Floats
    passes: int


@dataclass(frozen=True)
class Tried:
    """One setting: what it cost, and its validation accuracy and distance from the surrogates, means over the seeds."""

    label: str
    settings: dict[str, Any]
    passes: int = 0
    validation: float | None = None
    distance: float | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Tuning:
    """The settings that were tried, in order, those that the budget left untried, and the choice.

    `validation` and `distance` are the original's, `floor` is the distance of a surrogate from the others; all are
    means over the seeds. `passes` counts all passes, `retraining` those of one retraining per seed.
    """

    tried: list[Tried]
    untried: list[str]
    validation: float
    distance: float
    floor: float
    points: float
    passes: int
    surrogate_passes: int
    surrogate_validation: float
    retraining: int
    seeds: list[int]

    @property
    def fitting(self) -> list[Tried]:
        """The settings that lose no more validation accuracy than allowed."""
        least = self.validation - self.points
        return [setting for setting in self.tried if setting.validation is not None and setting.validation >= least]

    @property
    def chosen(self) -> Tried | None:
        """The fitting setting nearest to the surrogates, of equal ones the cheapest; None if the original is nearer."""
        nearer = [tried for tried in self.fitting if tried.distance is not None and tried.distance < self.distance]
        return min(nearer, key=lambda tried: (tried.distance, tried.passes), default=None)

    @property
    def remark(self) -> str | None:
        """Why nothing was chosen, or why the choice may mean little."""
        if not self.fitting:
            return f"every setting loses more than {self.points:g} points of validation accuracy"
        if not self.chosen:
            return "no setting is nearer to models that never saw the forgotten samples than the original is"
        if self.surrogate_validation < self.validation - MUCH_WORSE:
            worse = f"{self.validation - self.surrogate_validation:.1f} points below the original's"
            return f"the surrogates' validation accuracy is {worse}, so distances mean little; raise --share"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "chosen": self.chosen and self.chosen.label, "remark": self.remark}


def tune(
    study: Study,
    *,
    budget: float | None = None,
    points: float = 2.0,
    surrogates: int = 2,
    share: float = 0.25,
    store: Path | str = STORE,
    resources: Resources | None = None,
    progress: bool = False,
) -> Tuning:
    """Try the rows of a study and choose one, without any retrained model.

    For each seed, let p(tau) be the recognition rate of a model on the forgotten samples (under the first perturbation
    of the scenario's audit, with its radii and draws), u(tau) the same on held-out samples of unaffected classes, o the
    original, and k a surrogate:

        a_k(tau) = min(1, p_k(tau) u_o(tau) / u_k(tau)),    distance = mean_tau |p(tau) / mean_k a_k(tau) - 1|

    In class form, or if the surrogates recognize nothing, it is mean |p - a|. Among the settings whose mean validation
    accuracy is at most `points` below the original's, the one with the smallest mean distance over the seeds is chosen.

    Args:
        study: Its rows are the settings to try, in order, its seeds those to average over.
        budget: Passes to spend over all seeds, including those of the surrogates. The first setting is always tried,
            a further one if the most expensive so far would still fit. None: all are tried.
        points: Maximum loss of validation accuracy, in percentage points.
        surrogates: Number of surrogates per seed.
        share: Training epochs of a surrogate, as a share of a retraining.
        store: Folder of finished stages; the same call resumes from there.
        resources: Worker processes or a cluster, and the precision of trainings; default one process.
        progress: Show progress on standard error.

    Example:
        >>> import tempfile
        >>> rows = ["gentle=gd:epochs=1", "soft=soft_reset:keep=0.3:epochs=2"]
        >>> tiny = Study.create("tiny", methods=rows, seeds=[1], overrides={"data.validation_size": 30})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tuning = tune(tiny, store=folder)
        >>> [setting.label for setting in tuning.tried]
        ['gentle', 'soft']
    """
    splits, recipe = study.splits(), study.scenario.training("retrain")
    if not study.rows:
        raise InputError("expected at least one setting to try, got none")
    if study.scenario.earlier:
        raise InputError("expected one deletion request, got several; put everything into one")
    if not 2 <= surrogates <= 100 or not 0 < share < 1 or not 0 <= points <= 100:
        ranges = "expected at least 2 surrogates (at most 100), a share between 0 and 1 and points of 0 to 100"
        raise InputError(f"{ranges}, got {surrogates}, {share:g} and {points:g}")
    if not len(splits.validation):
        raise InputError("expected validation samples to choose settings by; give --set data.validation_size=...")
    resources = resources or Resources()
    study = study.model_copy(update={"compute": resources.compute})
    epochs = max(1, round(share * recipe.epochs))
    stages, names = planned(study, surrogates, epochs), [f".surrogate {k}" for k in range(1, surrogates + 1)]
    one_epoch = len(splits.retain) * len(stages)
    brief = surrogates * epochs * one_epoch
    if budget is not None and budget <= brief:
        raise InputError(
            f"expected a budget above the {brief} passes of {surrogates} surrogates per seed, got {budget:g}"
        )
    todo, workers = sum(map(len, stages)), min(resources.workers, len(stages)) if resources.side_by_side else 1
    results = Store(Path(store))
    where, launched = engine(workers, resources.cluster), devices.launched(resources.fabric)
    with results.in_use(), launched, where as pool, shown(progress, todo) as report:

        def scores(*labels: str) -> list[list[Scores]]:
            """Return the scores of these models, by seed."""
            needed = {s.key: s for of_seed in stages for label in labels for s in with_parents(of_seed[label])}
            run_stages(list(needed.values()), results, executor=pool, report=report)
            return [[read_scores(of_seed[label], results) for label in labels] for of_seed in stages]

        base_scores = scores("original", *names)
        levels = [np.array([raised(one, original) for one in rest]) for original, *rest in base_scores]
        plain = splits.form == "class"
        left = None if budget is None else budget - brief
        tried = list(trials(study.rows, lambda label: [row[0] for row in scores(label)], levels, plain, left))
    if all(setting.failed for setting in tried):
        raise InputError(f"every setting failed; the first one: {tried[0].failed}")
    pairs = [(level[k], np.delete(level, k, 0)) for level in levels for k in range(surrogates)]
    originals = [original for original, *_ in base_scores]
    return Tuning(
        tried=tried,
        untried=[row.label for row in study.rows[len(tried) :]],
        validation=mean(original.validation for original in originals),
        distance=mean(distance(o.forgotten, level, plain) for o, level in zip(originals, levels, strict=True)),
        floor=mean(distance(*pair, plain) for pair in pairs),
        points=points,
        passes=brief + sum(setting.passes for setting in tried),
        surrogate_passes=brief,
        surrogate_validation=mean(one.validation for _, *rest in base_scores for one in rest),
        retraining=recipe.epochs * one_epoch,
        seeds=study.scenario.seeds,
    )


def planned(study: Study, surrogates: int, epochs: int) -> list[dict[str, Stage]]:
    """Return the stages that score the models of each seed: the original, `.surrogate 1`, ... and the rows.

    A surrogate is a soft reset that keeps nothing, with its own seed.
    """
    fresh: Literal["draw", "initial"] = "draw" if study.init_from is None else "initial"
    method = SoftReset(keep=0, epochs=epochs, batch_share=None, fresh=fresh)
    brief = RowSpec(label=".surrogate", method=method.name, settings=method.settings)
    stages = []
    for seed_plan in plan(study.model_copy(update={"rows": [*study.rows, brief]})):
        seed, models = seed_plan.seed, seed_plan.models
        bases: dict[str, Stage] = {"original": models["original"]}
        for k in range(1, surrogates + 1):  # the role decides the numbers
            setup = replace(models[brief.label].setup, seed=child_seed(seed, f"innocent {k}"))
            bases[f".surrogate {k}"] = replace(models[brief.label], name=f"surrogate {k}", setup=setup)
        stages.append(
            {label: scored(stage, study, seed, level=True) for label, stage in bases.items()}
            | {row.label: scored(models[row.label], study, seed) for row in study.rows}
        )
    return stages


def scored(model: Stage, study: Study, seed: int, *, level: bool = False) -> Stage:
    """Return the stage that scores a model; all of one seed see the same copies."""
    audit = study.scenario.audit
    spec = audit.perturbations[0]
    return ScoreStage(
        setup=replace(model.setup, seed=seed),
        name=model.name,
        perturbation=spec,
        taus=tuple(audit.radii(spec)),
        draws=audit.draws or audit.max_draws,
        level=level,
        parents={"model": model},
    )


def with_parents(stage: Stage) -> Iterator[Stage]:
    """Yield a stage after all that it needs."""
    for parent in stage.parents.values():
        yield from with_parents(parent)
    yield stage


def read_scores(stage: Stage, store: Store) -> Scores:
    """Return the scores of a finished stage."""
    record, model = (read_record(store.folder(part)) for part in (stage, stage.parents["model"]))
    forgotten, unaffected = (np.array(record.get(part, [])) for part in ("forgotten", "unaffected"))
    return Scores(record["validation_accuracy"], forgotten, unaffected, int(model["passes"]))


def raised(surrogate: Scores, original: Scores) -> Floats:
    """Return a surrogate's recognition rates, raised as if it were as good as the original in general.

    >>> surrogate = Scores(90, np.array([0.6]), np.array([0.8]), 0)
    >>> raised(surrogate, Scores(95, np.array([1.0]), np.array([0.9]), 0)).round(3)
    array([0.675])
    """
    if not len(surrogate.unaffected):
        return surrogate.forgotten
    better = original.unaffected / np.maximum(surrogate.unaffected, TINY)
    return np.minimum(1, surrogate.forgotten * better)


def distance(rates: Floats, surrogates: Floats, differences: bool = False) -> float:
    """Return the mean over the radii of |p / a - 1|, with a the surrogates' mean; of |p - a| if any a is 0.

    >>> round(distance(np.array([1.0, 0.9]), np.array([[0.8, 0.9], [0.8, 0.9]])), 6)
    0.125
    >>> distance(np.array([0.5]), np.array([[0.0]]))
    0.5
    """
    a = surrogates.mean(0)
    return float(np.abs(rates - a if differences or not a.all() else rates / a - 1).mean())


def trials(
    rows: Sequence[RowSpec],
    scores: Callable[[str], list[Scores]],
    levels: Sequence[Floats],
    plain: bool,
    left: float | None,
) -> Iterator[Tried]:
    """Try one setting after the other on all seeds until the budget is spent."""
    spent = most_expensive = 0
    for row in rows:
        if left is not None and spent and spent + most_expensive > left:
            return
        try:
            by_seed = scores(row.label)
        except (InputError, MethodError) as error:  # a setting that diverges is a result, too
            yield Tried(row.label, row.settings, failed=str(error))
            continue
        passes = sum(score.passes for score in by_seed)
        spent, most_expensive = spent + passes, max(most_expensive, passes)
        mean_distance = mean(
            distance(score.forgotten, level, plain) for score, level in zip(by_seed, levels, strict=True)
        )
        yield Tried(row.label, row.settings, passes, mean(score.validation for score in by_seed), mean_distance)
