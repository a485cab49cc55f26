"""Curves over the radius, per perturbation, row and seed: what the plots draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from residuum.reporting.records import Record, Run, kind
from residuum.reporting.verdict import floor

AXES = {"gaussian": "standard deviation of the noise", "uniform_l2": "l2 radius"}
Values = list[float | None]


@dataclass(frozen=True)
class Measure:
    """A quantity of the audit: where it stands in the record, and how it is read."""

    key: str
    title: str
    axis: str
    meaning: str
    neutral: float | None = None
    ratio: bool = False


MEASURES = (
    Measure(
        "pooled",
        "Residual knowledge (pooled)",
        "r, times as often right as re-train",
        "How many times as often the model is right on perturbed forgotten samples as re-train, all samples together. "
        "Above 1 it recognises them more often than a model that never saw them.",
        1.0,
        ratio=True,
    ),
    Measure(
        "mean_of_ratios",
        "Mean of ratios",
        "mean of r over samples",
        "The literature's form: the ratio of each sample, averaged over the samples on which re-train is ever right. "
        "One sample that re-train almost never gets right can move it far; it has no interval.",
        1.0,
        ratio=True,
    ),
    Measure(
        "difference",
        "Difference",
        "Pr[model right] − Pr[re-train right]",
        "How much more often the model is right than re-train, as a difference of shares; defined also where re-train "
        "is never right.",
        0.0,
    ),
    Measure(
        "disagreement",
        "Disagreement",
        "share of perturbed samples",
        "Share of perturbed forgotten samples on which the model and re-train predict different classes.",
    ),
    Measure(
        "unlearn_accuracy",
        "Unlearn accuracy, perturbed",
        "share wrong on perturbed samples",
        "Share of perturbed forgotten samples that the model gets wrong; read it against re-train's own curve.",
    ),
    Measure(
        "prevalence",
        "Prevalence",
        "share of forgotten samples",
        "Share of forgotten samples recognised more often than by re-train. It is above 0 between any two models: read "
        "it against the control's. The interval is over samples.",
    ),
)


def seed_curve(audit: Record, measure: str) -> dict[str, Values]:
    """Return value, low and high over the radii; low and high are empty where the measure has no interval."""
    if measure == "mean_of_ratios":
        return {"value": list(audit["residual_knowledge"][measure]), "low": [], "high": []}
    if measure == "pooled":
        table = audit["residual_knowledge"]
        return {"value": list(table["pooled"]), "low": list(table["low"]), "high": list(table["high"])}
    return {end: list(audit[measure][end]) for end in ("value", "low", "high")}


def mean_curve(curves: Sequence[dict[str, Values]]) -> dict[str, Values]:
    """Return the mean over seeds, with the lowest low and the highest high; None where a seed has no value.

    >>> mean_curve([{"value": [1.0], "low": [0.5], "high": [2.0]}, {"value": [2.0], "low": [1.0], "high": [3.0]}])
    {'value': [1.5], 'low': [0.5], 'high': [3.0]}
    """
    return {
        "value": [
            _over(column, lambda v: sum(v) / len(v)) for column in zip(*(c["value"] for c in curves), strict=True)
        ],
        "low": [_over(column, min) for column in zip(*(c["low"] for c in curves), strict=True)],
        "high": [_over(column, max) for column in zip(*(c["high"] for c in curves), strict=True)],
    }


def _over(column: tuple[float | None, ...], reduce: Any) -> float | None:  # noqa: ANN401 (min, max or a mean)
    return None if None in column else float(reduce(column))


def band(run: Run, perturbation: str, measure: str) -> dict[str, Values] | None:
    """Return the noise floor of a measure: what a second re-train gives, over seeds; None without a control."""
    if measure in ("pooled", "difference"):
        floors = floor(run, perturbation, measure)
        return None if floors is None else {"low": [f[0] for f in floors], "high": [f[1] for f in floors]}
    names = [label for label, row in run.rows.items() if kind(row) == "control"]
    curves = [seed_curve(audit, measure) for name in names for audit in run.audits(name, perturbation)]
    if not curves:
        return None
    joined = mean_curve([c if c["low"] else c | {"low": c["value"], "high": c["value"]} for c in curves])
    return {"low": joined["low"], "high": joined["high"]}


def panels(run: Run) -> Iterator[dict[str, Any]]:
    """Yield for each perturbation everything that its plots show."""
    for name in run.perturbations:
        labels = [label for label in run.rows if run.audits(label, name)]
        yield {
            "run": run.name,
            "perturbation": name,
            "axis": AXES.get(name, "radius"),
            "taus": run.audits(labels[0], name)[0]["taus"],
            "seeds": run.seeds,
            "floors": {m.key: band(run, name, m.key) for m in MEASURES},
            "curves": {
                m.key: {label: [seed_curve(a, m.key) for a in run.audits(label, name)] for label in labels}
                for m in MEASURES
            },
        }


def trade_off(run: Run, perturbation: str) -> list[dict[str, Any]]:
    """Return one point per row and seed: test accuracy, residual knowledge farthest from neutral, cost."""
    measure, neutral = ("difference", 0.0) if run.form == "class" else ("pooled", 1.0)
    full = _passes(run, "retrain")
    return [
        {
            "run": run.name,
            "label": label,
            "seed": seed,
            "x": farthest_value(
                seed_curve(entry["audits"][perturbation], measure)["value"], entry, perturbation, neutral
            ),
            "y": (entry.get("metrics") or {}).get("test_accuracy"),
            "cost": 100 * entry["passes"] / full if full else None,
        }
        for label, row in run.rows.items()
        for seed, entry in row["per_seed"].items()
        if perturbation in entry["audits"]
    ]


def farthest_value(values: Values, entry: Record, perturbation: str, neutral: float) -> float | None:
    """Return the value at a radius above 0 that is farthest from neutral."""
    taus = entry["audits"][perturbation]["taus"]
    known = [value for tau, value in zip(taus, values, strict=True) if tau > 0 and value is not None]
    return max(known, key=lambda value: abs(value - neutral)) if known else None


def _passes(run: Run, label: str) -> float:
    seeds = run.rows.get(label, {"per_seed": {}})["per_seed"].values()
    return float(sum(seed.get("passes", 0) for seed in seeds) / max(len(seeds), 1))


def first_shown(run: Run, most: int = 7) -> list[str]:
    """Return the rows a plot shows at first: all if few, else original, control and the smallest average gaps."""
    labels = [label for label, row in run.rows.items() if kind(row) != "retrain"]
    if len(labels) <= most:
        return labels
    fixed = [label for label in labels if kind(run.rows[label]) == "original"]
    fixed += [label for label in labels if kind(run.rows[label]) == "control"][:1]
    gaps = {label: run.rows[label]["summary"].get("average_gap") for label in labels if label not in fixed}
    ranked = sorted(gaps, key=lambda label: (gaps[label] is None, gaps[label] or 0.0))
    chosen = {*fixed, *ranked[: most - len(fixed)]}
    return [label for label in labels if label in chosen]
