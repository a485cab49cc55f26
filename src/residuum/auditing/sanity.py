"""Sanity checks: reasons why a number of the audit may not mean what it seems to."""

from collections.abc import Container, Iterable, Iterator, Mapping

from torch import nn

from residuum.auditing.counting import PreparedModels
from residuum.auditing.crafting import first_class_gradient
from residuum.auditing.measures import pooled_ratio
from residuum.core.counts import Counts
from residuum.core.errors import warn
from residuum.core.samples import Samples
from residuum.models import are_probabilities
from residuum.perturbations import Perturbation
from residuum.perturbations.gradient import GradientAttack

FEWEST_DRAWS = 5  # 2^-5 < 5 %: with fewer draws no sign test can be significant
WIDE = 0.1


def issue_warnings(messages: Iterable[str]) -> list[str]:
    """Show every message as a warning and return them all."""
    texts = list(messages)
    for text in texts:
        warn(text, stacklevel=4)
    return texts


def model_warnings(
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    prepared: PreparedModels,
    perturbation: Perturbation,
    crafted_on: object,
) -> Iterator[str]:
    """Yield what makes numbers of these models doubtful, and what makes a gradient attack on them doubtful."""
    for name, model in {**models, "the reference": reference}.items():
        predictor = prepared.predictors[id(model)]
        if any(module.training for module in model.modules()):
            yield f"{name} is in training mode; it is audited in eval mode"
        logits = predictor.logits(prepared.probe)
        if are_probabilities(logits):
            yield f"{name} returns probabilities, not logits; attacks and near-ties need logits: remove its softmax"
        if not logits.isfinite().all():
            yield f"{name} returns NaN or infinite logits; such inputs count as not recognized"
        if predictor.exact is None:
            yield f"{name} cannot run in float64; its near-ties are decided in float32"
    if not isinstance(perturbation, GradientAttack):
        return
    for name, model in models.items():
        predictor = prepared.predictors[id(model)]
        gradient = first_class_gradient(predictor.fast, prepared.probe.to(predictor.device))
        zero = (gradient == 0).flatten(1).all(1).double().mean()
        if zero > 0:
            yield f"{name} has zero input gradients on {zero:.0%} of the probe; the attack does not move these inputs"
    if perturbation.target != "true" and crafted_on == "unlearned":
        yield (
            f"{perturbation.name} with target {perturbation.target!r} is crafted to make the audited model wrong, "
            "which lowers r by construction: r < 1 is no evidence of forgetting; to look for residual knowledge use "
            "target 'true'"
        )


def id_warnings(samples: Samples, seen: Mapping[str, Container[str]], what: str = "audited") -> Iterator[str]:
    """Yield where the reference has seen samples that it must not know."""
    for source, number in samples_seen(samples, seen).items():
        yield (
            f"the reference has seen {number} of {len(samples)} {what} samples in {source}, so "
            f"{'r' if what == 'audited' else 'class knowledge'} is too low"
        )


def samples_seen(samples: Samples, seen: Mapping[str, Container[str]]) -> dict[str, int]:
    """Return how many of the samples are among the ids of each source, without sources that have none of them."""
    numbers = {source: sum(sample_id in ids for sample_id in samples.ids) for source, ids in seen.items()}
    return {source: number for source, number in numbers.items() if number}


def result_warnings(counts: Mapping[str, Counts], confidence: float, exact: bool) -> Iterator[str]:
    """Yield where there are too few draws for a conclusion."""
    first = next(iter(counts.values()))
    moving = first.taus > 0
    if exact or not moving.any():
        return
    fewest = min(int(table.draws[:, moving].min()) for table in counts.values())
    if fewest < FEWEST_DRAWS:
        few = "1 draw is" if fewest == 1 else f"{fewest} draws are"
        yield f"{few} too few for any sample's sign test to be significant; use at least {FEWEST_DRAWS}"
    unclear = []
    for name, table in counts.items():
        _, low, high = pooled_ratio(table, confidence=confidence)
        if ((low <= 1) & (high >= 1) & (high - low > 2 * WIDE)).any():
            unclear.append(name)
    if unclear:
        names = ", ".join(unclear)
        yield f"too few draws to tell r from 1 within +-{WIDE}: {names}; ask for more draws or for a half-width"
