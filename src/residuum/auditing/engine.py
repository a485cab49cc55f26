"""The engine: shows the stream to every model and once to the reference, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.counts import INTEGER_FIELDS, Counts
from residuum.auditing.crafting import Company, Crafter
from residuum.auditing.plan import Predictor
from residuum.auditing.stream import Group, Work, clean_groups, groups
from residuum.perturbations import Perturbation, block_generator
from residuum.types import Samples

Progress = Callable[[int, int], None]
Outcome = tuple[int, int, Tensor, Tensor]  # radius, key of the model, its answers, the reference's answers
PROBE = 16


@dataclass(frozen=True)
class Cast:
    """The models of an audit: one predictor for each distinct module, keyed by `id`; crafters for those attacked.

    `audiences` says who is shown what: (key of the model it is crafted on, keys of the models it is shown to).
    """

    predictors: dict[int, Predictor]
    crafters: dict[int, Crafter]
    audiences: list[tuple[int, tuple[int, ...]]]
    reference: int

    @property
    def classes(self) -> int:
        """Number of classes of the reference."""
        return self.predictors[self.reference].classes

    def passes_per_row(self) -> int:
        """Return how many predictions one perturbed row of every audience costs."""
        return sum(len({*shown, self.reference}) for _, shown in self.audiences)


def make_predictors(
    models: Mapping[str, nn.Module], others: Sequence[nn.Module], probe: Tensor
) -> dict[int, Predictor]:
    """Return one predictor for each distinct module."""
    distinct = {id(model): model for model in (*others, *models.values())}
    return {key: Predictor(model, probe) for key, model in distinct.items()}


def make_audiences(models: Mapping[str, nn.Module], attacked: nn.Module | None) -> list[tuple[int, tuple[int, ...]]]:
    """Return one audience for all models if they share the perturbed inputs, else one for each model."""
    keys = tuple(dict.fromkeys(id(model) for model in models.values()))
    return [(key, (key,)) for key in keys] if attacked is None else [(id(attacked), keys)]


def make_crafters(
    predictors: Mapping[int, Predictor], keys: Sequence[int], perturbation: Perturbation, probe: Tensor
) -> dict[int, Crafter]:
    """Return a crafter for each attacked model; models of the same architecture share one trial."""
    trials: dict[str, Company] = {}
    crafters = {}
    for key in keys:
        architecture = str(predictors[key].fast)
        crafters[key] = Crafter(predictors[key], perturbation, probe, trials.get(architecture))
        trials[architecture] = crafters[key].company
    return crafters


def probe_batch(samples: Samples, tau: float, seed: int) -> Tensor:
    """Return up to 16 samples (the first by id) as they are and with noise of the largest radius."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:PROBE]
    x, _ = samples.batch(torch.tensor(first))
    noise = block_generator(seed, "probe", 0).standard_normal(x.shape, dtype=np.float32)
    return torch.cat([x, (x + tau * torch.from_numpy(noise)).clamp(0, 1)])


class Tally:
    """Sums of what happened, per model, sample and radius."""

    def __init__(self, work: Work, names: Mapping[str, int]) -> None:
        shape = (len(work.samples), len(work.taus))
        self.work, self.names = work, names
        self.sums = {key: {field: np.zeros(shape, np.int32) for field in INTEGER_FIELDS} for key in names.values()}

    def add(self, group: Group, outcome: Outcome) -> None:
        """Count one batch of predictions of a model beside those of the reference."""
        column, key, answer, expected = outcome
        m, a = answer == group.y, expected == group.y
        seen = (torch.ones_like(m), m, a, m & a, answer == expected)
        for field, happened in zip(INTEGER_FIELDS, seen, strict=True):
            positions = group.positions[happened].numpy()
            np.add.at(self.sums[key][field][:, column], positions, 1)

    def counts(self) -> dict[str, Counts]:
        """Return the counts of every named model."""
        samples = self.work.samples
        labels = samples.y.numpy()
        return {
            name: Counts.of(samples.ids, labels, self.work.taus, **self.sums[key]) for name, key in self.names.items()
        }


def run_through(
    work: Work, cast: Cast, names: Mapping[str, int], progress: Progress | None = None
) -> dict[str, Counts]:
    """Show every perturbed input to its audience and count."""
    tally = Tally(work, names)
    done, total = 0, passes(work, cast)
    with workers() as pool:
        for group in clean_groups(work):
            done = tell(progress, done + len(group.x) * len(cast.predictors), total)
            for outcome in shown_clean(group, cast, pool):
                tally.add(group, outcome)
        for group in groups(work):
            for outcome in shown_perturbed(work, group, cast, pool):
                tally.add(group, outcome)
            done = tell(progress, done + len(group.x) * len(group.columns) * cast.passes_per_row(), total)
    return tally.counts()


def passes(work: Work, cast: Cast) -> int:
    """Return the number of predictions of the whole work (crafting not counted)."""
    still = sum(draws for draws, tau in zip(work.draws, work.taus, strict=True) if tau == 0)
    moving = sum(work.draws) - still
    return len(work.samples) * (still * len(cast.predictors) + moving * cast.passes_per_row())


def tell(progress: Progress | None, done: int, total: int) -> int:
    """Report progress if anyone listens, and return what is done."""
    if progress is not None:
        progress(done, total)
    return done


def shown_clean(group: Group, cast: Cast, pool: ThreadPoolExecutor | None) -> list[Outcome]:
    """Return all models' answers to unperturbed inputs."""
    keys = {key for _, shown in cast.audiences for key in shown}
    answers = ask(cast, keys, group.x, pool)
    return [(column, key, answers[key], answers[cast.reference]) for column in group.columns for key in keys]


def ask(cast: Cast, keys: set[int], x: Tensor, pool: ThreadPoolExecutor | None) -> dict[int, Tensor]:
    """Return the answers of some models and of the reference, each asked once."""
    wanted = sorted(keys | {cast.reference})
    each = pool.map if pool else map
    return dict(zip(wanted, each(lambda key: cast.predictors[key](x), wanted), strict=True))


def shown_perturbed(work: Work, group: Group, cast: Cast, pool: ThreadPoolExecutor | None) -> list[Outcome]:
    """Return the answers at every radius; separate audiences, or else the models of one, run side by side."""
    if len(cast.audiences) == 1:
        return show_audience(work, group, cast, cast.audiences[0], pool)
    each = pool.map if pool else map
    found = each(lambda audience: show_audience(work, group, cast, audience, None), cast.audiences)
    return [outcome for outcomes in found for outcome in outcomes]


def show_audience(
    work: Work, group: Group, cast: Cast, audience: tuple[int, tuple[int, ...]], pool: ThreadPoolExecutor | None
) -> list[Outcome]:
    """Return the answers of one audience to a group at each of its radii."""
    attacked, shown = audience
    crafter = cast.crafters[attacked]
    aimed = crafter.aim(group.x, group.y, group.randomness)
    outcomes: list[Outcome] = []
    together = max(1, work.rows // len(group.x))  # small groups are shown at several radii at once
    for start in range(0, len(group.columns), together):
        columns = group.columns[start : start + together]
        moved = [crafter.apply(work.taus[column], group.x, group.y, aimed) for column in columns]
        answers = ask(cast, set(shown), torch.cat(moved), pool)
        each = {key: torch.split(answer, len(group.x)) for key, answer in answers.items()}
        for i, column in enumerate(columns):
            outcomes += [(column, key, each[key][i], each[cast.reference][i]) for key in shown]
    return outcomes


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor | None]:
    """Give as many workers as torch has threads, each with one: whole models side by side beat split operators."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield None
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
