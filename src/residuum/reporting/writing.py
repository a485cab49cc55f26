"""Write a report: the page, the table for a paper and the figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from residuum.errors import InputError
from residuum.reporting.exports import csv_table, latex_table
from residuum.reporting.figures import write_figures
from residuum.reporting.page import page_text
from residuum.reporting.paper import compare, load_published
from residuum.reporting.pictures import gallery_of
from residuum.reporting.records import load_runs


def write_report(
    folder: Path | str | Sequence[Path | str],
    *,
    paper: Path | str | None = None,
    gallery: bool | None = None,
    out: Path | str | None = None,
) -> list[Path]:
    """Write report.html, table.tex, table.csv and figures/*.svg|png from stored results; return the files.

    `folder` is the folder of a run (with results.json) or several, which are then compared on one page. The files are
    written beside results.json; for several runs into `comparison` beside the first, or wherever `out` says. `paper` is
    a file of published values (docs/report.md has the format). `gallery` shows pictures of forgotten samples; None
    means for data sets with a public name only. No model is loaded.
    """
    folders = [folder] if isinstance(folder, Path | str) else list(folder)
    runs = load_runs([Path(place) for place in folders])
    published = load_published(Path(paper)) if paper is not None else None
    galleries = [gallery_of(run, gallery) for run in runs]
    compared = None if published is None else [compare(run, published) for run in runs]
    texts = {
        "report.html": page_text(runs, galleries, compared),
        "table.tex": latex_table(runs),
        "table.csv": csv_table(runs),
    }
    target = (
        Path(out) if out is not None else runs[0].folder if len(runs) == 1 else runs[0].folder.parent / "comparison"
    )
    try:
        target.mkdir(parents=True, exist_ok=True)
        files = [_write(target / name, text) for name, text in texts.items()]
        return [*files, *write_figures(runs, target / "figures")]
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror}; choose another folder with --out") from None


def _write(path: Path, text: str) -> Path:
    aside = path.with_name(f".{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
    return path
