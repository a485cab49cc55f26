"""How often a verdict speaks against re-trained models that pose as unlearned, and how often it finds originals.

    python benchmarks/false_alarms.py --pool FOLDER [--trials 400] [--only gaussian,pgd] [--measures r,G,M]

The pool (see retrain_pool.py) is made on the first call, which takes about half an hour on one core, and resumed if
interrupted. A trial is a run of digits: for each seed a reference, some controls and one more model, all different and
trained independently; it is judged like a row. The tables are in markdown; in each cell the share of trials with the
verdict the table counts, in brackets the share that is inconclusive.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from retrain_pool import PERTURBATIONS, SETS, Audited, Floats, Pool

from residuum.errors import InputError
from residuum.reporting.level_rule import half_sample, judge_scores, scores

DESIGNS = [(seeds, controls) for seeds in (1, 3, 5) for controls in (1, 2, 4)]
EVIDENCE = ("found", "over", "mixed")


@dataclass(frozen=True)
class Shown:
    """Shares right of S models, (S, T), or of S times k, (S, k, T): their own, and the reference's on their inputs."""

    own: Floats
    reference: Floats


@dataclass(frozen=True)
class Trial:
    """One run: the row and the controls of every seed, on one set of samples."""

    row: Shown
    controls: Shown
    samples: int


def word(trials: dict[str, Trial], measure: str, crafted: bool, form: str) -> str:
    """Return the verdict's word on r, on G (held-out samples) or on M = r / G: the one place that calls the rule."""
    if measure != "M":
        row, controls, reference, least = judged_values(trials["heldout" if measure == "G" else "forget"], form)
    else:
        forget, heldout = (judged_values(trials[part], form) for part in SETS)
        row, controls, reference = (a - b for a, b in zip(forget[:3], heldout[:3], strict=True))
        least = np.hypot(forget[3], heldout[3])
    return judge_scores(row, controls, reference=None if crafted else reference, least_spread=least).word


def judged_values(trial: Trial, form: str) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the values of the row and of the controls, the scores of the references, and the least spread."""
    row, controls, n = trial.row, trial.controls, trial.samples
    reference = scores(row.reference, n, form=form)
    against = scores(controls.own, n, form=form) - scores(controls.reference, n, form=form)
    return (scores(row.own, n, form=form) - reference, against, reference, half_sample(controls.own, n, form=form))


class Material:
    """All groups of the pool under one perturbation."""

    def __init__(self, pool: Pool, perturbation: str, sets: tuple[str, ...]) -> None:
        self.pool = pool
        self.groups = {part: [pool.audited(perturbation, part, i) for i in range(pool.references)] for part in sets}

    def trials(self, seeds: int, controls: int, kind: str, many: int) -> Iterator[dict[str, Trial]]:
        """Yield runs whose row is re-trained or original; no model is twice in one run."""
        for groups, names in drawn_runs(self.pool, seeds, controls, kind, many):
            yield {part: self.trial(part, groups, names) for part in self.groups}

    def trial(self, part: str, groups: list[int], names: list[list[str]]) -> Trial:
        """Return the shares of the chosen models."""
        found = [stacked(self.groups[part][i], chosen) for i, chosen in zip(groups, names, strict=True)]
        own, reference = (np.stack([pair[k] for pair in found]) for k in (0, 1))
        rows, others = Shown(own[:, 0], reference[:, 0]), Shown(own[:, 1:], reference[:, 1:])
        return Trial(rows, others, len(self.pool.samples[part]))


def drawn_runs(
    pool: Pool, seeds: int, controls: int, kind: str, many: int
) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Yield for each run its groups, one a seed, and for each of them the row's model and its controls."""
    rng = np.random.default_rng([seeds, controls])
    for _ in range(many):
        groups = rng.choice(pool.references, seeds, replace=False).tolist()
        names: list[list[str]] = []
        for i in groups:
            names.append(drawn(pool, i, controls, kind, rng, {name for chosen in names for name in chosen}))
        yield groups, names


def drawn(pool: Pool, i: int, controls: int, kind: str, rng: np.random.Generator, used: set[str]) -> list[str]:
    """Return the row's model and the controls of group i, none of them used before."""
    others, originals = (
        [name for name in rng.permutation(names).tolist() if name not in used] for names in pool.members(i)
    )
    row = (others if kind == "retrain" else originals)[:1]
    chosen = [*row, *others[1 : controls + 1]]
    if len(chosen) <= controls:
        raise InputError(f"group {i} of the pool has too few models left for {controls} controls; make it larger")
    return chosen


def stacked(group: Audited, names: list[str]) -> tuple[Floats, Floats]:
    """Return the shares of these models and of the reference beside them, each (models, T)."""
    return np.stack([group.own[name] for name in names]), np.stack([group.reference[name] for name in names])


def cell(words: list[str], counted: tuple[str, ...]) -> str:
    """Return the share of the words that count, and the share of inconclusive ones in brackets."""
    share, unknown = (sum(w in kinds for w in words) / len(words) for kinds in (counted, ("inconclusive",)))
    return f"{100 * share:.1f}" + (f" ({100 * unknown:.0f})" if unknown else "")


def line(material: Material, perturbation: str, measure: str, kind: str, many: int) -> str:
    """Return one line of a table."""
    counted = EVIDENCE if kind == "retrain" else ("found",)
    crafted, form = PERTURBATIONS[perturbation].crafted, material.pool.experiment.splits().form
    cells = [
        cell([word(trial, measure, crafted, form) for trial in material.trials(*design, kind, many)], counted)
        for design in DESIGNS
    ]
    return f"| {perturbation} | {measure} | " + " | ".join(cells) + " |"


def table(materials: dict[str, Material], measures: list[str], kind: str, many: int) -> None:
    """Print one table."""
    said = {"retrain": "Re-trained models with any evidence against them", "original": "Originals found"}[kind]
    print(f"\n{said}, % of {many} trials (inconclusive in brackets), by seeds × controls of each seed\n")
    print("| perturbation | of | " + " | ".join(f"{s} × {k}" for s, k in DESIGNS) + " |")
    print("|---" * (2 + len(DESIGNS)) + "|")
    for measure in measures:
        for perturbation, material in materials.items():
            print(line(material, perturbation, measure, kind, many), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--only", default=",".join(PERTURBATIONS))
    parser.add_argument("--measures", default="r")
    parser.add_argument("--class-form", action="store_true", help="forget the whole class instead of half of it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pool = Pool(arguments.pool, overrides={"forget.forget_fraction": None} if arguments.class_form else {})
    measures = arguments.measures.split(",")
    sets = SETS if {"G", "M"} & set(measures) else SETS[:1]
    materials = {name: Material(pool, name, sets) for name in arguments.only.split(",")}
    for kind in ("retrain", "original"):
        table(materials, measures, kind, arguments.trials)


if __name__ == "__main__":
    sys.exit(main())
