"""Runs drawn from the pool of re-trained and original models, as the records that verdicts are made of.

A run has for each seed a reference, its controls, an original, and one more re-trained model that poses as unlearned
(row `unlearned`); no model is in it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from retrain_pool import PERTURBATIONS, Floats, Pool

from residuum.core.errors import InputError
from residuum.core.roles import Role, trained_roles
from residuum.metrics import summarize
from residuum.record import Results

DESIGNS = [(seeds, controls) for seeds in (1, 3, 5) for controls in (1, 2, 4)]
Names = dict[str, str]  # label -> model of the pool
Audited = Callable[[int, str, str], dict[str, Any]]  # group, label, model of the pool -> audit of a record


@dataclass(frozen=True)
class Drawn:
    """The groups of a run, one a seed, and the models of each."""

    groups: list[int]
    models: list[Names]


def drawn_runs(pool: Pool, seeds: int, controls: int, many: int) -> Iterator[Drawn]:
    """Yield runs, the same ones for the same numbers."""
    rng = np.random.default_rng([seeds, controls])
    for _ in range(many):
        groups = rng.choice(pool.references, seeds, replace=False).tolist()
        models: list[Names] = []
        for i in groups:
            models.append(drawn_models(pool, i, controls, rng, {name for of in models for name in of.values()}))
        yield Drawn(groups, models)


def drawn_models(pool: Pool, i: int, controls: int, rng: np.random.Generator, used: set[str]) -> Names:
    """Return models of group i, none of them used before."""
    others, originals = (
        [name for name in rng.permutation(names).tolist() if name not in used] for names in pool.members(i)
    )
    if len(others) <= controls or not originals:
        raise InputError(f"group {i} of the pool has too few models left for {controls} controls; make it larger")
    labels = ["unlearned", "control", *(f"control_{k}" for k in range(2, controls + 1))]
    row, *others = others[: controls + 1]
    return {"original": originals[0], "retrain": f"reference-{i}", **dict(zip(labels, [row, *others], strict=True))}


def record_of(pool: Pool, perturbation: str, drawn: Drawn, audited: Audited) -> Results:
    """Return the record of a run, as far as verdicts and gates read it."""
    metrics = {
        label: {str(i): pool.metrics(models[label]) for i, models in zip(drawn.groups, drawn.models, strict=True)}
        for label in drawn.models[0]
    }
    rows = {}
    for label, measured in metrics.items():
        names = [models[label] for models in drawn.models]
        audits = {str(i): audited(i, label, name) for i, name in zip(drawn.groups, names, strict=True)}
        rows[label] = {
            "role": trained_roles(len(drawn.models[0])).get(label, Role.METHOD),
            "method": label,
            "settings": asdict(pool.study.scenario.train),
            "summary": summarize(measured, metrics["retrain"]),
            "per_seed": {i: {"metrics": measured[i], "audits": {perturbation: audits[i]}} for i in measured},
        }
    scenario = scenario_of(pool, perturbation)
    return Results.model_validate(
        {"schema": Results.SCHEMA, "scenario": scenario, "seeds": drawn.groups, "methods": rows}
    )


def scenario_of(pool: Pool, perturbation: str) -> dict[str, Any]:
    """Return what a record says of its scenario."""
    scenario, splits = pool.study.scenario, pool.study.splits()
    sizes = {part: len(getattr(splits, part)) for part in ("retain", "forget", "validation", "test")}
    settings = scenario.model_dump(mode="json", include={"data", "forget", "model"})
    settings["audit"] = {"perturbations": [perturbation]}
    return {"name": scenario.name, "form": splits.form, "sizes": sizes, "settings": settings}


@dataclass(frozen=True)
class Shares:
    """Shares right of a model and of the reference beside it at the radii above 0, with standard errors."""

    own: Floats
    reference: Floats
    own_errors: Floats | float = 0.0
    errors: Floats | float = 0.0


def audit_of(pool: Pool, perturbation: str, shares: Shares, draws: list[int], heldout: Shares | None) -> dict[str, Any]:
    """Return an audit as a record has it, as far as verdicts read it."""
    crafted = PERTURBATIONS[perturbation].crafted
    ratio = (shares.own / np.maximum(shares.reference, 1e-12)).tolist()
    aside = heldout and {
        "samples": len(pool.samples["heldout"]),
        "rate": heldout.own.tolist(),
        "reference_rate": heldout.reference.tolist(),
    }
    return {
        "taus": pool.taus(perturbation),
        "draws": draws,
        "samples": len(pool.samples["forget"]),
        "settings": {"confidence": 0.95, "crafted_on": "unlearned" if crafted else None},
        "residual_knowledge": {"pooled": ratio, "low": ratio, "high": ratio},
        "difference": interval(shares.own - shares.reference, shares.errors),
        "unlearn_accuracy": interval(1 - shares.own, shares.own_errors),
        "heldout": aside,
    }


def interval(value: Floats, error: Floats | float) -> dict[str, list[float]]:
    """Return a curve with its 95 % interval."""
    half = 1.959963984540054 * np.asarray(error)
    return {"value": value.tolist(), "low": (value - half).tolist(), "high": (value + half).tolist()}
