"""All files of the tutorial picture, from what a run stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from residuum.experiments.picture import Picture
from residuum.reporting.contrast import caption
from residuum.reporting.picture import write_drawings
from residuum.reporting.picture_page import write_page


def write_picture(record: Mapping[str, Any], folder: Path) -> str | None:
    """Write figures/NAME.svg, .png, .html and .txt (the caption) of a run that has pictures; return the caption."""
    if not record["scenario"]["settings"].get("picture"):
        return None
    pictures = [Picture.load(folder / "pictures" / f"{seed}.npz") for seed in record["seeds"]]
    place, name = folder / "figures", str(record["scenario"]["name"])
    write_drawings(pictures, place, name)
    write_page(pictures, place / f"{name}.html")
    words = caption(pictures)
    (place / f"{name}.txt").write_text(words + "\n", encoding="utf-8")
    return words
