"""RMIA: are forgotten samples likelier, relative to retrained models, than held-out ones?"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from residuum.auditing.probes.base import FURTHER, NO_HELDOUT, Evidence, Probe, Value
from residuum.auditing.statistics import Floats
from residuum.core.errors import InputError

C = 0.3


@dataclass(frozen=True)
class RMIA(Probe):
    """AUC of a model's relative probability between forgotten and held-out samples; see `log_relative`."""

    c: float = C
    name: ClassVar[str] = "rmia"
    meaning: ClassVar[str] = "AUC: forgotten samples are likelier, relative to retrained models, than held-out ones"
    reads: ClassVar[Literal["models", "margins"]] = "margins"

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the AUC with its interval and, for rows, its difference from the reference with p."""
        if not len(evidence.heldout):
            return dict.fromkeys(evidence.rows, NO_HELDOUT)
        rankings = {}
        for row in evidence.rows:
            scores = []
            for part in ("forget", "heldout"):
                (margins,), retrained = evidence.margins_of(row, part)
                scores.append(log_relative(margins, retrained, c=self.c))
            rankings[row] = evidence.rank(*scores)
        values = {}
        for row, ranking in rankings.items():
            p, details = None, {}
            if evidence.reference in rankings and row != FURTHER:
                *difference, p = ranking.minus(rankings[evidence.reference])
                details = {"above_reference": difference}
            values[row] = Value(ranking.auc, *ranking.interval(), p=p, details=details)
        return values


def log_relative(margins: Floats, retrained: Floats, *, c: float = C) -> Floats:
    """Return log q, q(x) = p_m(y|x) / ((1 + c)/2 * mean_k p_k(y|x) + (1 - c)/2), shape (n,).

    `margins` (n,) of the measured model, `retrained` (N, n) of retrained ones, N >= 1; p = 1 / (1 + exp(-margin)).
    c < 1 keeps q finite where no retrained model recognizes the sample. The published score, the share of a population
    with a smaller q, ranks samples as q does.

    Reference: Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", 2024.

    >>> log_relative(np.array([0.0]), np.array([[0.0], [0.0]])).round(3).tolist()
    [-0.3]
    """
    if len(retrained) == 0 or not 0 <= c < 1:
        raise InputError(f"expected at least one retrained model and 0 <= c < 1, got {len(retrained)} and {c}")
    from scipy.special import expit, log_expit

    typical = (1 + c) / 2 * expit(retrained).mean(0) + (1 - c) / 2
    relative: Floats = log_expit(margins) - np.log(typical)
    return relative
