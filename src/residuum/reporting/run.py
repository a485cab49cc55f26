"""A finished run: the record in its folder, and what is derived from it once and read by every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.errors import InputError, plural
from residuum.record import Results, Row
from residuum.run_folder import check_counts, check_files

if TYPE_CHECKING:
    import pandas as pd

    from residuum.reporting.gates import Gate
    from residuum.reporting.glossary import Measure
    from residuum.reporting.summary import RunSummary
    from residuum.reporting.verdict import Verdict


@dataclass(frozen=True, repr=False)
class Run:
    """One stored run: its folder, a name that is unique on a page, and the record.

    `Run.load("runs/digits")` reads what `residuum run` wrote; `run(experiment)` returns the same.
    """

    folder: Path
    name: str
    record: Results

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """Read the run in this folder (or beside this results.json)."""
        return load_runs([folder])[0]

    @property
    def form(self) -> str:
        """Return "sample" or "class"."""
        return self.record.scenario.form

    @property
    def rows(self) -> dict[str, Row]:
        """Return label -> row, in the order of the record."""
        return self.record.methods

    @property
    def seeds(self) -> list[str]:
        """Return the seeds as the record's keys."""
        return [str(seed) for seed in self.record.seeds]

    @cached_property
    def perturbations(self) -> list[str]:
        """What was audited, in the order of the settings."""
        return self.record.perturbations

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures of the audit, ours and then the user's own."""
        from residuum.reporting.glossary import MEASURES, Measure

        found = {key: curve for *_, audit in self.record.each_audit() for key, curve in audit.measures.items()}
        own = (Measure(key, c.title, c.title, c.meaning, c.neutral) for key, c in found.items())
        return (*MEASURES, *own)

    @cached_property
    def summary(self) -> RunSummary:
        """Means, intervals, floors, costs and verdicts of all rows."""
        from residuum.reporting.summary import summarise_run

        return summarise_run(self)

    @cached_property
    def gates(self) -> list[Gate]:
        """The conditions under which re-train is a fair reference."""
        from residuum.reporting.verdict import run_gates

        return run_gates(self)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each row that is judged."""
        return {row.label: row.verdict for row in self.summary.rows if row.verdict is not None}

    def report(self, page: Path | str | None = None, **options: Any) -> list[Path]:  # noqa: ANN401 (those of write_report)
        """Write report.html, table.tex, table.csv and figures beside the record; options as `write_report`.

        `page` is where one more copy of the page goes.
        """
        from residuum.reporting.writing import copy_page, write_report

        files = write_report(self, **options)
        return files if page is None else [copy_page(files[0], Path(page), self.folder), *files]

    def pack(self, file: Path | str, **options: Any) -> Any:  # noqa: ANN401 (those, and the result, of residuum.pack.pack)
        """Write the evidence that `residuum verify` checks, without ids, images or paths; options as `pack.pack`."""
        return import_module("residuum.pack").pack(self, file, **options)  # by name: a pack stands above reports

    def to_frame(self, table: str = "results") -> pd.DataFrame:
        """Return the results table, one line a row with its verdict, or with "audits" one a seed and radius."""
        from residuum.reporting.exports import audit_lines, csv_lines

        try:
            import pandas as pd
        except ImportError:
            raise InputError(
                'expected pandas for a data frame, it is not installed; run pip install ".[pandas]" in a clone'
            ) from None
        tables = {"results": csv_lines, "audits": audit_lines}
        if table not in tables:
            raise InputError(f"expected a table of {', '.join(tables)}, got {table!r}")
        return pd.DataFrame(list(tables[table](self)))

    def __repr__(self) -> str:
        size = f"{plural(len(self.rows), 'row')}, {plural(len(self.seeds), 'seed')}"
        words = "; ".join(f"{label}: {verdict.word}" for label, verdict in self.verdicts.items())
        return f"Run({self.name!r}, {size}, folder={str(self.folder)!r}): {words}"

    def _repr_html_(self) -> str:
        from residuum.reporting.page import verdict_fragment

        return verdict_fragment(self)


def load_runs(folders: Sequence[Path | str]) -> list[Run]:
    """Read the records of these folders (or of paths to results.json); names are made unique by the folder's."""
    if not folders:
        raise InputError("expected at least one run folder, got none")
    homes = [given.parent if given.name == Results.FILE else given for given in map(Path, folders)]
    if len({home.resolve() for home in homes}) < len(homes):
        raise InputError(f"expected different runs, got {', '.join(map(str, folders))}")
    records = [Results.load(home) for home in homes]
    for home, record in zip(homes, records, strict=True):
        check_files(home, record)
        check_counts(home, record)
    return [Run(*each) for each in zip(homes, _unique_names(homes, records), records, strict=True)]


def _unique_names(homes: Sequence[Path], records: Sequence[Results]) -> list[str]:
    for names in ([record.scenario.name for record in records], [home.resolve().name for home in homes]):
        if len(set(names)) == len(names):
            return names
    return [str(home) for home in homes]
