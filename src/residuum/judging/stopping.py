"""When draws may stop: where those still to come could not change the verdict.

A verdict changes when a value crosses an edge of its noise floor. After d of D draws the difference p_m - p_a of one
model at one radius will move by a standard error of e sqrt(1 - d/D), with e as the audit measured it. From there:

- the radii share their draws, so the level moves by at most the mean of theirs;
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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residuum.core.roles import Role
from residuum.judging.findings import attacked_references, compare, recognition_rates
from residuum.judging.rule import ERROR, Design, Floats, Judgment, error_shares, scores
from residuum.judging.verdict import must_detect
from residuum.record import Audit, Results, Row, Verdict

Flags = NDArray[np.bool_]


def undecided(record: Results, most: int) -> dict[str, tuple[list[str], list[float]]]:
    """Return, by perturbation, the rows and radii that need more of the at most `most` draws.

    The models that rows are judged by (original, reference, controls) go on with them. A row that stopped stays so.
    """
    left = {name: _undecided(record, name, most) for name in record.perturbations}
    return {name: (rows, taus) for name, (rows, taus) in left.items() if taus}


def _undecided(record: Results, perturbation: str, most: int) -> tuple[list[str], list[float]]:
    if record.reference is None:
        return [], []
    reference = record.reference.audits(perturbation)[0]
    done = max(reference.draws)
    drawn = [tau for tau, draws in zip(reference.taus, reference.draws, strict=True) if draws == done]
    stakes = {
        label: radii_at_stake(record, row, perturbation, most)
        for label, row in record.methods.items()
        if row.judged and max(row.audits(perturbation)[0].draws) == done
    }
    rows = [label for label, row in record.methods.items() if row.role is not Role.METHOD or stakes.get(label)]
    return rows, [tau for tau in drawn if any(tau in stake for stake in stakes.values())]


def radii_at_stake(record: Results, row: Row, perturbation: str, most: int) -> list[float]:
    """Return the radii at which more draws could change a row's verdict; all of them if its level is near an edge."""
    wanted = must_detect(record, row, perturbation)
    comparison = compare(record, row, perturbation, must_detect=wanted)
    if comparison is None:
        return []
    attacked, form = attacked_references(record, perturbation), record.scenario.form
    row_error, *control_errors = (
        draw_error(model.audits(perturbation), attacked, form, most) for model in (row, *record.controls)
    )
    error = ERROR / len(record.perturbations)
    reach = draw_reach(row_error, np.stack(control_errors, axis=1), comparison.judgment, error)
    stake = at_stake(comparison.judgment, reach, wanted)
    return [tau for tau, radius in zip(comparison.taus, stake[1:], strict=True) if radius or stake[0]]


def draw_error(audits: Sequence[Audit], attacked: Sequence[Audit] | None, form: str, most: int) -> Floats:
    """Return by how much the draws still to come will move the values of each seed, (S, T + 1): one standard error.

    Row and reference share their draws, unless they are `attacked` themselves.
    """
    n = audits[0].samples
    if attacked is None:
        row, reference = recognition_rates(audits)
        nearer_the_ends = np.where(row * (1 - row) < reference * (1 - reference), row, reference)  # moves an angle most
        return value_error(_errors(audits, "difference", most), nearer_the_ends, n, form=form)
    row_error, reference_error = (
        value_error(_errors(side, "unlearn_accuracy", most), recognition_rates(side)[0], n, form=form)
        for side in (audits, attacked)
    )
    return np.hypot(row_error, reference_error)


def _errors(audits: Sequence[Audit], measure: str, most: int) -> Floats:
    """Return the standard error, (S, T), by which a measure will move at each radius above 0."""
    from scipy.special import ndtri

    z = float(ndtri((1 + audits[0].settings.confidence) / 2))
    above = [k for k, tau in enumerate(audits[0].taus) if tau > 0]
    ends = (np.array([getattr(a.curve(measure), end) for a in audits], np.float64)[:, above] for end in ("high", "low"))
    left = 1 - np.array([audit.draws for audit in audits])[:, above] / most
    return np.subtract(*ends) / (2 * z) * np.sqrt(np.maximum(left, 0))


def value_error(errors: Floats, rates: Floats, samples: int, *, form: str = "sample") -> Floats:
    """Return the errors of level and values, (..., T + 1), from those of p_m - p_a or of p at each radius, (..., T).

    `rates` are p, or those of p_m and p_a that are nearer to 0 or 1.

    >>> value_error(np.array([0.01, 0.03]), np.array([0.9, 0.5]), 50).round(4).tolist()
    [0.0218, 0.0167, 0.03]
    """
    rate_errors = scores(errors, samples, scale="share")
    if form == "class":
        return rate_errors
    p = np.clip(scores(rates, samples, scale="share"), 1 / (2 * samples), 1 - 1 / (2 * samples))
    return np.asarray(rate_errors / (2 * np.sqrt(p * (1 - p))), np.float64)


def draw_reach(row: Floats, controls: Floats, judgment: Judgment, error: float) -> Floats:
    """Return how far value and edge of the noise floor may still move apart, (T + 1,), from the errors of the values.

    `row` has shape (S, T + 1), `controls` (S, k, T + 1); `error` is that of the rule.
    """
    design = Design(len(row), judgment.retrained // len(row))
    value_reach: Floats = np.sqrt(np.square(row).sum(0)) / len(row)
    if design.freedom < 1:
        return value_reach
    spread: Floats = np.sqrt(np.square(controls).mean((0, 1)) / design.freedom)
    reach: Floats = np.hypot(value_reach, design.half_floor(spread, error * error_shares(len(value_reach))))
    return reach


def at_stake(judgment: Judgment, reach: Floats, wanted: float | None = None) -> Flags:
    """Return the columns, (T + 1,), that could change the verdict within `reach`; none where it is decided.

    `wanted` is the level that an audit must be able to detect before it says "none found".

    >>> from residuum.judging.rule import judge_scores
    >>> controls = np.array([[[0.02], [-0.01], [0.01]]]).repeat(2, axis=2)
    >>> near = judge_scores([[0.06, 0.06]], controls, reference=[[-0.1, -0.1]])
    >>> at_stake(near, np.full(2, 0.01)).tolist(), at_stake(near, np.full(2, 0.001)).tolist()
    ([True, True], [False, False])
    """
    j = judgment
    stake = np.zeros(len(j.value), np.bool_)
    for beyond in (j.value - j.high, j.low - j.value):
        if not (beyond > reach).any():
            stake |= beyond > -reach
    if wanted is not None and j.verdict in (Verdict.NONE_FOUND, Verdict.INCONCLUSIVE):
        stake[0] |= abs(j.detectable[0] - abs(wanted)) < reach[0]
    return stake
