"""The forgotten samples one by one: how often each row recognizes them, from the counts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.core.counts import Counts
from residuum.core.roles import Role
from residuum.record import Audit
from residuum.record.run import Run
from residuum.reporting.wording import class_name

SAMPLES = "samples.csv"
ON_PAGE = 200  # samples; the file has all
ALPHA = 0.05
PRIVATE = (
    "The list is left out, because it would name the very samples that were to be forgotten. To list samples of your "
    "own data, give `residuum report RUN --samples`."
)
SWITCHED_OFF = "The list is left out because the page was made with --no-samples."
MISSING = "This run has no counts files, so single samples cannot be listed."


@dataclass(frozen=True)
class RowAnswers:
    """One row on n samples, over all seeds and radii above 0.

    `first_radius` is the smallest over the seeds at which a sample is recognized significantly more often than by
    the retrained model. `p` is the smallest of the sign tests of all seeds and radii, times their number (Bonferroni);
    None for an attack without random draws.
    """

    right: NDArray[np.int64]
    reference_right: NDArray[np.int64]
    draws: NDArray[np.int64]
    first_radius: list[float | None]
    p: list[float] | None

    def more_often(self) -> NDArray[np.float64]:
        """Return how much more often than by the retrained model each sample is recognized, as a share of the draws."""
        return (self.right - self.reference_right) / np.maximum(self.draws, 1)


@dataclass(frozen=True)
class SampleTable:
    """All rows of a run under one perturbation, sample by sample."""

    perturbation: str
    ids: list[str]
    classes: list[str]
    rows: dict[str, RowAnswers]


@dataclass(frozen=True)
class SampleList:
    """The tables of one run, the first of which stands on the page; `notes` says what is not shown and why."""

    run: str
    tables: list[SampleTable] = field(default_factory=list)
    shown_rows: list[str] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def csv_lines(self) -> Iterator[dict[str, Any]]:
        """Yield one line for each perturbation, row and sample."""
        for table in self.tables:
            for label, row in table.rows.items():
                for i, sample_id in enumerate(table.ids):
                    yield {
                        "run": self.run,
                        "perturbation": table.perturbation,
                        "id": sample_id,
                        "class": table.classes[i],
                        "model": label,
                        "right": int(row.right[i]),
                        "retrain_right": int(row.reference_right[i]),
                        "draws": int(row.draws[i]),
                        "first_radius": row.first_radius[i],
                        "sign_test_p": row.p[i] if row.p is not None else None,
                    }


def samples_of(run: Run, shown: bool | None) -> SampleList:
    """Return the samples of a run: for public data sets by default, for a user's data only where `shown`."""
    if shown is False:
        return SampleList(run.name, notes=[SWITCHED_OFF])
    if shown is None and not run.record.scenario.public_data:
        return SampleList(run.name, notes=[PRIVATE])
    tables = [table for name in run.perturbations if (table := sample_table(run, name))]
    if not tables:
        return SampleList(run.name, notes=[MISSING])
    rows = [label for label, row in run.rows.items() if row.role is not Role.REFERENCE and label in tables[0].rows]
    lead = np.mean([tables[0].rows[label].more_often() for label in rows], axis=0) if rows else np.zeros(0)
    order = np.argsort(-lead, kind="stable").tolist()
    most = f"Of {len(order)} samples the page lists the {ON_PAGE} that are recognized most; {SAMPLES} has all."
    return SampleList(run.name, tables, rows, order[:ON_PAGE], [most] if len(order) > ON_PAGE else [])


def sample_table(run: Run, perturbation: str) -> SampleTable | None:
    """Return the answers of every row whose counts are stored; None without any."""
    audits = {label: row.audits(perturbation) for label, row in run.rows.items()}
    stored = {
        label: [Counts.load(run.folder / audit.counts) for audit in row_audits]
        for label, row_audits in audits.items()
        if row_audits and all(audit.counts and (run.folder / audit.counts).is_file() for audit in row_audits)
    }
    if not stored:
        return None
    first = next(iter(stored.values()))[0]
    names = run.record.scenario.class_names
    ids = list(first.ids)
    rows = {label: row_answers(ids, counts, audits[label]) for label, counts in stored.items()}
    return SampleTable(perturbation, ids, [class_name(int(label), names) for label in first.labels], rows)


def row_answers(ids: Sequence[str], counts: Sequence[Counts], audits: Sequence[Audit]) -> RowAnswers:
    """Return one row over its seeds, in the order of `ids`."""
    from residuum.theory.empirical import sign_test_p

    totals, p_values = np.zeros((3, len(ids)), np.int64), []
    for table in (of_seed.subset(ids) for of_seed in counts):
        parts = (table.draws, table.method_right, table.reference_right, table.both_right)
        draws, right, reference, both = (part[:, table.taus > 0].astype(np.int64) for part in parts)
        totals += np.stack([draws, right, reference]).sum(axis=2)
        p_values.append(sign_test_p(right - both, reference - both))
    tests = np.concatenate(p_values, axis=1)
    exact = audits[0].settings.enumerated or not tests.shape[1]
    p = None if exact else np.minimum(1.0, tests.min(axis=1) * tests.shape[1]).tolist()
    draws, right, reference = totals
    radii = [[r for audit in audits if (r := audit.first_radius.get(sample_id)) is not None] for sample_id in ids]
    return RowAnswers(right, reference, draws, [min(of_seeds, default=None) for of_seeds in radii], p)
