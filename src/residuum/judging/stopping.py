"""When draws may stop: where those still to come could not change the verdict.

A verdict changes when a value crosses an edge of its noise floor. After d of D draws the difference p_m - p_a of one
model at one radius will move by a standard error of e sqrt(1 - d/D), with e as the audit measured it. From there:

- the radii share their draws, so the level moves by at most the mean of theirs, and the level of M by at most the
  largest of theirs; radius 0 does not move at all;
- an angle arcsin sqrt p moves by the error of p over 2 sqrt(p (1 - p)), where p is that of the two rates which is
  nearer to 0 or 1 (in class form the value is the difference);
  where row and reference are attacked themselves, both rates move, each by its error;
- a row's value is a mean over S seeds; half the noise floor, t s sqrt(1/S + 1/N), moves by
  t u sqrt((1/S + 1/N) / (N - 1)) if the scores of the retrained models move by u, the error of a control's value.

We assume that value and noise floor move independently, and mean the result as a bound: on digits it is 1.3 to 2.4
times what happens. A column whose value lies further from both edges than this will stay on its side, so a row stops
when its verdict rests on such columns alone. Every row is judged once, with the whole error of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residuum.core.roles import Role
from residuum.judging.findings import Comparison, Comparisons, comparisons_of, recognition_rates, shared_by_all
from residuum.judging.rule import Columns, Flags, Floats, with_level
from residuum.record import Audit, Results, Row

AtStake = dict[str, list[float]]  # radii by perturbation


def controls_missing(record: Results, most: int) -> int:
    """Return how many more controls per seed would detect the original with 80 % power at this spread, at most `most`.

    0 if there are enough, or if the reference is not comparable. The number depends on the retrained models and on the
    original, never on the rows that are judged.
    """
    comparisons = comparisons_of(record)
    if most <= 0 or comparisons.detects_original or any(gate.passed is False for gate in record.gates):
        return 0
    controls, _ = comparisons.more_until_detected(most)
    return controls or most


def undecided(record: Results, most: int) -> dict[str, tuple[list[str], list[float]]]:
    """Return, by perturbation, the rows and radii that need more of the at most `most` draws.

    The models that rows are judged by (original, reference, controls) go on with them. A row that stopped stays so.
    """
    comparisons = comparisons_of(record)
    if record.reference is None or not comparisons.parts:
        return {}
    stakes = {label: at_stake(comparisons, row, most) for label, row in record.methods.items() if row.judged}
    going = {}
    for name in record.perturbations:
        reference = record.reference.audits(name)[0]
        done = max(reference.draws)
        drawn = [tau for tau, draws in zip(reference.taus, reference.draws, strict=True) if draws == done]
        radii = {
            label: stake.get(name, [])
            for label, stake in stakes.items()
            if max(record.methods[label].audits(name)[0].draws) == done
        }
        rows = [label for label, row in record.methods.items() if row.role is not Role.METHOD or radii.get(label)]
        taus = [tau for tau in drawn if any(tau in stake for stake in radii.values())]
        if taus:
            going[name] = rows, taus
    return going


@dataclass(frozen=True)
class Reach:
    """The columns of one comparison for one row: its shift, and how far shift and noise floor may still move apart."""

    part: Comparison
    shift: Floats
    reach: Floats

    def beyond(self) -> tuple[Floats, Floats]:
        """Return how far the shift lies above the upper and below the lower edge, where that is evidence.

        The numbers are negative within the noise floor, and infinitely so where a side is no evidence.
        """
        columns = self.part.columns
        half = columns.half_floor
        above = np.where(columns.upwards, self.shift - half, -np.inf)
        return above, np.where(columns.downwards, -self.shift - half, -np.inf)


def at_stake(comparisons: Comparisons, row: Row, most: int) -> AtStake:
    """Return the radii at which more draws could change a row's verdict; all of them if a level is near an edge."""
    parts = [reach for part in comparisons.judged if (reach := reach_of(part, row, comparisons.record, most))]
    stake = _merged(edges([(part.part, part.beyond()[k], part.reach) for part in parts]) for k in (0, 1))
    if row.role is Role.ORIGINAL:  # is a perturbation blind?
        every = [reach_of(part, row, comparisons.record, most) for part in shared_by_all(comparisons).judged]
        return _merged([stake, edges([(r.part, r.shift - r.part.columns.half_floor, r.reach) for r in every if r])])
    if (
        any(bool(np.any(beyond > 0)) for part in parts for beyond in part.beyond())
        or comparisons.record.original is None
    ):
        return stake
    originals = [reach_of(part, comparisons.record.original, comparisons.record, most) for part in comparisons.judged]
    missing = [(r.part, r.shift - r.part.columns.detectable, r.reach) for r in originals if r]
    return _merged([stake, edges(missing)])  # "not detected" or inconclusive


def edges(columns: Sequence[tuple[Comparison, Floats, Floats]]) -> AtStake:
    """Return the radii of columns that could cross an edge; none where one column is surely beyond."""
    if any(bool(np.any(beyond > reach)) for _, beyond, reach in columns):
        return {}
    near = [(part, beyond > -reach) for part, beyond, reach in columns]
    return _merged({part.perturbation: list(_radii(part, flags))} for part, flags in near)


def _radii(part: Comparison, flags: Flags) -> Iterable[float]:
    above = [tau for tau in part.taus if tau > 0]
    near = [tau for tau, flag in zip(part.column_taus, flags, strict=True) if flag]
    return above if None in near else [tau for tau in above if tau in near]


def _merged(stakes: Iterable[AtStake]) -> AtStake:
    merged: AtStake = {}
    for stake in stakes:
        for name, taus in stake.items():
            merged[name] = sorted({*merged.get(name, []), *taus})
    return merged


def reach_of(part: Comparison, row: Row, record: Results, most: int) -> Reach | None:
    """Return where a row lies, and how far draws may still move it; None where a value is missing."""
    judgment = part.judge(row)
    if judgment is None or not part.columns.enough.any():
        return None
    row_error, *control_errors = (draw_error(part, model, most) for model in (row, *record.controls))
    return Reach(part, judgment.shift, draw_reach(row_error, np.stack(control_errors, axis=1), part.columns))


def draw_error(part: Comparison, row: Row, most: int) -> Floats:
    """Return by how much the draws still to come will move the values of each seed, (S, C): one standard error.

    Row and reference share their draws, unless they are attacked themselves.
    """
    audits = row.audits(part.perturbation)
    if part.quantity == "M":
        largest: Floats = _memory_errors(audits, part.form, most).max(1, keepdims=True)
        return largest if part.attacked is None else math.sqrt(2) * largest
    if part.attacked is None:
        mine, reference = recognition_rates(audits)
        nearer_the_ends = np.where(mine * (1 - mine) < reference * (1 - reference), mine, reference)  # moves most
        return value_error(part, _errors(audits, "difference", most), nearer_the_ends)
    row_error, reference_error = (
        value_error(part, _errors(side, "unlearn_accuracy", most), recognition_rates(side)[0])
        for side in (audits, part.attacked)
    )
    return np.hypot(row_error, reference_error)


def _errors(audits: Sequence[Audit], measure: str, most: int) -> Floats:
    """Return the standard error, (S, T), by which a measure will move at each radius."""
    ends = (np.array([getattr(a.curve(measure), end) for a in audits], np.float64) for end in ("high", "low"))
    return np.subtract(*ends) / 2 * _left(audits, most)


def _memory_errors(audits: Sequence[Audit], form: str, most: int) -> Floats:
    """Return the standard error, (S, T), of M at each radius on the scale of the rule; infinite where M is missing."""
    curves = [audit.curve("memory_difference" if form == "class" else "memory") for audit in audits]
    low, high = (np.array([getattr(curve, end) for curve in curves], np.float64) for end in ("low", "high"))
    with np.errstate(divide="ignore", invalid="ignore"):
        width = high - low if form == "class" else np.log(high / low)
    above = np.array(audits[0].taus) > 0
    width = np.where(np.isfinite(width), width, np.where(above, np.inf, 0.0))
    left = _left(audits, most)
    return np.where(left > 0, width / 2 * np.where(left > 0, left, 1.0), 0.0)


def _left(audits: Sequence[Audit], most: int) -> Floats:
    """Return sqrt(1 - d/D) over the quantile of the audit's intervals, (S, T)."""
    from scipy.special import ndtri

    z = float(ndtri((1 + audits[0].settings.confidence) / 2))
    left = 1 - np.array([audit.draws for audit in audits], np.float64) / most
    return np.sqrt(np.maximum(left, 0)) / z


def value_error(part: Comparison, errors: Floats, rates: Floats) -> Floats:
    """Return the errors of level and values, (S, T + 1), from those of p_m - p_a or of p at each radius, (S, T).

    `rates` are p, or those of p_m and p_a that are nearer to 0 or 1.
    """
    rate_errors, half = with_level(errors, part.taus), 1 / (2 * part.samples)
    if part.form == "class":
        return rate_errors
    p = np.clip(with_level(rates, part.taus), half, 1 - half)
    return np.asarray(rate_errors / (2 * np.sqrt(p * (1 - p))), np.float64)


def draw_reach(row: Floats, controls: Floats, columns: Columns) -> Floats:
    """Return how far shift and edge of the noise floor may still move apart, (C,), from the errors of the values.

    `row` has shape (S, C), `controls` (S, k, C).
    """
    of_value: Floats = np.sqrt(np.square(row).sum(0)) / len(row)
    freedom = np.maximum(columns.retrained - 1, 1)
    spread = np.sqrt(np.square(controls).mean((0, 1)) / freedom)
    of_floor = replace(columns, spread=spread, least_error=0.0).half_floor
    reach: Floats = np.hypot(of_value, np.where(columns.shares > 0, of_floor, 0.0))
    return reach
