"""Stored runs as the report reads them: results.json with the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residuum.errors import InputError

SCHEMA = "residuum.results/1"
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One stored run: its folder, a name that is unique on the page, and the content of results.json."""

    folder: Path
    name: str
    record: Record

    @property
    def form(self) -> str:
        """Return "sample" or "class"."""
        return str(self.record["scenario"]["form"])

    @property
    def rows(self) -> Record:
        """Return label -> row, in the order of the record."""
        return dict(self.record["methods"])

    @property
    def seeds(self) -> list[str]:
        """Return the seeds as the record's keys."""
        return [str(seed) for seed in self.record["seeds"]]

    @property
    def perturbations(self) -> list[str]:
        """Return what was audited, in the order of the settings."""
        listed = self.record["scenario"]["settings"].get("audit", {}).get("perturbations", [])
        audited = {name for row in self.rows.values() for seed in row["per_seed"].values() for name in seed["audits"]}
        return [name for name in listed if name in audited] + sorted(audited - set(listed))

    def audits(self, label: str, perturbation: str) -> list[Record]:
        """Return the audits of a row, one for each seed that has one."""
        seeds = self.rows[label]["per_seed"]
        return [
            seeds[s]["audits"][perturbation]
            for s in self.seeds
            if perturbation in seeds.get(s, {"audits": ()})["audits"]
        ]


def kind(row: Record) -> str:
    """Return what a row is: original, retrain, control or method.

    >>> kind({"method": "control_2"}), kind({"method": "rurk"})
    ('control', 'method')
    """
    method = str(row["method"])
    if method in ("original", "retrain"):
        return method
    return "control" if method == "control" or method.startswith("control_") else "method"


def load_runs(folders: Sequence[Path | str]) -> list[Run]:
    """Read the records of these folders (or of paths to results.json); names are made unique by the folder's."""
    if not folders:
        raise InputError("expected at least one run folder, got none")
    read = [(_folder(Path(given)), _read(Path(given))) for given in folders]
    places = [folder.resolve() for folder, _ in read]
    if len(set(places)) < len(places):
        raise InputError(f"expected different runs, got {', '.join(map(str, folders))}")
    return [Run(folder, name, record) for (folder, record), name in zip(read, _names(read), strict=True)]


def _folder(given: Path) -> Path:
    return given.parent if given.name == "results.json" else given


def _read(given: Path) -> Record:
    return read_record(_folder(given) / "results.json", SCHEMA, "a finished run")


def read_record(path: Path, schema: str, what: str) -> Record:
    """Return the content of a JSON file of this schema, which the folder of `what` has."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected the folder of {what}") from None
    except ValueError:
        raise InputError(f"{path}: expected JSON written by residuum run, got something else") from None
    found = record.get("schema") if isinstance(record, dict) else None
    if found != schema:
        raise InputError(f"{path}: expected schema {schema!r}, got {found!r}")
    return dict(record)


def _names(read: Sequence[tuple[Path, Record]]) -> list[str]:
    names = [str(record["scenario"]["name"]) for _, record in read]
    if len(set(names)) == len(names):
        return names
    folders = [folder.resolve().name for folder, _ in read]
    return folders if len(set(folders)) == len(folders) else [str(folder) for folder, _ in read]
