"""How often a verdict speaks against re-trained models that pose as unlearned, and how often it finds originals.

    python benchmarks/false_alarms.py --pool FOLDER [--trials 300] [--only gaussian,pgd] [--measures r,M]

The pool (see retrain_pool.py) is made on the first call, which takes about half an hour on one core, and resumed if
interrupted. A trial is a run of digits (see pool_runs.py) judged as a whole, with gates and limits of utility, as the
report does. The tables are in markdown: the share of trials with the verdicts that the table counts, "inc." where all
are inconclusive.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import torch
from pool_runs import DESIGNS, Shares, audit_of, drawn_runs, record_of
from retrain_pool import PERTURBATIONS, SETS, Pool

from residuum.judging import judged_record
from residuum.record import RowJudgment, Verdict

Design = tuple[int, int]  # seeds, and controls of each
Verdicts = dict[tuple[str, str, Design], Counter[Verdict]]  # by measure, row and design
EVIDENCE = (Verdict.FOUND, Verdict.OVER_FORGOTTEN, Verdict.MIXED, Verdict.NOT_COMPARABLE)
TABLES = {"unlearned": "called anything but clean or inconclusive", "original": "originals found"}


class Judged:
    """The verdicts of all trials under one perturbation."""

    def __init__(self, pool: Pool, perturbation: str, measures: list[str], designs: list[Design], trials: int) -> None:
        self.pool, self.perturbation, self.designs, self.trials = pool, perturbation, designs, trials
        self.sets = SETS if {"G", "M"} & set(measures) else SETS[:1]
        groups = range(pool.references)
        self.found = {part: [pool.audited(perturbation, part, i) for i in groups] for part in self.sets}
        self.verdicts: Verdicts = {}
        for design in designs:
            self.judge_design(design, measures)

    def judge_design(self, design: Design, measures: list[str]) -> None:
        """Judge the trials of one design."""
        for drawn in drawn_runs(self.pool, *design, self.trials):
            record = judged_record(record_of(self.pool, self.perturbation, drawn, self.audited))
            for label in TABLES:
                for measure in measures:
                    verdict = verdict_on(record.judgments[label], measure)
                    self.verdicts.setdefault((measure, label, design), Counter())[verdict] += 1

    def audited(self, i: int, label: str, name: str) -> dict[str, object]:
        """Return the audit of a model of group i."""
        forgotten, *heldout = (
            Shares(of[i].own[name], of[i].reference[name]) for of in (self.found[part] for part in self.sets)
        )
        draws = [100] * len(forgotten.own)
        return audit_of(self.pool, self.perturbation, forgotten, draws, heldout[0] if heldout else None)

    def line(self, measure: str, label: str) -> str:
        """Return one line of a table."""
        counted = EVIDENCE if label == "unlearned" else (Verdict.FOUND,)
        cells = [cell(self.verdicts[measure, label, design], counted) for design in self.designs]
        return f"| {self.perturbation}{'' if measure == 'r' else f', {measure}'} | " + " | ".join(cells) + " |"

    def refused(self) -> float:
        """Return the largest share of trials in which the reference was called not comparable, in per cent."""
        return max(100 * verdicts[Verdict.NOT_COMPARABLE] / self.trials for verdicts in self.verdicts.values())


def verdict_on(judgment: RowJudgment, measure: str) -> Verdict:
    """Return the verdict, or what the rule says of memory (M)."""
    if measure == "r" or judgment.memory is None:
        return judgment.verdict or Verdict.INCONCLUSIVE
    return Verdict.FOUND if judgment.memory.above else Verdict.NOT_DETECTED


def cell(words: Counter[Verdict], counted: tuple[Verdict, ...]) -> str:
    """Return the share of the words that count, in per cent."""
    if set(words) == {Verdict.INCONCLUSIVE}:
        return "inc."
    return f"{100 * sum(words[word] for word in counted) / words.total():.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--only", default=",".join(PERTURBATIONS))
    parser.add_argument("--measures", default="r")
    parser.add_argument("--designs", default=",".join(f"{s}x{k}" for s, k in DESIGNS), help="seeds x controls of each")
    parser.add_argument("--class-form", action="store_true", help="forget the whole class instead of half of it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pool = Pool(arguments.pool, overrides={"forget.forget_fraction": None} if arguments.class_form else {})
    measures = arguments.measures.split(",")
    designs = [(int(seeds), int(controls)) for seeds, controls in (d.split("x") for d in arguments.designs.split(","))]
    judged = [Judged(pool, name, measures, designs, arguments.trials) for name in arguments.only.split(",")]
    for label, title in TABLES.items():
        print(f"\n| {title} | " + " | ".join(f"{s}x{k}" for s, k in designs) + " |")
        print("|---" * (1 + len(designs)) + "|")
        for measure in measures:
            for each in judged:
                print(each.line(measure, label), flush=True)
    print("\nreference not comparable, largest share, %: " + f"{max(each.refused() for each in judged):.1f}")


if __name__ == "__main__":
    sys.exit(main())
