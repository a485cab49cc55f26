"""The audit as users call it."""

from collections.abc import Callable, Container, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.budget import as_many, draws_needed, pilot_draws
from residuum.auditing.completeness import completeness, nearer
from residuum.auditing.counts import INTEGER_FIELDS, Counts, Integers
from residuum.auditing.engine import CraftedOn, PreparedModels, Progress, count_predictions, passes, prepare_models
from residuum.auditing.heldout import choose_heldout, chosen_from
from residuum.auditing.measures import measure
from residuum.auditing.memory import measure_memory
from residuum.auditing.placing import at_layer
from residuum.auditing.sanity import (
    attack_warnings,
    id_warnings,
    issue_warnings,
    model_warnings,
    result_warnings,
    samples_seen,
)
from residuum.auditing.stream import Work, checked_radii, make_work, rows_for
from residuum.auditing.tally import Tallies, identity
from residuum.checkpoint import Checkpoint
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.perturbations import Perturbation, make_perturbation, noise_check
from residuum.types import InputError, Samples, child_seed

MOST_DRAWS = 2**31 - 1  # counts are int32


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
        found = measure(counts, confidence=confidence, bootstrap_seed=seed, exact=self.exact)
        if heldout is not None:
            found |= measure_memory(counts, heldout, confidence=confidence, exact=self.exact)
        if counts.joint is not None:
            found["completeness"] = completeness(counts, confidence=confidence, exact=self.exact)
        if heldout is not None and counts.joint is not None:
            found |= {"nearer": nearer(counts, heldout, confidence=confidence, bootstrap_seed=seed)}
        return {"settings": self.settings} | found

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
    draws: int | None = None,
    confidence: float = 0.95,
    seed: int,
    half_width: float | None = None,
    max_draws: int = 1000,
    first_draw: int = 0,
    crafted_on: CraftedOn = "unlearned",
    heldout: Samples | None = None,
    original: nn.Module | None = None,
    seen: Mapping[str, Container[str]] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    team: Team = SINGLE_PROCESS,
) -> AuditResult:
    """Count how often each model and the reference recognise perturbed samples.

    For each sample and radius the same perturbed inputs are shown to all models. Models are neither changed nor kept.

    Args:
        models: Models to audit, by the names that the result gives them.
        reference: A model that never knew the samples, usually re-trained without them.
        samples: What should have been forgotten.
        perturbation: Name in `PERTURBATIONS`, an object of it, or your own function. Samples outside its bounds, (0, 1)
            unless it says otherwise, are refused. One with a layer (`at`) moves that layer's output in every model.
        taus: Radii. At radius 0 one draw is made.
        draws: Draws of each sample at each radius (the literature's protocol is 100); give these or `half_width`.
            Attacks with few outcomes are enumerated instead.
        confidence: Level of all intervals.
        seed: Seed of the perturbations and of the bootstrap.
        half_width: Wanted half-width of r's widest interval: a pilot chooses the draws of each radius.
        max_draws: Upper limit for the draws that `half_width` asks for.
        first_draw: Continues an earlier audit: its counts plus these are the counts of one audit.
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
        checkpoint: A file that says how far the audit is (`residuum.checkpoint.Checkpoint`): the same call goes on from
            there. Of a team, each process has its own.
        team: Processes that audit every size-th sample each; the counts are those of one process.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Linear(2, 3).eval()
    >>> samples = Samples(torch.rand(4, 2), torch.tensor([0, 1, 2, 0]), ("a", "b", "c", "d"))
    >>> result = audit({"same": model}, model, samples, "gaussian", taus=[0, 0.01], draws=100, seed=7)
    >>> result.measures("same")["disagreement"]["value"]
    [0.0, 0.0]
    """
    chosen, radii = make_perturbation(perturbation), checked_radii(taus)
    check_request(models, samples, draws, half_width, max_draws, first_draw, batch_size)
    if chosen.at is not None:
        inner = at_layer(chosen, models, reference, samples, heldout, original, crafted_on)
        options: dict[str, Any] = {"confidence": confidence, "seed": seed, "half_width": half_width, "seen": seen}
        options |= {"max_draws": max_draws, "first_draw": first_draw, "batch_size": batch_size}
        result = audit(**inner, taus=taus, draws=draws, progress=progress, checkpoint=checkpoint, team=team, **options)
        return replace(result, settings=result.settings | {"still": 0} | chosen.settings())
    for rows in torch.split(torch.arange(len(samples)), rows_for(samples.shape)):
        chosen.check(samples.batch(rows)[0], [samples.ids[row] for row in rows])
    prepared = prepare_models(
        models, reference, samples, chosen, radius=max(radii), crafted_on=crafted_on, seed=seed, original=original
    )
    check_labels(samples, prepared)
    twins = None if heldout is None else choose_heldout(heldout, samples)
    source = crafted_on if isinstance(crafted_on, str) else "another model"
    warned = issue_warnings(
        [
            *model_warnings({**models, "the reference": reference}, prepared),
            *attack_warnings(models, prepared, chosen, source),
            *id_warnings(samples, seen or {}),
            *(id_warnings(twins, seen or {}, "held-out") if twins else ()),
        ]
    )
    team.log(f"{len(team.rows(len(samples)))} of {len(samples)} samples")
    span = (first_draw, first_draw + (draws or pilot_draws(len(samples))))
    tallies = None
    if checkpoint is not None:
        networks = [*models.values(), *(one for one in (reference, original, crafted_on) if isinstance(one, nn.Module))]
        facts = [list(models), chosen.settings(), radii, span, half_width, max_draws, seed, source]
        facts += [batch_size, team.rank, team.size]
        tallies = Tallies(identity(facts, networks, [samples, *([] if twins is None else [twins])]), checkpoint)
    counted = Counting(prepared, {name: id(model) for name, model in models.items()}, team, progress, tallies)

    def work_on(shown: Samples) -> Work:
        share = shown if team.size == 1 else shown.subset(team.rows(len(shown)).numpy())
        return make_work(share, chosen, radii, span, seed=seed, classes=prepared.classes, rows=batch_size or 0)

    work, beside = work_on(samples), [] if twins is None else [(twins, work_on(twins))]
    exact = work.enumerated is not None
    if half_width is None or exact:
        counts, *of_twins = counted((samples, work), *beside)
    else:
        (pilot,) = counted((samples, work))
        needed = draws_needed(pilot.values(), half_width=half_width, max_draws=max_draws, confidence=confidence)
        ends = [max(last, int(total)) for (_, last), total in zip(work.spans, needed, strict=True)]
        rest = replace(work, spans=tuple((last, end) for (_, last), end in zip(work.spans, ends, strict=True)))
        fewer = [(own, replace(each, spans=as_many(ends, len(samples), len(own)))) for own, each in beside]
        more, *of_twins = counted((samples, rest), *fewer, before=passes(work, prepared))
        counts = {name: found + more[name] for name, found in pilot.items()}
    if first_draw == 0:  # a continuation is judged together with its beginning
        warned += issue_warnings(result_warnings(counts, confidence, exact))
    settings = chosen.settings() | {
        "crafted_on": source if chosen.crafted else None,
        "draws": draws,
        "half_width": half_width,
        "max_draws": max_draws if half_width else None,
        "first_draw": first_draw,
        "enumerated": exact,
        "confidence": confidence,
        "seed": seed,
        "bootstrap_seed": child_seed(seed, "bootstrap"),
        "noise_check": noise_check(seed),
        **({} if twins is None or heldout is None else chosen_from(heldout, twins)),
        **({"seen": known} if (known := samples_seen(samples, seen or {})) else {}),
    }
    return AuditResult(counts, settings, warned, exact, *of_twins)


@dataclass(frozen=True)
class Counting:
    """Counts one set of samples after the other, each process of the team its share, with one progress for all."""

    prepared: PreparedModels
    names: Mapping[str, int]
    team: Team
    progress: Progress | None
    tallies: Tallies | None

    def __call__(self, *shown: tuple[Samples, Work], before: int = 0) -> list[dict[str, Counts]]:
        """Return the counts of all samples of each set, by the names of the models; `before` passes were made."""
        sizes, found = [before, *(passes(work, self.prepared) for _, work in shown)], []
        for k, (samples, work) in enumerate(shown, start=1):
            report = self.progress and continued(self.progress, sum(sizes[:k]), sum(sizes))
            share = count_predictions(work, self.prepared, self.names, report, self.tallies)
            found.append(gather_counts(share, samples, self.team))
        return found


def continued(progress: Progress, before: int, total: int) -> Progress:
    """Return a progress that goes on after `before` predictions of `total`."""
    return lambda done, _: progress(before + done, total)


def gather_counts(shares: Mapping[str, Counts], samples: Samples, team: Team) -> dict[str, Counts]:
    """Return the counts of all samples, each process of the team having counted its own."""
    if team.size == 1:
        return dict(shares)
    rows, found = team.rows(len(samples)), {}
    for name, share in shares.items():
        known = {field: getattr(share, field) for field in INTEGER_FIELDS}
        known |= {} if share.joint is None else {"joint": share.joint}
        summed = {field: summed_rows(array, rows, len(samples), team) for field, array in known.items()}
        found[name] = Counts.of(samples.ids, samples.y.numpy(), share.taus, **summed)
    return found


def summed_rows(share: Integers, rows: Tensor, n: int, team: Team) -> Integers:
    """Return the array of all n samples, of which this process has counted these rows."""
    filled = torch.zeros((n, *share.shape[1:]), dtype=torch.int64)
    filled[rows] = torch.from_numpy(share).long()
    return team.all_reduce_sum(filled).numpy().astype(np.int32)


def check_request(
    models: Sized,
    samples: Sized,
    draws: int | None,
    half_width: float | None,
    max_draws: int,
    first_draw: int,
    batch_size: int | None,
) -> None:
    """Refuse an audit of nothing, or one that does not say how many draws it wants."""
    if len(models) == 0:
        raise InputError("expected at least one model to audit, got none")
    if len(samples) == 0:
        raise InputError("expected at least one sample to audit, got none")
    if (draws is None) == (half_width is None):
        raise InputError(f"expected either draws or half_width, got draws={draws} and half_width={half_width}")
    if half_width is not None and (half_width <= 0 or first_draw):
        raise InputError(f"expected half_width > 0 and first_draw 0 with it, got {half_width} and {first_draw}")
    if (most := first_draw + (draws or max_draws)) > MOST_DRAWS:
        raise InputError(f"expected at most {MOST_DRAWS} draws of each sample, got {most}")
    if (draws is not None and draws < 1) or first_draw < 0 or (batch_size is not None and batch_size < 1):
        raise InputError(
            f"expected draws >= 1, first_draw >= 0, batch_size >= 1, got {draws}, {first_draw}, {batch_size}"
        )


def check_labels(samples: Samples, prepared: PreparedModels) -> None:
    """Refuse models that disagree on the number of classes, and labels that no model can give."""
    classes = {predictor.classes for predictor in prepared.predictors.values()}
    if len(classes) > 1:
        raise InputError(f"expected models with the same number of classes, got {sorted(classes)}")
    low, high = int(samples.y.min()), int(samples.y.max())
    if low < 0 or high >= prepared.classes:
        raise InputError(f"expected labels in 0..{prepared.classes - 1}, got {low}..{high}")
