"""The audit as users call it."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.budget import MOST_DRAWS, Draws, as_many, draws_needed, pilot_draws
from residuum.auditing.completeness import completeness, relative_distance_test
from residuum.auditing.count_state import SavedCounts, identity
from residuum.auditing.crafting import BatchInvariance
from residuum.auditing.engine import CraftedOn, PreparedModels, Progress, count_predictions, passes, prepare_models
from residuum.auditing.heldout import choose_heldout, chosen_from
from residuum.auditing.measures import measure
from residuum.auditing.memory import measure_memory
from residuum.auditing.sanity import (
    attack_warnings,
    id_warnings,
    issue_warnings,
    model_warnings,
    result_warnings,
    samples_seen,
)
from residuum.auditing.stream import Schedule, Span, checked_radii, make_schedule, rows_for
from residuum.core import devices
from residuum.core.counts import Counts, Integers
from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace, space_of
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.models.shifting import ShiftedAt, with_shift
from residuum.perturbations import Perturbation, make_perturbation, noise_check
from residuum.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class AuditResult:
    """Counts of every model against the reference, and how they were made; `heldout` has those of held-out samples."""

    counts: dict[str, Counts]
    settings: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    exact: bool = False
    heldout: dict[str, Counts] = field(default_factory=dict)

    def measures(self, name: str) -> dict[str, Any]:
        """Return the entry of `audits` in results.json for one model (without the path of its counts)."""
        if name not in self.counts:
            raise InputError(f"expected one of the audited models {sorted(self.counts)}, got {name!r}")
        confidence, seed = self.settings["confidence"], self.settings["bootstrap_seed"]
        counts, heldout = self.counts[name], self.heldout.get(name)
        measures = measure(counts, confidence=confidence, bootstrap_seed=seed, exact=self.exact)
        if heldout is not None:
            measures |= measure_memory(counts, heldout, confidence=confidence, exact=self.exact)
        if counts.knows_original:
            measures["completeness"] = completeness(counts, confidence=confidence, exact=self.exact)
        if heldout is not None and counts.knows_original:
            measures["nearer"] = relative_distance_test(counts, heldout, confidence=confidence, bootstrap_seed=seed)
        return {"settings": self.settings} | measures

    def followed_by(self, more: "AuditResult") -> "AuditResult":
        """Return this audit with the draws of its continuation, which may leave out models and radii."""
        counts, heldout = (
            {name: table + further[name] if name in further else table for name, table in tables.items()}
            for tables, further in ((self.counts, more.counts), (self.heldout, more.heldout))
        )
        settings = self.settings | {"draws": more.settings["first_draw"] + more.settings["draws"]}
        before, now = (
            set(result_warnings(tables, settings["confidence"], self.exact)) for tables in (self.counts, counts)
        )
        warned = sorted((set(self.warnings) - before) | set(more.warnings) | now)
        return AuditResult(counts, settings, warned, self.exact, heldout)


def audit(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    perturbation: str | Perturbation | Callable[..., Tensor],
    *,
    taus: Sequence[float],
    draws: int | Draws,
    seed: int,
    confidence: float = 0.95,
    crafted_on: CraftedOn = "unlearned",
    heldout: Samples | None = None,
    original: nn.Module | None = None,
    seen: Mapping[str, Container[str]] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    space: InputSpace | None = None,
) -> AuditResult:
    """Count how often each model and the reference recognize perturbed samples.

    For each sample and radius all models are shown the same perturbed inputs. The models stay as they are.
    Processes that were launched together (`core.devices`) count samples rank, rank + world size, ... each; the counts
    are those of one process.

    Args:
        models: Models to audit, by the names that the result gives them.
        reference: A model that never saw the samples, usually retrained without them.
        samples: The forget set.
        perturbation: Name in `PERTURBATIONS`, an object of it, or your own function.
        taus: Radii. At radius 0 one draw is made.
        draws: Draws of each sample at each radius (the literature's protocol is 100), or `Draws` to ask for a
            half-width of r or to continue an earlier audit. Attacks with few outcomes are enumerated instead.
        seed: Seed of the perturbations and of the bootstrap.
        confidence: Level of all intervals.
        crafted_on: Where gradient attacks are crafted: on each audited model ("unlearned"), on the "reference", or on
            the model given here.
        heldout: Samples that no model was trained or tuned on, usually the test set: those of the forgotten classes
            (at most 1,000, the first by id) are shown too, which tells memory of the samples from knowledge of their
            class.
        original: The model before unlearning: its answers to the same inputs say how far the others have gone from it
            to the reference.
        seen: Maps a source ("the retain set", "pre-training") to the ids that the reference was trained on: a set (not
            a list: it is searched for every sample) or a `Manifest`.
        batch_size: Inputs at once (default: by their size); the counts do not depend on it.
        progress: Called with predictions made and predictions to make.
        checkpoint: A file that says how far the audit is (see `training.checkpoint`): the same call goes on from
            there. Each of several processes needs its own.
        space: Where inputs live (default: as the reference was wrapped, else pixels in [0, 1]). Samples outside its
            bounds are refused. A space with a layer (`at`) has that layer's output moved in every model.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Linear(2, 3).eval()
    >>> samples = Samples(torch.rand(4, 2), torch.tensor([0, 1, 2, 0]), ("a", "b", "c", "d"))
    >>> result = audit({"same": model}, model, samples, "gaussian", taus=[0, 0.01], draws=100, seed=7)
    >>> result.measures("same")["disagreement"]["value"]
    [0.0, 0.0]
    """
    auditor = Auditor(
        models,
        reference,
        perturbation,
        taus=taus,
        seed=seed,
        confidence=confidence,
        crafted_on=crafted_on,
        original=original,
        space=space,
    )
    return auditor.count(
        samples, draws, heldout=heldout, seen=seen, batch_size=batch_size, progress=progress, checkpoint=checkpoint
    )


class Auditor:
    """Models that are prepared once, with the first samples, and can then be shown any number of sets.

    The arguments are those of `audit`. At a layer, every model takes its input followed by a shift of the layer's
    output, and the shift is perturbed.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        reference: nn.Module,
        perturbation: str | Perturbation | Callable[..., Tensor],
        *,
        taus: Sequence[float],
        seed: int,
        confidence: float = 0.95,
        crafted_on: CraftedOn = "unlearned",
        original: nn.Module | None = None,
        space: InputSpace | None = None,
    ) -> None:
        self.perturbation, self.radii = make_perturbation(perturbation), checked_radii(taus)
        for radius in self.radii:
            self.perturbation.check_radius(radius)
        self.space = self.perturbation.space_for(space or space_of(reference))
        if len(models) == 0:
            raise InputError("expected at least one model to audit, got none")
        self.models, self.reference, self.original, self.crafted_on = dict(models), reference, original, crafted_on
        self.seed, self.confidence = seed, confidence
        self.layer: ShiftedAt | None = None  # the reference with a shift
        self.prepared: PreparedModels | None = None

    def prepare(self, samples: Samples, invariance: BatchInvariance | None = None) -> PreparedModels:
        """Return private copies of all models, ready to predict; the first call makes them, with its samples.

        `invariance` is taken to hold for every model; without it, every architecture is tried.
        """
        if self.prepared is None:
            shown = self.inputs(samples)  # at a layer, it also wraps the models
            self.prepared = prepare_models(
                self.models,
                self.reference,
                shown,
                self.perturbation,
                self.layer.input_space if self.layer else self.space,
                radius=max(self.radii),
                crafted_on=self.crafted_on,
                seed=self.seed,
                original=self.original,
                invariance=invariance,
            )
        return self.prepared

    def inputs(self, samples: Samples) -> Samples:
        """Return the samples as the models take them: at a layer, each is followed by a shift of 0."""
        if self.space.at is not None and self.layer is None:
            models = [self.reference, *self.models.values(), self.original, self.crafted_on]
            shifted = {
                id(model): ShiftedAt(model, self.space.at, samples, self.space.unit)
                for model in {id(model): model for model in models}.values()
                if isinstance(model, nn.Module)
            }
            self.reference = self.layer = shifted[id(self.reference)]
            self.models = {name: shifted[id(model)] for name, model in self.models.items()}
            self.original = shifted.get(id(self.original))
            self.crafted_on = shifted.get(id(self.crafted_on), self.crafted_on)
        return samples if self.layer is None else with_shift(samples, self.layer.size)

    def schedule(self, shown: Samples, span: Span, classes: int, rows: int = 0) -> Schedule:
        """Return the schedule of these draws; `shown` are inputs as the models take them."""
        return make_schedule(
            shown,
            self.perturbation,
            self.radii,
            span,
            seed=self.seed,
            classes=classes,
            rows=rows,
            untouched=prod(self.layer.shape) if self.layer else 0,
        )

    def count(
        self,
        samples: Samples,
        draws: int | Draws,
        *,
        heldout: Samples | None = None,
        seen: Mapping[str, Container[str]] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> AuditResult:
        """Return the counts of every model on these samples; the arguments are those of `audit`."""
        budget = draws if isinstance(draws, Draws) else Draws(draws)
        if len(samples) == 0:
            raise InputError("expected at least one sample to audit, got none")
        if (last := budget.first + budget.most) > MOST_DRAWS:
            raise InputError(f"expected at most {MOST_DRAWS} draws of each sample, got {last}")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"expected batch_size >= 1, got {batch_size}")
        shown = self.inputs(samples)
        if self.layer is None:
            for rows in torch.split(torch.arange(len(shown)), rows_for(shown.shape)):
                self.perturbation.check(shown.batch(rows)[0], self.space, [shown.ids[row] for row in rows])
        prepared = self.prepare(samples)
        check_labels(samples, prepared)
        beside = None if heldout is None else self.inputs(choose_heldout(heldout, samples))
        source = self.crafted_on if isinstance(self.crafted_on, str) else "another model"
        warned = issue_warnings(
            [
                *model_warnings({**self.models, "the reference": self.reference}, prepared),
                *attack_warnings(self.models, prepared, self.perturbation, source),
                *id_warnings(samples, seen or {}),
                *(id_warnings(beside, seen or {}, "held-out") if beside else ()),
            ]
        )
        rank, world_size = devices.rank(), devices.world_size()
        devices.report_share(f"{len(range(rank, len(samples), world_size))} of {len(samples)} samples")
        perturbed_by = self.space.settings(samples.shape) | self.perturbation.settings()
        span = (budget.first, budget.first + (budget.number or pilot_draws(len(samples))))
        saved = None
        if checkpoint is not None:
            others = (self.reference, self.original, self.crafted_on)
            networks = [*self.models.values(), *(model for model in others if isinstance(model, nn.Module))]
            facts: list[object] = [list(self.models), perturbed_by, self.radii, span]
            facts += [budget.half_width, budget.maximum, self.seed, source, batch_size, rank, world_size]
            saved = SavedCounts(identity(facts, networks, [shown, *([] if beside is None else [beside])]), checkpoint)
        names = {name: id(model) for name, model in self.models.items()}
        counting = Counting(prepared, names, progress, saved)

        def schedule_of(part: Samples) -> Schedule:
            share = part if world_size == 1 else part.subset(range(rank, len(part), world_size))
            return self.schedule(share, span, prepared.classes, batch_size or 0)

        schedule, further = schedule_of(shown), [] if beside is None else [(beside, schedule_of(beside))]
        exact = schedule.enumerated is not None
        if budget.half_width is None or exact:
            counts, *of_heldout = counting((shown, schedule), *further)
        else:
            (pilot,) = counting((shown, schedule))
            needed = draws_needed(
                pilot.values(), half_width=budget.half_width, max_draws=budget.maximum, confidence=self.confidence
            )
            ends = [max(last, int(total)) for (_, last), total in zip(schedule.spans, needed, strict=True)]
            rest = replace(
                schedule, spans=tuple((last, end) for (_, last), end in zip(schedule.spans, ends, strict=True))
            )
            fewer = [(part, replace(of, spans=as_many(ends, len(samples), len(part)))) for part, of in further]
            more, *of_heldout = counting((shown, rest), *fewer, before=passes(schedule, prepared))
            counts = {name: table + more[name] for name, table in pilot.items()}
        if budget.first == 0:  # a continuation is judged together with its beginning
            warned += issue_warnings(result_warnings(counts, self.confidence, exact))
        settings = perturbed_by | {
            "crafted_on": source if self.perturbation.crafted else None,
            "draws": budget.number,
            "half_width": budget.half_width,
            "max_draws": budget.maximum if budget.half_width else None,
            "first_draw": budget.first,
            "enumerated": exact,
            "confidence": self.confidence,
            "seed": self.seed,
            "bootstrap_seed": child_seed(self.seed, "bootstrap"),
            "noise_check": noise_check(self.seed),
            **({} if beside is None or heldout is None else chosen_from(heldout, beside)),
            **({"seen": number} if (number := samples_seen(samples, seen or {})) else {}),
        }
        return AuditResult(counts, settings, warned, exact, *of_heldout)


@dataclass(frozen=True)
class Counting:
    """Counts one set of samples after the other, each process its share, with one progress for all."""

    prepared: PreparedModels
    names: Mapping[str, int]
    progress: Progress | None
    saved: SavedCounts | None

    def __call__(self, *sets: tuple[Samples, Schedule], before: int = 0) -> list[dict[str, Counts]]:
        """Return the counts of all samples of each set, by the names of the models; `before` passes were made."""
        sizes, tables = [before, *(passes(schedule, self.prepared) for _, schedule in sets)], []
        for k, (samples, schedule) in enumerate(sets, start=1):

            def report(done: int, _: int, made: int = sum(sizes[:k])) -> None:
                if self.progress is not None:
                    self.progress(made + done, sum(sizes))

            shares = count_predictions(schedule, self.prepared, self.names, report, self.saved)
            tables.append({name: gathered(share, samples) for name, share in shares.items()})
        return tables


def gathered(share: Counts, samples: Samples) -> Counts:
    """Return the counts of all samples, of which each process has counted samples rank, rank + world size, ..."""
    rank, world_size = devices.rank(), devices.world_size()
    if world_size == 1:
        return share

    def summed(array: Integers) -> Integers:
        filled = torch.zeros((len(samples), *array.shape[1:]), dtype=torch.int64)
        filled[rank::world_size] = torch.from_numpy(array).long()
        return devices.all_reduce(filled, "sum").numpy().astype(np.int32)

    tables = summed(share.joint), summed(share.same_prediction)
    return Counts.of_joint(samples.ids, samples.y.numpy(), share.taus, *tables)


def check_labels(samples: Samples, prepared: PreparedModels) -> None:
    """Refuse models that disagree on the number of classes, and labels that no model can give."""
    classes = {predictor.classes for predictor in prepared.predictors.values()}
    if len(classes) > 1:
        raise InputError(f"expected models with the same number of classes, got {sorted(classes)}")
    low, high = int(samples.y.min()), int(samples.y.max())
    if low < 0 or high >= prepared.classes:
        raise InputError(f"expected labels in 0..{prepared.classes - 1}, got {low}..{high}")
