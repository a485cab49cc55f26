"""Tables for the terminal: the run's summary, in columns that fit the width."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from residuum.errors import fitted, plural
from residuum.record import Curve
from residuum.reporting import wording
from residuum.reporting.evidence import Quantity, find
from residuum.reporting.glossary import AXES, COST, GAP, MEASURES, METRICS, RELEARN
from residuum.reporting.run import Run
from residuum.reporting.summary import Cell, RowSummary, found_words, value_text, witnesses_of

Column = tuple[str, list[str]]
PIPE_WIDTH = 160  # columns of a table that no terminal shows


def console() -> Console:
    """Return standard output, as wide as the terminal; nothing in a text is taken for markup."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, markup=False, emoji=False)


def print_tables(make: Callable[[int], Iterable[Table]]) -> None:
    """Print the tables that fit the width of standard output."""
    screen = console()
    for table in make(screen.width):
        screen.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines: nothing in them is taken for markup or cut, and a terminal has them broken between words."""
    for line in lines:
        console().print(fitted(line, sys.stdout), soft_wrap=True, highlight=False)


def fitting_tables(
    names: Sequence[str],
    columns: Sequence[Column],
    width: int,
    *,
    title: str,
    caption: str = "",
    apart: int = 0,
    groups_of: int = 0,
    repeated: int = 0,
) -> Iterator[Table]:
    """Yield tables of at most this width: as many columns as fit beside the models' names, the rest in a next table.

    The last `apart` rows stand apart, or every `groups_of` rows; the first `repeated` columns stand in every table.
    Names that would fill half of the width are folded.
    """
    named = min(max(map(len, ["Model", *names])), max(8, width // 2))
    fixed, rest = list(columns[:repeated]), columns[repeated:]
    parts = list(_fitting(rest, width - named - 4 - sum(map(_width, fixed))))
    for k, part in enumerate(parts):
        head = title if k == 0 else f"{title.partition(':')[0]}, continued"
        table = Table(title=Text(head), caption=Text(caption) if k == len(parts) - 1 else None)
        table.add_column("Model", overflow="fold", max_width=named)
        for heading, _ in (*fixed, *part):
            table.add_column(Text(heading), justify="right", overflow="fold")
        for place, name in enumerate(names):
            if (apart and place == len(names) - apart) or (groups_of and place % groups_of == 0):
                table.add_section()
            table.add_row(Text(name), *(Text(cells[place]) for _, cells in (*fixed, *part)))
        yield table


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
    """Yield all tables of a run: verdicts, the literature's measures, and residual knowledge by perturbation."""
    yield verdict_table(run)
    yield from metrics_tables(run, width)
    for perturbation in run.perturbations:
        yield from residual_tables(run, perturbation, width)
        yield from memory_tables(run, perturbation, width)
        yield from prevalence_tables(run, perturbation, width)
        yield from own_tables(run, perturbation, width)
    yield from witness_tables(run, width)


def verdict_table(run: Run) -> Table:
    """Return the page's verdicts, in the same words."""
    caption = Text(" ".join(filter(None, [wording.headline(run), wording.nothing_to_forget(run)])))
    table = Table(title=Text(f"{run.name}: verdicts"), caption=caption, show_lines=True)
    table.add_column("Model", overflow="fold")
    table.add_column("Verdict", overflow="fold")
    for label, verdict in run.verdicts.items():
        sentences = [f"Note: {note}." for note in wording.unchanged_note(run, label)]
        table.add_row(Text(label), Text("\n".join([verdict.word, wording.verdict_sentence(run, verdict), *sentences])))
    for label, reason in run.record.failed.items():
        table.add_row(Text(label), Text(f"failed: no results\n{reason}"))
    return table


def metrics_tables(run: Run, width: int) -> Iterator[Table]:
    """Yield the literature's table: mean ± standard deviation (gap to re-train) over the seeds, in per cent."""
    rows = run.summary.rows
    columns = [(c.short, [_metric_text(row.cells[c.key]) for row in rows]) for c in METRICS]
    columns += [(c.short, [row.cells[c.key].text for row in rows]) for c in (RELEARN, GAP)]
    columns += [(f"{COST.short} %", [row.cells[COST.key].text for row in rows])]
    title = f"{run.name}: mean ± std over {plural(len(run.seeds), 'seed')} (gap to re-train)"
    yield from fitting_tables([row.label for row in rows], columns, width, title=title)


def _metric_text(cell: Cell) -> str:
    if cell.value is None:
        return cell.text
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    return f"{cell.text}{spread}" + ("" if cell.gap is None else f" ({cell.gap:.2f})")


def residual_tables(run: Run, perturbation: str, width: int) -> Iterator[Table]:
    """Yield r(tau) per row: the mean of the seeds' pooled ratios, [lowest low, highest high] of their intervals."""
    rows, floor = run.summary.audited(perturbation), run.summary.floors[perturbation]["pooled"]
    curves = [row.curve(perturbation, "pooled") for row in rows]
    axis, taus = AXES.get(perturbation, "radius"), run.summary.taus[perturbation]
    texts = [[_point_text(curve, k) for k in range(len(taus))] for curve in curves]
    floors = [] if floor is None else [[_interval(*ends) for ends in zip(floor.low, floor.high, strict=True)]]
    yield from fitting_tables(
        [*(row.label for row in rows), *("noise floor" for _ in floors)],
        [(f"{tau:g}", [text[k] for text in (*texts, *floors)]) for k, tau in enumerate(taus)],
        width,
        title=f"Residual knowledge r under {perturbation}: mean over seeds [lowest, highest end of the intervals]",
        caption=f"r > 1: recognises perturbed forgotten samples more often than re-train. Columns: {axis}.",
        apart=len(floors),
    )


def _point_text(curve: Curve, k: int) -> str:
    value, low, high = curve.at(k)
    return "–" if value is None else f"{value:.2f} {_interval(low, high)}"


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def memory_tables(run: Run, perturbation: str, width: int) -> Iterator[Table]:
    """Yield what held-out samples and the original add: r, G and M over all radii; kappa and D at a large radius."""
    rows = [row for row in run.summary.audited(perturbation) if find(run, row.row, perturbation, "G")]
    quantities: tuple[Quantity, ...] = ("r", "G", "M")
    columns = [(str(name), [_level_text(run, row, perturbation, name) for row in rows]) for name in quantities]
    for title, measure in (("completeness", "completeness"), ("nearer to", "nearer")):
        curves, taus = [row.curve(perturbation, measure) for row in rows], run.summary.taus[perturbation]
        known = [k for k, tau in enumerate(taus) if tau > 0 and all(curve.value[k] is not None for curve in curves)]
        if known:
            columns.append((f"{title} ({taus[known[-1]]:g})", [_point_text(curve, known[-1]) for curve in curves]))
    if rows:
        yield from fitting_tables(
            [row.label for row in rows],
            columns,
            width,
            title=f"Class or samples, under {perturbation}: means over seeds [95 % interval, or ends of the seeds']",
            caption="r = G x M: G on held-out samples of the class, M memory of these samples. Completeness: 0 as the "
            "original, 1 as re-train. Nearer to: below 0 re-train, above 0 the original.",
        )


def _level_text(run: Run, row: RowSummary, perturbation: str, quantity: Quantity) -> str:
    finding = find(run, row.row, perturbation, quantity)
    if finding is None or math.isnan(finding.judgement.half_interval[0]):
        return "–" if finding is None else f"{finding.value():.2f}"
    return wording.estimate_words(finding.value(), *finding.interval(), finding.form)


def prevalence_tables(run: Run, perturbation: str, width: int) -> Iterator[Table]:
    """Yield the share of forgotten samples that a model recognises significantly more often than re-train does."""
    rows: list[RowSummary] = run.summary.audited(perturbation)
    shares = [row.significant(perturbation) for row in rows]
    columns = [
        (f"{tau:g}", ["–" if share[k] is None else f"{100 * (share[k] or 0.0):.1f}" for share in shares])
        for k, tau in enumerate(run.summary.taus[perturbation])
    ]
    yield from fitting_tables(
        [row.label for row in rows],
        columns,
        width,
        title=f"Recognised more often than by re-train under {perturbation}: % of forgotten samples, mean over seeds",
        caption="Sign test per sample, false discoveries at most 5 %. Chance alone does what the control shows.",
    )


def own_tables(run: Run, perturbation: str, width: int) -> Iterator[Table]:
    """Yield one table for each measure of the user's own."""
    rows, taus = run.summary.audited(perturbation), run.summary.taus[perturbation]
    for measure in run.measures[len(MEASURES) :]:
        curves = [row.curve(perturbation, measure.key) for row in rows]
        yield from fitting_tables(
            [row.label for row in rows],
            [(f"{tau:g}", [_own_text(curve, k) for curve in curves]) for k, tau in enumerate(taus)],
            width,
            title=f"{measure.title} under {perturbation}: mean over seeds",
            caption=measure.meaning,
        )


def _own_text(curve: Curve, k: int) -> str:
    value = curve.value[k]
    return _point_text(curve, k) if curve.low or value is None else f"{value:.2f}"


def witness_tables(run: Run, width: int) -> Iterator[Table]:
    """Yield what the other witnesses say of each row, if any was asked."""
    said = witnesses_of(run)
    if said:
        yield from fitting_tables(
            list(run.rows),
            [(one.name, [value_text(one.rows.get(label)) for label in run.rows]) for one in said],
            width,
            title="Other witnesses: means over seeds [lowest, highest end of the intervals]",
            caption=f"*: {found_words(run)}. A witness that finds nothing proves nothing.",
        )
