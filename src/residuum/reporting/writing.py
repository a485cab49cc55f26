"""Write a report: the page and the tables."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from residuum.core.errors import InputError
from residuum.core.files import locked, write_whole
from residuum.record import Results
from residuum.record.folder import REPORT_OF, STATEMENT, note_written, noted_packs, request_folders, was_noted
from residuum.record.run import Run, load_runs, named_apart
from residuum.reporting.exports import csv_table, csv_text, latex_table
from residuum.reporting.gallery import gallery_of
from residuum.reporting.page import page_text
from residuum.reporting.request_report import index_text, requests_csv
from residuum.reporting.samples import SAMPLES, samples_of


def write_report(
    runs: Run | Path | str | Sequence[Run | Path | str],
    page: Path | str | None = None,
    *,
    gallery: bool | None = None,
    samples: bool | None = None,
    out: Path | str | None = None,
) -> list[Path]:
    """Write report.html, table.tex, table.csv, samples.csv from stored results; return the files.

    `runs` is a run or its folder (with results.json), or several, which are then compared on one page. The files are
    written to `out`; by default to the run's folder, or for several runs to `comparison` next to the first.
    `page` names a file for one more copy of the page. `gallery` shows pictures of forgotten samples, `samples` lists
    them by their ids, on the page and in samples.csv; None means only for data sets with a public name. No model is
    loaded. The folder of a sequence of requests gets index.html and requests.csv, and every request's run its own
    report; `out` then has the same folders.
    """
    sources = [runs] if isinstance(runs, Run | Path | str) else list(runs)
    folders = [source.folder if isinstance(source, Run) else Path(source) for source in sources]
    if len(folders) == 1 and not isinstance(sources[0], Run) and (steps := _sequence(folders[0])):
        target = folders[0] if out is None else Path(out)
        return _write_requests(folders[0], steps, target, gallery=gallery, samples=samples)
    with ExitStack() as stack:
        # in one order everywhere: no two reports can wait for each other
        for folder in sorted({folder.resolve() for folder in folders if folder.is_dir()}):
            stack.enter_context(locked(folder))
        read = [source if isinstance(source, Run) else Run.load(source) for source in sources]
        files = _write_runs(named_apart(read), gallery, samples, out)
    return files if page is None else [_copy_page(files[0], Path(page), folders[0]), *files]


def loaded_runs(folders: Sequence[Path]) -> list[Run]:
    """Return the runs of these folders; the folder of a sequence of requests has one for each."""
    return load_runs((_sequence(folders[0]) if len(folders) == 1 else []) or folders)


def _sequence(folder: Path) -> list[Path]:
    """Return the runs of a sequence of requests in a folder; none if the folder itself is that of a run."""
    return [] if (folder / Results.FILE).exists() else request_folders(folder)


def _write_runs(runs: list[Run], gallery: bool | None, samples: bool | None, out: Path | str | None) -> list[Path]:
    galleries = [gallery_of(run, gallery) for run in runs]
    lists = [samples_of(run, samples) for run in runs]
    default = runs[0].folder if len(runs) == 1 else runs[0].folder.parent / "comparison"
    target = default if out is None else Path(out)
    packs = {
        pack.name: "evidence pack"
        for run in runs
        for pack in noted_packs(run.folder)
        if pack.parent == target.resolve()
    }
    statement = {STATEMENT: "statement to print"} if (target / STATEMENT).is_file() else {}
    texts = {
        "report.html": page_text(runs, galleries, lists, links=packs | statement),
        "table.tex": latex_table(runs),
        "table.csv": csv_table(runs),
    }
    if sample_lines := [line for sample_list in lists for line in sample_list.csv_lines()]:
        texts[SAMPLES] = csv_text(sample_lines)
    with _writing_to(target):
        if any(was_noted(target, run.folder) for run in runs):
            (target / SAMPLES).unlink(missing_ok=True)  # an earlier report listed ids, this one may not
        for run in runs:
            note_written(target, REPORT_OF, run.folder)
        for name, text in texts.items():
            write_whole(target / name, text)
    return [target / name for name in texts]


def _write_requests(
    folder: Path, steps: Sequence[Path], target: Path, gallery: bool | None, samples: bool | None
) -> list[Path]:
    runs = load_runs(steps)
    numbers = [run.record.sequence.number if run.record.sequence else 0 for run in runs]
    total = runs[-1].record.sequence.of if runs[-1].record.sequence else 0
    if numbers != [*range(1, total + 1)]:
        there = ", ".join(map(str, numbers))
        raise InputError(f"{folder}: expected the runs of requests 1 to {total}, got {there}; run them again")
    texts = {"index.html": index_text(runs), "requests.csv": requests_csv(runs)}
    with _writing_to(target):
        for run in runs if target.resolve() != folder.resolve() else ():
            note_written(target, REPORT_OF, run.folder)
        for name, text in texts.items():
            write_whole(target / name, text)
    reports = [write_report(run.folder, gallery=gallery, samples=samples, out=target / run.folder.name) for run in runs]
    return [*(target / name for name in texts), *(path for report in reports for path in report)]


def _copy_page(page: Path, target: Path, run: Path) -> Path:
    """Write a copy of a run's page, whole or not at all; return where it is."""
    with _writing_to(target.parent):
        note_written(target, REPORT_OF, run)
        write_whole(target, page.read_bytes())
    return target


@contextmanager
def _writing_to(target: Path) -> Iterator[None]:
    try:
        target.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror}; choose another folder with --out") from None
