"""Tables for the terminal: the run's summary, in columns that fit the width."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from residuum.core.console import fitted
from residuum.core.errors import plural
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.durability import durability_chip
from residuum.reporting.glossary import COST, GAP, METRICS, RELEARN
from residuum.reporting.summary import Cell, summary_of

Column = tuple[str, list[str]]
PIPE_WIDTH = 160  # columns of a table that no terminal shows


def console() -> Console:
    """Return standard output, as wide as the terminal; rich markup is off."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, markup=False, emoji=False)


def print_tables(make: Callable[[int], Iterable[Table]]) -> None:
    """Print the tables that fit the width of standard output."""
    screen = console()
    for table in make(screen.width):
        screen.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without markup or truncation; on a terminal, they wrap between words."""
    for line in lines:
        console().print(fitted(line, sys.stdout), soft_wrap=True, highlight=False)


def _width(column: Column) -> int:
    return max(map(len, [column[0], *column[1]])) + 3


def _fitting(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    part: list[Column] = []
    for column in columns:
        if part and sum(map(_width, part)) + _width(column) > room:
            yield part
            part = []
        part.append(column)
    yield part


def run_tables(run: Run, width: int) -> Iterator[Table]:
    """Yield the tables of a run: verdicts and metrics; everything else is on the page."""
    yield verdict_table(run)
    yield from metrics_tables(run, width)


def verdict_table(run: Run) -> Table:
    """Return the page's verdicts, in the same words."""
    lines = [
        wording.headline(run),
        wording.nothing_to_forget(run),
        wording.not_judged(run),
        wording.recommendation(run),
    ]
    caption = Text(" ".join(filter(None, lines)))
    table = Table(title=Text(f"{run.name}: verdicts"), caption=caption, show_lines=True)
    table.add_column("Model", overflow="fold")
    table.add_column("Verdict", overflow="fold")
    for label, judgment in run.verdicts.items():
        notes = [f"Note: {note}." for note in wording.unchanged_note(run, label)]
        durability = durability_chip(run.rows[label])
        notes += [durability.sentence] if durability else []
        notes += [f"Decoys: {run.record.decoys[label]}"] if label in run.record.decoys else []
        lines = [
            wording.verdict_badge(judgment),
            " · ".join(chip.label for chip in wording.chips(judgment)),
            wording.verdict_sentence(run, judgment),
            wording.differs(judgment),
            *notes,
        ]
        table.add_row(Text(label), Text("\n".join(filter(None, lines))))
    for label, reason in run.record.failed.items():
        table.add_row(Text(label), Text(f"failed: no results\n{reason}"))
    return table


def metrics_tables(run: Run, width: int) -> Iterator[Table]:
    """Yield the literature's table, in per cent; columns that do not fit the width stand in further tables.

    Values are mean ± standard deviation over seeds (gap to the retrained model).
    """
    rows = summary_of(run).rows
    columns = [(c.short, [_metric_text(row.cells[c.key]) for row in rows]) for c in METRICS]
    columns += [(c.short, [row.cells[c.key].text for row in rows]) for c in (RELEARN, GAP)]
    columns += [(f"{COST.short} %", [row.cells[COST.key].text for row in rows])]
    named = min(max(map(len, ["Model", *run.rows])), max(8, width // 2))
    for k, part in enumerate(_fitting(columns, width - named - 4)):
        seeds = plural(len(run.seeds), "seed")
        about = "continued" if k else f"mean ± std over {seeds} (gap to the retrained model)"
        table = Table(title=Text(f"{run.name}{',' if k else ':'} {about}"))
        table.add_column("Model", overflow="fold", max_width=named)
        for heading, _ in part:
            table.add_column(Text(heading), justify="right", overflow="fold")
        for place, row in enumerate(rows):
            table.add_row(Text(row.label), *(Text(cells[place]) for _, cells in part))
        yield table


def _metric_text(cell: Cell) -> str:
    if cell.value is None:
        return cell.text
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    return f"{cell.text}{spread}" + ("" if cell.gap is None else f" ({cell.gap:.2f})")
