"""The figure from stored answers, the same bytes every time: SVG and PNG of the first seed, one HTML page of all."""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.decision_regions.answers import CONTROL, UNLEARNED, Answers, Contrast, contrast, contrasts, counts_text

Array = NDArray[Any]
Axes = Any  # matplotlib is imported late, so its types are not named here

# Okabe and Ito's colours, which people with any kind of colour vision tell apart: light for regions, full for samples
REGIONS = ("#cfe8f7", "#fbe3b0", "#c3e6da", "#f0d3e3", "#f5d0b8", "#d5dbe8")
COLOURS = ("#0072b2", "#b87700", "#00785a", "#a8487f", "#b34700", "#44546a")
INK, SOFT, WRONG = "#1f2328", "#6e7781", "#c8102e"
TICK = ((-0.55, -0.05), (-0.15, -0.5), (0.6, 0.55)), (1, 2, 2)  # vertices, and matplotlib's codes for move and line
CROSS = ((-0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, -0.5)), (1, 2, 1, 2)
TITLE = "Same answer at the forgotten sample, other answers around it"
NAMES = {"gd": "GD-unlearned", "retrain": "re-trained", "control": "re-trained again"}
PAGE = files("residuum.decision_regions") / "page.html"
SIDE = 1000  # the page draws regions and marks with whole numbers on a square of this side
TOLERANCE = 0.7  # how far a simplified boundary may lie from the computed one, in the same unit


def display_name(model: str) -> str:
    """Return what the figure calls a model."""
    return NAMES.get(str(model), str(model))


def write_drawings(seeds: Sequence[Answers], folder: Path, stem: str) -> None:
    """Draw the first seed's answers with the counts of all seeds as `stem`.svg and `stem`.png."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style would change the bytes
        mpl.rcParams.update({"svg.hashsalt": "residuum", "font.size": 9, "text.color": INK})
        figure = draw(seeds)
        for kind, metadata in {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}.items():
            figure.savefig(folder / f"{stem}.{kind}", dpi=160, metadata=metadata, facecolor="white")


def draw(seeds: Sequence[Answers]) -> Any:  # noqa: ANN401 (a matplotlib figure)
    """Return the figure: both models' regions above, and the surroundings of every sample below."""
    from matplotlib.figure import Figure

    first, samples = seeds[0], len(seeds[0].ids)
    figure = Figure(figsize=(1.62 * max(samples, 4) + 1.0, 9.6))
    edges = {"left": 0.05, "right": 0.985, "top": 0.875, "bottom": 0.115}
    rows = figure.add_gridspec(2, 1, height_ratios=(1, 0.9), hspace=0.17, **edges)
    above = rows[0].subgridspec(1, 2, wspace=0.04)
    below = rows[1].subgridspec(2, samples, wspace=0.07, hspace=0.05)
    found = contrast(first, UNLEARNED)
    for model, share in enumerate((found.reference_right, found.right)):
        draw_overview(figure.add_subplot(above[model]), first, model)
        cells = [figure.add_subplot(below[model, sample]) for sample in range(samples)]
        for sample, cell in enumerate(cells):
            draw_surroundings(cell, first, model, sample, bold=bool(found.shown[sample]))
        _label_row(cells, display_name(first.models[model]), share)
    _label_columns(figure, first, found, below)
    _write_headline(figure, seeds)
    return figure


def draw_overview(axes: Axes, answers: Answers, model: int) -> None:
    """Draw a model's regions on the mean slice, the training samples, and where the forgotten ones are."""
    fill_regions(axes, answers.overview_x, answers.overview_y, answers.overview[model])
    for label, name in enumerate(answers.class_names):
        own = (answers.train_labels == label) & ~answers.train_forgotten
        axes.scatter(*answers.train[own].T, s=9, color=COLOURS[label], alpha=0.75, linewidths=0)
        bold = {"color": COLOURS[label], "fontsize": 11, "weight": "bold"}
        axes.text(*_class_name_point(answers, label), str(name), ha="center", va="center", **bold)
    for number, (x, y) in enumerate(answers.centres, start=1):
        colour = COLOURS[answers.labels[number - 1]]
        axes.scatter(x, y, s=150, color="white", edgecolors=colour, linewidths=1.6, zorder=4)
        axes.text(x, y, str(number), fontsize=8, weight="bold", ha="center", va="center_baseline", zorder=5)
    axes.set_title(display_name(answers.models[model]), fontsize=12, weight="bold", loc="left", pad=6)
    _frame(axes, answers.overview_x, answers.overview_y)


def fill_regions(axes: Axes, x: Array, y: Array, leads: Array) -> None:
    """Fill where each class leads, and draw the boundaries."""
    for label in range(leads.shape[-1]):
        field = leads[..., label]
        if (field > 0).any():
            axes.contourf(x, y, field, levels=[0, np.inf], colors=[REGIONS[label % len(REGIONS)]], zorder=0)
        if (field > 0).any() and (field < 0).any():
            axes.contour(x, y, field, levels=[0], colors=[SOFT], linewidths=1.1, zorder=1)


def draw_surroundings(axes: Axes, answers: Answers, model: int, sample: int, *, bold: bool) -> None:
    """Draw a model's regions on the slice through one sample, the sample, and its copies as ticks and crosses."""
    at, label, shown = answers.around_at, answers.labels[sample], int(answers.shown)
    fill_regions(axes, at, at, answers.around[model, sample])
    away = answers.offsets[sample, :shown]
    right = answers.copies_say[model, sample, :shown] == label
    _marks(axes, away[right], right=True)
    _marks(axes, away[~right], right=False)
    axes.scatter(0, 0, s=190, color="white", edgecolors=COLOURS[label], linewidths=2, zorder=6)
    _marks(axes, np.zeros((1, 2)), right=bool(answers.centre_says[model, sample] == label), size=62, order=7)
    _frame(axes, at, at, **({"linewidth": 2.0, "color": INK} if bold else {}))


def _marks(axes: Axes, points: Array, *, right: bool, size: float = 34, order: int = 5) -> None:
    from matplotlib.path import Path as Shape

    line = {"facecolors": "none", "edgecolors": INK if right else WRONG, "linewidths": 1.5, "capstyle": "round"}
    axes.scatter(*points.T, marker=Shape(*(TICK if right else CROSS)), s=size, zorder=order, **line)


def _frame(axes: Axes, x: Array, y: Array, **line: Any) -> None:  # noqa: ANN401 (matplotlib's settings of a line)
    axes.set(xticks=[], yticks=[], xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_box_aspect(None)
    for side in axes.spines.values():
        side.set(**{"linewidth": 0.8, "color": "#d0d7de"} | line)


def _class_name_point(answers: Answers, label: int) -> tuple[float, float]:
    """Return the point nearest to the class's samples where its name covers neither a sample nor another region."""
    from scipy.ndimage import minimum_filter

    x, y = answers.overview_x, answers.overview_y
    free = np.asarray((answers.overview[:2, ..., label] > 0).all(axis=0))
    column, row = (np.rint((answers.train[:, k] - g[0]) / (g[1] - g[0])).astype(int) for k, g in enumerate((x, y)))
    free[row, column] = False
    roomy = minimum_filter(free, size=(len(y) // 12, len(x) // 4), mode="constant", cval=False)
    middle = np.median(answers.train[answers.train_labels == label], axis=0)
    if not roomy.any():
        return float(middle[0]), float(middle[1])
    away = np.linalg.norm(np.stack(np.meshgrid(x, y), axis=-1) - middle, axis=-1)
    i, j = np.unravel_index(np.where(roomy, away, np.inf).argmin(), away.shape)
    return float(x[j]), float(y[i])


def _label_row(cells: Sequence[Axes], name: str, share: Iterable[float]) -> None:
    cells[0].set_ylabel(name, fontsize=11, weight="bold", labelpad=8)
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    corner = {"ha": "right", "va": "bottom", "fontsize": 8.5, "weight": "bold", "bbox": box, "zorder": 8}
    for cell, part in zip(cells, share, strict=True):
        cell.text(0.96, 0.04, f"{100 * part:.0f} %", transform=cell.transAxes, **corner)


def _label_columns(figure: Any, answers: Answers, found: Contrast, below: Any) -> None:  # noqa: ANN401
    """Write number and class above each sample, and below it whether and where the models agree."""
    for sample, label in enumerate(answers.labels):
        box = below[0, sample].get_position(figure)
        middle, bottom = (box.x0 + box.x1) / 2, below[1, sample].get_position(figure).y0
        title = {"color": COLOURS[label], "fontsize": 9.5, "ha": "center", "va": "bottom", "weight": "bold"}
        figure.text(middle, box.y1 + 0.006, f"{sample + 1}  {answers.class_names[label]}", **title)
        centre = "agree" if found.agrees[sample] else "differ"
        verdict = f"{centre} at the sample,\ndiffer on {100 * found.differs[sample]:.0f} % around"
        figure.text(middle, bottom - 0.012, verdict, fontsize=8.5, ha="center", va="top", linespacing=1.35)


def _write_headline(figure: Any, seeds: Sequence[Answers]) -> None:  # noqa: ANN401
    first, found, floor = seeds[0], contrasts(seeds, UNLEARNED), contrasts(seeds, CONTROL)
    counted = (
        f"{display_name(first.models[UNLEARNED])} and re-trained do this for {found.sum()} of {found.size} pairs of "
        f"seed and forgotten sample; two re-trained models for {floor.sum()}.  Seed {int(first.seed)} is drawn."
    )
    legend = (
        f"✓ copy recognised   ✗ copy not recognised   % of all {first.copies_say.shape[2]} copies recognised   "
        f"bold frame: agree at the sample and differ on {100 * float(first.least):g} % of the copies or more"
    )
    figure.text(0.05, 0.965, TITLE, fontsize=16, weight="bold")
    figure.text(0.05, 0.933, counted, fontsize=10.5, color=INK)
    figure.text(0.05, 0.03, legend, fontsize=9, color=INK)


def page_text(seeds: Sequence[Answers]) -> str:
    """Return the HTML page with all seeds, every copy and the noise floor; it needs nothing else."""
    data = json.dumps(page_data(seeds), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return PAGE.read_text(encoding="utf-8").replace("__DATA__", data.replace("</", "<\\/"))


def page_data(seeds: Sequence[Answers]) -> dict[str, Any]:
    """Return what the page's script draws and counts."""
    first = seeds[0]
    view = (first.overview_x, first.overview_y)
    return {
        "caption": counts_text(seeds),
        "classes": first.class_names.tolist(),
        "colours": COLOURS,
        "regions": REGIONS,
        "models": [display_name(name) for name in first.models],
        "ids": first.ids.tolist(),
        "labels": first.labels.tolist(),
        "copies": first.copies_say.shape[2],
        "least": first.least_copies,
        "radius": float(first.radius),
        "train": np.column_stack([_whole(first.train, view), first.train_labels])[~first.train_forgotten].tolist(),
        "centres": _whole(first.centres, view),
        "seeds": [_seed_data(answers) for answers in seeds],
    }


def _seed_data(answers: Answers) -> dict[str, Any]:
    view, at = (answers.overview_x, answers.overview_y), (answers.around_at, answers.around_at)
    return {
        "seed": int(answers.seed),
        "overview": [region_paths(*view, leads) for leads in answers.overview],
        "around": [[region_paths(*at, leads) for leads in samples] for samples in answers.around],
        "at": _whole(answers.offsets, at),
        "centre": answers.centre_says.tolist(),
        "says": answers.copies_say.tolist(),
    }


def region_paths(x: Array, y: Array, leads: Array) -> list[str]:
    """Return, for each class, the SVG path of where it leads."""
    from contourpy import FillType, contour_generator

    paths = []
    for field in np.moveaxis(leads, -1, 0).astype(float):
        filled: Any = contour_generator(x, y, field, fill_type=FillType.OuterOffset).filled(0, np.inf)
        outlines = [np.split(points, starts[1:-1].astype(int)) for points, starts in zip(*filled, strict=True)]
        rings = [simplified(_placed(ring, (x, y)), TOLERANCE)[:-1] for outline in outlines for ring in outline]
        paths.append("".join("M" + "L".join(f"{u:.0f} {v:.0f}" for u, v in ring) + "Z" for ring in rings))
    return paths


def simplified(points: Array, tolerance: float) -> Array:
    """Return the fewest points found whose line stays within the tolerance (Ramer, Douglas and Peucker)."""
    away, along = points - points[0], points[-1] - points[0]
    length = np.hypot(*along)
    off = np.abs(along[0] * away[:, 1] - along[1] * away[:, 0]) / length if length else np.hypot(*away.T)
    far = int(off.argmax())
    if off[far] <= tolerance:
        return points[[0, -1]]
    return np.concatenate([simplified(points[: far + 1], tolerance)[:-1], simplified(points[far:], tolerance)])


def _placed(points: Array, view: tuple[Array, Array]) -> Array:
    """Return points (..., 2) of the plane on the page's square, whose second coordinate points down."""
    across, up = ((points[..., k] - g[0]) / (g[-1] - g[0]) for k, g in enumerate(view))
    return SIDE * np.stack([across, 1 - up], axis=-1)


def _whole(points: Array, view: tuple[Array, Array]) -> list[Any]:
    whole: list[Any] = np.rint(_placed(points, view)).astype(int).tolist()
    return whole
