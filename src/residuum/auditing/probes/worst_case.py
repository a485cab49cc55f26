"""The worst case: perturbations at which the model is right and the reference wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from residuum.auditing.counting import rows_for
from residuum.auditing.predictor import Predictor
from residuum.auditing.probes.base import Evidence, Probe, Value
from residuum.auditing.probes.search import STEPS, SearchResult, search
from residuum.auditing.statistics import mean_interval, normal_quantile, wilson_interval
from residuum.core.errors import InputError
from residuum.core.inputs import PIXELS, InputSpace
from residuum.core.samples import Samples
from residuum.perturbations import block_generator
from residuum.perturbations.gradient import loss_gradient
from residuum.theory.empirical import sign_test_p

RESTARTS = 5


@dataclass(frozen=True)
class WorstCase(Probe):
    """s(m, a) - s(a, m): how much more often some perturbation has m right and a wrong than the other way round.

    The value is the mean over the radii. The details have s(m, a) and s(a', a) of the first control a' at every radius;
    p is the smallest one over radii of McNemar's exact test between both, multiplied by the number of radii.
    """

    restarts: int = RESTARTS
    name: ClassVar[str] = "worst_case"
    meaning: ClassVar[str] = "share of samples with a perturbation at which only the model is right, minus the reverse"
    reads: ClassVar[Literal["models", "margins"]] = "models"
    searches: ClassVar[bool] = True
    relative: ClassVar[bool] = True

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the difference with its interval over samples, and all shares by radius."""
        if evidence.reference is None or not evidence.controls:
            raise InputError("worst_case compares models with a reference and a control; the evidence lacks one")
        radii, samples = sorted(evidence.radii), evidence.splits.forget
        reference, control = evidence.predictors[evidence.reference], evidence.controls[0]
        options: dict[str, Any] = {"seed": evidence.seed, "restarts": self.restarts, "space": evidence.space}
        only_model, only_reference = {}, {}
        for label, predictor in evidence.predictors.items():
            if label != evidence.reference:
                only_model[label], _ = worst_case(predictor, reference, samples, radii, **options)
                only_reference[label], _ = worst_case(reference, predictor, samples, radii, **options)
        values = {}
        for label, successes in only_model.items():
            mean, low, high = mean_interval((successes.astype(float) - only_reference[label]).mean(1))
            shares = successes.mean(0)
            ends = wilson_interval(shares, len(successes), normal_quantile(0.95))
            p = [more_often(*columns) for columns in zip(successes.T, only_model[control].T, strict=True)]
            details = {
                "radii": radii,
                "shares": np.stack([shares, *ends], axis=1).tolist(),
                "swapped": only_reference[label].mean(0).tolist(),
                "control": only_model[control].mean(0).tolist(),
            }
            corrected = None if label == control else float(min(1.0, len(radii) * min(p)))
            values[label] = Value(mean, low, high, p=corrected, details=details)
        return values

    def passes(self, forgotten: int, heldout: int, radii: int) -> int:
        """Return the gradients and predictions of all searches, in both directions."""
        return 2 * 4 * STEPS * self.restarts * radii * forgotten


def worst_case(
    model: Predictor,
    reference: Predictor,
    samples: Samples,
    radii: list[float],
    *,
    seed: int,
    restarts: int = RESTARTS,
    steps: int = STEPS,
    space: InputSpace = PIXELS,
) -> tuple[NDArray[np.bool_], list[Tensor]]:
    """Return for which samples and radii some x' has the model right and the reference wrong, (n, T), and these x'.

    Maximizes CE_a(x', y) - CE_m(x', y) by projected gradient steps from x, from random points of the ball and from the
    result at a smaller radius; shares never fall with the radius. Compare the result with the same search for a control
    in the model's place: two equally good linear models in 64 dimensions differ somewhere within 0.1 of nearly every
    input.

    >>> x, y = torch.tensor([[0.5]]), torch.tensor([1])
    >>> one, other = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
    >>> one.weight.data = other.weight.data = torch.tensor([[0.0], [1.0]])
    >>> one.bias.data, other.bias.data = torch.tensor([0.4, 0.0]), torch.tensor([0.45, 0.0])
    >>> predictors = [Predictor(model, x) for model in (one, other)]
    >>> worst_case(*predictors, Samples(x, y, ("a",)), [0.0, 0.04, 0.08], seed=7)[0].tolist()
    [[False, False, True]]
    """
    order = np.argsort(radii)
    successes = np.zeros((len(samples), len(radii)), dtype=np.bool_)
    inputs: list[Tensor] = [torch.empty(0)] * len(radii)
    parts = torch.split(torch.arange(len(samples)), rows_for(samples.shape))
    centers = [samples.batch(rows) for rows in parts]
    before = [SearchResult(torch.zeros(len(x), dtype=torch.bool), x) for x, _ in centers]
    for column in order:
        for k, (x, y) in enumerate(centers):

            def uphill(x: Tensor, y: Tensor = y) -> Tensor:
                return weighted_gradient(reference, x, y) - weighted_gradient(model, x, y)

            def reached(x: Tensor, y: Tensor = y) -> Tensor:
                return (model(x) == y) & (reference(x) != y)

            size = torch.full((len(x),), radii[column], dtype=torch.float64)
            for again in range(max(restarts, 1)):
                best = before[k]
                if best.success.all():
                    break
                start = best.x
                if again:
                    keys = [block_generator(seed, f"worst/{samples.ids[row]}", again) for row in parts[k].tolist()]
                    noise = np.stack([rng.random(x.shape[1:], dtype=np.float32) for rng in keys])
                    start = x + radii[column] * (2 * torch.from_numpy(noise) - 1)
                tried = search(x, start, size, uphill, reached, space=space, steps=steps)
                new = (tried.success & ~best.success).reshape(-1, *[1] * (x.ndim - 1))
                before[k] = SearchResult(best.success | tried.success, torch.where(new, tried.x, best.x))
        successes[:, column] = torch.cat([result.success for result in before]).numpy()
        inputs[column] = torch.cat([result.x for result in before])
    return successes, inputs


def weighted_gradient(predictor: Predictor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the cross-entropy of y: its direction, weighted by 1 - p_y as it is."""
    device = predictor.device
    gradient = loss_gradient(predictor.fast, x.to(device), y.to(device)).cpu()
    unsure = 1 - predictor.logits(x).double().softmax(1).gather(1, y[:, None])
    return gradient * unsure.to(gradient).reshape(-1, *[1] * (x.ndim - 1))


def more_often(model: NDArray[np.bool_], control: NDArray[np.bool_]) -> float:
    """Return p of McNemar's exact test, one-sided: the search succeeds for the model more often; shape (n,) each."""
    return float(sign_test_p((model & ~control).sum(), (control & ~model).sum()))
