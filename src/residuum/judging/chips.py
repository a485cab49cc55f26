"""The chips next to a verdict: memory, utility, confidence, and the measures in which a row differs from retraining.

Measures other than r and M rise and fall in models, too, that never saw the samples and were trained for longer or
shorter. So they make no verdict. Each is compared with the retrained models by Student's t, as columns are: accuracies
as angles arcsin sqrt p, with half a sample as the least standard deviation, others as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from residuum.judging.findings import Comparisons
from residuum.judging.gates import CHANCE, difficulty
from residuum.judging.rule import ERROR, FALSE_ALARMS, FEWEST_RETRAINED, Columns, Judgment, half_sample, scores
from residuum.judging.sentences import sentence
from residuum.record import (
    Chips,
    ConfidenceChip,
    Difference,
    MemoryChip,
    Results,
    Row,
    RowJudgment,
    SeedResult,
    UtilityChip,
)

MEASURES = 9  # the most that are compared; each has this part of the 5 %
ACCURACIES = {"mia_accuracy": "forget", "test_accuracy": "test"}  # and the samples that they are a share of
MARGINS = ("forget_margin", "margin_gap", "heldout_auc")
PROBES = ("depth", "recovery")
LARGEST = 1e9  # T where retrained models do not differ at all
MANY = 10**9  # samples where their number is not known


def chips_of(record: Results, row: Row, judgment: RowJudgment, comparisons: Comparisons) -> Chips:
    """Return the chips of a row."""
    place = comparisons.telling_column()
    telling = judgment.finding_of(place.perturbation, place.quantity) if place else None
    levels = [finding for quantities in judgment.findings.values() if (finding := quantities.get("r"))]
    return Chips(
        memory=_memory(record, judgment, comparisons),
        utility=_utility(record, row),
        confidence=ConfidenceChip(
            retrained=max((column.retrained for finding in levels for column in finding.columns), default=0),
            smallest=telling.columns[place.column].smallest if telling and place else None,
            quantity=place.quantity if place else "r",
            form=record.scenario.form,
        ),
    )


def _memory(record: Results, judgment: RowJudgment, comparisons: Comparisons) -> MemoryChip:
    """Return whether M of any judged perturbation lies above the noise floor."""
    findings = [quantities["M"] for quantities in judgment.findings.values() if "M" in quantities]
    levels = {finding.perturbation: level for finding in findings if (level := finding.columns[0]).floor is not None}
    if not levels:
        compared = difficulty(record)
        if not findings:
            reason = sentence("no held-out")
        elif compared and not compared.fair:
            harder = "harder" if compared.auc > CHANCE else "easier"
            ends = {"auc": compared.auc, "low": compared.low, "high": compared.high}
            reason = sentence("held-out unlike", harder=harder, **ends)
        elif findings[0].retrained < FEWEST_RETRAINED:
            reason = sentence("few retrained")
        elif all((of := comparisons.of(finding.perturbation, "M")) and of.untargeted for finding in findings):
            reason = sentence("untargeted")
        else:
            reason = sentence("all blind")
        return MemoryChip(state="cannot tell", reason=reason)
    above = [name for name, level in levels.items() if level.side == "above"]
    telling = [name for name, level in levels.items() if level.smallest is not None]
    if not above and not telling:
        return MemoryChip(state="cannot tell", reason=sentence("no M"))
    name = (
        max(above, key=lambda name: levels[name].statistic or 0.0)
        if above
        else min(telling, key=lambda name: levels[name].smallest or 0.0)
    )
    level = levels[name]
    return MemoryChip(
        state="found" if above else "not found", perturbation=name, value=level.value, smallest=level.smallest
    )


def _utility(record: Results, row: Row) -> UtilityChip:
    """Return whether test accuracy lies further below the retrained models' than these lie apart."""
    compared = _compared(record, row, "test_accuracy", share=1.0)
    if compared is None:
        return UtilityChip(state="cannot tell")
    lost = bool(compared.judgment.below[0])
    return UtilityChip(state="lost" if lost else "kept", points=compared.mean - compared.value)


def differences(record: Results, row: Row) -> list[Difference]:
    """Return how every further measure of the run compares with the retrained models, two-sided."""
    probes = [spec for spec in row.probes if spec.partition(":")[0] in PROBES]
    measures = (*ACCURACIES, *MARGINS, *probes)
    compared = {name: _compared(record, row, name, share=FALSE_ALARMS / MEASURES / ERROR) for name in measures}
    return [
        Difference(
            measure=name,
            value=one.value,
            floor=one.floor,
            retrained=one.retrained,
            statistic=float(np.clip(one.judgment.statistic[0], -LARGEST, LARGEST)),
            differs=bool(one.judgment.above[0] or one.judgment.below[0]),
        )
        for name, one in compared.items()
        if one
    ]


class _Compared(NamedTuple):
    """A measure of a row and of the retrained models: both means, the noise floor, their number, and the test."""

    value: float
    mean: float
    floor: tuple[float, float]
    retrained: int
    judgment: Judgment


def _compared(record: Results, row: Row, name: str, share: float) -> _Compared | None:
    """Return how a measure of a row compares with the retrained models; None where a value is missing."""
    read = _reader(name)
    mine = [read(seed) for seed in row.per_seed.values()]
    theirs = [read(seed) for one in record.methods.values() if one.role.retrained for seed in one.per_seed.values()]
    values, others = (np.array([v for v in of if v is not None], np.float64) for of in (mine, theirs))
    complete = 0 < len(values) == len(mine) and len(others) == len(theirs) and len(others) % len(values) == 0
    if not complete or len(others) < FEWEST_RETRAINED:
        return None
    row_scores, other_scores, least = values, others, 0.0
    if samples := ACCURACIES.get(name):
        number = record.scenario.sizes.get(samples, 0) or MANY
        row_scores, other_scores = (scores(of[:, None] / 100, [1.0], number)[:, 0] for of in (values, others))
        least = float(half_sample(others[:, None] / 100, [1.0], number)[0])
    columns = Columns(
        seeds=len(values),
        per_seed=np.array([len(others) // len(values)]),
        mean=np.array([other_scores.mean()]),
        spread=np.array([max(other_scores.std(ddof=1), least)]),
        shares=np.array([share]),
    )
    low, high = (float(columns.mean[0] + sign * columns.half_floor[0]) for sign in (-1, 1))
    if samples:
        low, high = (100 * math.sin(min(max(end, 0.0), math.pi / 2)) ** 2 for end in (low, high))
    judgment = columns.judge([row_scores.mean()])
    return _Compared(float(values.mean()), float(others.mean()), (low, high), len(others), judgment)


def _reader(name: str) -> Callable[[SeedResult], float | None]:
    """Return what reads a measure of one seed."""
    if name in (*ACCURACIES, *MARGINS):
        return lambda seed: getattr(seed.metrics, name) if seed.metrics else None
    return lambda seed: seed.probes[name].value if name in seed.probes else None
