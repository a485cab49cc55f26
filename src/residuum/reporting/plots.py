"""What the page's plots draw: curves over the radius, per perturbation, row and seed, and the trade-off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from residuum.record import Curve
from residuum.reporting.glossary import AXES, MEASURES
from residuum.reporting.run import Run


def panels(run: Run) -> Iterator[dict[str, Any]]:
    """Yield for each perturbation everything that its plots show."""
    summary = run.summary
    for name in run.perturbations:
        floors = summary.floors[name]
        yield {
            "run": run.name,
            "perturbation": name,
            "axis": AXES.get(name, "radius"),
            "taus": summary.taus[name],
            "seeds": run.seeds,
            "floors": {key: floor and {"low": floor.low, "high": floor.high} for key, floor in floors.items()},
            "curves": {
                m.key: {r.label: [_drawn(c) for c in r.seed_curves(name, m.key)] for r in summary.audited(name)}
                for m in MEASURES
            },
        }


def _drawn(curve: Curve) -> dict[str, Any]:
    return {"value": curve.value, "low": curve.low, "high": curve.high}


def trade_offs(run: Run) -> Iterator[dict[str, Any]]:
    """Yield for each perturbation one point per row and seed."""
    for name in run.perturbations:
        points = [asdict(point) for point in run.summary.trade_off(name)]
        yield {"run": run.name, "perturbation": name, "form": run.form, "points": points}
