"""What the other witnesses of a run say, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from residuum.record import Row, WitnessRow

if TYPE_CHECKING:
    from residuum.reporting.run import Run

PARTS = ("value", "low", "high", "p", "found")


class Said(NamedTuple):
    """One witness: its name, what its number means, what re-trained models show, and what it says of each row."""

    name: str
    meaning: str
    floor: str
    rows: dict[str, WitnessRow]

    @property
    def notes(self) -> list[str]:
        """Why rows have no value, each reason once."""
        return list(dict.fromkeys(row.note for row in self.rows.values() if row.note))


def found_words(run: Run) -> str:
    """Return what a found witness means."""
    whom = "the stand-ins" if run.record.scenario.settings.stand_ins else "re-trained models"
    return f"more than {whom} show (p at most 5 %)"


def witnesses_of(run: Run) -> list[Said]:
    """Return what each witness says, in the order of the measures asked for."""
    names = dict.fromkeys(name for row in run.rows.values() for name in row.witnesses)
    return [_said(run, name) for name in names]


def _said(run: Run, name: str) -> Said:
    rows = {label: row.witnesses[name] for label, row in run.rows.items() if name in row.witnesses}
    widest = max(rows.values(), key=lambda row: row.innocents or 0)
    floor = "–" if widest.floor is None else f"{widest.floor[0]:.2f} to {widest.floor[1]:.2f} ({widest.innocents})"
    return Said(name, widest.meaning, floor, rows)


def value_text(said: WitnessRow | None) -> str:
    """Return value, ends and whether it was found.

    >>> value_text(WitnessRow(value=0.6, low=0.5, high=0.7, p=0.01, found=True)), value_text(None)
    ('0.60 [0.50, 0.70] *', '–')
    """
    if said is None or said.value is None:
        return "–"
    ends = "" if said.low is None or said.high is None else f" [{said.low:.2f}, {said.high:.2f}]"
    return f"{said.value:.2f}{ends}{' *' if said.found else ''}"


def csv_cells(row: Row) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a row's witnesses: value, ends, p and whether it was found."""
    for name, said in row.witnesses.items():
        yield from ((name if part == "value" else f"{name}_{part}", getattr(said, part)) for part in PARTS)
