"""The tutorial picture to explore: one HTML file with all seeds, every copy and the noise floor; needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.experiments.picture import Picture
from residuum.reporting.contrast import counted_sentence, floor_sentence, least_copies
from residuum.reporting.picture import COLOURS, REGIONS, display_name

TEMPLATE = files("residuum.reporting") / "templates" / "picture.html"
SIDE = 1000  # regions and marks are drawn with whole numbers on a square of this side
TOLERANCE = 0.7  # how far a simplified boundary may lie from the computed one, in the same unit

Array = NDArray[Any]


def write_page(pictures: Sequence[Picture], path: Path) -> Path:
    """Write the interactive page of all seeds; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_text(pictures), encoding="utf-8")
    return path


def page_text(pictures: Sequence[Picture]) -> str:
    """Return the page: the same pictures give the same text."""
    data = json.dumps(page_data(pictures), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", data.replace("</", "<\\/"))


def page_data(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Return what the page's script draws and counts."""
    first = pictures[0]
    view = (first.overview_x, first.overview_y)
    copies = first.copies_say.shape[2]
    return {
        "caption": f"{counted_sentence(pictures)} {floor_sentence(pictures)}",
        "classes": first.class_names.tolist(),
        "colours": COLOURS,
        "regions": REGIONS,
        "models": [display_name(name) for name in first.models],
        "ids": first.ids.tolist(),
        "labels": first.labels.tolist(),
        "copies": copies,
        "least": least_copies(float(first.least), copies),
        "radius": float(first.radius),
        "train": [[*_whole(first.train[k], view), int(first.train_labels[k])] for k in _retained(first)],
        "centres": _whole(first.projected(first.inputs), view),
        "seeds": [seed_data(picture) for picture in pictures],
    }


def seed_data(picture: Picture) -> dict[str, Any]:
    """Return the regions, the copies and the answers of one seed."""
    at, models = (picture.around_at, picture.around_at), range(len(picture.models))
    away = (picture.copies - picture.inputs[:, None]) @ picture.axes.T
    return {
        "seed": int(picture.seed),
        "overview": [region_paths(picture.overview_x, picture.overview_y, picture.overview[m]) for m in models],
        "around": [[region_paths(*at, leads) for leads in picture.around[m]] for m in models],
        "at": _whole(away, at),
        "centre": picture.centre_says.tolist(),
        "says": picture.copies_say.tolist(),
    }


def region_paths(x: Array, y: Array, leads: Array) -> list[str]:
    """Return, for each class, the SVG path of where it leads."""
    from contourpy import FillType, contour_generator

    paths = []
    for label in range(leads.shape[-1]):
        made = contour_generator(x, y, leads[..., label].astype(float), fill_type=FillType.OuterOffset)
        filled: Any = made.filled(0, np.inf)
        rings = [
            ring
            for points, starts in zip(*filled, strict=True)
            for ring in np.split(np.asarray(points), np.asarray(starts)[1:-1].astype(int))
        ]
        paths.append("".join(_ring_path(ring, (x, y)) for ring in rings))
    return paths


def _ring_path(ring: Array, view: tuple[Array, Array]) -> str:
    corners = simplified(_placed(ring, view), TOLERANCE)[:-1]
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in corners) + "Z"


def simplified(points: Array, tolerance: float) -> Array:
    """Return the fewest points found whose line stays within the tolerance (Ramer, Douglas and Peucker).

    >>> simplified(np.array([[0.0, 0.0], [1.0, 0.01], [2.0, 0.0], [2.0, 2.0]]), 0.1).tolist()
    [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0]]
    """
    if len(points) < 3:
        return points
    away, along = points - points[0], points[-1] - points[0]
    length = np.hypot(*along)
    off = np.abs(along[0] * away[:, 1] - along[1] * away[:, 0]) / length if length else np.hypot(*away.T)
    far = int(off.argmax())
    if off[far] <= tolerance:
        return points[[0, -1]]
    return np.concatenate([simplified(points[: far + 1], tolerance)[:-1], simplified(points[far:], tolerance)])


def _placed(points: Array, view: tuple[Array, Array]) -> Array:
    """Return points (..., 2) of the plane on the square, whose second coordinate points down."""
    across, up = ((points[..., k] - g[0]) / (g[-1] - g[0]) for k, g in enumerate(view))
    return SIDE * np.stack([across, 1 - up], axis=-1)


def _whole(points: Array, view: tuple[Array, Array]) -> list[Any]:
    whole: list[Any] = np.rint(_placed(points, view)).astype(int).tolist()
    return whole


def _retained(picture: Picture) -> list[int]:
    rows: list[int] = np.flatnonzero(~picture.train_forgotten).tolist()
    return rows
