"""Settings of the digits scenario on development seeds: what `tune` picks without re-train, and what re-train says.

    python benchmarks/tune_digits.py [METHOD ...] [--grid "keep=0.2,0.3 epochs=12" ...] [--seeds ...] [--points 1.5]
                                   [--store FOLDER] [--json FILE]

Development seeds are 1 to 10 without 7, which is one of the seeds that are reported; no test image is looked at. Every
method gets its grid (GRIDS, or for a single one --grid). `tune` chooses first, by models trained briefly without the
forgotten samples. Then all settings are compared with re-train: the best is the one with the smallest mean over seeds
and radii of |r - 1| among those whose mean validation accuracy is at most --points below re-train's. soft_reset is
meant to be cheap, and its weak side is accuracy: the demo has, among those of at most 30 % of the cost and within one
standard error of the smallest distance of these, the one with the best validation accuracy. The last lines say how much
worse tune's pick is than the best of its grid.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from residuum import Study, tune
from residuum.cli.tune import grid_points, row_text
from residuum.studies import plan
from residuum.studies.execution import Resources
from residuum.studies.runner import run_stages
from residuum.studies.store import Store
from residuum.studies.study import parse_row
from residuum.tuning import Scores, Tuning, planned, read_scores, scored, with_parents

DRAWS = 40
CHEAP = 0.3  # of re-training's passes
INNOCENTS, EPOCHS = 2, 10  # tune's defaults here
ROLES = ("retrain", "original", "control")
SOFTENED = "lr=0.05 batch_size=64 epochs=10 schedule_epochs=10 tau=0.3 spread=uniform cap=validation"
GRIDS = {  # one product of fields for each text
    "gd": ["lr=0.01,0.1 epochs=10"],
    "ngd": ["lr=0.1 sigma=0.03,0.1 epochs=10"],
    "ga": ["lr=1e-5,0.03,0.05 epochs=1,3"],
    "neggrad": [
        "beta=0.001,0.03,0.1 epochs=1,3 cap=none,2.3",
        "beta=0.001,0.003,0.01 keep=0.3 lr=0.05 batch_size=64 epochs=10 schedule=cosine",
    ],
    "eu_k": ["lr=0.01,0.05 epochs=10,20"],
    "cf_k": ["lr=0.01,0.1 epochs=10"],
    "scrub": [
        "lr=0.0005,0.001,0.002 epochs=3,5 clip=none,1 forget_batch_size=44",
        "lr=0.01,0.05 msteps=1,2 keep=0.3 batch_size=64 epochs=10 clip=1 forget_batch_size=44",
    ],
    "ssd": ["alpha=70,80,90,100"],
    "fisher": ["alpha=1e-6,2e-6,3e-6"],
    "ntk": ["weight_decay=10 guard=2 double=true"],
    "cr": ["l2=3e-4,1e-3 std=0.3,1,10"],
    "rurk": ["lambda=0.03 tau=0.03,0.2 epochs=2,4", f"lambda=0.001,0.003,0.01 keep=0.3 penalty=ce,capped {SOFTENED}"],
    "soft_reset": [
        "keep=0,0.2,0.3,0.4,0.6,0.8,1 epochs=5,10,20",
        "keep=0.2,0.3,0.4,0.5,0.6,0.7 share=0.3 batch_share=0.25,0.5,1",
    ],
    "teacher": ["share=0.4 tau=0.1,0.3 epochs=4"],
    "salun": ["lr=1e-4,3e-4,0.01 epochs=3"],
    "amun": ["lr=0.01,0.03 epochs=10"],
    "msg": ["lr=0.01,0.05 damp=1 layers=conv,all"],
    "ct": ["lr=0.001,0.01 epochs=3,10"],
    "falw": ["lr=1e-4,3e-4,0.01 epochs=3"],
    "regun": ["lr=0.01 lambda_f=0.5,2 epochs=3,10"],
}


def study(method: str, seeds: list[int]) -> Study:
    points = [point for text in GRIDS[method] for point in grid_points(method, text.split())]
    bare = Study.create("digits", methods=[], seeds=seeds, overrides={"audit.draws": DRAWS})
    # the scenario's own settings do not enter: fields that a grid does not name have the method's defaults
    return bare.model_copy(update={"rows": [parse_row(row_text(method, point)) for point in points]})


def roles(seeds: list[int], store: Store) -> dict[str, list[Scores]]:
    asked = study("gd", seeds)
    stages = {role: [scored(own.models[role], asked, own.seed) for own in plan(asked)] for role in ROLES}
    wanted = {stage.key: stage for own in stages.values() for last in own for stage in with_parents(last)}
    run_stages(list(wanted.values()), store)
    return {role: [read_scores(stage, store) for stage in own] for role, own in stages.items()}


def facts(found: Sequence[Scores], known: dict[str, list[Scores]]) -> dict[str, Any]:
    """Return what re-train says of one setting: r by seed and radius, and means."""
    r = [(one.forgotten / own.forgotten).tolist() for one, own in zip(found, known["retrain"], strict=True)]
    return {
        "r": r,
        "distance": fmean(abs(value - 1) for own in r for value in own),
        "validation": fmean(one.validation for one in found),
        "lost": [own.validation - one.validation for one, own in zip(found, known["retrain"], strict=True)],
        "unlearn": [100 * (1 - float(one.forgotten[0])) for one in found],
        "cost": fmean(one.passes / own.passes for one, own in zip(found, known["retrain"], strict=True)),
    }


def measured(method: str, seeds: list[int], known: dict[str, list[Scores]], store: Store) -> dict[str, Any]:
    """Let tune choose, then compare every setting with re-train."""
    asked = study(method, seeds)
    found = tune(asked, store=store.root, resources=Resources())
    stages = planned(asked, INNOCENTS, EPOCHS)
    tried = [one for one in found.tried if not one.failed]
    rows = {one.label: facts([read_scores(own[one.label], store) for own in stages], known) for one in tried}
    for one in tried:
        rows[one.label]["tune"] = one.distance
    return {"rows": rows, "picked": picked(found), "cost": found.passes / found.retraining}


def picked(found: Tuning) -> str | None:
    return found.chosen.label if found.chosen else None


def best(rows: dict[str, Any], least: float) -> str | None:
    useful = [label for label, row in rows.items() if row["validation"] >= least]
    return min(useful, key=lambda label: rows[label]["distance"], default=None)


def within_an_error(rows: dict[str, Any], least: float) -> str | None:
    """Return, of the cheap settings that cannot be told from the best of them, the one with the best accuracy."""
    cheap = {label: row for label, row in rows.items() if row["cost"] <= CHEAP + 1e-9}
    top = best(cheap, least)
    if top is None:
        return None
    by_seed = [fmean(abs(value - 1) for value in own) for own in cheap[top]["r"]]
    limit = cheap[top]["distance"] + stdev(by_seed) / len(by_seed) ** 0.5
    near = [label for label, row in cheap.items() if row["validation"] >= least and row["distance"] <= limit]
    return max(near, key=lambda label: (cheap[label]["validation"], -cheap[label]["distance"]))


def line(label: str, row: dict[str, Any]) -> str:
    ratios = " ".join(f"{fmean(column):.2f}" for column in zip(*row["r"], strict=True))
    low, high = min(row["unlearn"]), max(row["unlearn"])
    seen = f" tune {row['tune']:.3f}" if "tune" in row else ""
    return (
        f"{label:75s} validation {row['validation']:.2f} (lost at most {max(row['lost']):.1f}) "
        f"unlearn {fmean(row['unlearn']):5.2f} ({low:.0f}-{high:.0f}) "
        f"cost {row['cost']:.2f} |r-1| {row['distance']:.3f}{seen}  r {ratios}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(GRIDS))
    parser.add_argument("--grid", action="append", help="settings of one METHOD instead of GRIDS; repeatable")
    parser.add_argument("--seeds", default="1,2,3,4,5,6,8,9,10")
    parser.add_argument("--points", type=float, default=1.5, help="of validation accuracy that may be lost")
    parser.add_argument("--store", type=Path, default=Path(".residuum/store"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.grid and len(arguments.methods) != 1:
        parser.error(f"expected one METHOD beside --grid, got {len(arguments.methods)}")
    if arguments.grid:
        GRIDS[arguments.methods[0]] = arguments.grid
    seeds, store = [int(seed) for seed in arguments.seeds.split(",")], Store(arguments.store)
    known = roles(seeds, store)
    results = {"roles": {role: facts(found, known) for role, found in known.items()}}
    for role, row in results["roles"].items():
        print(line(role, row))
    least = results["roles"]["retrain"]["validation"] - arguments.points
    for method in arguments.methods:
        results[method] = own = measured(method, seeds, known, store)
        for label, row in own["rows"].items():
            print(line(label, row))
        own["best"] = best(own["rows"], least)
        print(f"best: {own['best']}")
        if method == "soft_reset":
            own["chosen"] = within_an_error(own["rows"], least)
            print(f"chosen for the demo: {own['chosen']}")
        if own["picked"] and own["best"]:
            pick, top = (own["rows"][own[key]]["distance"] for key in ("picked", "best"))
            ratio = f"{pick:.3f} against {top:.3f}, {pick / top:.2f} times"
            print(f"tune: {own['picked']}: |r-1| {ratio}, for {100 * own['cost']:.0f} % of a re-training", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
