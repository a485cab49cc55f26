"""Is the retrained model a fair reference? Checked before any verdict: a difference must have one cause only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from residuum.core.roles import Role
from residuum.record import Gate, Results, Row

RETAIN_POINTS = 1.0  # the reference below the original on the samples both were trained on
TEST_POINTS = 3.0  # the reference below the original on test samples
CONTROL_POINTS = 2.0  # two retrained models apart on test samples
LEAK = 0.01  # one-sided error of Fisher's exact test
CONFIDENCE = 0.95


def gates(record: Results, original_over_forgotten: bool) -> list[Gate]:
    """Return every gate that this record can decide, in the order in which they are checked."""
    original, reference = record.original, record.reference
    if original is None or reference is None:
        return []
    checked = []
    if record.scenario.settings.surrogates:
        text = (
            "no retrained model was available; surrogates that never saw the forgotten samples took its place: they "
            "were trained only until they fit the retained samples, and not as the original was"
        )
        checked.append(Gate(name="retrained", passed=False, text=text))
    checked += [
        _recipe(original, reference),
        _seen(record, reference),
        _accuracy_gap("retain fit", record, "retain", RETAIN_POINTS),
        _accuracy_gap("utility", record, "test", TEST_POINTS),
        Gate(
            name="original",
            passed=not original_over_forgotten,
            text="the untouched original, which was trained on the forgotten samples, is right on them less often than "
            "retraining explains: the two were not trained alike",
        ),
        *_controls(record, reference),
        *_leak(record, reference),
    ]
    return checked


def _recipe(original: Row, reference: Row) -> Gate:
    rows = {"the original": original, "the retrained model": reference}
    # settings that say who trained a row are not its recipe
    unknown = [name for name, row in rows.items() if {"trained_by", "surrogates"} & row.settings.keys()]
    if unknown:
        text = f"the recipe of {' and '.join(unknown)} is not known, so nobody compared how the two were trained"
        return Gate(name="recipe", passed=None, text=text)
    keys = {*original.settings, *reference.settings}
    different = sorted(key for key in keys if original.settings.get(key) != reference.settings.get(key))
    shown = ", ".join(f"{key} {original.settings.get(key)} and {reference.settings.get(key)}" for key in different)
    text = f"the original and the retrained model were trained by different recipes ({shown})"
    return Gate(name="recipe", passed=not different, text=text)


def _seen(record: Results, reference: Row) -> Gate:
    """Return whether the retrained models, which start from the same weights, have seen no forgotten sample."""
    audits = [audit for name in record.perturbations for audit in reference.audits(name)]
    numbers = {source: number for audit in audits for source, number in audit.settings.seen.items()}
    of = f"of {audits[0].samples} " if audits else ""
    seen = ", ".join(f"{number} {of}forgotten samples in {source}" for source, number in numbers.items())
    text = f"the retrained model has seen {seen or 'no forgotten sample'}: it must never have seen any"
    return Gate(name="seen", passed=not numbers, text=text)


def _accuracy_gap(name: str, record: Results, part: str, limit: float) -> Gate:
    """Return whether the reference's accuracy lies at most `limit` points below the original's, as far as we know."""
    pairs = _paired_accuracies(record.original, record.reference, part)
    low, mean = lower_end(pairs, record.scenario.sizes.get(part, 0))
    text = f"the retrained model's {part} accuracy is {mean:.1f} points below the original's (limit {limit:g})"
    return Gate(name=name, passed=low <= limit, text=text)


def _paired_accuracies(first: Row | None, second: Row | None, part: str) -> list[tuple[float, float]]:
    """Return the accuracies of two rows on a part of the data, in per cent, for each seed that both have."""
    if first is None or second is None:
        return []
    results = [(first.per_seed[seed], second.per_seed[seed]) for seed in first.per_seed if seed in second.per_seed]
    field = f"{part}_accuracy"
    return [(getattr(a.metrics, field), getattr(b.metrics, field)) for a, b in results if a.metrics and b.metrics]


def lower_end(pairs: Sequence[tuple[float, float]], samples: int) -> tuple[float, float]:
    """Return the one-sided 95 % lower end of the mean of a - b in points, and the mean.

    The standard error is the larger of two: one for `samples` tested samples, one from the spread over seeds.

    >>> [round(end, 2) for end in lower_end([(95.0, 90.0), (96.0, 91.0)], 450)]
    [3.03, 5.0]
    """
    from scipy.special import ndtri, stdtrit

    if not pairs:
        return -math.inf, math.nan
    gaps, seeds = [a - b for a, b in pairs], len(pairs)
    mean = statistics.fmean(gaps)
    tested = math.sqrt(sum(a * (100 - a) + b * (100 - b) for a, b in pairs) / samples) / seeds if samples else 0.0
    ends = [mean - float(ndtri(CONFIDENCE)) * tested]
    if seeds > 1:
        ends.append(mean - float(stdtrit(seeds - 1, CONFIDENCE)) * statistics.stdev(gaps) / math.sqrt(seeds))
    return min(ends), mean


def _controls(record: Results, reference: Row) -> Iterator[Gate]:
    samples = record.scenario.sizes.get("test", 0)
    for label in record.rows_of(Role.CONTROL):
        pairs = _paired_accuracies(reference, record.methods[label], "test")
        low, mean = max(lower_end(pairs, samples), lower_end([(b, a) for a, b in pairs], samples))
        apart = f"differ by {abs(mean):.1f} points of test accuracy (limit {CONTROL_POINTS:g})"
        text = f"the retrained model and {label} {apart}: the training of one failed"
        yield Gate(name="controls", passed=low <= CONTROL_POINTS, text=text)


def _leak(record: Results, reference: Row) -> Iterator[Gate]:
    """Yield whether the reference knows randomly drawn forgotten samples better than held-out ones."""
    requests = record.scenario.settings.requests
    if any(request.listed or request.forget_ids or request.forget_class is not None for request in requests):
        return
    audits = [
        audit
        for name in record.perturbations[:1]
        for audit in reference.audits(name)
        if audit.heldout and audit.heldout.rate
    ]
    if not audits or audits[0].taus[0] != 0:
        return
    from scipy.stats import fisher_exact  # takes seconds to import, so only where it is needed

    table = [[0, 0], [0, 0]]
    for audit in audits:
        for line, heldout in enumerate((False, True)):
            size, _, rates = audit.recognition_rates("heldout" if heldout else "kept")
            right = round((rates[0] or 0.0) * size)
            table[line][0] += right
            table[line][1] += size - right
    p = float(fisher_exact(table, alternative="greater").pvalue)
    text = f"the retrained model is right on the forgotten samples more often than on held-out ones (p = {p:.2g})"
    yield Gate(name="leak", passed=p >= LEAK, text=text)
