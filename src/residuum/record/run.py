"""A finished run: the record, and the folder that it stands in."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from residuum.core.errors import InputError, plural
from residuum.record import Results, Row, RowJudgment
from residuum.record.folder import check_counts, check_files


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """One stored run: its folder, a name that is unique on a page, and the record.

    `Run.load("runs/digits")` reads what `residuum run` wrote; `run(study)` returns the same.
    """

    folder: Path
    name: str
    record: Results

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """Read the run in this folder (or in the folder of this results.json)."""
        return _load(Path(folder))

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

    @property
    def perturbations(self) -> list[str]:
        """What was audited, in the order of the settings."""
        return self.record.perturbations

    @property
    def verdicts(self) -> dict[str, RowJudgment]:
        """What was concluded of each row that has a verdict, as the record says it."""
        return self.record.verdicts

    def __repr__(self) -> str:
        size = f"{plural(len(self.rows), 'row')}, {plural(len(self.seeds), 'seed')}"
        verdicts = "; ".join(f"{label}: {judgment.verdict}" for label, judgment in self.verdicts.items())
        return f"Run({self.name!r}, {size}, folder={str(self.folder)!r}): {verdicts}"

    def _repr_html_(self) -> str:
        """Return the verdicts as an HTML table, for notebooks."""
        rows = [(label, j.verdict.label, j.verdict.sentence) for label, j in self.verdicts.items() if j.verdict]
        rows += [(label, "failed", reason) for label, reason in self.record.failed.items()]
        lines = [f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows]
        head = "<tr><th>Model</th><th>Verdict</th><th>Meaning</th></tr>"
        return f"<table><caption>{html.escape(self.name)}</caption>{head}{''.join(lines)}</table>"


def load_runs(folders: Sequence[Path | str]) -> list[Run]:
    """Read the records of these folders (or of paths to results.json); names are made unique by the folder's."""
    return named_apart([_load(Path(folder)) for folder in folders])


def _load(place: Path) -> Run:
    home = place.parent if place.name == Results.FILE else place
    record = Results.load(home)
    check_files(home, record)
    check_counts(home, record)
    return Run(home, record.scenario.name, record)


def named_apart(runs: Sequence[Run]) -> list[Run]:
    """Return runs under names that differ, those of their scenarios or folders; the same run twice is an error."""
    if not runs:
        raise InputError("expected at least one run folder, got none")
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise InputError(f"expected different runs, got {', '.join(str(run.folder) for run in runs)}")
    for names in ([run.name for run in runs], [run.folder.resolve().name for run in runs]):
        if len(set(names)) == len(names):
            break
    else:
        names = [str(run.folder) for run in runs]
    return [run if run.name == name else replace(run, name=name) for run, name in zip(runs, names, strict=True)]
