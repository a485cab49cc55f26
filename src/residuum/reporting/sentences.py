"""Three sentences in plain words, generated from the numbers of a results record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

TEST_TOLERANCE = 3.0  # points of test accuracy that a useful unlearned model may lie below re-train


def sentences(record: Record, perturbation: str) -> list[str]:
    """Return what the original remembers, which method came nearest to re-train, and who still remembers."""
    if record["scenario"]["form"] == "class":
        return [_class_form(record, perturbation), _nearest(record, perturbation), _remaining(record, perturbation)]
    return [_original(record, perturbation), _nearest(record, perturbation), _remaining(record, perturbation)]


def mean_pooled(record: Record, label: str, perturbation: str) -> list[float | None]:
    """Return the mean over seeds of the pooled ratio per radius; None where a seed has none."""
    seeds = record["methods"][label]["per_seed"].values()
    columns = zip(*(seed["audits"][perturbation]["residual_knowledge"]["pooled"] for seed in seeds), strict=True)
    return [None if None in column else statistics.fmean(column) for column in columns]


def mean_difference(record: Record, label: str, perturbation: str) -> list[float]:
    """Return the mean over seeds of Pr[model right] - Pr[re-train right] per radius."""
    seeds = record["methods"][label]["per_seed"].values()
    columns = zip(*(seed["audits"][perturbation]["difference"]["value"] for seed in seeds), strict=True)
    return [statistics.fmean(column) for column in columns]


def largest_excess(record: Record, label: str, perturbation: str) -> tuple[float, float] | None:
    """Return the radius > 0 at which |r - 1| is largest, and r there; None where r does not exist."""
    pairs = zip(record["noise_floor"][perturbation]["taus"], mean_pooled(record, label, perturbation), strict=True)
    known = [(tau, r) for tau, r in pairs if tau > 0 and r is not None]
    return max(known, key=lambda pair: abs(pair[1] - 1)) if known else None


def radii_above_floor(record: Record, label: str, perturbation: str) -> list[float]:
    """Return the radii > 0 where, in most seeds, the whole interval lies above 1 and above the noise floor."""
    floor = record["noise_floor"][perturbation]
    seeds = list(record["methods"][label]["per_seed"].values())
    radii = []
    for k, tau in enumerate(floor["taus"]):
        lows = [seed["audits"][perturbation]["residual_knowledge"]["low"][k] for seed in seeds]
        bar = max(1.0, floor["high"][k] if floor["high"][k] is not None else 1.0)
        above = sum(low is not None and low > bar for low in lows)
        if tau > 0 and 2 * above > len(seeds):
            radii.append(tau)
    return radii


def _original(record: Record, perturbation: str) -> str:
    found = largest_excess(record, "original", perturbation)
    if found is None:
        return "Re-train is never right on the perturbed forget samples, so no ratio to it exists."
    tau, r = found
    floor = record["noise_floor"][perturbation]
    k = floor["taus"].index(tau)
    beyond = tau in radii_above_floor(record, "original", perturbation)
    verdict = "more than two re-trained models differ from each other" if beyond else "within what chance explains"
    return (
        f"At {perturbation} radius {tau:g} the original recognises perturbed forgotten samples {r:.2f} times as often "
        f"as re-train; two re-trained models lie between {floor['low'][k]:.2f} and {floor['high'][k]:.2f}, so this is "
        f"{verdict}."
    )


def _class_form(record: Record, perturbation: str) -> str:
    differences = mean_difference(record, "original", perturbation)
    k = max(range(len(differences)), key=lambda i: differences[i])
    tau = record["noise_floor"][perturbation]["taus"][k]
    return (
        f"A whole class was forgotten and re-train does not predict it, so the ratio has no meaning; at {perturbation} "
        f"radius {tau:g} the original is right on {100 * differences[k]:.0f} % more of the perturbed forgotten samples."
    )


def _distance(record: Record, label: str, perturbation: str) -> float:
    ratios = mean_pooled(record, label, perturbation)
    values = [abs(r - 1) for r in ratios if r is not None]
    return max(values) if values else max(abs(d) for d in mean_difference(record, label, perturbation))


def _nearest(record: Record, perturbation: str) -> str:
    reference = record["methods"]["retrain"]["summary"]["test_accuracy"]["mean"]
    loss = {
        label: reference - row["summary"]["test_accuracy"]["mean"]
        for label, row in record["methods"].items()
        if row["method"] not in ("original", "retrain") and not label.startswith("control")
    }
    useful = [label for label in loss if loss[label] <= TEST_TOLERANCE]
    if not useful:
        return f"No method kept its test accuracy within {TEST_TOLERANCE:g} points of re-train's."
    best = min(useful, key=lambda label: _distance(record, label, perturbation))
    before, after = (_distance(record, label, perturbation) for label in ("original", best))
    direction = "nearer to" if after < before else "no nearer to"
    return (
        f"Among the methods within {TEST_TOLERANCE:g} points of re-train's test accuracy, {best} comes nearest to it: "
        f"its largest distance from re-train is {after:.2f}, {direction} re-train than the original's {before:.2f}."
    )


def _remaining(record: Record, perturbation: str) -> str:
    labels = [label for label in record["methods"] if label not in ("original", "retrain")]
    remembering = [label for label in labels if radii_above_floor(record, label, perturbation)]
    if not remembering:
        return (
            "No unlearned model is above the noise floor in most seeds; that is absence of evidence at this "
            "precision, not proof of deletion."
        )
    return f"Still above the noise floor in most seeds at some radius: {', '.join(remembering)}."
