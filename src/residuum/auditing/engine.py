"""The audit: one shared stream of perturbed batches, shown to every model and once to the reference."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.counts import INTEGER_FIELDS, Counts
from residuum.auditing.measures import measure
from residuum.auditing.plan import Predictor
from residuum.perturbations import BLOCK, Perturbation, Randomness, block_generator, block_slices, make_perturbation
from residuum.perturbations import noise_check as stream_check
from residuum.perturbations.base import stack
from residuum.types import InputError, ResiduumWarning, Samples, child_seed

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AuditResult:
    """Counts of every model against the reference, and how they were made."""

    counts: dict[str, Counts]
    settings: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    exact: bool = False

    def measures(self, name: str) -> dict[str, Any]:
        """Return the entry of `audits` in results.json for one model (without the path of its counts)."""
        if name not in self.counts:
            raise InputError(f"expected one of the audited models {sorted(self.counts)}, got {name!r}")
        confidence, seed = self.settings["confidence"], self.settings["bootstrap_seed"]
        found = measure(self.counts[name], confidence=confidence, bootstrap_seed=seed, exact=self.exact)
        return {"settings": self.settings} | found


def audit(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: str | Perturbation,
    *,
    taus: Sequence[float],
    draws: int,
    confidence: float = 0.95,
    seed: int,
    first_draw: int = 0,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> AuditResult:
    """Count how often each model and the reference recognise perturbed samples.

    For each sample and radius the same `draws` perturbed inputs are shown to all. `first_draw` continues an earlier
    audit: its counts plus these are the counts of one audit with all draws. `progress(done, total)` counts
    predictions. Models are neither changed nor kept.

    >>> from torch import nn
    >>> model = nn.Linear(2, 3)
    >>> samples = Samples(torch.rand(4, 2), torch.tensor([0, 1, 2, 0]), ("a", "b", "c", "d"))
    >>> result = audit({"same": model}, model, samples, "gaussian", taus=[0, 0.1], draws=10, seed=7)
    >>> result.measures("same")["disagreement"]["value"]
    [0.0, 0.0]
    """
    chosen = make_perturbation(perturbation)
    radii = checked_radii(taus)
    check_request(models, samples, draws, first_draw, batch_size)
    predictors = prepare(models, reference, probe_batch(samples, chosen, max(radii), seed))
    check_labels(samples, predictors)
    work = Work(samples, chosen, radii, (first_draw, first_draw + draws), seed, batch_size)
    tally = run_through(work, models, reference, predictors, progress)
    settings = chosen.settings() | {
        "draws": draws,
        "first_draw": first_draw,
        "confidence": confidence,
        "seed": seed,
        "bootstrap_seed": child_seed(seed, "bootstrap"),
        "noise_check": stream_check(seed),
    }
    return AuditResult({name: tally.counts(name) for name in models}, settings)


@dataclass(frozen=True)
class Work:
    """What is to be shown: samples, perturbation, radii, range of draws, seed, and rows at a time."""

    samples: Samples
    perturbation: Perturbation
    taus: tuple[float, ...]
    span: tuple[int, int]
    seed: int
    rows: int

    def draws_at(self, tau: float) -> int:
        """Return the draws of each sample at one radius: one at radius 0, which only the first audit shows."""
        return self.span[1] - self.span[0] if tau > 0 else int(self.span[0] == 0)

    def passes(self, models: int) -> int:
        """Return the number of predictions for this many models, the reference included."""
        return models * len(self.samples) * sum(map(self.draws_at, self.taus))


@dataclass(frozen=True)
class Batch:
    """Perturbed inputs: row i is a draw of sample `positions[i]` at radius number `column`."""

    column: int
    positions: Tensor
    x: Tensor
    y: Tensor


def batches(work: Work) -> Iterator[Batch]:
    """Yield every perturbed input once; memory does not grow with the number of samples."""
    for positions in groups(len(work.samples), work.rows):
        for column, tau in enumerate(work.taus):
            if tau == 0 and work.draws_at(tau):
                yield Batch(column, positions, *work.samples.batch(positions))
    for block, inside in block_slices(*work.span):
        many = inside.stop - inside.start
        for positions in groups(len(work.samples), max(1, work.rows // many)):
            yield from perturbed(work, positions, block, inside)


def perturbed(work: Work, positions: Tensor, block: int, inside: slice) -> Iterator[Batch]:
    """Yield one block of draws of some samples at every radius above 0, all with the same randomness."""
    randomness = stack([keyed_randomness(work, int(position), block, inside) for position in positions])
    repeated = positions.repeat_interleave(inside.stop - inside.start)
    x, y = work.samples.batch(repeated)
    for column, tau in enumerate(work.taus):
        if tau > 0:
            moved = work.perturbation.at(tau).apply(nn.Identity(), x, y, randomness)
            yield Batch(column, repeated, moved, y)


def keyed_randomness(work: Work, position: int, block: int, inside: slice) -> Randomness:
    """Return the randomness of one sample's block; it depends on seed, id and block only."""
    rng = block_generator(work.seed, work.samples.ids[position], block)
    return work.perturbation.draw(rng, BLOCK, work.samples.shape).rows(inside)


def groups(n: int, size: int) -> Iterator[Tensor]:
    """Yield the positions 0..n-1 in groups."""
    for start in range(0, n, size):
        yield torch.arange(start, min(start + size, n))


class Tally:
    """Sums of what happened, per model, sample and radius."""

    def __init__(self, work: Work, names: Sequence[str]) -> None:
        shape = (len(work.samples), len(work.taus))
        self.work = work
        self.sums = {name: {key: np.zeros(shape, np.int32) for key in INTEGER_FIELDS} for name in names}

    def add(self, name: str, batch: Batch, answer: Tensor, expected: Tensor) -> None:
        """Count one batch of predictions of a model beside those of the reference."""
        m, a = answer == batch.y, expected == batch.y
        seen = (torch.ones_like(m), m, a, m & a, answer == expected)
        for key, happened in zip(INTEGER_FIELDS, seen, strict=True):
            hits = np.bincount(batch.positions[happened].numpy(), minlength=len(self.work.samples))
            self.sums[name][key][:, batch.column] += hits.astype(np.int32)

    def counts(self, name: str) -> Counts:
        """Return the counts of one model."""
        return Counts.of(self.work.samples.ids, self.work.samples.y.numpy(), self.work.taus, **self.sums[name])


def run_through(
    work: Work,
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    predictors: Mapping[int, Predictor],
    progress: Progress | None,
) -> Tally:
    """Show every batch to every distinct model once and count."""
    tally, done, total = Tally(work, list(models)), 0, work.passes(len(predictors))
    for batch in batches(work):
        answers = {key: predictor(batch.x) for key, predictor in predictors.items()}
        for name, model in models.items():
            tally.add(name, batch, answers[id(model)], answers[id(reference)])
        done += len(batch.x) * len(predictors)
        if progress is not None:
            progress(done, total)
    return tally


def prepare(models: Mapping[str, nn.Module], reference: nn.Module, probe: Tensor) -> dict[int, Predictor]:
    """Return one predictor for each distinct module."""
    distinct = {id(model): model for model in (reference, *models.values())}
    return {key: Predictor(model, probe) for key, model in distinct.items()}


def probe_batch(samples: Samples, perturbation: Perturbation, tau: float, seed: int) -> Tensor:
    """Return up to 32 samples (the first by id) as they are and with noise of the largest radius."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:32]
    x, _ = samples.batch(torch.tensor(first))
    rng = block_generator(seed, "probe", 0)
    noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
    return torch.cat([x, (x + tau * noise).clamp(0, 1)])


def checked_radii(taus: Sequence[float]) -> tuple[float, ...]:
    """Return the radii as floats; refuse none, negative, repeated or infinite ones."""
    radii = tuple(float(tau) for tau in taus)
    if not radii or len(set(radii)) < len(radii) or not all(math.isfinite(tau) and tau >= 0 for tau in radii):
        raise InputError(f"expected one or more different finite radii >= 0, got {list(taus)}")
    return radii


def check_request(models: Mapping[str, nn.Module], samples: Samples, draws: int, first: int, rows: int) -> None:
    """Refuse an audit of nothing."""
    if not models:
        raise InputError("expected at least one model to audit, got none")
    if len(samples) == 0:
        raise InputError("expected at least one sample to audit, got none")
    if draws < 1 or first < 0 or rows < 1:
        raise InputError(f"expected draws >= 1, first_draw >= 0, batch_size >= 1, got {draws}, {first}, {rows}")


def check_labels(samples: Samples, predictors: Mapping[int, Predictor]) -> None:
    """Refuse models that disagree on the number of classes, and labels that no model can give."""
    classes = {predictor.classes for predictor in predictors.values()}
    if len(classes) > 1:
        raise InputError(f"expected models with the same number of classes, got {sorted(classes)}")
    low, high = int(samples.y.min()), int(samples.y.max())
    if low < 0 or high >= min(classes):
        raise InputError(f"expected labels in 0..{min(classes) - 1}, got {low}..{high}")


def doubt(message: str, into: list[str]) -> None:
    """Record a warning and show it."""
    into.append(message)
    warnings.warn(message, ResiduumWarning, stacklevel=3)
