"""Write a report: the page, the table for a paper and the figures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from residuum.errors import InputError
from residuum.reporting.exports import csv_table, latex_table
from residuum.reporting.figures import write_figures
from residuum.reporting.page import page_text
from residuum.reporting.paper import compare, load_published
from residuum.reporting.pictures import gallery_of
from residuum.reporting.records import load_runs
from residuum.reporting.requests import FILE, index_text, load_requests, requests_csv


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
    means for data sets with a public name only. No model is loaded. The folder of a sequence of requests gets
    index.html and requests.csv, and every request's run its own report; `out` then has the same folders.
    """
    folders = [folder] if isinstance(folder, Path | str) else list(folder)
    if len(folders) == 1 and (Path(folders[0]) / FILE).is_file():
        return _write_requests(Path(folders[0]), paper, gallery, Path(folders[0] if out is None else out))
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
    with _writing_to(target):
        files = [_write(target / name, text) for name, text in texts.items()]
        return [*files, *write_figures(runs, target / "figures")]


def _write_requests(folder: Path, paper: Path | str | None, gallery: bool | None, target: Path) -> list[Path]:
    record = load_requests(folder)
    steps = [request["folder"] for request in record["requests"]]
    texts = {
        "index.html": index_text(record, load_runs([folder / step for step in steps])),
        "requests.csv": requests_csv(record),
    }
    with _writing_to(target):
        files = [_write(target / name, text) for name, text in texts.items()]
    reports = [write_report(folder / step, paper=paper, gallery=gallery, out=target / step) for step in steps]
    return [*files, *(path for report in reports for path in report)]


@contextmanager
def _writing_to(target: Path) -> Iterator[None]:
    try:
        target.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror}; choose another folder with --out") from None


def _write(path: Path, text: str) -> Path:
    aside = path.with_name(f".{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
    return path
