"""Static figures for a paper: the same curves as on the page, as SVG and PNG with the same bytes every time."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.core.errors import InputError, plural, unknown_name
from residuum.core.roles import Role
from residuum.judging.findings import judged_measure
from residuum.record.run import Run
from residuum.reporting.glossary import AXES, Measure
from residuum.reporting.summary import COLORS, Style, row_styles, summary_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ("-", "--", ":")
MOST = 16  # rows that a figure shows
LONGEST = 28  # characters of a name in a legend: longer ones would leave no room for the plot
GRAY, INK = "#8d949c", "#1d2126"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "residuum",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRAY,
    "legend.frameon": False,
    "figure.dpi": 100,
    "text.parse_math": False,
}


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write residual knowledge and the trade-off of each perturbation; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files, styles = [], row_styles(runs)
    with mpl_style():
        for run in runs:
            prefix = f"{file_name(run.name)}-" if len(runs) > 1 else ""
            for name, figure in run_figures(run, styles):
                files += save_figure(figure, folder / f"{prefix}{name}")
    return files


def mpl_style() -> AbstractContextManager[None]:
    """Return matplotlib with the style of all figures; only this user can write to its folder of settings."""
    if "MPLCONFIGDIR" not in os.environ:  # nobody else can write to this folder, and the user's settings stay out
        os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="residuum-matplotlib-")
        atexit.register(shutil.rmtree, os.environ["MPLCONFIGDIR"], ignore_errors=True)
    import matplotlib as mpl

    context: AbstractContextManager[None] = mpl.rc_context(STYLE)
    return context


def file_name(text: str) -> str:
    """Return a name for a file.

    >>> file_name("my/perturbation: v2")
    'my_perturbation_v2'
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_.") or "unnamed"


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write SVG and PNG without a date."""
    svg, png = path.with_name(path.name + ".svg"), path.with_name(path.name + ".png")
    if layout := figure.get_layout_engine():
        layout.execute(figure)
    figure.set_layout_engine(None)  # both formats use this layout
    figure.savefig(svg, metadata={"Date": None, "Creator": "residuum"})
    figure.savefig(png, dpi=160, metadata={"Software": "residuum"})
    return [svg, png]


def run_figures(run: Run, styles: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """Yield (name, figure)."""
    measure, shown = _measure(run, judged_measure(run.form)[0]), _drawn(run)
    for name in run.perturbations:
        yield f"residual_knowledge_{file_name(name)}", curves_figure(run, name, measure, shown, styles)
        yield f"trade_off_{file_name(name)}", trade_off_figure(run, name, styles)


def plot(
    run: Run, *, methods: Sequence[str] | None = None, measure: str | None = None, perturbation: str | None = None
) -> Figure:
    """Draw a measure of chosen rows over the radii, and return the figure.

    Args:
        run: A run; `Run.load(folder)` reads one.
        methods: Labels of the methods to draw, beside the original and the retrained models; by default all of a
            few, else those with the smallest average gap.
        measure: A measure of the audit, such as "disagreement" or "memory"; by default the one that is judged.
        perturbation: What was audited; by default the first.

    Returns:
        A matplotlib figure of one plot: `figure.savefig("r.pdf")`.

    >>> from residuum import plot
    >>> plot(run, methods=["gd"], measure="disagreement").axes[0].get_title()  # doctest: +SKIP
    'Disagreement'
    """
    if perturbation is not None and perturbation not in run.perturbations:
        raise unknown_name("perturbation", perturbation, run.perturbations)
    if not run.perturbations:
        raise InputError("expected a run with an audit, got one without")
    labels = run.record.rows_of(Role.METHOD)
    for label in methods or ():
        if label not in labels:
            raise unknown_name("method", label, labels)
    chosen = _measure(run, measure or judged_measure(run.form)[0])
    shown = [label for label, row in run.rows.items() if row.role is not Role.METHOD or label in (methods or ())]
    with mpl_style():
        name = perturbation or run.perturbations[0]
        return curves_figure(run, name, chosen, _drawn(run) if methods is None else shown, row_styles([run]))


def _measure(run: Run, key: str) -> Measure:
    measures = {measure.key: measure for measure in summary_of(run).measures}
    if key not in measures:
        raise unknown_name("measure", key, measures)
    return measures[key]


def row_look(style: Style) -> dict[str, Any]:
    """Return color and line of a row, as on the page."""
    if style.role is Role.METHOD:
        return {"color": COLORS[style.color], "linestyle": LINES[style.line]}
    return {"color": INK, "linestyle": "-"} if style.role is Role.ORIGINAL else {"color": GRAY, "linestyle": "--"}


def curves_figure(
    run: Run, perturbation: str, measure: Measure, shown: Sequence[str], styles: Mapping[str, Style]
) -> Figure:
    """Return one plot with means, interval bands and the neutral line; dashed lines are retrained models."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.9, 3.1), layout="constrained")
    axes, summary = figure.subplots(), summary_of(run)
    taus = summary.taus[perturbation]
    if measure.neutral is not None:
        axes.axhline(measure.neutral, color=INK, lw=0.8, ls=":")
    for row in summary.audited(perturbation):
        if row.label not in shown or row.role is Role.REFERENCE:
            continue
        curve, look = row.curve(perturbation, measure.key), row_look(styles[row.label])
        axes.plot(taus, _floats(curve.value), lw=1.5, marker="o", ms=2.5, label=_short(row.label), **look)
        if row.role is not Role.CONTROL and curve.low:
            axes.fill_between(taus, _floats(curve.low), _floats(curve.high), color=look["color"], alpha=0.08, lw=0)
    axis = AXES.get(perturbation, "radius")
    axes.set(xlabel=f"{perturbation}: {axis}", ylabel=measure.axis, title=measure.title)
    _add_legend(axes, run, shown)
    return figure


def trade_off_figure(run: Run, perturbation: str, styles: Mapping[str, Style]) -> Figure:
    """Return residual knowledge of each row and seed against test accuracy and against cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    utility, cost = figure.subplots(1, 2, sharey=True)
    measure, neutral = judged_measure(run.form)
    points = summary_of(run).trade_off(perturbation)
    for axes, key in ((utility, "y"), (cost, "cost")):
        axes.axhline(neutral, color=INK, lw=0.8, ls=":")
        for label in _drawn(run):
            row_points, look = [p for p in points if p.label == label], row_look(styles[label])
            axes.scatter(
                _floats([getattr(p, key) for p in row_points]),
                _floats([p.x for p in row_points]),
                s=22,
                color=look["color"],
                alpha=0.6,
                marker="o" if look["linestyle"] == "-" else "s",
                label=_short(label),
            )
    title = f"Trade-off under {perturbation}"
    name = "difference" if measure == "difference" else "r"
    utility.set(xlabel="test accuracy, %", ylabel=f"{name} over all radii", title=title)
    cost.set(xlabel="cost, % of retraining", title="Cost against forgetting")
    cost.set_xscale("symlog", linthresh=1.0)
    cost.xaxis.set_major_formatter("{x:g}")
    _add_legend(cost, run, _drawn(run))
    return figure


def _drawn(run: Run) -> list[str]:
    """Return the original, the retrained models and as many methods as fit, those with the smallest gaps first."""
    shown = summary_of(run).first_shown(MOST)
    return [label for label, row in run.rows.items() if label in shown or row.role.retrained]


def _add_legend(axes: Axes, run: Run, shown: Sequence[str]) -> None:
    """Add the rows' names beside the plot, and the number of rows that are not shown."""
    more = len(run.rows) - len(shown)
    title = f"without {plural(more, 'row')}" if more else None
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, title=title, title_fontsize=8)


def _short(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
