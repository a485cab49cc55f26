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
from residuum.auditing.crafting import BatchInvariance, Crafter
from residuum.auditing.predictor import Predictor
from residuum.auditing.stream import Group, Work, clean_groups, groups
from residuum.perturbations import Perturbation, block_generator
from residuum.types import Samples

Progress = Callable[[int, int], None]
Outcome = tuple[int, int, Tensor, Tensor]  # radius, key of the model, its answers, the reference's answers
PROBE = 16


@dataclass(frozen=True)
class PreparedModels:
    """The models of an audit: one predictor for each distinct module, keyed by `id`; crafters for those attacked.

    `transfers` says who is shown what: (key of the model it is crafted on, keys of the models it is shown to).
    """

    predictors: dict[int, Predictor]
    crafters: dict[int, Crafter]
    transfers: list[tuple[int, tuple[int, ...]]]
    reference: int

    @property
    def classes(self) -> int:
        """Number of classes of the reference."""
        return self.predictors[self.reference].classes

    def passes_per_row(self) -> int:
        """Return how many predictions one perturbed row of every transfer costs."""
        return sum(len({*shown, self.reference}) for _, shown in self.transfers)


def make_predictors(
    models: Mapping[str, nn.Module], others: Sequence[nn.Module], probe: Tensor
) -> dict[int, Predictor]:
    """Return one predictor for each distinct module."""
    distinct = {id(model): model for model in (*others, *models.values())}
    return {key: Predictor(model, probe) for key, model in distinct.items()}


def make_audiences(models: Mapping[str, nn.Module], attacked: nn.Module | None) -> list[tuple[int, tuple[int, ...]]]:
    """Return one transfer for all models if they share the perturbed inputs, else one for each model."""
    keys = tuple(dict.fromkeys(id(model) for model in models.values()))
    return [(key, (key,)) for key in keys] if attacked is None else [(id(attacked), keys)]


def make_crafters(
    predictors: Mapping[int, Predictor], keys: Sequence[int], perturbation: Perturbation, probe: Tensor
) -> dict[int, Crafter]:
    """Return a crafter for each attacked model; models of the same architecture share one trial."""
    trials: dict[str, BatchInvariance] = {}
    crafters = {}
    for key in keys:
        architecture = str(predictors[key].fast)
        crafters[key] = Crafter(predictors[key], perturbation, probe, trials.get(architecture))
        trials[architecture] = crafters[key].invariance
    return crafters


def probe_batch(samples: Samples, tau: float, seed: int) -> Tensor:
    """Return up to 16 samples (the first by id) as they are and with noise of the largest radius."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:PROBE]
    x, _ = samples.batch(torch.tensor(first))
    noise = block_generator(seed, "probe", 0).standard_normal(x.shape, dtype=np.float32)
    return torch.cat([x, (x + tau * torch.from_numpy(noise)).clamp(0, 1)])


class CountSums:
    """Sums of what happened, per model, sample and radius."""

    def __init__(self, work: Work, names: Mapping[str, int]) -> None:
        shape = (len(work.samples), len(work.taus))
        self.work, self.names = work, names
        self.arrays = {key: {field: np.zeros(shape, np.int32) for field in INTEGER_FIELDS} for key in names.values()}

    def add(self, group: Group, outcome: Outcome) -> None:
        """Count one batch of predictions of a model beside those of the reference."""
        column, key, answer, expected = outcome
        m, a = answer == group.y, expected == group.y
        seen = (torch.ones_like(m), m, a, m & a, answer == expected)
        for field, happened in zip(INTEGER_FIELDS, seen, strict=True):
            positions = group.positions[happened].numpy()
            np.add.at(self.arrays[key][field][:, column], positions, 1)

    def counts(self) -> dict[str, Counts]:
        """Return the counts of every named model."""
        samples = self.work.samples
        labels = samples.y.numpy()
        return {
            name: Counts.of(samples.ids, labels, self.work.taus, **self.arrays[key]) for name, key in self.names.items()
        }


def count_predictions(
    work: Work, prepared: PreparedModels, names: Mapping[str, int], progress: Progress | None = None
) -> dict[str, Counts]:
    """Show every perturbed input to its transfer and count."""
    sums = CountSums(work, names)
    done, total = 0, passes(work, prepared)
    with workers() as pool:
        for group in clean_groups(work):
            done = report_progress(progress, done + len(group.x) * len(prepared.predictors), total)
            for outcome in predict_clean(group, prepared, pool):
                sums.add(group, outcome)
        for group in groups(work):
            for outcome in predict_perturbed(work, group, prepared, pool):
                sums.add(group, outcome)
            done = report_progress(
                progress, done + len(group.x) * len(group.columns) * prepared.passes_per_row(), total
            )
    return sums.counts()


def passes(work: Work, prepared: PreparedModels) -> int:
    """Return the number of predictions of the whole work (crafting not counted)."""
    still = sum(draws for draws, tau in zip(work.draws, work.taus, strict=True) if tau == 0)
    moving = sum(work.draws) - still
    return len(work.samples) * (still * len(prepared.predictors) + moving * prepared.passes_per_row())


def report_progress(progress: Progress | None, done: int, total: int) -> int:
    """Report progress if anyone listens, and return what is done."""
    if progress is not None:
        progress(done, total)
    return done


def predict_clean(group: Group, prepared: PreparedModels, pool: ThreadPoolExecutor | None) -> list[Outcome]:
    """Return all models' answers to unperturbed inputs."""
    keys = {key for _, shown in prepared.transfers for key in shown}
    answers = predict_all(prepared, keys, group.x, pool)
    return [(column, key, answers[key], answers[prepared.reference]) for column in group.columns for key in keys]


def predict_all(
    prepared: PreparedModels, keys: set[int], x: Tensor, pool: ThreadPoolExecutor | None
) -> dict[int, Tensor]:
    """Return the answers of some models and of the reference, each asked once."""
    wanted = sorted(keys | {prepared.reference})
    each = pool.map if pool else map
    return dict(zip(wanted, each(lambda key: prepared.predictors[key](x), wanted), strict=True))


def predict_perturbed(
    work: Work, group: Group, prepared: PreparedModels, pool: ThreadPoolExecutor | None
) -> list[Outcome]:
    """Return the answers at every radius; separate transfers, or else the models of one, run side by side."""
    if len(prepared.transfers) == 1:
        return predict_transfer(work, group, prepared, prepared.transfers[0], pool)
    each = pool.map if pool else map
    found = each(lambda transfer: predict_transfer(work, group, prepared, transfer, None), prepared.transfers)
    return [outcome for outcomes in found for outcome in outcomes]


def predict_transfer(
    work: Work,
    group: Group,
    prepared: PreparedModels,
    transfer: tuple[int, tuple[int, ...]],
    pool: ThreadPoolExecutor | None,
) -> list[Outcome]:
    """Return the answers of one transfer to a group at each of its radii."""
    attacked, shown = transfer
    crafter = prepared.crafters[attacked]
    aimed = crafter.aim(group.x, group.y, group.randomness)
    outcomes: list[Outcome] = []
    together = max(1, work.rows // len(group.x))  # small groups are shown at several radii at once
    for start in range(0, len(group.columns), together):
        columns = group.columns[start : start + together]
        moved = [crafter.apply(work.taus[column], group.x, group.y, aimed) for column in columns]
        answers = predict_all(prepared, set(shown), torch.cat(moved), pool)
        each = {key: torch.split(answer, len(group.x)) for key, answer in answers.items()}
        for i, column in enumerate(columns):
            outcomes += [(column, key, each[key][i], each[prepared.reference][i]) for key in shown]
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
