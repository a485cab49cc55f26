"""One summary of a run: everything that terminal, page, LaTeX, CSV and figures show, each derived here once."""

import statistics
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import quote

from residuum.core.roles import Role
from residuum.judging.conditions import one_answer
from residuum.record import Curve, ProbeRow, Quantity, RelearnSummary, Row, RowJudgment, Spread, Summary, over_seeds
from residuum.record.run import Run
from residuum.reporting.glossary import GAP, MEASURES, METRICS, MIA, Measure

QUANTITIES: dict[Quantity, str] = {"r": "residual", "G": "G", "M": "M"}  # and their columns, of the first perturbation


@dataclass(frozen=True)
class Cell:
    """One value: the number, its spread, its gap to the retrained model, its text, and where the record has it."""

    value: float | None
    text: str
    std: float | None = None
    gap: float | None = None
    note: str = ""
    best: bool = False
    source: str = ""


NOTHING = Cell(None, "–")


def source(*steps: object) -> str:
    """Return the path of a value in the record: its keys, percent-encoded, to compare a page with the record.

    >>> source("methods", "gd:epochs=1", "summary")
    'methods/gd%3Aepochs%3D1/summary'
    """
    return "/".join(quote(str(step), safe="") for step in steps)


@dataclass(frozen=True)
class RowSummary:
    """One row over its seeds; `judgment` is None for retrained models, because the others are judged by them."""

    run: str
    label: str
    row: Row
    judgment: RowJudgment | None
    cells: dict[str, Cell]

    @property
    def role(self) -> Role:
        """What the row is."""
        return self.row.role

    def seed_curves(self, perturbation: str, measure: str) -> list[Curve]:
        """Return a measure over the radii, one curve for each seed."""
        return [audit.curve(measure) for audit in self.row.audits(perturbation)]

    def curve(self, perturbation: str, measure: str) -> Curve:
        """Return the mean over seeds with the hull of the seeds' intervals."""
        return over_seeds(self.seed_curves(perturbation, measure))


@dataclass(frozen=True)
class RunSummary:
    """All rows of a run with everything that is shown of them."""

    run: Run
    rows: list[RowSummary]

    @cached_property
    def taus(self) -> dict[str, list[float]]:
        """The radii of each perturbation."""
        audited = {name: [row.audits(name) for row in self.run.rows.values()] for name in self.run.perturbations}
        return {name: next(audits[0].taus for audits in rows if audits) for name, rows in audited.items()}

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures of the audit: built-in ones, then the user's."""
        curves = {key: curve for *_, audit in self.run.record.each_audit() for key, curve in audit.measures.items()}
        return (*MEASURES, *(Measure(key, c.title, c.title, c.meaning, c.neutral) for key, c in curves.items()))

    def audited(self, perturbation: str) -> list[RowSummary]:
        """Return the rows that were audited under a perturbation."""
        return [row for row in self.rows if row.row.audits(perturbation)]

    def first_shown(self, most: int) -> list[str]:
        """Return the rows a plot shows at first: all if few, else the original and the smallest average gaps."""
        candidates = [row for row in self.rows if row.role is not Role.REFERENCE]
        if len(candidates) <= most:
            return [row.label for row in candidates]
        originals = [row.label for row in candidates if row.role is Role.ORIGINAL]
        gaps = {row.label: row.cells[GAP.key].value for row in candidates if row.role is Role.METHOD}
        ranked = sorted(gaps, key=lambda label: (gaps[label] is None, gaps[label] or 0.0))
        shown = {*originals, *ranked[: most - len(originals)]}
        return [row.label for row in candidates if row.label in shown]


@lru_cache(maxsize=64)
def summary_of(run: Run) -> RunSummary:
    """Return the summary of a run, made once.

    The smallest gap among the methods is marked in each column, unless most methods share it.
    """
    rows = [
        RowSummary(run.name, label, row, run.verdicts.get(label), _cells(run, label, row))
        for label, row in run.rows.items()
    ]
    methods = [row for row in rows if row.role is Role.METHOD]
    for key in (*(column.key for column in METRICS), GAP.key):
        gaps = [gap for row in methods if (gap := row.cells[key].gap) is not None]
        if not gaps or 2 * gaps.count(min(gaps)) > len(gaps):
            continue
        for row in methods:
            row.cells[key] = replace(row.cells[key], best=row.cells[key].gap == min(gaps))
    return RunSummary(run, rows)


def _cells(run: Run, label: str, row: Row) -> dict[str, Cell]:
    record = run.record
    reference = record.reference.summary if record.reference else Summary()
    gap, cost = row.summary.average_gap, record.cost(list(row.per_seed.values()))
    places = {c.key: source("methods", label, "summary", c.key) for c in METRICS}
    cells = {k: _metric_cell(row.summary.metric(k), reference.metric(k), place) for k, place in places.items()}
    if answer := one_answer(record, row):
        cells[MIA.key] = replace(NOTHING, note=f"attack calls every sample {answer}")
    relearn = row.summary.relearn_epochs
    median = None if relearn is None else float("inf") if relearn.median is None else relearn.median
    cells["relearn_epochs"] = NOTHING if relearn is None else Cell(median, relearn_text(relearn))
    of_gap = source("methods", label, "summary", "average_gap")
    cells["average_gap"] = NOTHING if gap is None else Cell(gap, f"{gap:.2f}", gap=gap, source=of_gap)
    for quantity, key in QUANTITIES.items():
        cells[key] = NOTHING
        if finding := record.finding(label, run.perturbations[0], quantity) if run.perturbations else None:
            std = statistics.pstdev(finding.seeds) if len(finding.seeds) > 1 else None
            note = f"{finding.perturbation}, all radii"
            cells[key] = Cell(finding.value(), f"{finding.value():.2f}", std=std, note=note)
    cells["cost"] = NOTHING if cost is None else Cell(cost, f"{cost:.1f}")
    return cells


def _metric_cell(value: Spread | None, reference: Spread | None, place: str) -> Cell:
    if value is None:
        return NOTHING
    gap, std = None if reference is None else abs(value.mean - reference.mean), value.std if value.n > 1 else None
    sources = f"{place}/mean" if std is None else f"{place}/mean {place}/std"
    return Cell(value.mean, f"{value.mean:.2f}", std=std, gap=gap, source=sources)


def relearn_text(summary: RelearnSummary) -> str:
    """Return the median number of epochs, with the number of seeds that did not get there before the cap.

    >>> relearn_text(RelearnSummary(median=4.0, censored=1, n=3)), relearn_text(
    ...     RelearnSummary(median=None, censored=3, n=3)
    ... )
    ('4 (1/3 > cap)', '> cap')
    """
    if summary.median is None:
        return "> cap"
    return f"{summary.median:g}" + (f" ({summary.censored}/{summary.n} > cap)" if summary.censored else "")


class ProbeSummary(NamedTuple):
    """One probe: its name, what its number means, its noise floor, and its value for each row."""

    name: str
    meaning: str
    floor: str
    rows: dict[str, ProbeRow]

    @property
    def notes(self) -> list[str]:
        """Why rows have no value, without repetition."""
        return list(dict.fromkeys(row.note for row in self.rows.values() if row.note))


def mark_meaning(run: Run) -> str:
    """Return what the mark at a probe's value means."""
    models = "the surrogates" if run.record.scenario.settings.surrogates else "retrained models"
    return f"more than {models} show (p at most 5 %)"


def probes_of(run: Run) -> list[ProbeSummary]:
    """Return the probes of a run, in the order in which the study names them."""
    summaries = []
    for name in dict.fromkeys(name for row in run.rows.values() for name in row.probes):
        rows = {label: row.probes[name] for label, row in run.rows.items() if name in row.probes}
        widest = max(rows.values(), key=lambda row: row.retrained or 0)
        floor = "–" if widest.floor is None else f"{widest.floor[0]:.2f} to {widest.floor[1]:.2f} ({widest.retrained})"
        summaries.append(ProbeSummary(name, widest.meaning, floor, rows))
    return summaries


def value_text(probe: ProbeRow | None) -> str:
    """Return the value of a probe, its ends, and a mark if it differs from retrained models.

    >>> value_text(ProbeRow(value=0.6, low=0.5, high=0.7, p=0.01, found=True)), value_text(None)
    ('0.60 [0.50, 0.70] *', '–')
    """
    if probe is None or probe.value is None:
        return "–"
    ends = "" if probe.low is None or probe.high is None else f" [{probe.low:.2f}, {probe.high:.2f}]"
    return f"{probe.value:.2f}{ends}{' *' if probe.found else ''}"
