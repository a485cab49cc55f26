"""A row beside the retrained models of its run: the numbers that the rule judges, and what it says of them.

Three quantities, each under one perturbation: r on the forgotten samples, G on held-out samples of the same classes
(knowledge of the class), and M = r / G (memory of these very samples). In class form they are differences.

Inputs that are crafted on a model fool that model more often than any other, by construction. So where every model is
attacked, row and reference are compared on the inputs crafted on themselves: the recognition rate of the row on its
inputs over that of the reference on the reference's. This ratio is 1 for a retrained model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from residuum.core.roles import Role
from residuum.judging.rule import ERROR, Floats, Judgment, Scale, half_sample, judge_scores, ratio_of, scores
from residuum.record import Audit, Curve, Finding, NoiseFloor, Quantity, Results, Row, SampleSet, over_seeds

LARGEST = 700.0  # a logarithm whose exponential is still a number
PARTS: dict[Quantity, tuple[SampleSet, ...]] = {"r": ("forgotten",), "G": ("heldout",), "M": ("kept", "heldout")}


@dataclass(frozen=True)
class Comparison:
    """One quantity of one row beside the retrained models, as the rule sees it; column 0 is the level over all radii.

    `base` has the mean score of the references, from which values are counted.
    """

    quantity: Quantity
    perturbation: str
    crafted_on: str | None
    form: Literal["sample", "class"]
    taus: tuple[float, ...]
    samples: int
    base: Floats
    seed_values: Floats
    judgment: Judgment

    @property
    def shift(self) -> float:
        """How far the level lies from what retrained models show in the mean, on the scale of the rule."""
        j = self.judgment
        return float(j.value[0] - (j.low[0] + j.high[0]) / 2)

    @property
    def plain_at_a_radius(self) -> bool:
        """Whether one radius alone shows a shift that at least 80 % of such runs would find."""
        j = self.judgment
        return bool((j.value - (j.low + j.high) / 2 >= j.detectable)[1:].any())

    def finding(self) -> Finding:
        """Return what the record says of it: ratios, or in class form differences."""
        j = self.judgment
        beyond = (j.value > j.high) | (j.value < j.low)
        middle = (j.low[0] + j.high[0]) / 2
        return Finding(
            quantity=self.quantity,
            perturbation=self.perturbation,
            form=self.form,
            crafted_on=self.crafted_on,
            verdict=j.verdict,
            retrained=j.retrained,
            taus=list(self.taus),
            column=0 if beyond[0] or not beyond.any() else j.radius + 1,
            values=[self._natural(value, k) for k, value in enumerate(j.value)],
            floor_low=self._stored(j.low),
            floor_high=self._stored(j.high),
            interval_low=self._stored(j.value - j.half_interval),
            interval_high=self._stored(j.value + j.half_interval),
            seeds=[self._natural(value) for value in self.seed_values],
            neutral=self._natural(middle if self.crafted_on == "reference" and not math.isnan(middle) else 0.0),
            smallest=self._stored([middle + j.detectable[0]])[0],
            p_value=j.p_value,
        )

    def _stored(self, values: Iterable[float]) -> list[float | None]:
        return [None if math.isnan(value) else self._natural(value, k) for k, value in enumerate(values)]

    def _natural(self, value: float, column: int = 0) -> float:
        """Return a difference of scores as a ratio, or in class form as it is."""
        scale = scale_of(self.quantity, self.form)
        if scale == "angle":
            return float(ratio_of(self.base[column] + value, self.base[column], self.samples))
        return float(value) if scale == "share" else math.exp(min(value, LARGEST))


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


def compare(
    record: Results, row: Row, perturbation: str, quantity: Quantity = "r", *, must_detect: float | None = None
) -> Comparison | None:
    """Return one quantity of a row beside the retrained models; None where audits, controls or samples are missing.

    The error of the rule is shared by the perturbations of the run.
    """
    audits, form = row.audits(perturbation), record.scenario.form
    controls = [control.audits(perturbation) for control in record.controls]
    attacked = attacked_references(record, perturbation)
    beside = [*controls, *([] if attacked is None else [attacked])]
    if not audits or not controls or any(len(others) != len(audits) for others in beside):
        return None
    taus = tuple(tau for tau in audits[0].taus if tau > 0)
    scale = scale_of(quantity, form)
    parts = [_values(audits, controls, attacked, scale, part) for part in PARTS[quantity]] if taus else [None]
    measured = [part for part in parts if part is not None]
    if len(measured) < len(parts):
        return None
    values, control_values, reference, least_spread = measured[0]
    base = reference.mean(0)
    if len(measured) > 1:  # M: forgotten minus held-out samples
        values, control_values, reference = (a - b for a, b in zip(measured[0][:3], measured[1][:3], strict=True))
        least_spread = np.hypot(least_spread, measured[1][3])
    crafted_on = audits[0].settings.crafted_on
    judgment = judge_scores(
        values,
        control_values,
        reference=None if crafted_on == "reference" else reference,
        least_spread=least_spread,
        error=ERROR / len(record.perturbations),
        must_detect=must_detect,
    )
    samples = audits[0].recognition_rates(PARTS[quantity][0])[0]
    return Comparison(quantity, perturbation, crafted_on, form, taus, samples, base, values[:, 0], judgment)


def attacked_references(record: Results, perturbation: str) -> list[Audit] | None:
    """Return the audits of the references on inputs crafted on themselves; None where all models share their inputs."""
    audits = record.reference.audits(perturbation) if record.reference else []
    return audits if audits and audits[0].settings.crafted_on == "unlearned" else None


def _values(
    audits: Sequence[Audit],
    controls: Sequence[Sequence[Audit]],
    attacked: Sequence[Audit] | None,
    scale: Scale,
    part: SampleSet,
) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Return values of row and controls, scores of the references, and the least spread; None without samples."""
    all_audits = [*audits, *(audit for control in controls for audit in control), *(attacked or ())]
    recognized = [audit.recognition_rates(part) for audit in all_audits]
    sizes = {n for n, _, _ in recognized}
    if len(sizes) != 1 or 0 in sizes or any(None in rates for _, *both in recognized for rates in both):
        return None
    (n,) = sizes
    row_rates, row_reference_rates = compared_rates(audits, attacked, part)
    pairs = [compared_rates(control, attacked, part) for control in controls]
    control_rates, reference_rates = (np.stack(rates, axis=1) for rates in zip(*pairs, strict=True))
    # the references where the controls met them: the row may have fewer draws
    reference = scores(reference_rates, n, scale=scale)
    value = scores(row_rates, n, scale=scale) - scores(row_reference_rates, n, scale=scale)
    control_values = scores(control_rates, n, scale=scale) - reference
    return value, control_values, reference[:, 0], half_sample(control_rates, n, scale=scale)


def compared_rates(
    audits: Sequence[Audit], attacked: Sequence[Audit] | None, part: SampleSet = "forgotten"
) -> tuple[Floats, Floats]:
    """Return the recognition rates of row and reference, on the row's inputs or, if `attacked`, on inputs of each."""
    row_rates, reference_rates = recognition_rates(audits, part)
    return row_rates, reference_rates if attacked is None else recognition_rates(attacked, part)[0]


def recognition_rates(audits: Sequence[Audit], part: SampleSet = "forgotten") -> tuple[Floats, Floats]:
    """Return the recognition rates of the row and of the reference at the radii above 0, (S, T) for each."""
    above = [k for k, tau in enumerate(audits[0].taus) if tau > 0]
    pairs = [audit.recognition_rates(part)[1:] for audit in audits]
    row, reference = (np.clip(np.array([pair[i] for pair in pairs], np.float64)[:, above], 0.0, 1.0) for i in (0, 1))
    return row, reference


def noise_floor(record: Results, perturbation: str, measure: str) -> Curve | None:
    """Return low and high of a measure between retrained models, for each radius; None without a control.

    At radii above 0, the judged measure has the noise floor of the rule. Everything else (radius 0, other measures, r
    where every model meets inputs crafted on itself) has the range over the controls. For r, this range also has the
    reference against each control, because the two are exchangeable unless inputs were crafted on one of them.
    """

    def inverse(values: Sequence[float | None]) -> list[float | None]:
        return [1 / value if value else None for value in values]  # None where the control is never right

    audits = [audit for control in record.controls for audit in control.audits(perturbation)]
    if not audits:
        return None
    curves = [audit.curve(measure) for audit in audits]
    if measure == "pooled" and audits[0].settings.crafted_on is None:
        curves += [Curve(value=inverse(c.value), low=inverse(c.high), high=inverse(c.low)) for c in curves]
    shown = over_seeds([c if c.low else Curve(value=c.value, low=c.value, high=c.value) for c in curves])
    judged = measure == judged_measure(record.scenario.form)[0] and attacked_references(record, perturbation) is None
    reference = next(iter(record.rows_of(Role.REFERENCE)), None) if judged else None
    finding = record.finding(reference, perturbation) if reference else None
    if finding is None or not finding.has_floor:
        return shown
    floors = iter([finding.floor(column) for column in range(1, len(finding.taus) + 1)])
    ends = [
        (low, high) if tau == 0 else next(floors)
        for tau, low, high in zip(audits[0].taus, shown.low, shown.high, strict=True)
    ]
    return Curve(value=[], low=[low for low, _ in ends], high=[high for _, high in ends])


def floor_of_r(record: Results, perturbation: str) -> NoiseFloor | None:
    """Return the noise floor of r for the record; the page draws it."""
    floor = noise_floor(record, perturbation, "pooled")
    if floor is None:
        return None
    audits = [audit for control in record.controls for audit in control.audits(perturbation)]
    return NoiseFloor(taus=audits[0].taus, low=floor.low, high=floor.high, pairs=len(audits))


def seed_levels(record: Results, row: Row, perturbation: str) -> list[float | None]:
    """Return the level of each seed, over all radii above 0: a ratio, or in class form a difference."""
    audits, attacked = row.audits(perturbation), attacked_references(record, perturbation)
    complete = audits and all(audit.samples for audit in audits) and (attacked is None or len(attacked) == len(audits))
    if not complete or max(audits[0].taus) <= 0:
        return [None] * len(audits)
    by_class = record.scenario.form == "class"
    scale: Scale = "share" if by_class else "log"
    row_scores, reference_scores = (
        scores(rates, audits[0].samples, scale=scale)[:, 0] for rates in compared_rates(audits, attacked)
    )
    levels = row_scores - reference_scores
    return list((levels if by_class else np.exp(levels)).tolist())
