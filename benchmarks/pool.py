"""The models behind the calibration: retrained, original, unlearned, and trained for fewer or more epochs.

    python benchmarks/pool.py FOLDER [NAME ...] [--workers 2] [--seeds 20] [--verdicts]
    python benchmarks/pool.py FOLDER --stopping

A pool is a run with many seeds, four controls of each, and a row for each method and each number of epochs. Such a
short or long training never sees the forget set: it is `gd` from fresh weights. `benchmarks/calibration.py` reads the
records. The same command again computes what is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine

from residuum import Study, run
from residuum.studies.execution import Resources

FIRST_SEED = 7001  # nobody tuned on these; version 4 of the rule was chosen on 6001 and later
CONTROLS = 4
EPOCHS = (5, 8, 12, 20, 60)  # of 40
METHODS = ("cr", "ntk", "eu_k", "soft_reset", "ga", "salun", "ssd", "rurk")
WITHOUT_RURK = METHODS[:-1]  # its settings for digits need validation samples
FGSM = ("fgsm", "fgsm:target=random", "fgsm:target=true")
SEARCHED = ("recovery", "depth", "worst_case:restarts=1", "rmia")
TABLES = {"wine": load_wine, "cancer": load_breast_cancer}
MLP = {"model.name": "mlp", "model.width": 100, "train.batch_size": 16, "train.lr": 0.1, "train.weight_decay": 0.0}
CLASS_FORM = {"forget.forget_fraction": None}


@dataclass(frozen=True)
class Pool:
    """One pool: a scenario with changes, its rows, and what is measured on all models."""

    scenario: str = "digits"
    seeds: int = 12
    changes: Mapping[str, Any] = field(default_factory=dict)
    epochs: Sequence[int] = EPOCHS
    methods: Sequence[str] = METHODS
    perturbations: Sequence[str] = ("gaussian", *FGSM)
    measures: Sequence[str] = ()
    pgd: bool = True
    ensembles: bool = False  # U-LiRA and KLoM too, which need the models of all seeds


POOLS = {
    "digits": Pool(measures=(*SEARCHED, "features"), ensembles=True),
    "digits-many": Pool(
        seeds=40, epochs=(), methods=("cr", "ntk", "eu_k", "rurk"), perturbations=("gaussian",), pgd=False
    ),
    "digits-random": Pool("digits-random", measures=(*SEARCHED, "durability:draws=10"), ensembles=True),
    "digits-class": Pool(
        changes=CLASS_FORM,
        methods=("ntk", "eu_k", "soft_reset", "head_only=eu_k:blocks=fc", "head_tuned=cf_k:blocks=fc"),
        perturbations=("gaussian", "fgsm", "fgsm:target=true"),
        measures=("features",),
    ),
    "wine": Pool(
        changes={**MLP, "data.train_size": 124, "data.validation_size": 0, "data.test_size": 54,
                 "forget.forget_class": "class_1"},
        methods=WITHOUT_RURK,
        perturbations=("gaussian", "fgsm"),
        pgd=False,
    ),
    "cancer": Pool(
        changes={**MLP, "data.train_size": 398, "data.validation_size": 0, "data.test_size": 171,
                 "forget.forget_class": "malignant", "forget.forget_fraction": 0.3},
        methods=WITHOUT_RURK,
        perturbations=("gaussian", "fgsm"),
        pgd=False,
    ),
    "fashion": Pool(
        "fashion-mnist",
        changes={"data.train_size": 900, "data.validation_size": 200, "data.test_size": 1000, "model.width": 4,
                 "train.epochs": 40, "train.batch_size": 64, "audit.draws": 50,
                 "forget.forget_class": None, "forget.forget_fraction": 0.05},
        methods=("cr", "eu_k", "soft_reset", "ga", "salun", "ssd"),
        perturbations=("gaussian", "fgsm"),
        measures=("durability:draws=10",),
        pgd=False,
    ),
    "tiny": Pool("tiny", seeds=5, epochs=(5,), methods=("gd",), perturbations=("gaussian", "fgsm"), pgd=False,
                 changes={"forget.forget_class": None, "forget.forget_fraction": 0.2}, measures=("depth",)),
}  # fmt: skip
QUICK = "tiny"  # for tests


def trained_for(epochs: int, scenario: Mapping[str, Any]) -> str:
    """Return the row of models trained from scratch on the retain set for so many epochs."""
    names = ("lr", "momentum", "weight_decay", "batch_size", "schedule", "clip")
    settings = {"keep": 0, "epochs": epochs} | {name: scenario[name] for name in names}
    return f"epochs_{epochs}=gd:" + ":".join(f"{name}={value}" for name, value in settings.items())


def table(name: str, folder: Path) -> str:
    """Write a table of scikit-learn with columns scaled to 0..1, and return its path."""
    bunch, path = TABLES[name](), folder / f"{name}.npz"
    low, high = bunch.data.min(0), bunch.data.max(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    scaled = ((bunch.data - low) / (high - low)).astype(np.float32)
    np.savez(path, x=scaled, y=bunch.target, class_names=np.array(bunch.target_names, str))
    return str(path)


def studies(name: str, folder: Path, seeds: int | None = None, *, verdicts: bool = False) -> dict[str, Study]:
    """Return the studies of a pool by the name of their run: PGD has one of its own, because it needs few draws.

    For `verdicts` alone nothing is probed.
    """
    pool = POOLS[name]
    if verdicts:
        pool = replace(pool, measures=())
    changes = {"controls": CONTROLS, "relearn.epochs": 1, **pool.changes}
    if name in TABLES:
        changes["data.name"] = table(name, folder)
    recipe = Study.create(pool.scenario, overrides=changes).scenario.train
    rows = [*(trained_for(epochs, vars(recipe)) for epochs in pool.epochs), *pool.methods]
    asked = {name: {"audit.perturbations": list(pool.perturbations), "measures": list(pool.measures)}}
    if pool.pgd:
        asked |= {f"{name}-pgd": {"audit.perturbations": ["pgd"], "audit.draws": 4}}
    numbers = range(FIRST_SEED, FIRST_SEED + (seeds or pool.seeds))
    return {
        label: Study.create(pool.scenario, methods=rows, seeds=numbers, overrides={**changes, **of_run})
        for label, of_run in asked.items()
    }


def make(name: str, folder: Path, *, seeds: int | None = None, workers: int = 1, verdicts: bool = False) -> None:
    """Compute what is missing of a pool, and write its records into the folder."""
    for label, study in studies(name, folder, seeds, verdicts=verdicts).items():
        places = {"store": folder / "store", "out": folder / label}
        print(run(study, **places, resources=Resources(workers=workers), gallery=False), flush=True)


def stopping(folder: Path, seeds: int = 12) -> str:
    """Compare the verdicts of `--until verdict` with those of all draws, in runs of three seeds of the digits pool."""
    rows = studies("digits", folder)["digits"].rows
    changed, verdicts, made = 0, 0, []
    for first in range(FIRST_SEED, FIRST_SEED + seeds, 3):
        runs = []
        for until in (None, "verdict"):
            changes = {"relearn.epochs": 1, "audit.until": until, "seeds": list(range(first, first + 3))}
            study = Study.create("digits", overrides=changes).model_copy(update={"rows": rows})
            runs.append(run(study, store=folder / "store", out=folder / f"until-{until}-{first}", gallery=False))
        pairs = [(runs[0].verdicts[label].verdict, judged.verdict) for label, judged in runs[1].verdicts.items()]
        changed, verdicts = changed + sum(a is not b for a, b in pairs), verdicts + len(pairs)
        every = [[audit.draws[1:] for row in one.rows.values() for audit in row.audits("gaussian")] for one in runs]
        made.append(float(np.sum(every[1]) / np.sum(every[0])))
    return f"until the verdict: {changed} of {verdicts} verdicts changed, {100 * np.mean(made):.0f} % of the draws made"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(POOLS)}; default: all but {QUICK}")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="fewer or more than the pool's own")
    parser.add_argument("--verdicts", action="store_true", help="no probes")
    parser.add_argument("--stopping", action="store_true", help="compare --until verdict with all draws")
    asked = parser.parse_args()
    if asked.stopping:
        print(stopping(asked.folder))
        return
    for name in asked.names or [name for name in POOLS if name != QUICK]:
        make(name, asked.folder, seeds=asked.seeds, workers=asked.workers, verdicts=asked.verdicts)


if __name__ == "__main__":
    main()
