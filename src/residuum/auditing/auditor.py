"""The audit as users call it."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor, nn

from residuum.auditing.budget import MOST_DRAWS, Draws, as_many, draws_needed, pilot_draws
from residuum.auditing.counting import Counting, PreparedModels, Progress, SavedCounts, Schedule, identity, rows_for
from residuum.auditing.crafting import BatchInvariance, Crafter
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.measures import measure
from residuum.auditing.memory import completeness, measure_memory, relative_distance_test
from residuum.auditing.predictor import Predictor, probe_batch
from residuum.auditing.sanity import id_warnings, issue_warnings, model_warnings, result_warnings, samples_seen
from residuum.core import devices
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace, space_of
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.models.shifting import ShiftedAt, with_shift
from residuum.perturbations import Perturbation, make_perturbation, noise_check
from residuum.training.checkpoint import Checkpoint

CraftedOn = Literal["unlearned", "reference"] | nn.Module


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
        of_pilot, of_all = (
            set(result_warnings(tables, settings["confidence"], self.exact)) for tables in (self.counts, counts)
        )
        warned = sorted((set(self.warnings) - of_pilot) | set(more.warnings) | of_all)
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
    space: InputSpace | None = None,
) -> AuditResult:
    """Count how often each model and the reference recognize perturbed samples.

    All models are shown the same perturbed inputs of each sample and radius. The models stay as they are.
    `Auditor.count` does the same and can also report its progress, resume after an interrupt, and warn of samples that
    the reference has seen.

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
        models, reference, make_perturbation(perturbation), taus, seed, confidence, crafted_on, original, space
    )
    return auditor.count(samples, draws, heldout=heldout)


@dataclass
class Auditor:
    """Models that are prepared once, with the first samples, and can then be shown any number of sets.

    The fields are the arguments of `audit`.
    """

    models: Mapping[str, nn.Module]
    reference: nn.Module
    perturbation: Perturbation
    taus: Sequence[float]
    seed: int
    confidence: float = 0.95
    crafted_on: CraftedOn = "unlearned"
    original: nn.Module | None = None
    space: InputSpace | None = None
    prepared: PreparedModels | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.radii = tuple(float(tau) for tau in self.taus)
        usable = all(isfinite(radius) and radius >= 0 for radius in self.radii)
        if not usable or not self.radii or len(set(self.radii)) < len(self.radii):
            raise InputError(f"expected one or more different finite radii >= 0, got {list(self.taus)}")
        for radius in self.radii:
            self.perturbation.check_radius(radius)
        self.moved_space = self.perturbation.space_for(self.space or space_of(self.reference))
        if len(self.models) == 0:
            raise InputError("expected at least one model to audit, got none")

    def prepare(self, samples: Samples) -> PreparedModels:
        """Return private copies of all models, ready to predict; the first call makes them, with its samples.

        At a layer, the copies take their input followed by a shift of the layer's output, which is perturbed instead.
        """
        if self.prepared is not None:
            return self.prepared
        source = self.crafted_on if isinstance(self.crafted_on, nn.Module) else self.reference
        distinct = {id(model): model for model in (self.reference, *self.models.values(), self.original) if model}
        networks, space, layer, shown = {**distinct, id(source): source}, self.moved_space, None, samples
        if space.at is not None:
            shifted = {key: ShiftedAt(model, space.at, samples, space.unit) for key, model in networks.items()}
            layer, networks = shifted[id(self.reference)], dict(shifted)
            space, shown = layer.input_space, with_shift(samples, layer.size)
        probe = probe_batch(shown, space, max(self.radii), self.seed)
        predictors = {key: Predictor(network, probe) for key, network in networks.items()}
        keys = tuple(dict.fromkeys(map(id, self.models.values())))
        on_each = self.perturbation.crafted and self.crafted_on == "unlearned"
        plans: dict[int, tuple[int, ...]] = {key: (key,) for key in keys} if on_each else {id(source): keys}
        crafters: dict[int, Crafter] = {}
        invariances: dict[str, BatchInvariance] = {}  # models of the same architecture share one trial
        for key in plans:
            architecture = str(predictors[key].fast)
            shared = invariances.get(architecture)
            crafters[key] = Crafter(predictors[key], self.perturbation, space, probe, shared)
            invariances[architecture] = crafters[key].invariance
        audited, original = {key: predictors[key] for key in distinct}, id(self.original) if self.original else None
        self.prepared = PreparedModels(audited, crafters, plans, id(self.reference), original, probe, layer)
        return self.prepared

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
        """Return the counts of every model on these samples.

        Processes that were launched together (`core.devices`) count samples rank, rank + world size, ... each; the
        counts are those of one process.

        Args:
            samples: The forget set.
            draws: As for `audit`.
            heldout: As for `audit`.
            seen: Maps a source ("the retain set", "pre-training") to the ids that the reference was trained on: a set
                (not a list: it is searched for every sample) or a `Manifest`.
            batch_size: Inputs at once (default: by their size); the counts do not depend on it.
            progress: Called with predictions made and predictions to make.
            checkpoint: A file that says how far the audit is (see `training.checkpoint`): the same call goes on from
                there. Each of several processes needs its own.
        """
        budget, seen = draws if isinstance(draws, Draws) else Draws(draws), seen or {}
        if len(samples) == 0:
            raise InputError("expected at least one sample to audit, got none")
        if (last := budget.first + budget.most) > MOST_DRAWS:
            raise InputError(f"expected at most {MOST_DRAWS} draws of each sample, got {last}")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"expected batch_size >= 1, got {batch_size}")
        if self.moved_space.at is None:
            for x, _, rows in samples.batches(rows_for(samples.shape)):
                self.perturbation.check(x, self.moved_space, [samples.ids[row] for row in rows])
        prepared = self.prepare(samples)
        classes = {predictor.classes for predictor in prepared.predictors.values()}
        if len(classes) > 1:
            raise InputError(f"expected models with the same number of classes, got {sorted(classes)}")
        low, high = int(samples.y.min()), int(samples.y.max())
        if low < 0 or high >= prepared.classes:
            raise InputError(f"expected labels in 0..{prepared.classes - 1}, got {low}..{high}")
        sets = [prepared.inputs(samples)]  # the forget set and, where there are any, held-out samples
        if heldout is not None:
            sets.append(prepared.inputs(choose_heldout(heldout, samples)))
        warned = issue_warnings(
            [
                *model_warnings(self.models, self.reference, prepared, self.perturbation, self.crafted_on),
                *id_warnings(samples, seen),
                *(text for shown_heldout in sets[1:] for text in id_warnings(shown_heldout, seen, "held-out")),
            ]
        )
        span = (budget.first, budget.first + (budget.number or pilot_draws(len(samples))))
        schedules = [
            Schedule.of(
                *(part, self.perturbation, self.radii, span),
                seed=self.seed,
                classes=prepared.classes,
                rows=batch_size,
                untouched=prepared.untouched,
            )
            for part in sets
        ]
        devices.report_share(f"{len(devices.share_of(len(samples)))} of {len(samples)} samples")
        exact = schedules[0].enumerated is not None
        settings = self.settings(samples, budget, exact=exact)
        if heldout is not None:  # of how many the first by id were chosen, where not all are shown
            available = int(torch.isin(heldout.y, sets[1].y).sum())
            settings |= {"heldout_chosen_from": available} if available > len(sets[1]) else {}
        settings |= {"seen": numbers} if (numbers := samples_seen(samples, seen)) else {}
        saved = None
        if checkpoint is not None:
            others = (self.reference, self.original, self.crafted_on)
            networks = [*self.models.values(), *(model for model in others if isinstance(model, nn.Module))]
            facts = [list(self.models), self.radii, settings, batch_size, devices.rank(), devices.world_size()]
            saved = SavedCounts(identity(facts, networks, sets), checkpoint)
        counting = Counting(prepared, {name: id(model) for name, model in self.models.items()}, progress, saved)
        if budget.half_width is None or exact:
            counts, *of_heldout = counting(schedules)
        else:
            (pilot,) = counting(schedules[:1])
            needed = draws_needed(
                pilot.values(), half_width=budget.half_width, max_draws=budget.maximum, confidence=self.confidence
            )
            spans = schedules[0].spans
            ends = [max(last, int(total)) for (_, last), total in zip(spans, needed, strict=True)]
            remaining = replace(
                schedules[0], spans=tuple((last, end) for (_, last), end in zip(spans, ends, strict=True))
            )
            fewer = [
                replace(schedule, spans=as_many(ends, len(samples), len(part)))
                for schedule, part in zip(schedules[1:], sets[1:], strict=True)
            ]
            further, *of_heldout = counting([remaining, *fewer])
            counts = {name: table + further[name] for name, table in pilot.items()}
        if budget.first == 0:  # a continuation is judged together with its beginning
            warned += issue_warnings(result_warnings(counts, self.confidence, exact))
        return AuditResult(counts, settings, warned, exact, *of_heldout)

    def settings(self, samples: Samples, budget: Draws, *, exact: bool) -> dict[str, Any]:
        """Return what a record says of how the counts were made."""
        crafted_on = self.crafted_on if isinstance(self.crafted_on, str) else "another model"
        return {
            **self.moved_space.settings(samples.shape),
            **self.perturbation.settings(),
            "crafted_on": crafted_on if self.perturbation.crafted else None,
            "draws": budget.number,
            "half_width": budget.half_width,
            "max_draws": budget.maximum if budget.half_width else None,
            "first_draw": budget.first,
            "enumerated": exact,
            "confidence": self.confidence,
            "seed": self.seed,
            "bootstrap_seed": child_seed(self.seed, "bootstrap"),
            "noise_check": noise_check(self.seed),
        }
