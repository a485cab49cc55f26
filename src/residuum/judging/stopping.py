"""When draws may stop: where those still to come could not change the verdict.

A word changes when a value crosses an edge of its bar. After d of D draws the difference p_m - p_a of one model at one
radius will move by a standard error of e sqrt(1 - d/D), with e as the audit measured it; from there

- the radii share their draws, so the level moves by at most the mean of theirs;
- an angle arcsin sqrt p moves by the error of p over 2 sqrt(p (1 - p)), where p is of both shares the one further out
  (in class form the value is the difference);
  where row and reference are attacked themselves, each share moves by its own error;
- a row's value is a mean over S seeds; half its bar, t s sqrt(1/S + 1/N), moves by t u sqrt((1/S + 1/N) / (N - 1))
  where the re-trained scores that s is the spread of move by u, taken to be the error of a control's value.

Value and bar are taken to move independently. The result is meant as a bound: on digits it is 1.3 to 2.4 times what is
seen. A column whose value lies further from both edges than this is taken to stay on its side; a row stops when its
word rests on such columns alone. Every row is judged once, with the whole error of the rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residuum.core.roles import Role
from residuum.judging.findings import attacked_references, compare, shares_right
from residuum.judging.rule import ERROR, Design, Floats, Judgment, error_shares, scores
from residuum.judging.verdict import must_detect
from residuum.record import Audit, Results, Row, Verdict

Flags = NDArray[np.bool_]


def undecided(record: Results, most: int) -> dict[str, tuple[list[str], list[float]]]:
    """Return, by perturbation, the rows and radii that need more draws, of which `most` will be made at the most.

    What rows are judged by (original, re-train, controls) goes on with them. What has stopped once stays as it is.
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
    """Return the radii by which more draws could change a row's word: all of them where its level is near an edge."""
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

    Row and reference are drawn together, or each by itself where they are `attacked` themselves.
    """
    n = audits[0].samples
    if attacked is None:
        return value_error(_errors(audits, "difference", most), further_out(*shares_right(audits)), n, form=form)
    sides = (audits, attacked)
    own, reference = (
        value_error(_errors(side, "unlearn_accuracy", most), shares_right(side)[0], n, form=form) for side in sides
    )
    return np.hypot(own, reference)


def _errors(audits: Sequence[Audit], measure: str, most: int) -> Floats:
    """Return the standard error, (S, T), by which a measure will move at each radius above 0."""
    from scipy.special import ndtri

    z = float(ndtri((1 + audits[0].settings.confidence) / 2))
    above = [k for k, tau in enumerate(audits[0].taus) if tau > 0]
    ends = (np.array([getattr(a.curve(measure), end) for a in audits], np.float64)[:, above] for end in ("high", "low"))
    left = 1 - np.array([audit.draws for audit in audits])[:, above] / most
    return np.subtract(*ends) / (2 * z) * np.sqrt(np.maximum(left, 0))


def further_out(own: Floats, reference: Floats) -> Floats:
    """Return of two shares the one that is nearer to 0 or 1, where an angle moves most."""
    return np.where(own * (1 - own) < reference * (1 - reference), own, reference)


def value_error(errors: Floats, shares: Floats, samples: int, *, form: str = "sample") -> Floats:
    """Return the errors of level and values, (..., T + 1), from those of p_m - p_a or of p at each radius, (..., T).

    `shares` are those of p_m and p_a that are further out, or p.

    >>> value_error(np.array([0.01, 0.03]), np.array([0.9, 0.5]), 50).round(4).tolist()
    [0.0218, 0.0167, 0.03]
    """
    of_share, at = (scores(each, samples, scale="share") for each in (errors, shares))
    if form == "class":
        return of_share
    inside = np.clip(at, 1 / (2 * samples), 1 - 1 / (2 * samples))
    return np.asarray(of_share / (2 * np.sqrt(inside * (1 - inside))), np.float64)


def draw_reach(row: Floats, controls: Floats, judgment: Judgment, error: float) -> Floats:
    """Return how far value and edge may still move against each other, (T + 1,), from the errors of their values.

    `row` has shape (S, T + 1), `controls` (S, k, T + 1); `error` is that of the rule.
    """
    design = Design(len(row), judgment.retrained // len(row))
    own: Floats = np.sqrt(np.square(row).sum(0)) / len(row)
    if design.freedom < 1:
        return own
    spread: Floats = np.sqrt(np.square(controls).mean((0, 1)) / design.freedom)
    reach: Floats = np.hypot(own, design.half_bar(spread, error * error_shares(len(own))))
    return reach


def at_stake(judgment: Judgment, reach: Floats, wanted: float | None = None) -> Flags:
    """Return the columns, (T + 1,), that could change the word within `reach`; none where the word is decided.

    `wanted` is the level that "none" must be able to detect.

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
