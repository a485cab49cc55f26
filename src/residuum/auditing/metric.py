"""Residual knowledge as a metric that is given one batch after the other."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from residuum.auditing.auditor import Auditor, AuditResult, CraftedOn
from residuum.auditing.sanity import issue_warnings, result_warnings
from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples
from residuum.perturbations import Perturbation, make_perturbation

MODEL = "the model"


class ResidualKnowledge:
    """Residual knowledge r(tau) = Pr[model right on x'] / Pr[reference right on x'], one batch after the other.

    `update` counts a batch of forgotten samples, `compute` returns what `AuditResult.measures` does, and `reset` starts
    again. These are the calls of torchmetrics, but the class does not inherit from it. Counts add up and noise belongs
    to an id, so any cut into batches gives the numbers of one `audit` of all samples with the same ids, exactly.

    Args:
        model: The model to measure. The first `update` after `reset` copies and prepares it; the batches that follow
            are shown to this copy.
        reference: A model that never saw the samples, usually retrained without them.
        perturbation: Name, object or function, as for `audit`.
        taus: Radii.
        draws: Draws of each sample at each radius.
        confidence: Level of all intervals.
        seed: Seed of the perturbations and of the bootstrap.
        crafted_on: Where gradient attacks are crafted, as for `audit`.
        space: Where inputs live, as for `audit`.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(2, 3).eval()
        >>> metric = ResidualKnowledge(model, reference=model, taus=[0, 0.01], draws=200, seed=7)
        >>> for x, y in [(torch.rand(4, 2), torch.tensor([0, 1, 2, 0])), (torch.rand(2, 2), torch.tensor([1, 1]))]:
        ...     metric.update(x, y)
        >>> metric.compute()["disagreement"]["value"]
        [0.0, 0.0]
    """

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module,
        perturbation: str | Perturbation | Callable[..., Tensor] = "gaussian",
        *,
        taus: Sequence[float],
        draws: int = 100,
        confidence: float = 0.95,
        seed: int = 0,
        crafted_on: CraftedOn = "unlearned",
        space: InputSpace | None = None,
    ) -> None:
        self.draws = draws
        attack = make_perturbation(perturbation)
        self.auditor = Auditor({MODEL: model}, reference, attack, taus, seed, confidence, crafted_on, space=space)
        self.reset()

    def reset(self) -> None:
        """Forget all batches, and the copies of the models."""
        self.result: AuditResult | None = None
        self.auditor = replace(self.auditor)  # without what it has prepared

    def update(self, x: Tensor, y: Tensor, ids: Sequence[str] | None = None) -> None:
        """Count one batch: inputs (n, ...), labels (n,), and ids; without them samples are numbered as they come."""
        first = 0 if self.result is None else len(self.result.counts[MODEL])
        names = tuple(ids) if ids is not None else tuple(str(first + row) for row in range(len(y)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)  # `compute` warns once, of all batches
            batch = self.auditor.count(Samples(x, y, names), self.draws)
            few = set(result_warnings(batch.counts, batch.settings["confidence"], batch.exact))
        counts, lasting = batch.counts[MODEL], [text for text in batch.warnings if text not in few]
        if self.result is not None:
            counts = self.result.counts[MODEL].concat(counts)
            lasting = list(dict.fromkeys([*self.result.warnings, *lasting]))
        self.result = AuditResult({MODEL: counts}, batch.settings, lasting, batch.exact)

    def compute(self) -> dict[str, Any]:
        """Return all measures of the batches so far, those of `audits` in results.json, lists by radius."""
        if self.result is None:
            raise InputError("expected at least one batch before compute(), got none; call update(x, y) first")
        few = result_warnings(self.result.counts, self.result.settings["confidence"], self.result.exact)
        issue_warnings([*self.result.warnings, *few])
        return self.result.measures(MODEL)
