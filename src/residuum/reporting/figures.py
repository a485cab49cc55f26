"""The figure for a paper or a notebook: a measure of chosen rows over the radii, drawn by matplotlib on request."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from residuum.core.errors import InputError, plural, unknown_name
from residuum.core.roles import Role
from residuum.judging.findings import judged_measure
from residuum.record.run import Run
from residuum.reporting.glossary import AXES, Measure
from residuum.reporting.summary import summary_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#c65102", "#00806a", "#c2357d", "#8a6d00", "#7a3fb5", "#4d7c0f", "#b3261e")
LINES = ("-", "--", ":")  # of the first eight methods, of the next, ...
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


def plot(
    run: Run, *, methods: Sequence[str] | None = None, measure: str | None = None, perturbation: str | None = None
) -> Figure:
    """Draw a measure of chosen rows over the radii, and return the figure.

    Args:
        run: A run; `Run.load(folder)` reads one.
        methods: Labels of the methods to draw; the original and the retrained models are always drawn. By default all
            if they are few, else those with the smallest average gap.
        measure: A measure of the audit, such as "disagreement" or "memory"; by default the one that is judged.
        perturbation: What was audited; by default the first.

    Returns:
        A matplotlib figure of one plot: `figure.savefig("r.pdf")`.

    >>> from residuum import plot
    >>> plot(run, methods=["gd"], measure="disagreement").axes[0].get_title()  # doctest: +SKIP
    'Disagreement'
    """
    labels = run.record.rows_of(Role.METHOD)
    if not run.perturbations:
        raise InputError("expected a run with an audit, got one without")
    summary = summary_of(run)
    measures = {m.key: m for m in summary.measures}
    key, name = measure or judged_measure(run.form)[0], perturbation or run.perturbations[0]
    for kind, text, names in (
        ("perturbation", name, run.perturbations),
        ("measure", key, measures),
        *(("method", label, labels) for label in methods or ()),
    ):
        if text not in names:
            raise unknown_name(kind, text, names)
    shown = summary.first_shown(MOST) if methods is None else methods
    shown = [label for label, row in run.rows.items() if label in shown or row.role is not Role.METHOD]
    with mpl_style():
        return _drawn(run, name, measures[key], shown)


def mpl_style() -> AbstractContextManager[None]:
    """Return matplotlib with the style of the figure; only this user can write to its folder of settings."""
    if "MPLCONFIGDIR" not in os.environ:  # nobody else can write to this folder, and the user's settings stay out
        os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="residuum-matplotlib-")
        atexit.register(shutil.rmtree, os.environ["MPLCONFIGDIR"], ignore_errors=True)
    import matplotlib as mpl

    context: AbstractContextManager[None] = mpl.rc_context(STYLE)
    return context


def _drawn(run: Run, perturbation: str, measure: Measure, shown: Sequence[str]) -> Figure:
    """Return one plot with means, interval bands and the neutral line; dashed gray lines are retrained models."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.9, 3.1), layout="constrained")
    axes, summary = figure.subplots(), summary_of(run)
    if measure.neutral is not None:
        axes.axhline(measure.neutral, color=INK, lw=0.8, ls=":")
    methods = run.record.rows_of(Role.METHOD)
    for row in summary.audited(perturbation):
        if row.label not in shown or row.role is Role.REFERENCE:
            continue
        color, line = (INK, "-") if row.role is Role.ORIGINAL else (GRAY, "--")
        if row.role is Role.METHOD:  # the same look whichever rows are shown
            repeats, place = divmod(methods.index(row.label), len(COLORS))
            color, line = COLORS[place], LINES[repeats % len(LINES)]
        curve, taus = row.curve(perturbation, measure.key), summary.taus[perturbation]
        name = row.label if len(row.label) <= LONGEST else f"{row.label[: LONGEST - 1]}…"
        axes.plot(taus, _floats(curve.value), lw=1.5, marker="o", ms=2.5, label=name, color=color, linestyle=line)
        if row.role is not Role.CONTROL and curve.low:
            axes.fill_between(taus, _floats(curve.low), _floats(curve.high), color=color, alpha=0.08, lw=0)
    axis = AXES.get(perturbation, "radius")
    axes.set(xlabel=f"{perturbation}: {axis}", ylabel=measure.axis, title=measure.title)
    left_out = len(run.rows) - len(shown)
    title = f"without {plural(left_out, 'row')}" if left_out else None
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, title=title, title_fontsize=8)
    return figure


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
