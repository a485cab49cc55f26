"""What stopping at the verdict changes: verdicts on re-trained models and originals with all draws and with fewer.

    python benchmarks/until_verdict.py --pool FOLDER [--trials 600]

The pool and the runs are those of false_alarms.py, under Gaussian noise. The row stops as in a run; "bar of all draws"
is what it gets where another row makes the controls go on to the end. The tables are in markdown, in per cent.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from false_alarms import DESIGNS, EVIDENCE, Shown, Trial, drawn_runs, judged_values
from retrain_pool import Floats, Pool, Rounds

from residuum.reporting.level_rule import ERROR, Judgement, judge_scores
from residuum.reporting.stopping import at_stake, draw_reach, value_error

DRAWS = [13, 25, 50, 100]


class StoppedRun:
    """One run: shares and errors of every seed, model (the row first) and round, (S, rounds, 1 + k, T)."""

    def __init__(self, groups: list[Rounds], names: list[list[str]], samples: int) -> None:
        found = [group.of(chosen) for group, chosen in zip(groups, names, strict=True)]
        self.own, self.reference, self.errors = (np.stack([each[k] for each in found]) for k in range(3))
        self.samples = samples

    def at(self, array: Floats, rounds: Floats) -> Floats:
        """Return an array after the given round of each radius, (S, 1 + k, T)."""
        return np.stack([array[:, int(number), :, t] for t, number in enumerate(rounds)], axis=-1)

    def judgement(self, row: Floats, controls: Floats) -> Judgement:
        """Return what the rule says after these rounds of the row and of the controls."""
        own, reference = self.at(self.own, row)[:, 0], self.at(self.reference, row)[:, 0]
        others, beside = self.at(self.own, controls)[:, 1:], self.at(self.reference, controls)[:, 1:]
        value, against, _, least = judged_values(
            Trial(Shown(own, reference), Shown(others, beside), self.samples), "sample"
        )
        known = judged_values(Trial(Shown(own, beside[:, 0]), Shown(others, beside), self.samples), "sample")[2]
        return judge_scores(value, against, reference=known, least_spread=least)

    def stopped(self) -> Floats:
        """Return the round after which each radius stops."""
        rounds = np.zeros(self.own.shape[-1])
        for number in range(len(DRAWS) - 1):
            judged = self.judgement(rounds, rounds)
            left = np.sqrt(1 - np.array(DRAWS)[rounds.astype(int)] / DRAWS[-1])
            smaller = np.minimum(self.at(self.own, rounds), self.at(self.reference, rounds))
            errors = value_error(self.at(self.errors, rounds) * left, smaller, self.samples)
            stake = at_stake(judged, draw_reach(errors[:, 0], errors[:, 1:], judged, ERROR))
            rounds = rounds + ((stake[1:] | stake[0]) & (rounds == number))
        return rounds


def checked_rounds(pool: Pool, i: int) -> Rounds:
    """Return the rounds of group i, whose last has the shares that an audit of all draws at once gave."""
    rounds, whole = pool.rounds("gaussian", i, DRAWS), pool.audited("gaussian", "forget", i)
    for k, name in enumerate(rounds.names):
        np.testing.assert_allclose(rounds.own[-1, k], whole.own[name], atol=1e-12)
        np.testing.assert_allclose(rounds.reference[-1, k], whole.reference[name], atol=1e-12)
    return rounds


def line(pool: Pool, groups: list[Rounds], design: tuple[int, int], kind: str, many: int) -> str:
    """Return one line of a table."""
    counted, samples = EVIDENCE if kind == "retrain" else ("found",), len(pool.samples["forget"])
    words: list[tuple[str, str, str]] = []
    spent = []
    for chosen, names in drawn_runs(pool, *design, kind, many):
        run = StoppedRun([groups[i] for i in chosen], names, samples)
        end, all_draws = run.stopped(), np.full(run.own.shape[-1], len(DRAWS) - 1)
        words.append(
            tuple(run.judgement(*each).word for each in ((all_draws, all_draws), (end, end), (end, all_draws)))
        )
        spent.append(np.mean(np.array(DRAWS)[end.astype(int)]) / DRAWS[-1])
    rates = [100 * np.mean([each[k] in counted for each in words]) for k in range(3)]
    other = [100 * np.mean([each[0] != each[k] for each in words]) for k in (1, 2)]
    cells = [*rates, *other, 100 * np.mean(spent)]
    return f"| {design[0]} × {design[1]} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=600)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pool = Pool(arguments.pool)
    groups = [checked_rounds(pool, i) for i in range(pool.references)]
    for kind, said in (("retrain", "evidence against re-trained models"), ("original", "originals found")):
        print(f"\n| seeds × controls | {said}: all draws | stopped | stopped, bar of all draws |", end="")
        print(" other word | other word, bar of all draws | draws made |\n" + "|---" * 7 + "|")
        for design in DESIGNS:
            print(line(pool, groups, design, kind, arguments.trials), flush=True)


if __name__ == "__main__":
    sys.exit(main())
