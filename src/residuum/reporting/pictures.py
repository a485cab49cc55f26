"""The gallery: pictures of the most suspicious forgotten samples, from the gallery and counts files of a run."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.files import read_arrays
from residuum.reporting.records import Run, kind
from residuum.reporting.words import class_name

LARGEST_SIDE = 64  # pixels; larger pictures are shown smaller
BUDGET = 1_200_000  # characters of pictures on the page, so that it stays under 3 MB
PRIVATE = (
    "The pictures are left out: the page would then contain the very samples that were to be forgotten. For your own "
    "data they are shown only on request (`residuum report RUN --gallery`)."
)
SWITCHED_OFF = "The pictures are left out because the page was made with --no-gallery."
MISSING = "This run stored no gallery file, so there are no pictures to show."
NO_IMAGES = (
    "The samples are not images, so there are no pictures to show; their ids and answers stand in the run's files."
)


@dataclass(frozen=True)
class Gallery:
    """Cards of one run, by seed; `notes` says what is not shown and why."""

    run: str
    perturbation: str = ""
    seeds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    shown_row: str = ""
    notes: list[str] = field(default_factory=list)


def gallery_of(run: Run, wanted: bool | None) -> Gallery:
    """Return the gallery of a run: of public data sets unless unwanted, of a user's own data only if wanted."""
    if wanted is False:
        return Gallery(run.name, notes=[SWITCHED_OFF])
    if wanted is None and not has_public_data(run):
        return Gallery(run.name, notes=[PRIVATE])
    files = {seed: run.folder / "gallery" / f"{seed}.npz" for seed in run.seeds}
    stored = {seed: load_gallery(path) for seed, path in files.items() if path.is_file()}
    if not stored:
        return Gallery(run.name, notes=[MISSING])
    if next(iter(stored.values()))["images"].ndim not in (5, 6):
        return Gallery(run.name, notes=[NO_IMAGES])
    return _filled(run, stored)


def has_public_data(run: Run) -> bool:
    """Return whether the data set is one of those that come by name."""
    return bool(run.record["scenario"].get("public_data", False))


def load_gallery(path: Path) -> Mapping[str, NDArray[Any]]:
    """Read the arrays of a gallery file."""
    return read_arrays(path, ("ids", "labels", "taus", "rows", "images", "reference_right", "right"), "a gallery")


def _filled(run: Run, stored: Mapping[str, Mapping[str, NDArray[Any]]]) -> Gallery:
    perturbation, rows = run.perturbations[0], [str(row) for row in next(iter(stored.values()))["rows"]]
    seeds: dict[str, list[dict[str, Any]]] = {}
    notes, used = [], 0
    for seed, arrays in stored.items():
        cards = sample_cards(run, seed, perturbation, arrays)
        size = sum(len(strip["picture"]) for card in cards for strip in card["strips"])
        if seeds and used + size > BUDGET:
            notes.append(
                f"Pictures of seed {seed} are left out to keep the page small; they stand in gallery/{seed}.npz."
            )
            continue
        seeds[seed], used = cards, used + size
    side = max(next(iter(stored.values()))["images"].shape[-2:])
    if side > LARGEST_SIDE:
        notes.append(f"Pictures are shown at {LARGEST_SIDE} instead of {side} pixels.")
    choices = [row for row in rows if row in run.rows and kind(run.rows[row]) != "retrain"]
    return Gallery(run.name, perturbation, seeds, choices, clearest_row(run, stored, choices), notes)


def clearest_row(run: Run, stored: Mapping[str, Mapping[str, NDArray[Any]]], rows: list[str]) -> str:
    """Return the method (else any row) that is right most often where the reference is wrong."""
    methods = [row for row in rows if kind(run.rows[row]) == "method"] or rows

    def lead(row: str) -> int:
        return sum(
            int((arrays["right"][list(arrays["rows"]).index(row)] & ~arrays["reference_right"]).sum())
            for arrays in stored.values()
        )

    return max(methods, key=lead) if methods else ""


def sample_cards(run: Run, seed: str, perturbation: str, arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return one card per sample: id, class, and for each radius a strip of pictures with everyone's answers."""
    tables = {str(row): evidence(run, seed, str(row), perturbation, arrays) for row in arrays["rows"]}
    return [
        {
            "id": str(sample_id),
            "label": class_name(int(arrays["labels"][i]), run.record["scenario"].get("class_names") or []),
            "strips": [
                {
                    "tau": float(tau),
                    "picture": strip_uri(arrays["images"][i, k]),
                    "reference": answers(arrays["reference_right"][i, k]),
                    "right": {str(row): answers(arrays["right"][j, i, k]) for j, row in enumerate(arrays["rows"])},
                    "counted": {row: table[i][k] for row, table in tables.items() if table},
                }
                for k, tau in enumerate(arrays["taus"])
            ],
        }
        for i, sample_id in enumerate(arrays["ids"])
    ]


def evidence(
    run: Run, seed: str, row: str, perturbation: str, arrays: Mapping[str, NDArray[Any]]
) -> list[list[list[int]]]:
    """Return (model right, reference right, draws) of the audit per shown sample and radius; [] without counts."""
    path = run.folder / "counts" / seed / row / f"{perturbation}.npz"
    if not path.is_file():
        return []
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as counts:
        ids = [str(name) for name in counts["ids"]]
        taus = counts["taus"]
        tables = [counts[name] for name in ("method_right", "reference_right", "draws")]
    places = [ids.index(str(sample_id)) for sample_id in arrays["ids"]]
    columns = [int(np.abs(taus - tau).argmin()) for tau in arrays["taus"]]
    return [[[int(table[i, k]) for table in tables] for k in columns] for i in places]


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
