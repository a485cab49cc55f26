"""Draw the tutorial picture from the stored answers of one seed: SVG and PNG, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.experiments.picture import Picture, plane_points
from residuum.reporting.contrast import CONTROL, REFERENCE, UNLEARNED, Contrast, contrast, tally

Axes = Any  # matplotlib is imported late, so its types are not named here

# Okabe and Ito's colours, which people with any kind of colour vision tell apart: light for regions, full for samples
REGIONS = ("#cfe8f7", "#fbe3b0", "#c3e6da", "#f0d3e3", "#f5d0b8", "#d5dbe8")
COLOURS = ("#0072b2", "#b87700", "#00785a", "#a8487f", "#b34700", "#44546a")
INK, SOFT, RIGHT, WRONG = "#1f2328", "#6e7781", "#1f2328", "#c8102e"
TICK = ((-0.55, -0.05), (-0.15, -0.5), (0.6, 0.55))
NAMES = {"gd": "GD-unlearned", "retrain": "re-trained", "control": "re-trained again"}


def write_drawings(pictures: Sequence[Picture], folder: Path, stem: str) -> list[Path]:
    """Draw the first seed's picture with the counts of all seeds as `stem`.svg and `stem`.png; return the paths."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.{kind}" for kind in ("svg", "png")]
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style would change the bytes
        mpl.rcParams.update({"svg.hashsalt": "residuum", "font.size": 9, "text.color": INK})
        figure = draw(pictures)
        for path, metadata in zip(paths, ({"Date": None, "Creator": None}, {"Software": None}), strict=True):
            figure.savefig(path, dpi=160, metadata=metadata, facecolor="white")
    return paths


def draw(pictures: Sequence[Picture]) -> Any:  # noqa: ANN401 (a matplotlib figure)
    """Return the figure: both models' regions above, and the surroundings of every sample below."""
    from matplotlib.figure import Figure

    picture, samples = pictures[0], len(pictures[0].ids)
    figure = Figure(figsize=(1.62 * max(samples, 4) + 1.0, 9.6))
    edges = {"left": 0.05, "right": 0.985, "top": 0.875, "bottom": 0.115}
    rows = figure.add_gridspec(2, 1, height_ratios=(1, 0.9), hspace=0.17, **edges)
    above = rows[0].subgridspec(1, 2, wspace=0.04)
    below = rows[1].subgridspec(2, samples, wspace=0.07, hspace=0.05)
    found = contrast(picture, UNLEARNED)
    for column, model in enumerate((REFERENCE, UNLEARNED)):
        draw_overview(figure.add_subplot(above[column]), picture, model)
        cells = [figure.add_subplot(below[column, sample]) for sample in range(samples)]
        for sample, cell in enumerate(cells):
            draw_surroundings(cell, picture, model, sample, found)
        share = found.reference_right if model == REFERENCE else found.right
        _label_row(cells, display_name(picture.models[model]), share)
    _label_columns(figure, picture, found, below)
    _write_headline(figure, pictures)
    return figure


def display_name(model: str) -> str:
    """Return what a drawing calls a model."""
    return NAMES.get(str(model), str(model))


def draw_overview(axes: Axes, picture: Picture, model: int) -> None:
    """Draw a model's regions on the mean slice, the training samples, and where the forgotten ones are."""
    fill_regions(axes, picture.overview_x, picture.overview_y, picture.overview[model])
    for label, name in enumerate(picture.class_names):
        own = (picture.train_labels == label) & ~picture.train_forgotten
        axes.scatter(*picture.train[own].T, s=9, color=COLOURS[label], alpha=0.75, linewidths=0)
        x, y = _label_place(picture, label)
        axes.text(x, y, str(name), color=COLOURS[label], fontsize=11, weight="bold", ha="center", va="center")
    for number, (x, y) in enumerate(picture.projected(picture.inputs), start=1):
        colour = COLOURS[picture.labels[number - 1]]
        axes.scatter(x, y, s=150, color="white", edgecolors=colour, linewidths=1.6, zorder=4)
        axes.text(x, y, str(number), fontsize=8, weight="bold", ha="center", va="center_baseline", zorder=5)
    axes.set_title(display_name(picture.models[model]), fontsize=12, weight="bold", loc="left", pad=6)
    _frame(axes, picture.overview_x, picture.overview_y)


def fill_regions(axes: Axes, x: NDArray[Any], y: NDArray[Any], leads: NDArray[Any]) -> None:
    """Fill where each class leads, and draw the boundaries."""
    for label in range(leads.shape[-1]):
        field = leads[..., label]
        if (field > 0).any():
            axes.contourf(x, y, field, levels=[0, np.inf], colors=[REGIONS[label % len(REGIONS)]], zorder=0)
        if (field > 0).any() and (field < 0).any():
            axes.contour(x, y, field, levels=[0], colors=[SOFT], linewidths=1.1, zorder=1)


def draw_surroundings(axes: Axes, picture: Picture, model: int, sample: int, found: Contrast) -> None:
    """Draw a model's regions on the slice through one sample, the sample, and its copies as ticks and crosses."""
    at = picture.around_at
    fill_regions(axes, at, at, picture.around[model, sample])
    shown = int(picture.shown)
    away = (picture.copies[sample, :shown] - picture.inputs[sample]) @ picture.axes.T
    right = picture.copies_say[model, sample, :shown] == picture.labels[sample]
    _marks(axes, away[right], right=True)
    _marks(axes, away[~right], right=False)
    known = picture.centre_says[model, sample] == picture.labels[sample]
    axes.scatter(0, 0, s=190, color="white", edgecolors=COLOURS[picture.labels[sample]], linewidths=2, zorder=6)
    _marks(axes, np.zeros((1, 2)), right=bool(known), size=62, order=7)
    _frame(axes, at, at)
    if found.shown[sample]:
        for side in axes.spines.values():
            side.set(linewidth=2.0, color=INK)


def _marks(axes: Axes, points: NDArray[Any], *, right: bool, size: float = 34, order: int = 5) -> None:
    from matplotlib.path import Path as Shape

    if right:
        shape, colour = Shape(TICK, [Shape.MOVETO, Shape.LINETO, Shape.LINETO]), RIGHT
    else:
        shape, colour = Shape([(-0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, -0.5)], [1, 2, 1, 2]), WRONG
    line = {"facecolors": "none", "edgecolors": colour, "linewidths": 1.5, "capstyle": "round"}
    axes.scatter(*points.T, marker=shape, s=size, zorder=order, **line)


def _frame(axes: Axes, x: NDArray[Any], y: NDArray[Any]) -> None:
    axes.set(xticks=[], yticks=[], xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_box_aspect(None)
    for side in axes.spines.values():
        side.set(linewidth=0.8, color="#d0d7de")


def _label_place(picture: Picture, label: int) -> tuple[float, float]:
    """Return the place nearest to the class's samples where its name covers neither a sample nor another region."""
    from scipy.ndimage import minimum_filter

    x, y = picture.overview_x, picture.overview_y
    free = np.asarray((picture.overview[:2, ..., label] > 0).all(axis=0))
    column, row = (np.rint((picture.train[:, k] - g[0]) / (g[1] - g[0])).astype(int) for k, g in enumerate((x, y)))
    free[row, column] = False
    roomy = minimum_filter(free, size=(len(y) // 12, len(x) // 4), mode="constant", cval=False)
    middle = np.median(picture.train[picture.train_labels == label], axis=0)
    if not roomy.any():
        return float(middle[0]), float(middle[1])
    away = np.linalg.norm(plane_points(x, y) - middle, axis=-1)
    i, j = np.unravel_index(np.where(roomy, away, np.inf).argmin(), away.shape)
    return float(x[j]), float(y[i])


def _label_row(cells: Sequence[Axes], name: str, share: Iterable[float]) -> None:
    cells[0].set_ylabel(name, fontsize=11, weight="bold", labelpad=8)
    for cell, part in zip(cells, share, strict=True):
        cell.text(
            *(0.96, 0.04, f"{100 * part:.0f} %"),
            **{"transform": cell.transAxes, "ha": "right", "va": "bottom", "fontsize": 8.5, "weight": "bold"},
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            zorder=8,
        )


def _label_columns(figure: Any, picture: Picture, found: Contrast, below: Any) -> None:  # noqa: ANN401
    for sample, label in enumerate(picture.labels):
        box = below[0, sample].get_position(figure)
        middle = (box.x0 + box.x1) / 2
        colour, name = COLOURS[label], str(picture.class_names[label])
        title = {"ha": "center", "va": "bottom", "weight": "bold"}
        figure.text(middle, box.y1 + 0.006, f"{sample + 1}  {name}", color=colour, fontsize=9.5, **title)
        under = below[1, sample].get_position(figure).y0 - 0.012
        figure.text(middle, under, verdict(found, sample), fontsize=8.5, ha="center", va="top", linespacing=1.35)


def verdict(found: Contrast, sample: int) -> str:
    """Return in two lines whether the models agree at a sample, and on how many of its copies they differ."""
    centre = "agree at the sample" if found.agrees[sample] else "differ at the sample"
    return f"{centre},\ndiffer on {100 * found.differs[sample]:.0f} % around"


def _write_headline(figure: Any, pictures: Sequence[Picture]) -> None:  # noqa: ANN401
    first, gd, floor = pictures[0], tally(pictures, UNLEARNED), tally(pictures, CONTROL)
    name = display_name(first.models[UNLEARNED])
    figure.text(
        *(0.05, 0.965, "Same answer at the forgotten sample, other answers around it"), fontsize=16, weight="bold"
    )
    figure.text(
        *(0.05, 0.933),
        f"{name} and re-trained do this for {gd.total} of {gd.pairs} pairs of seed and forgotten sample; two "
        f"re-trained models for {floor.total}.  Seed {int(first.seed)} is drawn.",
        fontsize=10.5,
        color=INK,
    )
    figure.text(
        *(0.05, 0.03),
        f"✓ copy recognised   ✗ copy not recognised   % of all {first.copies_say.shape[2]} copies recognised   "
        f"bold frame: agree at the sample and differ on {100 * float(first.least):g} % of the copies or more",
        fontsize=9,
        color=INK,
    )
