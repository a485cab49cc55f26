"""Witnesses that need no model: they read the counts and metrics that a run has anyway."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from residuum.auditing.counts import Counts
from residuum.auditing.measures import json_numbers
from residuum.auditing.witnesses.base import Values, Witness
from residuum.auditing.witnesses.certified import certified_band
from residuum.auditing.witnesses.tow import tug_of_war


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
