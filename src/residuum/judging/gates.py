"""Is the re-trained model a fair reference? Checked before any verdict: a difference must have one cause only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from residuum.core.roles import Role
from residuum.record import Gate, Metrics, Results, Row

RETAIN_POINTS = 1.0  # re-train below the original on the samples both were trained on
TEST_POINTS = 3.0  # re-train below the original on test samples
CONTROL_POINTS = 2.0  # two re-trained models apart on test samples
LEAK = 0.01  # one-sided error of Fisher's exact test
CONFIDENCE = 0.95


def gates(record: Results, original_over_forgotten: bool) -> list[Gate]:
    """Return every gate that this record can decide, in the order in which they are checked."""
    original, reference, sizes = record.original, record.reference, record.scenario.sizes
    if original is None or reference is None:
        return []
    return [
        *_surrogates(record),
        _recipe(original, reference),
        _seen(record, reference),
        _gap("retain fit", original, reference, "retain_accuracy", RETAIN_POINTS, sizes.get("retain", 0)),
        _gap("utility", original, reference, "test_accuracy", TEST_POINTS, sizes.get("test", 0)),
        _gate("original", not original_over_forgotten, "the untouched original, which was trained on the forgotten "
              "samples, is right on them less often than re-training explains: the two were not trained alike"),
        *_controls(record, reference, sizes.get("test", 0)),
        *_leak(record, reference),
    ]  # fmt: skip


def _gate(name: str, passed: bool | None, text: str) -> Gate:
    return Gate(name=name, passed=passed, text=text)


def _surrogates(record: Results) -> Iterator[Gate]:
    if record.scenario.settings.surrogates:
        text = (
            "no re-trained model was there; stand-ins that never saw the forgotten samples, trained only until they fit"
        )
        yield _gate(
            "re-trained", False, f"{text} the retained ones, took its place, and were not trained as the original"
        )


def _recipe(original: Row, reference: Row) -> Gate:
    if unknown := [name for name, row in (("original", original), ("re-train", reference)) if not _recipe_known(row)]:
        text = f"the recipe of {' and '.join(unknown)} is not known, so that nobody compared how the two were trained"
        return _gate("recipe", None, text)
    keys = {*original.settings, *reference.settings}
    other = sorted(key for key in keys if original.settings.get(key) != reference.settings.get(key))
    shown = ", ".join(f"{key} {original.settings.get(key)} and {reference.settings.get(key)}" for key in other)
    return _gate("recipe", not other, f"original and re-train were trained by different recipes ({shown})")


def _recipe_known(row: Row) -> bool:
    """Tell whether the settings of a trained row are its recipe, not a word on who or what trained it."""
    return not {"trained_by", "surrogates"} & row.settings.keys()


def _seen(record: Results, reference: Row) -> Gate:
    """Return whether re-train and its controls, which start from the same weights, have seen no forgotten sample."""
    audits = [audit for name in record.perturbations for audit in reference.audits(name)]
    known = {source: number for audit in audits for source, number in audit.settings.seen.items()}
    of = f"of {audits[0].samples} " if audits else ""
    shown = ", ".join(f"{number} {of}forgotten samples in {source}" for source, number in known.items())
    return _gate(
        "seen", not known, f"re-train has seen {shown or 'no forgotten sample'}: it must never have known them"
    )


def _gap(name: str, better: Row, worse: Row, metric: str, limit: float, samples: int) -> Gate:
    """Return whether a row's accuracy lies at most `limit` points below another's, as far as can be told."""
    low, mean = lower_end(_paired(better, worse, metric), samples)
    title = metric.replace("_", " ")
    return _gate(name, low <= limit, f"re-train's {title} is {mean:.1f} points below the original's (limit {limit:g})")


def _paired(better: Row, worse: Row, metric: str) -> list[tuple[float, float]]:
    def value(metrics: Metrics) -> float:
        return float(getattr(metrics, metric))

    seeds = [seed for seed in better.per_seed if seed in worse.per_seed]
    pairs = [(better.per_seed[seed].metrics, worse.per_seed[seed].metrics) for seed in seeds]
    return [(value(mine), value(theirs)) for mine, theirs in pairs if mine and theirs]


def lower_end(pairs: Sequence[tuple[float, float]], samples: int) -> tuple[float, float]:
    """Return the one-sided 95 % lower end of the mean of a - b in points, and the mean.

    The standard error is the larger of what `samples` tested samples and what the spread over seeds give.

    >>> [round(end, 2) for end in lower_end([(95.0, 90.0), (96.0, 91.0)], 450)]
    [3.03, 5.0]
    """
    from scipy.special import ndtri, stdtrit

    if not pairs:
        return -math.inf, math.nan
    gaps, many = [a - b for a, b in pairs], len(pairs)
    mean = statistics.fmean(gaps)
    tested = math.sqrt(sum(a * (100 - a) + b * (100 - b) for a, b in pairs) / samples) / many if samples else 0.0
    ends = [mean - float(ndtri(CONFIDENCE)) * tested]
    if many > 1:
        ends.append(mean - float(stdtrit(many - 1, CONFIDENCE)) * statistics.stdev(gaps) / math.sqrt(many))
    return min(ends), mean


def _controls(record: Results, reference: Row, samples: int) -> Iterator[Gate]:
    for label in record.rows_of(Role.CONTROL):
        pairs = _paired(reference, record.methods[label], "test_accuracy")
        low, mean = max(lower_end(pairs, samples), lower_end([(b, a) for a, b in pairs], samples))
        apart = f"differ by {abs(mean):.1f} points of test accuracy (limit {CONTROL_POINTS:g})"
        yield _gate("controls", low <= CONTROL_POINTS, f"re-train and {label} {apart}: the training of one failed")


def _leak(record: Results, reference: Row) -> Iterator[Gate]:
    """Yield whether re-train knows the forgotten samples better than held-out ones, where they were drawn at random."""
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
            size, _, shares = audit.recognition_rates("heldout" if heldout else "kept")
            right = round((shares[0] or 0.0) * size)
            table[line][0] += right
            table[line][1] += size - right
    p = float(fisher_exact(table, alternative="greater").pvalue)
    text = f"re-train is right on the forgotten samples more often than on held-out ones (p = {p:.2g})"
    yield _gate("leak", p >= LEAK, text)
