"""All files of the tutorial picture, from what a run stored."""

from __future__ import annotations

from pathlib import Path

from residuum.experiments.picture import Picture
from residuum.reporting.contrast import caption
from residuum.reporting.picture import write_drawings
from residuum.reporting.picture_page import write_page
from residuum.reporting.run import Run


def write_picture(run: Run, folder: Path) -> list[Path]:
    """Write NAME.svg, .png, .html and .txt (the caption) into a folder; return the files."""
    name = run.record.scenario.name
    pictures = [Picture.load(run.folder / "pictures" / f"{seed}.npz") for seed in run.seeds]
    write_drawings(pictures, folder, name)
    write_page(pictures, folder / f"{name}.html")
    (folder / f"{name}.txt").write_text(caption(pictures) + "\n", encoding="utf-8")
    return [folder / f"{name}.{ending}" for ending in ("svg", "png", "html", "txt")]
