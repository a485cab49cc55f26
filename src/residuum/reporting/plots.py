"""What the page's script draws: curves over the radius, the trade-off, and the answers of the gallery."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from residuum.record import Curve
from residuum.reporting.gallery import GalleryPage
from residuum.reporting.glossary import AXES, MEASURES, Measure
from residuum.reporting.run import Run
from residuum.reporting.summary import row_styles

PLACES = 5  # significant digits of what plots draw; tables and files have all


def plot_data(runs: Sequence[Run], galleries: Sequence[GalleryPage]) -> dict[str, Any]:
    """Return what the page's script draws."""
    measures = taken_measures(runs)
    shown = list(dict.fromkeys(label for run in runs for label in run.summary.first_shown()))
    return {
        "first": "difference" if all(run.form == "class" for run in runs) else MEASURES[0].key,
        "measures": [asdict(measure) for measure in measures],
        "styles": {label: asdict(style) for label, style in row_styles(runs).items()},
        "shown": shown,
        "panels": rounded([panel for run in runs for panel in panels(run, measures)]),
        "tradeoff": rounded([study for run in runs for study in trade_offs(run)]),
        "gallery": [
            {"seeds": {s: [_answers(card) for card in cards] for s, cards in g.seeds.items()}} for g in galleries
        ],
    }


def taken_measures(runs: Sequence[Run]) -> list[Measure]:
    """Return the measures that have a value anywhere: those of held-out samples need some."""
    audits = [audit for run in runs for *_, audit in run.record.each_audit()]
    known = {measure.key: measure for run in runs for measure in run.measures}.values()
    return [m for m in known if any(value is not None for audit in audits for value in audit.curve(m.key).value)]


def panels(run: Run, measures: Sequence[Measure] = MEASURES) -> Iterator[dict[str, Any]]:
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
                for m in measures
            },
        }


def _drawn(curve: Curve) -> dict[str, Any]:
    return {"value": curve.value, "low": curve.low, "high": curve.high}


def trade_offs(run: Run) -> Iterator[dict[str, Any]]:
    """Yield for each perturbation one point per row and seed."""
    for name in run.perturbations:
        points = [asdict(point) for point in run.summary.trade_off(name)]
        yield {"run": run.name, "perturbation": name, "form": run.form, "points": points}


def _answers(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: strip[key] for key in ("reference", "right", "counted")} for strip in card["strips"]]


def rounded(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Return the same value with floats cut to the digits a plot can show.

    >>> rounded({"a": [1.23456789, None]})
    {'a': [1.2346, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.{PLACES}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value
