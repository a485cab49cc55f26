"""Is the retrained model a fair reference? Checked before any verdict: a difference must have one cause only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from residuum.core.roles import Role
from residuum.judging.sentences import sentence
from residuum.record import Difficulty, Gate, Results, Row

RETAIN_POINTS = 1.0  # the reference below the original on the samples both were trained on
TEST_POINTS = 3.0  # the reference below the original on test samples
CONTROL_POINTS = 2.0  # two retrained models apart on test samples
LARGE_REQUEST = 0.2  # share of the training data
LEAK = 0.001  # one-sided error of the test whether a retrained model saw the forgotten samples
CHANCE = 0.5  # the AUC of margins if forgotten samples are like held-out ones
FAIR = (0.4, 0.6)  # AUC for retrained models within which held-out samples are as hard as forgotten ones
CONFIDENCE = 0.95


def gates(record: Results, original_over_forgotten: bool) -> list[Gate]:
    """Return every gate that this record can decide, in the order in which they are checked."""
    original, reference = record.original, record.reference
    if original is None or reference is None:
        return []
    checked = []
    if record.scenario.settings.surrogates:
        checked.append(Gate(name="retrained", passed=False, text=sentence("gate retrained")))
    sizes = record.scenario.sizes
    forgotten, total = sizes.get("forget", 0), sizes.get("forget", 0) + sizes.get("retain", 0)
    checked += [
        _recipe(original, reference),
        _seen(record, reference),
        *_equal_weights(record),
        _accuracy_gap("retain fit", record, [reference], "retain", RETAIN_POINTS),
        # with much less data, a retrained model must be worse
        *(
            [_accuracy_gap("utility", record, [reference, *record.controls], "test", TEST_POINTS)]
            if forgotten <= LARGE_REQUEST * total
            else []
        ),
        Gate(name="original", passed=not original_over_forgotten, text=sentence("gate original")),
        *_controls(record, reference),
        *_leaks(record),
    ]
    return checked


def _recipe(original: Row, reference: Row) -> Gate:
    rows = {"the original": original, "the retrained model": reference}
    # settings that say who trained a row are not its recipe
    unknown = [name for name, row in rows.items() if {"trained_by", "surrogates"} & row.settings.keys()]
    if unknown:
        return Gate(name="recipe", passed=None, text=sentence("gate recipe unknown", rows=" and ".join(unknown)))
    keys = {*original.settings, *reference.settings}
    different = sorted(key for key in keys if original.settings.get(key) != reference.settings.get(key))
    shown = ", ".join(f"{key} {original.settings.get(key)} and {reference.settings.get(key)}" for key in different)
    return Gate(name="recipe", passed=not different, text=sentence("gate recipe", settings=shown))


def _seen(record: Results, reference: Row) -> Gate:
    """Return whether the retrained models, which start from the same weights, have seen no forgotten sample."""
    audits = [audit for name in record.perturbations for audit in reference.audits(name)]
    numbers = {source: number for audit in audits for source, number in audit.settings.seen.items()}
    of = f"of {audits[0].samples} " if audits else ""
    seen = ", ".join(f"{number} {of}forgotten samples in {source}" for source, number in numbers.items())
    return Gate(name="seen", passed=not numbers, text=sentence("gate seen", seen=seen or "no forgotten sample"))


def _equal_weights(record: Results) -> Iterator[Gate]:
    """Yield whether all retrained models have different weights; equal ones do not show the chance of training."""
    models = {
        f"{label} (seed {seed})": result.weights
        for label, row in record.methods.items()
        for seed, result in row.per_seed.items()
        if row.role.retrained
    }
    if not all(models.values()):
        return
    alike = [name for name, weights in models.items() if list(models.values()).count(weights) > 1]
    text = sentence("gate seeds", models=" and ".join(alike) or "no two retrained models")
    yield Gate(name="seeds", passed=not alike, text=text)


def _accuracy_gap(name: str, record: Results, models: Sequence[Row], part: str, limit: float) -> Gate:
    """Return whether the accuracy of retrained models lies at most `limit` points below the original's."""
    retrained = [accuracy for row in models for accuracy in _accuracies(row, part)]
    low, mean = lower_end(_accuracies(record.original, part), retrained, record.scenario.sizes.get(part, 0))
    of = "models'" if models[1:] else "model's"
    text = sentence("gate accuracy", of=of, part=part, points=mean, limit=limit)
    return Gate(name=name, passed=low <= limit, text=text)


def _accuracies(row: Row | None, part: str) -> list[float]:
    results = row.per_seed.values() if row else ()
    return [getattr(result.metrics, f"{part}_accuracy") for result in results if result.metrics]


def lower_end(first: Sequence[float], second: Sequence[float], samples: int) -> tuple[float, float]:
    """Return the one-sided 95 % lower end of the difference of two means in points, and the difference.

    The smaller of two ends: one by the chance of so many tested `samples`, which all models share, and one by Student's
    t with the standard deviation of the models of each group.

    >>> [round(end, 2) for end in lower_end([95.0, 96.0], [90.0, 91.0], 450)]
    [2.22, 5.0]
    >>> [round(end, 2) for end in lower_end([95.0, 96.0], [88.0, 93.0], 450)]
    [-2.44, 5.0]
    """
    from scipy.special import ndtri, stdtrit

    if not first or not second:
        return -math.inf, math.nan
    means = [statistics.fmean(first), statistics.fmean(second)]
    difference, freedom = means[0] - means[1], len(first) + len(second) - 2
    tested = math.sqrt(sum(mean * (100 - mean) for mean in means) / samples) if samples else 0.0
    ends = [difference - float(ndtri(CONFIDENCE)) * tested]
    if freedom:
        squares = sum((value - mean) ** 2 for of, mean in zip((first, second), means, strict=True) for value in of)
        error = math.sqrt(squares / freedom * (1 / len(first) + 1 / len(second)))
        ends.append(difference - float(stdtrit(freedom, CONFIDENCE)) * error)
    return min(ends), difference


def _controls(record: Results, reference: Row) -> Iterator[Gate]:
    samples, mine = record.scenario.sizes.get("test", 0), _accuracies(reference, "test")
    for label in record.rows_of(Role.CONTROL):
        other = _accuracies(record.methods[label], "test")
        low, mean = max(lower_end(mine, other, samples), lower_end(other, mine, samples))
        text = sentence("gate controls", control=label, points=abs(mean), limit=CONTROL_POINTS)
        yield Gate(name="controls", passed=low <= CONTROL_POINTS, text=text)


def _leaks(record: Results) -> Iterator[Gate]:
    """Yield whether a retrained model knows the forgotten samples better than held-out ones, as the original does.

    Forgotten samples may be easier, too. Then the original's AUC is higher still, because it saw them. So a model is
    refused only if its AUC is above chance and more than half as far above it as the original's.
    """
    from scipy.special import ndtr

    original = _auc(record.original)
    retrained = {label: _auc(row) for label, row in record.methods.items() if row.role.retrained}
    if original is None or None in retrained.values():
        return
    for label, one in retrained.items():
        auc, error = one or (CHANCE, 1.0)
        p = min(1.0, len(retrained) * float(ndtr((CHANCE - auc) / error)))
        leaks = p < LEAK and auc - CHANCE > (original[0] - CHANCE) / 2
        text = sentence("gate leak", model=label, auc=auc, p=p, original=original[0])
        yield Gate(name="leak", passed=not leaks, text=text)


def _auc(row: Row | None) -> tuple[float, float] | None:
    """Return the mean over seeds of the AUC of margins, and its standard error over samples; None if not measured."""
    metrics = [result.metrics for result in row.per_seed.values()] if row else []
    aucs = [(m.heldout_auc, m.heldout_auc_error) for m in metrics if m]
    values = [auc for auc, _ in aucs if auc is not None]
    errors = [error for _, error in aucs if error]
    if not values or len(values) < len(metrics) or len(errors) < len(metrics):
        return None
    return statistics.fmean(values), max(errors)  # seeds share the samples: more of them do not make the error smaller


def difficulty(record: Results) -> Difficulty | None:
    """Return whether forgotten and held-out samples are equally hard for retrained models; None if not measured."""
    values = [auc for row in record.methods.values() if row.role.retrained and (auc := _auc(row))]
    if not values:
        return None
    mean, half = statistics.fmean(auc for auc, _ in values), 1.96 * max(error for _, error in values)
    low, high = max(mean - half, 0.0), min(mean + half, 1.0)
    return Difficulty(auc=mean, low=low, high=high, fair=low <= FAIR[1] and high >= FAIR[0])
