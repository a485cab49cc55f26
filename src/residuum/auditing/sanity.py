"""Self-doubt: reasons why a number of the audit may not mean what it seems to."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from residuum.auditing.counts import Counts
from residuum.auditing.crafting import loss_gradient
from residuum.auditing.measures import pooled_ratio
from residuum.auditing.predictor import Predictor
from residuum.perturbations import Perturbation
from residuum.perturbations.gradient import GradientAttack
from residuum.types import ResiduumWarning, Samples

FEWEST_DRAWS = 5  # 2^-5 < 5 %: with fewer draws no sign test can be significant
WIDE = 0.1


def issue_warnings(messages: Iterator[str]) -> list[str]:
    """Show every message as a warning and return them all."""
    found = list(messages)
    for message in found:
        warnings.warn(message, ResiduumWarning, stacklevel=4)
    return found


def model_warnings(
    models: Mapping[str, nn.Module], predictors: Mapping[int, Predictor], probe: Tensor
) -> Iterator[str]:
    """Yield what is odd about the models."""
    for name, model in models.items():
        predictor = predictors[id(model)]
        if any(module.training for module in model.modules()):
            yield f"{name} is in training mode; it is audited in eval mode"
        logits = predictor.logits(probe)
        if are_probabilities(logits):
            yield f"{name} returns probabilities, not logits; attacks and near-ties need logits: remove its softmax"
        if not logits.isfinite().all():
            yield f"{name} returns NaN or infinite logits; such inputs count as not recognised"
        if predictor.exact is None:
            yield f"{name} cannot run in float64; its near-ties are decided in float32"


def attack_warnings(
    models: Mapping[str, nn.Module],
    predictors: Mapping[int, Predictor],
    perturbation: Perturbation,
    crafted_on: str,
    probe: Tensor,
) -> Iterator[str]:
    """Yield what is odd about a gradient attack."""
    if not isinstance(perturbation, GradientAttack):
        return
    for name, model in models.items():
        predictor = predictors[id(model)]
        still = (loss_gradient(predictor.fast, probe.to(predictor.device)) == 0).flatten(1).all(1).double().mean()
        if still > 0:
            yield f"{name} has zero input gradients on {still:.0%} of the probe; the attack does not move these inputs"
    if perturbation.target != "true" and crafted_on == "unlearned":
        yield (
            f"{perturbation.name} with target {perturbation.target!r} is crafted to make the audited model wrong, "
            "which lowers r by construction: r < 1 is no evidence of forgetting; to look for residual knowledge use "
            "target 'true'"
        )


def id_warnings(samples: Samples, seen: Mapping[str, Container[str]]) -> Iterator[str]:
    """Yield where the reference has seen samples that it must not know."""
    for source, ids in seen.items():
        known = sum(sample_id in ids for sample_id in samples.ids)
        if known:
            yield (
                f"the reference has seen {known} of {len(samples)} audited samples in {source}: it is no model that "
                "never knew them, and r is too low"
            )


def result_warnings(counts: Mapping[str, Counts], confidence: float, exact: bool) -> Iterator[str]:
    """Yield where the draws do not suffice to say anything."""
    first = next(iter(counts.values()))
    moving = first.taus > 0
    if exact or not moving.any() or first.draws.min() == 0:  # a continuation is judged together with its beginning
        return
    fewest = int(first.draws[:, moving].min())
    if fewest < FEWEST_DRAWS:
        yield f"{fewest} draws are too few for any sample's sign test to be significant; use at least {FEWEST_DRAWS}"
    unclear = [name for name, table in counts.items() if says_nothing(table, confidence).any()]
    if unclear:
        names = ", ".join(unclear)
        yield f"too few draws to tell r from 1 within +-{WIDE}: {names}; ask for more draws or for a half-width"


def says_nothing(counts: Counts, confidence: float) -> NDArray[np.bool_]:
    """Return at which radii the interval of r contains 1 and is wide."""
    _, low, high = pooled_ratio(counts, confidence=confidence)
    empty: NDArray[np.bool_] = (low <= 1) & (high >= 1) & (high - low > 2 * WIDE)
    return empty


def are_probabilities(logits: Tensor) -> bool:
    """Return whether every row is non-negative and sums to 1."""
    sums = logits.double().sum(1)
    return bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-4)
