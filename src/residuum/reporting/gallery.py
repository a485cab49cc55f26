"""The gallery: pictures of the most suspicious forgotten samples, from the gallery and counts files of a run."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.core.counts import Counts
from residuum.core.gallery import Gallery
from residuum.core.roles import Role
from residuum.record.run import Run
from residuum.reporting.wording import class_name

LARGEST_SIDE = 64  # pixels; larger pictures are shown smaller
MOST = 6  # samples on the page
PRIVATE = (
    "The pictures are left out, because the page would contain the very samples that were to be forgotten. To show "
    "pictures of your own data, give `residuum report RUN --gallery`."
)
SWITCHED_OFF = "The pictures are left out because the page was made with --no-gallery."
MISSING = "This run stored no gallery file; for your own data, `residuum run` needs --gallery to store one."
NO_IMAGES = "The samples are not images, so there are no pictures; their ids and answers are in the run's files."


@dataclass(frozen=True)
class GalleryPage:
    """Cards of one run, of its first seed; `notes` says what is not shown and why."""

    run: str
    perturbation: str = ""
    seed: str = ""
    cards: list[dict[str, Any]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    shown_row: str = ""
    notes: list[str] = field(default_factory=list)

    def answers(self) -> list[list[dict[str, Any]]]:
        """Return for each card and strip who was right, which the page shows for the model that is selected."""
        keys = ("reference", "right", "counted")
        return [[{key: strip[key] for key in keys} for strip in card["strips"]] for card in self.cards]


def gallery_of(run: Run, shown: bool | None) -> GalleryPage:
    """Return the gallery of a run: for public data sets by default, for a user's data only where `shown`."""
    if shown is False:
        return GalleryPage(run.name, notes=[SWITCHED_OFF])
    if shown is None and not run.record.scenario.public_data:
        return GalleryPage(run.name, notes=[PRIVATE])
    files = {seed: run.folder / "gallery" / f"{seed}.npz" for seed in run.seeds}
    stored = {seed: Gallery.load(path) for seed, path in files.items() if path.is_file()}
    if not stored:
        return GalleryPage(run.name, notes=[MISSING])
    if next(iter(stored.values())).images.ndim not in (5, 6):
        return GalleryPage(run.name, notes=[NO_IMAGES])
    return _filled(run, stored)


def _filled(run: Run, stored: Mapping[str, Gallery]) -> GalleryPage:
    (seed, first), perturbation = next(iter(stored.items())), run.perturbations[0]
    others = [f"gallery/{other}.npz" for other in stored if other != seed]
    notes = [f"The gallery shows seed {seed}. Pictures of other seeds: {', '.join(others)}."] if others else []
    side = max(first.images.shape[-2:])
    if side > LARGEST_SIDE:
        notes.append(f"Pictures are shown at {LARGEST_SIDE} instead of {side} pixels.")
    choices = [str(row) for row in first.rows if row in run.rows and run.rows[row].role is not Role.REFERENCE]
    cards = sample_cards(run, seed, perturbation, first)[:MOST]
    return GalleryPage(run.name, perturbation, seed, cards, choices, clearest_row(run, stored, choices), notes)


def clearest_row(run: Run, stored: Mapping[str, Gallery], rows: list[str]) -> str:
    """Return the method (else any row) that is right most often where the reference is wrong."""

    def only_right(row: str) -> int:
        by_seed = (g.right[list(g.rows).index(row)] & ~g.reference_right for g in stored.values())
        return sum(int(right.sum()) for right in by_seed)

    methods = [row for row in rows if run.rows[row].role is Role.METHOD] or rows
    return max(methods, key=only_right, default="")


def sample_cards(run: Run, seed: str, perturbation: str, gallery: Gallery) -> list[dict[str, Any]]:
    """Return one card per sample: id, class, and for each radius a strip of pictures with all models' answers."""
    rows = [str(row) for row in gallery.rows]
    tables = {row: evidence(run, seed, row, perturbation, gallery) for row in rows}
    return [
        {
            "id": str(sample_id),
            "label": class_name(int(gallery.labels[i]), run.record.scenario.class_names),
            "strips": [
                {
                    "tau": float(tau),
                    "picture": strip_uri(gallery.images[i, k]),
                    "reference": answers(gallery.reference_right[i, k]),
                    "right": {row: answers(gallery.right[j, i, k]) for j, row in enumerate(rows)},
                    "counted": {row: table[i][k] for row, table in tables.items() if table},
                }
                for k, tau in enumerate(gallery.taus)
            ],
        }
        for i, sample_id in enumerate(gallery.ids)
    ]


def evidence(run: Run, seed: str, row: str, perturbation: str, gallery: Gallery) -> list[list[list[int]]]:
    """Return (model right, reference right, draws) of the audit per shown sample and radius; [] without counts."""
    path = run.folder / "counts" / seed / row / f"{perturbation}.npz"
    if not path.is_file():
        return []
    counts = Counts.load(path).subset(gallery.ids.tolist())
    tables = counts.method_right, counts.reference_right, counts.draws
    columns = [int(np.abs(counts.taus - tau).argmin()) for tau in gallery.taus]
    return [[[int(table[i, k]) for table in tables] for k in columns] for i in range(len(counts))]


def answers(right: NDArray[np.bool_]) -> str:
    """Return one character per draw.

    >>> answers(np.array([True, False]))
    '10'
    """
    return "".join("1" if answer else "0" for answer in right)


def strip_uri(images: NDArray[np.uint8]) -> str:
    """Return the pictures of one strip, side by side with a clear column after each, as a PNG data address.

    `images` of shape (D, H, W), (D, 1, H, W) or (D, 3, H, W).
    """
    from PIL import Image

    pixels = images if images.ndim == 4 else images[:, None]
    draws, channels, height, width = pixels.shape
    if channels not in (1, 3):
        pixels = pixels[:, :1]
    clear = np.full((draws, 1, height, width), 255, np.uint8)
    shown = np.pad(np.concatenate([pixels, clear], axis=1), ((0, 0), (0, 0), (0, 0), (0, max(1, width // 12))))
    strip = np.ascontiguousarray(shown.transpose(2, 0, 3, 1).reshape(height, -1, shown.shape[1]))
    picture = Image.fromarray(strip, "LA" if strip.shape[2] == 2 else "RGBA")
    if max(height, width) > LARGEST_SIDE:
        scale = LARGEST_SIDE / max(height, width)
        picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(height * scale))))
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
