"""Static figures for a paper: the same curves as on the page, as SVG and PNG with the same bytes every time."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from residuum.reporting.curves import MEASURES, Measure, band, first_shown, mean_curve, panels, seed_curve, trade_off
from residuum.reporting.records import Run, kind

COLOURS = ("#0072b2", "#c65102", "#00806a", "#c2357d", "#8a6d00", "#7a3fb5", "#4d7c0f", "#b3261e")
LINES = ("-", "--", ":")
GREY, INK = "#8d949c", "#1d2126"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "residuum",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "legend.frameon": False,
    "figure.dpi": 100,
    "text.parse_math": False,
}


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write residual knowledge, the other measures and the trade-off of each perturbation; return the files."""
    os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with mpl.rc_context(STYLE):
        for run in runs:
            prefix = f"{file_name(run.name)}-" if len(runs) > 1 else ""
            for name, figure in run_figures(run):
                files += save_figure(figure, folder / f"{prefix}{name}")
    return files


def file_name(text: str) -> str:
    """Return a name for a file.

    >>> file_name("my/perturbation: v2")
    'my_perturbation_v2'
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_.") or "unnamed"


def save_figure(figure: Any, path: Path) -> list[Path]:  # noqa: ANN401 (a matplotlib figure)
    """Write both formats without a date."""
    svg, png = path.with_name(path.name + ".svg"), path.with_name(path.name + ".png")
    figure.savefig(svg, metadata={"Date": None, "Creator": "residuum"})
    figure.set_layout_engine("none")  # the places found for the first format serve the second
    figure.savefig(png, dpi=160, metadata={"Software": "residuum"})
    return [svg, png]


def run_figures(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield (name, figure)."""
    ratios = [m for m in MEASURES if m.key == ("difference" if run.form == "class" else "pooled")]
    others = [m for m in MEASURES if m.key in ("disagreement", "unlearn_accuracy", "prevalence")]
    for panel in panels(run):
        name = panel["perturbation"]
        yield f"residual_knowledge_{file_name(name)}", curves_figure(run, panel, ratios)
        yield f"measures_{file_name(name)}", curves_figure(run, panel, others)
        yield f"trade_off_{file_name(name)}", trade_off_figure(run, name)


def row_look(run: Run, label: str) -> dict[str, Any]:
    """Return colour and line of a row, as on the page."""
    sort = kind(run.rows[label])
    if sort != "method":
        return {"color": INK if sort == "original" else GREY, "linestyle": "-" if sort == "original" else "--"}
    place = [name for name, row in run.rows.items() if kind(row) == "method"].index(label)
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[place // len(COLOURS) % len(LINES)]}


def curves_figure(run: Run, panel: dict[str, Any], measures: Sequence[Measure]) -> Any:  # noqa: ANN401 (a figure)
    """Return one axes per measure with means, interval bands, noise floor and the neutral line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.3 + 3.6 * len(measures), 3.1), layout="constrained")
    for place, measure in enumerate(measures):
        axes = figure.add_subplot(1, len(measures), place + 1)
        draw_curves(axes, run, panel, measure)
    figure.axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def draw_curves(axes: Any, run: Run, panel: dict[str, Any], measure: Measure) -> None:  # noqa: ANN401 (matplotlib axes)
    """Draw one measure over the radius."""
    name, taus = panel["perturbation"], panel["taus"]
    floor = band(run, name, measure.key)
    if floor:
        axes.fill_between(
            taus, *(_floats(floor[end]) for end in ("low", "high")), color=GREY, alpha=0.3, lw=0, label="noise floor"
        )
    if measure.neutral is not None:
        axes.axhline(measure.neutral, color=INK, lw=0.8, ls=":")
    for label in first_shown(run, most=16):
        curve = mean_curve([seed_curve(audit, measure.key) for audit in run.audits(label, name)])
        look = row_look(run, label)
        axes.plot(taus, _floats(curve["value"]), lw=1.5, marker="o", ms=2.5, label=label, **look)
        if kind(run.rows[label]) != "control":
            axes.fill_between(
                taus, _floats(curve["low"]), _floats(curve["high"]), color=look["color"], alpha=0.08, lw=0
            )
    axes.set(xlabel=f"{name}: {panel['axis']}", ylabel=measure.axis, title=measure.title)


def trade_off_figure(run: Run, perturbation: str) -> Any:  # noqa: ANN401 (a figure)
    """Return test accuracy against residual knowledge, area for cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    points = [p for p in trade_off(run, perturbation) if p["x"] is not None and p["y"] is not None]
    axes.axvline(0.0 if run.form == "class" else 1.0, color=INK, lw=0.8, ls=":")
    for label in run.rows:
        own = [p for p in points if p["label"] == label]
        sizes = [12 + 2 * min(p["cost"] or 0.0, 150.0) for p in own]
        look = row_look(run, label)
        dashed = look["linestyle"] != "-"
        axes.scatter(
            [p["x"] for p in own],
            [p["y"] for p in own],
            s=sizes,
            color=look["color"],
            alpha=0.6,
            marker="s" if dashed else "o",
            label=label,
        )
    axes.set(
        xlabel="difference farthest from 0" if run.form == "class" else "r farthest from 1",
        ylabel="test accuracy, %",
        title=f"Trade-off under {perturbation} (area: cost)",
    )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
