"""The pictures of the concept pages, drawn from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from residuum import Run
from residuum.core.roles import Role
from residuum.judging import judged_record
from residuum.judging.findings import noise_floor
from residuum.reporting.figures import COLORS, GRAY, INK, STYLE
from residuum.reporting.summary import summary_of

BLUE, ORANGE, GREEN = COLORS[:3]
NOISE = "gaussian"
RADIUS = "radius of the noise (standard deviation of a pixel)"


def draw(class_run: Run, random_run: Run, many: Run, folder: Path) -> None:
    """Write the pictures: eights forgotten, samples of all classes forgotten, and the latter with many seeds."""
    figures = {
        "residual-knowledge": curves(random_run),
        "noise-floor": floor(many),
        "class-or-samples": planes(class_run, random_run),
        "power": power(many),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": "residuum"})


def _axes(width: float = 6.4, panels: int = 1) -> tuple[Figure, list[Any]]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, 3.4), layout="constrained")
        return figure, [figure.add_subplot(1, panels, k + 1) for k in range(panels)]


def curves(run: Run) -> Figure:
    """Return r over the radius: the original, a method that leaves it, one that does not, and what chance does."""
    figure, (axes,) = _axes()
    rows, taus = {row.label: row for row in summary_of(run).rows}, summary_of(run).taus[NOISE]
    band = noise_floor(run.record, NOISE, "pooled")
    axes.fill_between(taus, band.low, band.high, color=GRAY, alpha=0.3, lw=0, label="what retraining explains")
    axes.axhline(1, color=INK, lw=0.8, ls=":")
    for label, color in (("original", INK), ("gd", BLUE), ("rurk", ORANGE), ("soft_reset", GREEN)):
        axes.plot(taus, rows[label].curve(NOISE, "pooled").value, marker="o", ms=3, color=color, label=label)
    axes.set(xlabel=RADIUS, ylabel="residual knowledge r")
    axes.legend(fontsize=8)
    return figure


def floor(run: Run) -> Figure:
    """Return r of one retrained model against another, seed by seed, beside the original's."""
    figure, (axes,) = _axes()
    rows, taus = {row.label: row for row in summary_of(run).rows}, summary_of(run).taus[NOISE]
    for label, color in (("control", GRAY), ("original", ORANGE)):
        for k, curve in enumerate(rows[label].seed_curves(NOISE, "pooled")):
            name = {"control": "a second retrained model", "original": "the original"}[label]
            axes.plot(taus, curve.value, color=color, lw=1.2, label=f"{name}, one line a seed" if k == 0 else None)
    axes.axhline(1, color=INK, lw=0.8, ls=":")
    axes.set(xlabel=RADIUS, ylabel="r against the reference")
    axes.legend(fontsize=8)
    return figure


def planes(class_run: Run, random_run: Run) -> Figure:
    """Return G and M of every row, for both requests."""
    figure, panels = _axes(8.2, 2)
    titles = ("half of the eights forgotten", "5 % of all digits forgotten")
    for axes, run, title in zip(panels, (class_run, random_run), titles, strict=True):
        for row in sorted(summary_of(run).rows, key=lambda row: row.role is not Role.METHOD):  # baselines on top
            class_knowledge, memory = (run.record.finding(row.label, NOISE, quantity) for quantity in ("G", "M"))
            if class_knowledge is None or memory is None:
                continue
            color = {"original": ORANGE, "retrain": INK, "control": GRAY}.get(row.label, BLUE)
            place = class_knowledge.value(), memory.value()
            axes.plot(*place, "o", color=color, ms=5, alpha=0.8)
            if row.label in ("original", "retrain"):
                axes.annotate(row.label, place, (6, -3), textcoords="offset points", fontsize=8)
        reference = run.record.finding("retrain", NOISE, "M")
        if reference is not None:
            axes.axhspan(*reference.floor(), color=GRAY, alpha=0.25, lw=0)
        axes.axvline(1, color=INK, lw=0.8, ls=":")
        axes.axhline(1, color=INK, lw=0.8, ls=":")
        axes.set(
            xlabel="G: knowledge of the class",
            ylabel="M: memory of the samples",
            title=title,
            xlim=(0.92, 1.2),
            ylim=(0.94, 1.1),
        )
    return figure


def power(run: Run) -> Figure:
    """Return the smallest r at radius 0 that the first k seeds would have told from chance, and what was found."""
    figure, (axes,) = _axes()
    counts, radius_0 = list(range(2, len(run.seeds) + 1)), 1
    smallest = [
        finding.columns[radius_0].smallest if (finding := part.record.finding("original", NOISE)) else float("nan")
        for part in (first_seeds(run, k) for k in counts)
    ]
    axes.plot(counts, smallest, marker="o", color=INK, label="smallest r found with 80 % power")
    for label, color in (("original", ORANGE), ("gd", BLUE)):
        finding = run.record.finding(label, NOISE)
        assert finding is not None
        r = finding.value(radius_0)
        axes.axhline(r, color=color, lw=1.2, ls="--", label=f"{label}: r = {r:.2f}")
    axes.set(xlabel="seeds (a retrained model and a control each)", ylabel="r at radius 0", xticks=counts)
    axes.legend(fontsize=8)
    return figure


def first_seeds(run: Run, k: int) -> Run:
    """Return the run as if its first k seeds were all."""
    seeds = run.record.seeds[:k]
    methods = {
        label: row.model_copy(update={"per_seed": {str(seed): row.per_seed[str(seed)] for seed in seeds}})
        for label, row in run.record.methods.items()
    }
    return Run(run.folder, run.name, judged_record(run.record.model_copy(update={"seeds": seeds, "methods": methods})))
