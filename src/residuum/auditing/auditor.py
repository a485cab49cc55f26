"""The audit as users call it."""

from collections.abc import Callable, Container, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing.budget import draws_needed, pilot_draws
from residuum.auditing.counts import INTEGER_FIELDS, Counts
from residuum.auditing.engine import CraftedOn, PreparedModels, Progress, count_predictions, prepare_models
from residuum.auditing.measures import measure
from residuum.auditing.sanity import attack_warnings, id_warnings, issue_warnings, model_warnings, result_warnings
from residuum.auditing.stream import Work, checked_radii, make_work
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.perturbations import Perturbation, make_perturbation, noise_check
from residuum.types import InputError, Samples, child_seed


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
    seen: Mapping[str, Container[str]] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    team: Team = SINGLE_PROCESS,
) -> AuditResult:
    """Count how often each model and the reference recognise perturbed samples.

    For each sample and radius the same perturbed inputs are shown to all models. Models are neither changed nor kept.

    Args:
        models: Models to audit, by the names that the result gives them.
        reference: A model that never knew the samples, usually re-trained without them.
        samples: What should have been forgotten.
        perturbation: Name in `PERTURBATIONS`, an object of it, or your own function.
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
        seen: Maps a source ("the retain set", "pre-training") to the ids that the reference was trained on: a set (not
            a list: it is searched for every sample) or a `Manifest`.
        batch_size: Inputs at once (default: by their size); the counts do not depend on it.
        progress: Called with predictions made and predictions to make.
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
    check_request(models, samples, draws, half_width, first_draw, batch_size)
    prepared = prepare_models(models, reference, samples, chosen, radius=max(radii), crafted_on=crafted_on, seed=seed)
    check_labels(samples, prepared)
    source = crafted_on if isinstance(crafted_on, str) else "another model"
    model_doubts = model_warnings({**models, "the reference": reference}, prepared)
    attack_doubts = attack_warnings(models, prepared, chosen, source)
    warned = issue_warnings([*model_doubts, *attack_doubts, *id_warnings(samples, seen or {})])
    rows = team.rows(len(samples))
    team.log(f"{len(rows)} of {len(samples)} samples")
    span = (first_draw, first_draw + (draws or pilot_draws(len(samples))))
    share = samples if team.size == 1 else samples.subset(rows.numpy())
    work = make_work(share, chosen, radii, span, seed=seed, classes=prepared.classes, rows=batch_size or 0)

    def counted(work: Work) -> dict[str, Counts]:
        names = {name: id(model) for name, model in models.items()}
        return gather_counts(count_predictions(work, prepared, names, progress), samples, team)

    counts, exact = counted(work), work.enumerated is not None
    if half_width is not None and not exact:
        needed = draws_needed(counts.values(), half_width=half_width, max_draws=max_draws, confidence=confidence)
        spans = tuple((last, max(last, int(total))) for (_, last), total in zip(work.spans, needed, strict=True))
        more = counted(replace(work, spans=spans))
        counts = {name: pilot + more[name] for name, pilot in counts.items()}
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
    }
    return AuditResult(counts, settings, warned, exact)


def gather_counts(shares: Mapping[str, Counts], samples: Samples, team: Team) -> dict[str, Counts]:
    """Return the counts of all samples, each process of the team having counted its own."""
    if team.size == 1:
        return dict(shares)
    rows, found = team.rows(len(samples)), {}
    for name, share in shares.items():
        filled = torch.zeros(len(INTEGER_FIELDS), len(samples), len(share.taus), dtype=torch.int64)
        filled[:, rows] = torch.from_numpy(np.stack([getattr(share, field) for field in INTEGER_FIELDS])).long()
        summed = dict(zip(INTEGER_FIELDS, team.all_reduce_sum(filled).numpy(), strict=True))
        found[name] = Counts.of(samples.ids, samples.y.numpy(), share.taus, **summed)
    return found


def check_request(
    models: Sized, samples: Sized, draws: int | None, half_width: float | None, first_draw: int, batch_size: int | None
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
