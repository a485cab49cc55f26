"""Choose settings without a re-trained model: models that never saw the forgotten samples, trained briefly, stand in.

Whether a model has forgotten is a comparison with re-train, and who has a re-trained model needs no unlearning. Cheap
*innocents* are enough to choose by: trained on the retain set alone, from fresh weights, for a quarter of the epochs.
They are worse than re-train in general, so what they recognize of the forgotten samples is raised by as much as the
original is better than they are on held-out samples of classes that lost next to nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean as mean
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from residuum.core.errors import InputError, MethodError
from residuum.core.seeds import child_seed
from residuum.studies import Experiment, Stage, plan
from residuum.studies.engines import engine
from residuum.studies.execution import STORE, Resources, shown
from residuum.studies.experiment import Row
from residuum.studies.runner import run_stages
from residuum.studies.settings import ScoreSettings, StageSettings
from residuum.studies.stages import read_record
from residuum.studies.store import Store
from residuum.unlearning import SoftReset

MUCH_WORSE = 5.0  # points of validation accuracy
TINY = 1e-9
Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """What one model shows: validation accuracy, and how often it is right on perturbed copies, by radius."""

    validation: float
    forgotten: Floats
    unaffected: Floats
    passes: int


@dataclass(frozen=True)
class Tried:
    """One setting: what it cost, and its validation accuracy and distance from the innocents, means over the seeds."""

    label: str
    settings: dict[str, Any]
    passes: int = 0
    validation: float | None = None
    distance: float | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Tuning:
    """What was tried, in order, what the budget left untried, and what was chosen.

    `validation` and `distance` are the original's, `floor` is the distance of an innocent from the others; all are
    means over the seeds. `passes` are all that were made, `retraining` those of one re-training for each seed.
    """

    tried: list[Tried]
    untried: list[str]
    validation: float
    distance: float
    floor: float
    points: float
    passes: int
    innocent_passes: int
    innocent_validation: float
    retraining: int
    seeds: list[int]

    @property
    def fitting(self) -> list[Tried]:
        """The settings that kept validation accuracy."""
        least = self.validation - self.points
        return [one for one in self.tried if one.validation is not None and one.validation >= least]

    @property
    def chosen(self) -> Tried | None:
        """The fitting setting nearest to the innocents, of equal ones the cheapest; None if the original is nearer."""
        nearer = [one for one in self.fitting if one.distance is not None and one.distance < self.distance]
        return min(nearer, key=lambda one: (one.distance, one.passes), default=None)

    @property
    def remark(self) -> str | None:
        """Why nothing was chosen, or why the choice may mean little."""
        if not self.fitting:
            return f"no setting kept validation accuracy within {self.points:g} points"
        if not self.chosen:
            return "no setting is nearer to models that never saw the forgotten samples than the original is"
        if self.innocent_validation < self.validation - MUCH_WORSE:
            worse = f"{self.validation - self.innocent_validation:.1f} points below the original's"
            return f"the innocents' validation accuracy is {worse}, so distances mean little; raise their share"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "chosen": self.chosen and self.chosen.label, "remark": self.remark}


def tune(
    experiment: Experiment,
    *,
    budget: float | None = None,
    points: float = 2.0,
    innocents: int = 2,
    share: float = 0.25,
    store: Path | str = STORE,
    resources: Resources | None = None,
    progress: bool = False,
) -> Tuning:
    """Try the rows of an experiment and choose one, without any re-trained model.

    For each seed, with p(tau) the share of perturbed copies of the forgotten samples that a model recognizes (under the
    first perturbation of the scenario's audit, its radii and draws), u(tau) the same of held-out samples of unaffected
    classes, o the original, and k over the innocents:

        a_k(tau) = min(1, p_k(tau) u_o(tau) / u_k(tau)),    distance = mean_tau |p(tau) / mean_k a_k(tau) - 1|

    In class form, or where the innocents recognize nothing, it is mean |p - a|. The setting with the smallest mean
    distance over the seeds is chosen among those whose mean validation accuracy is at most `points` below that of the
    original.

    Args:
        experiment: Its rows are the settings to try, in order, its seeds those to average over.
        budget: Passes to spend over all seeds, those of the innocents included. A setting is tried while what the
            dearest one so far took still fits, and the first always. None: all are tried.
        points: Of validation accuracy, in per cent, that may be lost.
        innocents: How many are trained for each seed.
        share: Of re-training's epochs that an innocent gets.
        store: Folder of finished stages; the same call again goes on from there.
        resources: Worker processes or a cluster, and the precision of trainings; default one process.
        progress: Say on standard error what is done.

    Example:
        >>> import tempfile
        >>> rows = ["gentle=gd:epochs=1", "soft=soft_reset:keep=0.3:epochs=2"]
        >>> tiny = Experiment.create("tiny", methods=rows, seeds=[1], overrides={"data.validation_size": 30})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = tune(tiny, store=folder)
        >>> [one.label for one in found.tried]
        ['gentle', 'soft']
    """
    splits, recipe = experiment.splits(), experiment.scenario.training("retrain")
    check_request(experiment, innocents, share, points)
    resources = resources or Resources()
    team = resources.team
    team.launch()
    experiment = experiment.model_copy(update={"compute": team.compute})
    epochs = max(1, round(share * recipe.epochs))
    stages, names = planned(experiment, innocents, epochs), [f".innocent {k}" for k in range(1, innocents + 1)]
    one_epoch = len(splits.retain) * len(stages)
    brief = innocents * epochs * one_epoch
    if budget is not None and budget <= brief:
        raise InputError(f"expected a budget above the {brief} passes of {innocents} innocents a seed, got {budget:g}")
    todo, workers = sum(map(len, stages)), min(resources.workers, len(stages)) if resources.side_by_side else 1
    known_store = Store(Path(store))
    where = engine(workers, resources.cluster)
    with known_store.in_use(), where as pool, shown(progress, todo) as report:

        def scores(*labels: str) -> list[list[Scores]]:
            wanted = {stage.key: stage for own in stages for label in labels for stage in with_parents(own[label])}
            run_stages(list(wanted.values()), known_store, executor=pool, report=report, team=team)
            return [[read_scores(own[label], known_store) for label in labels] for own in stages]

        known = scores("original", *names)
        levels = [np.array([raised(one, original) for one in rest]) for original, *rest in known]
        plain = splits.form == "class"
        left = None if budget is None else budget - brief
        tried = list(trials(experiment.rows, lambda label: [own[0] for own in scores(label)], levels, plain, left))
    if all(one.failed for one in tried):
        raise InputError(f"every setting failed; the first one: {tried[0].failed}")
    others = [(own[k], np.delete(own, k, 0)) for own in levels for k in range(innocents)]
    return Tuning(
        tried=tried,
        untried=[row.label for row in experiment.rows[len(tried) :]],
        validation=mean(own[0].validation for own in known),
        distance=mean(distance(own[0].forgotten, level, plain) for own, level in zip(known, levels, strict=True)),
        floor=mean(distance(*pair, plain) for pair in others),
        points=points,
        passes=brief + sum(one.passes for one in tried),
        innocent_passes=brief,
        innocent_validation=mean(one.validation for _, *rest in known for one in rest),
        retraining=recipe.epochs * one_epoch,
        seeds=experiment.scenario.seeds,
    )


def check_request(experiment: Experiment, innocents: int, share: float, points: float) -> None:
    """Refuse a search that could not choose anything."""
    if not experiment.rows:
        raise InputError("expected at least one setting to try, got none")
    if experiment.scenario.earlier:
        raise InputError("expected one deletion request, got several; put all that is to forget into one")
    if not 2 <= innocents <= 100 or not 0 < share < 1 or not 0 <= points <= 100:
        asked = f"{innocents}, {share:g} and {points:g}"
        ranges = "expected at least 2 innocents (at most 100), a share between 0 and 1 and points of 0 to 100"
        raise InputError(f"{ranges}, got {asked}")
    if not len(experiment.splits().validation):
        raise InputError("expected validation samples to choose settings by; give --set data.validation_size=...")


def planned(experiment: Experiment, innocents: int, epochs: int) -> list[dict[str, Stage]]:
    """Return for each seed the stages that score its models: the original, `.innocent 1`, ... and the rows.

    An innocent is a soft reset that keeps nothing, with a seed of its own.
    """
    fresh: Literal["draw", "initial"] = "draw" if experiment.init_from is None else "initial"
    method = SoftReset(keep=0, epochs=epochs, batch_share=None, fresh=fresh)
    brief = Row(label=".innocent", method=method.name, settings=method.settings)
    found = []
    for own in plan(experiment.model_copy(update={"rows": [*experiment.rows, brief]})):
        model, rows = own.models[brief.label], {row.label: own.models[row.label] for row in experiment.rows}
        bases = {"original": own.models["original"]}
        for name in (f"innocent {k}" for k in range(1, innocents + 1)):
            changed = model.settings.model_copy(update={"name": name, "seed": child_seed(own.seed, name)})
            bases[f".{name}"] = Stage(changed, model.parents)
        found.append(
            {label: scored(stage, experiment, own.seed, level=True) for label, stage in bases.items()}
            | {label: scored(stage, experiment, own.seed) for label, stage in rows.items()}
        )
    return found


def scored(model: Stage, experiment: Experiment, seed: int, *, level: bool = False) -> Stage:
    """Return the stage that scores a model; all of one seed see the same copies."""
    audit = experiment.scenario.audit
    spec = audit.perturbations[0]
    common = {field: getattr(model.settings, field) for field in StageSettings.model_fields} | {"seed": seed}
    asked = {"perturbation": spec, "taus": tuple(audit.radii(spec)), "draws": audit.draws or audit.max_draws}
    return Stage(ScoreSettings(**common, **asked, level=level), {"model": model})


def with_parents(stage: Stage) -> Iterator[Stage]:
    """Yield a stage after all that it needs."""
    for parent in stage.parents.values():
        yield from with_parents(parent)
    yield stage


def read_scores(stage: Stage, store: Store) -> Scores:
    """Return what a finished stage found."""
    record, made = (read_record(store.folder(each)) for each in (stage, stage.parents["model"]))
    forgotten, unaffected = (np.array(record.get(part, [])) for part in ("forgotten", "unaffected"))
    return Scores(record["validation_accuracy"], forgotten, unaffected, int(made["passes"]))


def raised(innocent: Scores, original: Scores) -> Floats:
    """Return how often an innocent as good as the original in general would recognize the forgotten samples.

    >>> innocent = Scores(90, np.array([0.6]), np.array([0.8]), 0)
    >>> raised(innocent, Scores(95, np.array([1.0]), np.array([0.9]), 0)).round(3)
    array([0.675])
    """
    if not len(innocent.unaffected):
        return innocent.forgotten
    better = original.unaffected / np.maximum(innocent.unaffected, TINY)
    return np.minimum(1, innocent.forgotten * better)


def distance(shares: Floats, innocents: Floats, differences: bool = False) -> float:
    """Return the mean over the radii of |p / a - 1|, a the mean of the innocents; of |p - a| if asked to or a is 0.

    >>> round(distance(np.array([1.0, 0.9]), np.array([[0.8, 0.9], [0.8, 0.9]])), 6)
    0.125
    >>> distance(np.array([0.5]), np.array([[0.0]]))
    0.5
    """
    a = innocents.mean(0)
    return float(np.abs(shares - a if differences or not a.all() else shares / a - 1).mean())


def trials(
    rows: Sequence[Row],
    scores: Callable[[str], list[Scores]],
    levels: Sequence[Floats],
    plain: bool,
    left: float | None,
) -> Iterator[Tried]:
    """Yield one setting after the other, each on all seeds, until the budget is spent."""
    spent = dearest = 0
    for row in rows:
        if left is not None and spent and spent + dearest > left:
            return
        try:
            found = scores(row.label)
        except (InputError, MethodError) as error:  # one that diverges is an answer
            yield Tried(row.label, row.settings, failed=str(error))
            continue
        passes = sum(one.passes for one in found)
        spent, dearest = spent + passes, max(dearest, passes)
        far = mean(distance(one.forgotten, level, plain) for one, level in zip(found, levels, strict=True))
        yield Tried(row.label, row.settings, passes, mean(one.validation for one in found), far)
