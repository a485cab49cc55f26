"""A row and the retrained models of its run: the numbers that the rule judges, and what it says of them.

Three quantities, each under one perturbation: r on the forgotten samples, G on held-out samples of the same classes
(knowledge of the class), and M = r / G (memory of these very samples). In class form they are differences. G is shown
with the noise floor that a level has, and makes no verdict.

Inputs that are crafted on a model fool that model more often than any other, by construction. So where every model is
attacked, row and reference are compared on the inputs crafted on themselves: the recognition rate of the row on its
inputs over that of the reference on the reference's. This ratio is 1 for a retrained model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from residuum.core.roles import Role
from residuum.judging.gates import difficulty
from residuum.judging.rule import (
    Columns,
    Floats,
    Judgment,
    Scale,
    counts_upwards,
    error_shares,
    half_sample,
    ratio_of,
    scores,
)
from residuum.record import (
    Audit,
    Bounds,
    Column,
    Curve,
    Finding,
    NoiseFloor,
    Place,
    Quantity,
    Results,
    Row,
    SampleSet,
    over_seeds,
)

LARGEST = 700.0  # a logarithm whose exponential is still a number
PARTS: dict[Quantity, tuple[SampleSet, ...]] = {"r": ("forgotten",), "G": ("heldout",), "M": ("kept", "heldout")}


@dataclass(frozen=True)
class Comparison:
    """What retrained models show of one quantity under one perturbation: the level first, then every radius of `taus`.

    G and M have the level alone. `base` has the mean score of the references, from which values are counted.
    """

    quantity: Quantity
    perturbation: str
    crafted_on: str | None
    form: Literal["sample", "class"]
    taus: tuple[float, ...]
    samples: int
    base: Floats
    columns: Columns
    attacked: Sequence[Audit] | None
    untargeted: bool = False  # an attack in sample form that only makes models wrong: it shows no memory

    @property
    def column_taus(self) -> list[float | None]:
        """The radius of each column; None is the level."""
        return [None, *self.taus] if self.quantity == "r" else [None]

    def values(self, row: Row) -> Floats | None:
        """Return the values of a row against the reference of each seed, (S, C); None where something is missing."""
        audits = row.audits(self.perturbation)
        if len(audits) != self.columns.seeds:
            return None
        parts = [_rates(audits, self.attacked, part) for part in PARTS[self.quantity]]
        if any(part is None for part in parts) or parts[0] is None or parts[0].samples != self.samples:
            return None
        scale = scale_of(self.quantity, self.form)
        first, *others = (part.values(self.taus, scale, self.samples) for part in parts if part)
        value = first - others[0] if others else first
        return value[:, : len(self.base)]

    def judge(self, row: Row) -> Judgment | None:
        """Return what the rule says of a row, column by column."""
        values = self.values(row)
        return None if values is None else self.columns.judge(values.mean(0))

    def finding(self, row: Row) -> Finding | None:
        """Return what the record says of a row: ratios, or in class form differences."""
        values = self.values(row)
        if values is None:
            return None
        value, of = values.mean(0), self.columns
        judgment = of.judge(value)
        natural = self.natural(value)
        low, high = self.natural(value - of.half_interval), self.natural(value + of.half_interval)
        columns = [
            Column(
                tau=tau,
                share=float(of.shares[k]),
                retrained=int(of.retrained[k]),
                value=natural[k],
                statistic=float(judgment.statistic[k]) if math.isfinite(judgment.statistic[k]) else None,
                floor=self.floors[k],
                interval=(low[k], high[k]) if math.isfinite(of.half_interval[k]) else None,
                smallest=self.smallest[k],
                side=self._side(int(judgment.outside[k])),
            )
            for k, tau in enumerate(self.column_taus)
        ]
        middle = of.mean if self.crafted_on == "reference" and math.isfinite(of.mean[0]) else np.zeros(1)
        return Finding(
            quantity=self.quantity,
            perturbation=self.perturbation,
            form=self.form,
            crafted_on=self.crafted_on,
            columns=columns,
            seeds=self.natural(values[:, 0], column=0),
            neutral=self.natural(middle[:1], column=0)[0],
        )

    def _side(self, outside: int) -> Literal["above", "below"] | None:
        """Return the side of the noise floor; below it, M means nothing."""
        return "above" if outside > 0 else "below" if outside < 0 and self.quantity != "M" else None

    @cached_property
    def floors(self) -> list[Bounds | None]:
        """The noise floor of each column; None where it is not judged."""
        half = self.columns.half_floor
        low, high = self.natural(self.columns.mean - half), self.natural(self.columns.mean + half)
        return [(low[k], high[k]) if math.isfinite(width) else None for k, width in enumerate(half)]

    @cached_property
    def smallest(self) -> list[float | None]:
        """The smallest value found with 80 % power; None where a model that is always right would be missed."""
        excess = self.columns.mean + self.columns.detectable
        most = {"angle": math.pi / 2, "share": 1.0, "log": math.inf}[scale_of(self.quantity, self.form)]
        within = np.isfinite(excess) & ((self.base + excess <= most) | (self.quantity == "M"))
        return [value if reachable else None for value, reachable in zip(self.natural(excess), within, strict=True)]

    def natural(self, values: Floats, column: int | None = None) -> list[float]:
        """Return differences of scores, one for each column or all of one, as ratios, or in class form as they are."""
        scale, base = scale_of(self.quantity, self.form), self.base if column is None else self.base[column]
        if scale == "angle":
            return list(ratio_of(base + values, base, self.samples).tolist())
        return list((values if scale == "share" else np.exp(np.minimum(values, LARGEST))).tolist())


class _Rates(NamedTuple):
    """Recognition rates of row and reference, (S, T) each, and the number of samples."""

    samples: int
    row: Floats
    reference: Floats

    def scores(self, taus: Sequence[float], scale: Scale, added: int) -> tuple[Floats, Floats]:
        """Return the scores of row and reference; on the log scale, half of one of `added` samples is added."""
        return scores(self.row, taus, added, scale=scale), scores(self.reference, taus, added, scale=scale)

    def values(self, taus: Sequence[float], scale: Scale, added: int) -> Floats:
        """Return the scores of the row against those of the reference."""
        row, reference = self.scores(taus, scale, added)
        return row - reference


def _rates(audits: Sequence[Audit], attacked: Sequence[Audit] | None, part: SampleSet) -> _Rates | None:
    """Return the rates on the row's inputs or, if `attacked`, on inputs of each; None without samples."""
    together = [*audits, *(attacked or ())]
    recognized = [audit.recognition_rates(part) for audit in together]
    sizes = {samples for samples, _, _ in recognized}
    if len(sizes) != 1 or 0 in sizes or any(None in rates for _, *both in recognized for rates in both):
        return None
    (row, reference), seeds = recognition_rates(together, part), len(audits)
    return _Rates(sizes.pop(), row[:seeds], reference[:seeds] if attacked is None else row[seeds:])


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a record, with the shares of the error; `blind` perturbations have none but at radius 0.

    A perturbation is blind if the original is not above the noise floor in any of its columns, whether that is evidence
    or not. If the original is seen nowhere, radius 0 included, nothing is left out.
    """

    record: Results
    parts: dict[tuple[str, Quantity], Comparison]
    blind: tuple[str, ...] = ()

    def of(self, perturbation: str, quantity: Quantity = "r") -> Comparison | None:
        """Return one comparison, if there is one."""
        return self.parts.get((perturbation, quantity))

    @property
    def judged(self) -> list[Comparison]:
        """The comparisons that make verdicts: r and M."""
        return [part for (_, quantity), part in self.parts.items() if quantity != "G"]

    @cached_property
    def original_shifts(self) -> dict[tuple[str, Quantity], Floats]:
        """How far the original lies from the retrained models in each column."""
        if self.record.original is None:
            return {}
        judged = {(part.perturbation, part.quantity): part.judge(self.record.original) for part in self.judged}
        return {place: judgment.shift for place, judgment in judged.items() if judgment}

    @cached_property
    def detects_original(self) -> bool:
        """Whether the original's shift would be found with 80 % power in at least one column."""
        return self._reached({place: self.parts[place].columns for place in self.original_shifts})

    def _reached(self, columns: dict[tuple[str, Quantity], Columns]) -> bool:
        return any(bool(of.reached(self.original_shifts[place]).any()) for place, of in columns.items())

    def more_until_detected(self, most: int) -> tuple[int | None, int | None]:
        """Return how many more controls per seed, or seeds, would detect the original at this spread; None: more."""

        def enough(**more: int) -> bool:
            return self._reached({place: self.parts[place].columns.with_more(**more) for place in self.original_shifts})

        numbers = range(1, most + 1)
        controls = next((n for n in numbers if enough(controls=n)), None)
        return controls, next((n for n in numbers if enough(seeds=n)), None)

    def telling_column(self) -> Place | None:
        """Return the level or radius 0 of r that would show the smallest excess; M where neither shows any."""
        places: dict[tuple[bool, float, int], tuple[Comparison, int]] = {}
        for part in self.judged:
            for k, tau in enumerate(part.column_taus):
                if not tau and (value := part.smallest[k]) is not None:
                    places[part.quantity == "M", value, len(places)] = (part, k)
        if not places:
            return next((Place(perturbation=name) for name, quantity in self.parts if quantity == "r"), None)
        part, column = places[min(places)]
        return Place(perturbation=part.perturbation, quantity=part.quantity, column=column)


def comparisons_of(record: Results) -> Comparisons:
    """Return what the rows of a record are judged by; empty where audits or controls are missing."""
    parts = {
        (name, quantity): part
        for name in record.perturbations
        for quantity in PARTS
        if (part := _comparison(record, name, quantity))
    }
    every = shared_by_all(Comparisons(record, parts))
    if record.original is None:
        return every
    seeing: set[str] = set()
    at_radius_0 = False
    for part in every.judged:
        judgment = part.judge(record.original)
        if judgment is None:
            continue
        above = {tau for tau, side in zip(part.column_taus, judgment.outside, strict=True) if side > 0}
        at_radius_0 = at_radius_0 or 0 in above
        seeing |= {part.perturbation} if above - {0} else set()
    if not seeing and not at_radius_0:
        return every
    return _with_shares(record, parts, [name for name, quantity in parts if quantity == "r" and name in seeing])


def shared_by_all(comparisons: Comparisons) -> Comparisons:
    """Return the comparisons with shares of the error for every perturbation, as if none were blind."""
    parts = comparisons.parts
    return _with_shares(comparisons.record, parts, [name for name, quantity in parts if quantity == "r"])


def _with_shares(record: Results, parts: dict[tuple[str, Quantity], Comparison], seeing: Sequence[str]) -> Comparisons:
    """Return the comparisons with the shares of the error; perturbations that are not among `seeing` have none."""
    shared, comparable = {}, difficulty(record)
    fair = comparable is None or comparable.fair  # else M compares samples that are not alike
    remembered = [name for name, quantity in parts if quantity == "M" and fair and not parts[name, "M"].untargeted]
    together = sum(name in seeing for name in remembered)
    for (name, quantity), part in parts.items():
        radii, sees, memory = sum(tau > 0 for tau in part.taus), name in seeing, name in remembered
        shares = error_shares(
            radii, len(seeing), form=part.form, memory=max(together, 1) * memory, radius_0=0 in part.taus
        )
        by_tau = [
            shares.level * sees if tau is None else shares.radius * sees if tau > 0 else shares.radius_0
            for tau in part.column_taus
        ]
        by_quantity = {"r": by_tau, "G": [shares.level * sees], "M": [shares.memory * sees]}
        upwards = [
            counts_upwards(tau, radii, form=part.form, memory=memory, untargeted=part.untargeted)
            for tau in part.column_taus
        ]
        columns = replace(
            part.columns, shares=np.array(by_quantity[quantity]), upwards=np.array(upwards) if quantity == "r" else True
        )
        shared[name, quantity] = replace(part, columns=columns)
    blind = dict.fromkeys(name for name, _ in parts if name not in seeing)
    return Comparisons(record, shared, tuple(blind))


def _comparison(record: Results, perturbation: str, quantity: Quantity) -> Comparison | None:
    """Return what retrained models show, without shares of the error; None where audits, controls or samples miss."""
    controls = [control.audits(perturbation) for control in record.controls]
    attacked = attacked_references(record, perturbation)
    seeds = len(controls[0]) if controls else 0
    if not seeds or any(len(audits) != seeds for audits in (*controls, *([] if attacked is None else [attacked]))):
        return None
    first = controls[0][0]
    taus, form, crafted_on = tuple(first.taus), record.scenario.form, first.settings.crafted_on
    if max(taus) <= 0:
        return None
    scale = scale_of(quantity, form)
    values, reference, least_error, samples = [], [], [], 0
    for part in PARTS[quantity]:
        rates = [_rates(audits, attacked, part) for audits in controls]
        measured = [one for one in rates if one is not None]
        if len(measured) < len(rates) or len({one.samples for one in measured}) != 1:
            return None
        n = measured[0].samples
        samples = samples or n
        values.append(np.stack([one.values(taus, scale, samples) for one in measured], axis=1))  # (S, k, T + 1)
        # the references where the controls met them: the row may have fewer draws
        reference.append(measured[0].scores(taus, scale, samples)[1])
        control_rates = np.stack([one.row for one in measured], axis=1)
        least_error.append(half_sample(control_rates, taus, n, scale=scale, forgotten=samples))
    base = reference[0].mean(0)
    if len(values) > 1:  # M: forgotten minus held-out samples
        values[0], reference[0] = values[0] - values[1], reference[0] - reference[1]
        least_error[0] = np.hypot(*least_error)
    width = 1 + len(taus) if quantity == "r" else 1
    control_values, reference_scores = values[0][..., :width], reference[0][:, :width]
    exchangeable = np.array([crafted_on != "reference"] * width)
    if quantity == "r":
        exchangeable[1:] |= np.array(taus) == 0  # nothing is crafted at radius 0
    number = control_values.shape[1]
    everything = np.concatenate([reference_scores[:, None], reference_scores[:, None] + control_values], axis=1)
    spread = np.where(exchangeable, _deviation(everything), _deviation(control_values))
    total = control_values.sum(1).mean(0)  # a reference's value against itself is 0
    columns = Columns(
        seeds=seeds,
        per_seed=np.where(exchangeable, number + 1, number),
        mean=np.where(exchangeable, total / (number + 1), total / number),
        spread=spread,
        shares=np.zeros(width),
        least_error=least_error[0][:width],
        downwards=quantity != "M",
    )
    untargeted = form == "sample" and is_untargeted(first)
    return Comparison(
        quantity, perturbation, crafted_on, form, taus, samples, base[:width], columns, attacked, untargeted
    )


def is_untargeted(audit: Audit) -> bool:
    """Return whether the inputs were crafted on a model, and not towards a label."""
    return audit.settings.crafted_on is not None and getattr(audit.settings, "target", "untargeted") == "untargeted"


def _deviation(values: Floats) -> Floats:
    """Return the standard deviation over models, (C,), of values (S, k, C); 0 for a single model."""
    models = values.reshape(-1, values.shape[-1])
    return models.std(axis=0, ddof=1) if len(models) > 1 else np.zeros(values.shape[-1])


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


def attacked_references(record: Results, perturbation: str) -> list[Audit] | None:
    """Return the audits of the references on inputs crafted on themselves; None where all models share their inputs."""
    audits = record.reference.audits(perturbation) if record.reference else []
    return audits if audits and audits[0].settings.crafted_on == "unlearned" else None


def recognition_rates(audits: Sequence[Audit], part: SampleSet = "forgotten") -> tuple[Floats, Floats]:
    """Return the recognition rates of the row and of the reference on the row's inputs, (S, T) for each."""
    pairs = [audit.recognition_rates(part)[1:] for audit in audits]
    row, reference = (np.clip(np.array([pair[i] for pair in pairs], np.float64), 0.0, 1.0) for i in (0, 1))
    return row, reference


def noise_floor(record: Results, perturbation: str, measure: str) -> Curve | None:
    """Return low and high of a measure between retrained models, for each radius; None without a control.

    The judged measure has the noise floor of the rule where its columns are judged. Everything else (other measures, r
    where every model meets inputs crafted on itself, blind perturbations) has the range over the controls. For r, this
    range also has the reference against each control, because the two are exchangeable unless inputs were crafted on
    one of them.
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
    floors = {column.tau: column.floor for column in finding.columns if column.floor} if finding else {}
    if not floors:
        return shown
    ends = [floors.get(tau, ends) for tau, *ends in zip(audits[0].taus, shown.low, shown.high, strict=True)]
    return Curve(value=[], low=[low for low, _ in ends], high=[high for _, high in ends])


def floor_of_r(record: Results, perturbation: str) -> NoiseFloor | None:
    """Return the noise floor of r for the record; the page draws it."""
    floor = noise_floor(record, perturbation, "pooled")
    if floor is None:
        return None
    audits = [audit for control in record.controls for audit in control.audits(perturbation)]
    return NoiseFloor(taus=audits[0].taus, low=floor.low, high=floor.high, pairs=len(audits))
