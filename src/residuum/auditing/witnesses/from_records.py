"""Witnesses that need no model: the certified band from a run's counts, and the tug-of-war from its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from residuum.auditing.counts import Counts
from residuum.auditing.intervals import Floats
from residuum.auditing.measures import json_numbers
from residuum.auditing.witnesses.base import Values, Witness
from residuum.types import InputError


class Band(NamedTuple):
    """Bounds of r for each radius of the counts; NaN where there is none."""

    low: Floats
    high: Floats


def shifted_share(p: Floats, k: float) -> Floats:
    """Return Phi(Phi^-1(p) + k), the most (k > 0) or least (k < 0) a share becomes when the centre moves by |k| sigma.

    >>> shifted_share(np.array([0.5]), 1.0).round(4).tolist()
    [0.8413]
    """
    from scipy.special import ndtr, ndtri

    moved: Floats = ndtr(ndtri(p) + k)
    return moved


def certified_band(counts: Counts, *, shift: float, confidence: float = 0.95) -> Band:
    """Return bounds of r for all centres x_i + d_i with ||d_i||_2 <= shift * sigma, sigma = tau, noise N(0, sigma^2).

    With u(p) = Phi(Phi^-1(p) + shift) and l(p) = Phi(Phi^-1(p) - shift):

        l(pm_low) / u(pa_high) <= r <= u(pm_high) / l(pa_low),

    low and high being Clopper-Pearson limits of all hits together, each at alpha / 4, alpha shared by the radii above
    0: one end alone holds at alpha / 2. Pooled shares suffice because u is concave and l convex. Clamping after the
    noise is part of the classifier. It says nothing of l-infinity shifts, and `shift` must not be chosen on them.

    Reference: Salman et al., "Provably robust deep learning via adversarially trained smoothed classifiers", 2019
    (Phi^-1 of a smoothed classifier is 1/sigma-Lipschitz).
    """
    from residuum.theory.empirical import binomial_limits

    if shift < 0:
        raise InputError(f"expected a shift of 0 or more standard deviations, got {shift}")
    if (counts.draws != counts.draws[:1]).any():
        raise InputError("expected the same number of draws of every sample for a certified band")
    radii = max(int((counts.taus > 0).sum()), 1)
    level = 1 - (1 - confidence) / 2 / radii
    draws = counts.draws.sum(0)
    (m_low, m_high), (a_low, a_high) = (
        binomial_limits(hits.sum(0).astype(np.float64), draws, level)
        for hits in (counts.method_right, counts.reference_right)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        low = shifted_share(m_low, -shift) / shifted_share(a_high, shift)
        high = shifted_share(m_high, shift) / shifted_share(a_low, -shift)
    known = counts.taus > 0
    return Band(np.where(known, low, np.nan), np.where(known & np.isfinite(high), high, np.nan))


PARTS = {"tow": "unlearn_accuracy", "tow_mia": "mia_accuracy"}  # what stands for forgetting in each


def tug_of_war(model: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """Return (1 - |dA_f|) (1 - |dA_r|) (1 - |dA_t|), and with the membership attack's rate in the place of A_f.

    d are differences from re-train of fractions (the metrics are per cent); 1 is re-train itself, and the value of
    another re-trained model is the most that can be asked for.

    Reference: Zhao et al., "What makes unlearning hard and what to do about it", 2024.

    >>> exact = {"retain_accuracy": 100, "test_accuracy": 90, "unlearn_accuracy": 10, "mia_accuracy": 20}
    >>> tug_of_war(exact | {"unlearn_accuracy": 60}, exact)
    {'tow': 0.5, 'tow_mia': 1.0}
    """

    def product(*names: str) -> float:
        return prod(1 - abs(model[name] - reference[name]) / 100 for name in names)

    return {name: product(part, "retain_accuracy", "test_accuracy") for name, part in PARTS.items()}


@dataclass(frozen=True)
class CertifiedBand(Witness):
    """The largest certified low end of r over the radii, for centres within `shift` standard deviations."""

    shift: float = 0.1
    name: ClassVar[str] = "certified"
    meaning: ClassVar[str] = "r is at least this for all centres near the samples, under Gaussian noise"
    reads = "counts"

    def of_counts(self, counts: Counts, confidence: float = 0.95) -> Values:
        """Return the band of one model's counts under Gaussian noise."""
        low, high = (json_numbers(ends) for ends in certified_band(counts, shift=self.shift, confidence=confidence))
        best = max((k for k, end in enumerate(low) if end is not None), key=lambda k: low[k] or 0.0, default=None)
        ends = (None, None) if best is None else (low[best], high[best])
        beside = {"shift": self.shift, "taus": counts.taus.tolist(), "band_low": low, "band_high": high}
        return {"value": ends[0], "low": ends[0], "high": ends[1]} | beside


@dataclass(frozen=True)
class TugOfWar(Witness):
    """How near the accuracies are to re-train's; no evidence of memory, and the control's value is the most to ask."""

    name: ClassVar[str] = "tow"
    meaning: ClassVar[str] = "accuracies as near to re-train's as 1; the control shows the most that can be asked"
    reads = "metrics"
    calls: ClassVar[bool] = False

    def of_metrics(self, model: Mapping[str, float], reference: Mapping[str, float]) -> Values:
        """Return the value, and with the membership attack's rate in the place of unlearn accuracy."""
        found = tug_of_war(model, reference)
        return {"value": found["tow"], "tow_mia": found["tow_mia"]}
