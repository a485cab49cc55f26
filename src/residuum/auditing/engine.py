"""The engine: shows every perturbed input to the models and once to the reference, and counts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.counts import Counts
from residuum.auditing.crafting import BatchInvariance, Crafter
from residuum.auditing.predictor import Predictor
from residuum.auditing.stream import Group, Work, clean_groups, groups
from residuum.auditing.tally import Outcome, Tallies, Tally
from residuum.perturbations import FGSM, PGD, Perturbation, block_generator
from residuum.types import Samples

CraftedOn = Literal["unlearned", "reference"] | nn.Module
Progress = Callable[[int, int], None]
Pool = ThreadPoolExecutor | None
PROBE = 16


class Transfer(NamedTuple):
    """Inputs crafted on the model `source` are shown to the models `targets`, all named by their keys."""

    source: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class PreparedModels:
    """The models of an audit: one predictor for each distinct module, keyed by `id`, and a crafter for each source."""

    predictors: dict[int, Predictor]
    crafters: dict[int, Crafter]
    transfers: list[Transfer]
    reference: int
    probe: Tensor
    original: int | None = None

    @property
    def classes(self) -> int:
        """Number of classes of the reference."""
        return self.predictors[self.reference].classes

    def passes_per_row(self) -> int:
        """Return how many predictions one perturbed row of every transfer costs."""
        return sum(len(self.asked(targets)) for _, targets in self.transfers)

    def asked(self, keys: Iterable[int]) -> set[int]:
        """Return who must answer for counts of these models: they, the reference and the original."""
        return {*keys, self.reference} | ({self.original} if self.original is not None else set())


def prepare_models(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: Perturbation,
    *,
    radius: float,
    crafted_on: CraftedOn,
    seed: int,
    original: nn.Module | None = None,
    invariance: BatchInvariance | None = None,
) -> PreparedModels:
    """Return private copies of all models, ready to predict; `radius` is the largest they will meet.

    A given `invariance` is believed of every model; else it is tried.
    """
    probe = probe_batch(samples, perturbation.with_radius(radius), seed)
    source = crafted_on if isinstance(crafted_on, nn.Module) else reference
    known = (reference, *models.values()) if original is None else (reference, *models.values(), original)
    distinct = {id(model): model for model in known}
    predictors = {key: Predictor(model, probe) for key, model in distinct.items()}
    keys = tuple(dict.fromkeys(map(id, models.values())))
    each = perturbation.crafted and crafted_on == "unlearned"
    transfers = [Transfer(key, (key,)) for key in keys] if each else [Transfer(id(source), keys)]
    crafters: dict[int, Crafter] = {}
    invariances: dict[str, BatchInvariance] = {}  # models of the same architecture share one trial
    for key, _ in transfers:
        attacked = predictors.get(key) or Predictor(source, probe)
        architecture = str(attacked.fast)
        crafters[key] = Crafter(attacked, perturbation, probe, invariance or invariances.get(architecture))
        invariances[architecture] = crafters[key].invariance
    return PreparedModels(
        predictors, crafters, transfers, id(reference), probe, None if original is None else id(original)
    )


def probe_batch(samples: Samples, perturbation: Perturbation, seed: int) -> Tensor:
    """Return up to 16 samples (the first by id) as they are and with noise of the perturbation's radius."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:PROBE]
    x, _ = samples.batch(torch.tensor(first))
    noise = torch.from_numpy(block_generator(seed, "probe", 0).standard_normal(x.shape, dtype=np.float32))
    noise[:, : perturbation.still] = 0
    return torch.cat([x, perturbation.shifted(x, noise)])


def count_predictions(
    work: Work,
    prepared: PreparedModels,
    names: Mapping[str, int],
    progress: Progress | None = None,
    tallies: Tallies | None = None,
) -> dict[str, Counts]:
    """Return the counts of every named model; `names` maps to the keys of predictors.

    With `tallies` it goes on from where it was stopped.
    """
    tally, total = Tally.begin(work, names.values(), joint=prepared.original is not None), passes(work, prepared)
    if tallies:
        tallies.go_on(tally)
    with workers() as pool:
        # a process of a team, or a twin of no class, may have no sample
        stream = chain(clean_groups(work), groups(work)) if len(work.samples) else iter(())
        for group in islice(stream, tally.groups, None):
            outcomes, spent = predict_group(work, group, prepared, pool)
            tally.add(group, outcomes, spent)
            if tallies:
                tallies.keep(tally)
            if progress is not None:
                progress(tally.passes, total)
    if tallies:
        tallies.finish(tally)
    ids, labels = work.samples.ids, work.samples.y.numpy()
    return {name: Counts.of(ids, labels, work.taus, **tally.sums[key]) for name, key in names.items()}


def passes(work: Work, prepared: PreparedModels) -> int:
    """Return the number of predictions of the whole work (crafting not counted)."""
    perturbed = sum(draws for draws, tau in zip(work.draws, work.taus, strict=True) if tau > 0)
    return clean_passes(work, prepared) + len(work.samples) * perturbed * prepared.passes_per_row()


def clean_passes(work: Work, prepared: PreparedModels) -> int:
    """Return the number of predictions of the samples as they are: one of each model."""
    clean = sum(draws for draws, tau in zip(work.draws, work.taus, strict=True) if tau == 0)
    return len(work.samples) * clean * len(prepared.predictors)


def predict_group(work: Work, group: Group, prepared: PreparedModels, pool: Pool) -> tuple[list[Outcome], int]:
    """Return a group's outcomes and number of predictions; transfers run in parallel, or the models of each one.

    Transfers share the reference and the original, whose predictors take one thread at a time. A perturbation that is
    not ours may keep a network of its own, so it is never called from two threads.
    """
    if group.clean:
        keys = {key for _, targets in prepared.transfers for key in targets}
        return predict(prepared, keys, [group.x], group.columns, pool), len(group.x) * len(prepared.predictors)
    transfers = prepared.transfers
    if pool and len(transfers) > 1 and type(work.perturbation) in (FGSM, PGD):
        found = list(pool.map(lambda transfer: predict_transfer(work, group, prepared, transfer, None), transfers))
    else:
        found = [predict_transfer(work, group, prepared, transfer, pool) for transfer in transfers]
    return list(chain(*found)), len(group.x) * len(group.columns) * prepared.passes_per_row()


def predict_transfer(
    work: Work, group: Group, prepared: PreparedModels, transfer: Transfer, pool: Pool
) -> list[Outcome]:
    """Return the outcomes of one transfer at each radius of a group; small groups are shown at several at once."""
    crafter = prepared.crafters[transfer.source]
    aimed = crafter.aim(group.x, group.y, group.randomness)
    outcomes: list[Outcome] = []
    at_once = max(1, work.rows // len(group.x))
    for start in range(0, len(group.columns), at_once):
        columns = group.columns[start : start + at_once]
        moved = [crafter.apply(work.taus[column], group.x, group.y, aimed) for column in columns]
        outcomes += predict(prepared, transfer.targets, moved, columns, pool)
    return outcomes


def predict(
    prepared: PreparedModels, keys: Collection[int], inputs: list[Tensor], columns: tuple[int, ...], pool: Pool
) -> list[Outcome]:
    """Return the outcomes of some models, each asked once for the inputs of all columns together."""
    x, size = torch.cat(inputs), len(inputs[0])
    asked = sorted(prepared.asked(keys))
    each = pool.map if pool else map
    answers = each(lambda key: torch.split(prepared.predictors[key](x), size), asked)
    found = dict(zip(asked, answers, strict=True))
    expected, before = found[prepared.reference], None if prepared.original is None else found[prepared.original]
    return [
        Outcome(column, key, found[key][i], expected[i], before[i] if before else None)
        for i, column in enumerate(columns)
        for key in keys
    ]


@contextmanager
def workers() -> Iterator[Pool]:
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
