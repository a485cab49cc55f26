"""A row beside the re-trained models of its run: the numbers that the rule judges, and what it says of them.

Three quantities, each under one perturbation: r on the forgotten samples, G on held-out samples of the same classes
(knowledge of the class), and M = r / G (memory of these very samples). In class form they are differences.

Where attacks are crafted on each model, it is right less often on its inputs than any other model is, by construction.
So row and reference are compared as they fare when attacked themselves: the share right of the row on inputs crafted on
it over that of the reference on inputs crafted on the reference. Their ratio is 1 for a re-trained model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from residuum.record import Audit, Curve, NoiseFloor, Row, SampleSet, over_seeds
from residuum.reporting.level_rule import ERROR, Floats, Judgement, Scale, half_sample, judge_scores, ratio_of, scores
from residuum.reporting.run import Run

Quantity = Literal["r", "G", "M"]
Bounds = tuple[float, float]
Side = tuple[Floats, Floats, Floats, Floats]
PARTS: dict[Quantity, tuple[SampleSet, ...]] = {"r": ("forgotten",), "G": ("heldout",), "M": ("kept", "heldout")}


@dataclass(frozen=True)
class Finding:
    """What the rule says of one quantity of one row; column 0 is the level over all radii above 0, then each radius.

    `base` has the mean score of the references, from which values are counted.
    """

    quantity: Quantity
    perturbation: str
    crafted_on: str | None
    form: str
    taus: tuple[float, ...]
    samples: int
    base: Floats
    seed_values: Floats
    judgement: Judgement

    @property
    def column(self) -> int:
        """The column the judgement rests on: the level, unless one radius alone lies beyond its bar."""
        j = self.judgement
        beyond = (j.value > j.high) | (j.value < j.low)
        return 0 if beyond[0] or not beyond.any() else j.radius + 1

    def value(self, column: int = 0) -> float:
        """Return the mean over seeds: a ratio, or in class form a difference."""
        return self._natural(self.judgement.value[column], column)

    @property
    def seeds(self) -> list[float]:
        """The level of each seed, as the mean over seeds."""
        return [self._natural(value) for value in self.seed_values]

    @property
    def neutral(self) -> float:
        """What a re-trained model shows: 1 (class form: 0), or the controls' mean where the reference is attacked."""
        j = self.judgement
        middle = (j.low[0] + j.high[0]) / 2
        return self._natural(middle if self.crafted_on == "reference" and not math.isnan(middle) else 0.0)

    def bar(self, column: int = 0) -> Bounds:
        """Return what re-trained models explain."""
        return self._natural(self.judgement.low[column], column), self._natural(self.judgement.high[column], column)

    def interval(self, column: int = 0) -> Bounds:
        """Return the 95 % interval of the mean, if the row varies from seed to seed as re-trained models do."""
        half = self.judgement.half_interval[column]
        middle = self.judgement.value[column]
        return self._natural(middle - half, column), self._natural(middle + half, column)

    @property
    def smallest(self) -> float:
        """The smallest level that this run would have told from re-training, with 80 % power."""
        j = self.judgement
        return self._natural((j.low[0] + j.high[0]) / 2 + j.detectable[0])

    @property
    def shift(self) -> float:
        """How far the level lies from what re-trained models show in the mean, on the scale of the rule."""
        j = self.judgement
        return float(j.value[0] - (j.low[0] + j.high[0]) / 2)

    @property
    def plain_at_a_radius(self) -> bool:
        """Whether one radius alone shows so much that at least 80 % of such runs would find it."""
        j = self.judgement
        return bool((j.value - (j.low + j.high) / 2 >= j.detectable)[1:].any())

    def _natural(self, value: float, column: int = 0) -> float:
        """Return a difference of scores as a ratio, or in class form as it is."""
        scale = scale_of(self.quantity, self.form)
        if scale == "angle":
            return float(ratio_of(self.base[column] + value, self.base[column], self.samples))
        return float(value) if scale == "share" else math.exp(value)


def scale_of(quantity: Quantity, form: str) -> Scale:
    """Return the scale on which a quantity is judged.

    >>> scale_of("r", "sample"), scale_of("M", "sample"), scale_of("r", "class")
    ('angle', 'log', 'share')
    """
    if form == "class":
        return "share"
    return "log" if quantity == "M" else "angle"


def judged_measure(form: str) -> tuple[str, float]:
    """Return what is judged and its neutral value: the pooled ratio, or the difference in class form.

    >>> judged_measure("sample"), judged_measure("class")
    (('pooled', 1.0), ('difference', 0.0))
    """
    return ("difference", 0.0) if form == "class" else ("pooled", 1.0)


def find(
    run: Run, row: Row, perturbation: str, quantity: Quantity = "r", *, must_detect: float | None = None
) -> Finding | None:
    """Return the finding of one quantity, or None where audits, controls or held-out samples are missing.

    The error of the rule is shared by the perturbations of the run.
    """
    audits = row.audits(perturbation)
    controls = [run.rows[label].audits(perturbation) for label in run.record.rows_of("control")]
    attacked = attacked_references(run, perturbation)
    beside = [*controls, *([] if attacked is None else [attacked])]
    if not audits or not controls or any(len(found) != len(audits) for found in beside):
        return None
    taus = tuple(tau for tau in audits[0].taus if tau > 0)
    scale = scale_of(quantity, run.form)
    sides = [_values(audits, controls, attacked, scale, part) for part in PARTS[quantity]] if taus else [None]
    if any(side is None for side in sides):
        return None
    known = [side for side in sides if side is not None]
    values, others, reference, least = known[0]
    base = reference.mean(0)
    if len(known) > 1:
        values, others, reference = (a - b for a, b in zip(known[0][:3], known[1][:3], strict=True))
        least = np.hypot(least, known[1][3])
    crafted_on = audits[0].settings.crafted_on
    judged = judge_scores(
        values,
        others,
        reference=None if crafted_on == "reference" else reference,
        least_spread=least,
        error=ERROR / len(run.perturbations),
        must_detect=must_detect,
    )
    samples = audits[0].right_shares(PARTS[quantity][0])[0]
    return Finding(quantity, perturbation, crafted_on, run.form, taus, samples, base, values[:, 0], judged)


def attacked_references(run: Run, perturbation: str) -> list[Audit] | None:
    """Return the audits of the references on inputs crafted on themselves; None where all models share their inputs."""
    audits = run.rows["retrain"].audits(perturbation) if "retrain" in run.rows else []
    return audits if audits and audits[0].settings.crafted_on == "unlearned" else None


def _values(
    audits: Sequence[Audit],
    controls: Sequence[Sequence[Audit]],
    attacked: Sequence[Audit] | None,
    scale: Scale,
    part: SampleSet,
) -> Side | None:
    """Return values of row and controls, scores of the references, and the least spread; None without samples."""
    everyone = [*audits, *(audit for own in controls for audit in own), *(attacked or ())]
    found = [audit.right_shares(part) for audit in everyone]
    sizes = {n for n, _, _ in found}
    if len(sizes) != 1 or 0 in sizes or any(None in shares for _, *both in found for shares in both):
        return None
    (n,) = sizes
    own, reference = compared_shares(audits, attacked, part)
    pairs = [compared_shares(each, attacked, part) for each in controls]
    others, beside = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
    known = scores(beside, n, scale=scale)  # the references where the controls met them: the row may have fewer draws
    value = scores(own, n, scale=scale) - scores(reference, n, scale=scale)
    return value, scores(others, n, scale=scale) - known, known[:, 0], half_sample(others, n, scale=scale)


def compared_shares(
    audits: Sequence[Audit], attacked: Sequence[Audit] | None, part: SampleSet = "forgotten"
) -> tuple[Floats, Floats]:
    """Return the shares right of the row and of the reference, on the row's inputs or, if attacked, on its own."""
    own, reference = shares_right(audits, part)
    return own, reference if attacked is None else shares_right(attacked, part)[0]


def shares_right(audits: Sequence[Audit], part: SampleSet = "forgotten") -> tuple[Floats, Floats]:
    """Return the shares right of the row and of the reference at the radii above 0, each (S, T)."""
    above = [k for k, tau in enumerate(audits[0].taus) if tau > 0]
    pairs = [a.right_shares(part)[1:] for a in audits]
    own, reference = (np.clip(np.array([pair[i] for pair in pairs], np.float64)[:, above], 0.0, 1.0) for i in (0, 1))
    return own, reference


def noise_floor(run: Run, perturbation: str, measure: str) -> Curve | None:
    """Return low and high of a measure between re-trained models, for each radius; None without a control.

    For what is judged, at radii above 0, it is the bar of the rule; at radius 0, for other measures, and for r where
    each model meets inputs crafted on itself, it is the range of what the controls show: for r, of each control against
    its reference and of the reference against the control, for the two are alike; but inputs crafted on one of them
    say nothing of the reverse.
    """
    audits = [audit for label in run.record.rows_of("control") for audit in run.rows[label].audits(perturbation)]
    if not audits:
        return None
    curves = [audit.curve(measure) for audit in audits]
    if measure == "pooled" and audits[0].settings.crafted_on is None:
        curves += [_reversed(curve) for curve in curves]
    shown = over_seeds([c if c.low else Curve(value=c.value, low=c.value, high=c.value) for c in curves])
    compared = "retrain" in run.rows and measure == judged_measure(run.form)[0]
    compared = compared and attacked_references(run, perturbation) is None
    judged = find(run, run.rows["retrain"], perturbation) if compared else None
    if judged is None or np.isnan(judged.judgement.low).any():
        return shown
    bars = iter([judged.bar(column) for column in range(1, len(judged.taus) + 1)])
    ends = [
        (low, high) if tau == 0 else next(bars)
        for tau, low, high in zip(audits[0].taus, shown.low, shown.high, strict=True)
    ]
    return Curve(value=[], low=[low for low, _ in ends], high=[high for _, high in ends])


def _reversed(ratio: Curve) -> Curve:
    """Return the ratio of the reference to the control; None where the control is never right."""

    def inverse(values: Sequence[float | None]) -> list[float | None]:
        return [1 / value if value else None for value in values]

    return Curve(value=inverse(ratio.value), low=inverse(ratio.high), high=inverse(ratio.low))


def floor_of_r(run: Run, perturbation: str) -> NoiseFloor | None:
    """Return the noise floor of r as the record has it: the one that the page draws."""
    floor = noise_floor(run, perturbation, "pooled")
    if floor is None:
        return None
    audits = [audit for label in run.record.rows_of("control") for audit in run.rows[label].audits(perturbation)]
    return NoiseFloor(taus=audits[0].taus, low=floor.low, high=floor.high, pairs=len(audits))


def seed_levels(run: Run, row: Row, perturbation: str) -> list[float | None]:
    """Return the level of each seed, over all radii above 0: a ratio, or in class form a difference."""
    audits, attacked = row.audits(perturbation), attacked_references(run, perturbation)
    known = audits and all(audit.samples for audit in audits) and (attacked is None or len(attacked) == len(audits))
    if not known or max(audits[0].taus) <= 0:
        return [None] * len(audits)
    scale: Scale = "share" if run.form == "class" else "log"
    own, reference = (scores(p, audits[0].samples, scale=scale)[:, 0] for p in compared_shares(audits, attacked))
    levels = own - reference
    return list((levels if run.form == "class" else np.exp(levels)).tolist())
