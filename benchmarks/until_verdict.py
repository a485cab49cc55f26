"""What stopping at the verdict changes: verdicts on re-trained models and originals with all draws and with fewer.

    python benchmarks/until_verdict.py --pool FOLDER [--perturbation pgd] [--trials 300] [--groups 40]

The runs are those of false_alarms.py, judged as wholes; `undecided` says after each round what goes on, as in a run.
PGD has 16 draws instead of 100: each is ten gradients. Attacks that are enumerated have no draws to stop. The table is
in markdown, in per cent.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pool_runs import DESIGNS, Drawn, Shares, audit_of, drawn_runs, record_of
from retrain_pool import Pool, Rounds

from residuum.judging import judged_record, undecided
from residuum.record import Results, Verdict

DRAWS = {"gaussian": [13, 25, 50, 100], "pgd": [2, 4, 8, 16]}
EVIDENCE = (Verdict.FOUND, Verdict.OVER_FORGOTTEN, Verdict.MIXED, Verdict.NOT_COMPARABLE)
Ends = dict[str, NDArray[np.int64]]  # label -> the round after which each radius stopped


class Stopping:
    """The runs of a pool under one perturbation, made round by round."""

    def __init__(self, pool: Pool, perturbation: str) -> None:
        self.pool, self.perturbation, self.draws = pool, perturbation, DRAWS[perturbation]
        self.taus = pool.taus(perturbation)
        self.groups = [pool.rounds(perturbation, i, self.draws) for i in range(pool.references)]

    def record(self, drawn: Drawn, ends: Ends) -> Results:
        """Return the record of a run whose rows and radii stopped after these rounds."""

        def audited(i: int, label: str, name: str) -> dict[str, object]:
            shares = shares_after(self.groups[i], name, ends[label])
            draws = [self.draws[end] for end in ends[label]]
            return audit_of(self.pool, self.perturbation, shares, draws, None)

        return record_of(self.pool, self.perturbation, drawn, audited)

    def stopped(self, drawn: Drawn) -> Ends:
        """Return after which round each row and radius stops."""
        ends = {label: np.zeros(len(self.taus), np.int64) for label in drawn.models[0]}
        for number in range(1, len(self.draws)):
            going = undecided(self.record(drawn, ends), self.draws[-1])
            rows, taus = going.get(self.perturbation, ([], []))
            for label in rows:
                ends[label] = np.where(np.isin(self.taus, taus), number, ends[label])
        return ends


def shares_after(rounds: Rounds, name: str, ends: NDArray[np.int64]) -> Shares:
    """Return the shares of a model after the given round of each radius."""
    column, radii = rounds.names.index(name), np.arange(len(ends))
    arrays = (rounds.own, rounds.reference, rounds.own_errors, rounds.errors)
    return Shares(*(array[ends, column, radii] for array in arrays))


def line(stopping: Stopping, design: tuple[int, int], many: int) -> list[float]:
    """Return the rates of one design: for either kind of row all draws, stopped, other words; then draws made."""
    verdicts: dict[str, list[tuple[Verdict | None, Verdict | None]]] = {"unlearned": [], "original": []}
    spent = []
    for drawn in drawn_runs(stopping.pool, *design, many):
        ends = stopping.stopped(drawn)
        last = {label: np.full_like(end, len(stopping.draws) - 1) for label, end in ends.items()}
        whole, stopped = (judged_record(stopping.record(drawn, rounds)).verdicts for rounds in (last, ends))
        for label, pairs in verdicts.items():
            pairs.append((whole[label].verdict, stopped[label].verdict))
        made = [np.take(stopping.draws, end) for end in ends.values()]
        spent.append(np.mean(made) / stopping.draws[-1])
    rates = [rate for label, counted in (("unlearned", EVIDENCE), ("original", (Verdict.FOUND,)))
             for rate in summarized(verdicts[label], counted)]  # fmt: skip
    return [*rates, 100 * float(np.mean(spent))]


def summarized(words: list[tuple[str, str]], counted: tuple[str, ...]) -> list[float]:
    """Return how often the words with all draws and those of the stopped run count, and how often they differ."""
    rates = [np.mean([pair[k] in counted for pair in words]) for k in (0, 1)]
    return [100 * float(rate) for rate in (*rates, np.mean([a != b for a, b in words]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--perturbation", choices=list(DRAWS), default="gaussian")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--groups", type=int, default=40, help="references to draw from, each with its own group")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stopping = Stopping(Pool(arguments.pool, references=arguments.groups), arguments.perturbation)
    titles = ["re-trained called anything but clean or inconclusive, all draws", "the same until the verdict",
              "another word", "originals found, all draws", "the same until the verdict", "another word",
              "draws made"]  # fmt: skip
    columns = [line(stopping, design, arguments.trials) for design in DESIGNS]
    print(f"| {arguments.perturbation}, % | " + " | ".join(f"{s}x{k}" for s, k in DESIGNS) + " |")
    print("|---" * (1 + len(DESIGNS)) + "|")
    for title, values in zip(titles, zip(*columns, strict=True), strict=True):
        print(f"| {title} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


if __name__ == "__main__":
    sys.exit(main())
