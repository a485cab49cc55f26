"""The decoy audit on retrained models, originals and unlearned models: false alarms, power, and what it agrees with.

    python benchmarks/decoys.py choose --pool FOLDER    # candidates for the score, on development seeds
    python benchmarks/decoys.py measure --pool FOLDER   # the chosen score on fresh seeds
    python benchmarks/decoys.py tables decoys.csv       # the tables of docs/guides/decoys.md, and the candidates

`choose` and `measure` write their lines to --out, decoys.csv by default, in place of those of the same data. Every seed
has a split of its own. What is computed stays below FOLDER, so that an interrupted command goes on where it stopped.
About 40 minutes on one core; --quick shows in a minute that everything works.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from residuum import Request
from residuum.auditing.decoys import permutation_test, two_sample_test
from residuum.auditing.probes.base import log_odds
from residuum.core.errors import ResiduumWarning
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.data import load_dataset
from residuum.models import build_model, forward
from residuum.record import Verdict
from residuum.record.decoys import DecoyConclusion
from residuum.request.decoys import PER_DECOY, drawn_decoys
from residuum.request.study import AuditOptions
from residuum.studies import Study
from residuum.studies.retraining import trained_by
from residuum.unlearning import make_method

Floats = NDArray[np.float64]
SMALL = {
    "data.train_size": 1500,
    "data.validation_size": 500,
    "data.test_size": 2000,
    "model.name": "mlp",
    "model.width": 100,
}
OVERRIDES: dict[str, dict[str, object]] = {"digits": {}, "digits-random": {}, "fashion-mnist": SMALL}
DECOYS = {"digits": (200,), "digits-random": (50, 200, 400), "fashion-mnist": (50, 200, 500)}
FEW = 50  # decoys, with which candidates differ most
RETRAINED_MODELS = {"digits": (40, 25), "digits-random": (200, 5), "fashion-mnist": (200, 5)}
FRESH = {"digits": range(1000, 1003), "digits-random": range(1000, 1008), "fashion-mnist": range(1000, 1008)}
RADII, NOISY = (0.05, 0.15), 10  # of the noise that candidates are measured under, and copies
ORIGINAL, RETRAINED, SHORT = "original", "retrained", "retrained, a tenth of the epochs"
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Size:
    """How many models and trials; development and fresh seeds share none."""

    development: range = range(6)
    fresh: Mapping[str, range] = field(default_factory=FRESH.copy)
    retrained: Mapping[str, tuple[int, int]] = field(default_factory=RETRAINED_MODELS.copy)  # and trials of each
    originals: int = 12
    gates: int = 50
    audits: range = range(1000, 1003)
    decoys: Mapping[str, Sequence[int]] = field(default_factory=DECOYS.copy)


QUICK = Size(
    range(1),
    dict.fromkeys(DECOYS, range(1000, 1001)),
    dict.fromkeys(DECOYS, (2, 2)),
    1,
    1,
    range(1000, 1001),
    dict.fromkeys(DECOYS, (50,)),
)


@cache
def study_of(data: str, seed: int) -> Study:
    """Return the scenario, on a part of the data where these are many, with a split of the seed's own."""
    return Study.create(data, overrides={**OVERRIDES[data], "data.split_seed": seed})


def request_of(data: str, seed: int) -> Request:
    """Return the scenario's request as one of a user's."""
    study = study_of(data, seed)
    splits, recipe = study.splits(), study.scenario.train
    return Request(
        splits.train, splits.forget.ids, held_out=splits.test, validation=splits.validation, recipe=recipe, name=data
    )


def fresh_of(data: str, seed: int) -> nn.Module:
    """Return an untrained network."""
    study = study_of(data, seed)
    dataset = study.dataset()
    constants = {"width": study.scenario.model.width, "mean": dataset.mean, "std": dataset.std}
    return build_model(study.scenario.model.name, dataset.shape, dataset.classes, seed=seed, **constants)


def original_of(data: str, seed: int) -> nn.Module:
    """Return a network trained on all training samples."""
    study = study_of(data, seed)
    start, recipe = fresh_of(data, seed), study.scenario.train
    return trained_by(recipe, start, study.splits().train, child_seed(seed, "original")).model


def all_rows(data: str) -> list[str]:
    """Return the models of a case: the original, two that never saw the samples, and every method of the scenario."""
    return [ORIGINAL, RETRAINED, SHORT, *(row.label for row in study_of(data, 0).rows)]


def models_of(data: str, seed: int, decoys: int, rows: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    """Yield the models of a case."""
    request, study = request_of(data, seed), study_of(data, seed)
    start = fresh_of(data, seed) if set(rows) <= {RETRAINED} else original_of(data, seed)
    asked = request.with_decoys(drawn_decoys(request, decoys, seed))
    settings = {row.label: row for row in study.rows}
    for label in rows:
        if label == ORIGINAL:
            yield label, start
        elif label == RETRAINED:
            yield label, asked.retrained(start, 0, seed=seed).model
        elif label == SHORT:
            recipe = study.scenario.train
            short = replace(recipe, epochs=max(1, recipe.epochs // 10))
            yield label, trained_by(short, start, asked.splits.retain, child_seed(seed, "short")).model
        else:
            method = make_method(settings[label].method, settings[label].settings)
            yield label, request.unlearn(start, method, seed=seed, decoys=decoys).model


@dataclass(frozen=True)
class Case:
    """Margins (1 + radii, n) of each row on decoys (part 0), held-out samples (1) and validation samples (2)."""

    labels: NDArray[np.int64]
    part: NDArray[np.int64]
    margins: Mapping[str, Floats]


def case_of(pool: Path, data: str, seed: int, decoys: int, rows: Sequence[str], *, noisy: bool = False) -> Case:
    """Return a case, made now or read; rows that are missing are added."""
    path = pool / f"{data}-{decoys}{'-noisy' if noisy else ''}" / f"{seed}.npz"
    stored = {}
    if path.exists():
        with np.load(path) as file:
            stored = {name: file[name] for name in file.files}
    if missing := [row for row in rows if row not in stored]:
        request = request_of(data, seed)
        ids, train = set(drawn_decoys(request, decoys, seed)), request.source.samples
        ours = train.subset([row for row, name in enumerate(train.ids) if name in ids])
        parts = [ours, request.splits.test, request.splits.validation]
        stored["labels"] = np.concatenate([part.y.numpy() for part in parts])
        stored["part"] = np.repeat(np.arange(3), [len(part) for part in parts])
        for label, model in models_of(data, seed, decoys, missing):
            stored[label] = margins_of(model, parts, RADII if noisy else (), seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **stored)
    return Case(stored["labels"], stored["part"], {row: stored[row] for row in rows})


def margins_of(model: nn.Module, parts: Sequence[Samples], radii: Sequence[float], seed: int) -> Floats:
    """Return clean margins, and their means over noisy copies at each radius, (1 + radii, n)."""
    rows = []
    for part in parts:
        assert isinstance(part.x, torch.Tensor)
        noise = torch.Generator().manual_seed(seed)
        columns = [log_odds(forward(model, part), part.y)]
        for tau in radii:
            copies = [(part.x + tau * torch.randn(part.x.shape, generator=noise)).clamp(0, 1) for _ in range(NOISY)]
            noisy = [log_odds(forward(model, replace(part, x=x)), part.y) for x in copies]
            columns.append(torch.stack(noisy).mean(0))
        rows.append(torch.stack(columns).numpy())
    return np.nan_to_num(np.concatenate(rows, axis=1))


def probability(margins: Floats) -> Floats:
    """Return the probability of the true class, the score that was chosen."""
    return np.exp(-np.logaddexp(0, -margins))


def in_class_ranks(values: Floats, labels: NDArray[np.int64]) -> Floats:
    """Return ranks within classes, as shares."""
    ranks = np.empty(len(values))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ranks[rows] = (values[rows].argsort().argsort() + 0.5) / len(rows)
    return ranks


def candidates(margins: Floats, labels: NDArray[np.int64]) -> dict[str, Floats]:
    """Return the candidates' scores by name."""
    clean, *noisy = margins
    scores = {
        "probability": probability(clean),
        "log-likelihood": -np.logaddexp(0, -clean),
        "root of the loss": -np.sqrt(np.logaddexp(0, -clean)),
        "right or wrong": (clean > 0).astype(float),
        "rank of the margin": in_class_ranks(clean, labels),
    }
    scores |= {
        f"margin above the {100 * q:.0f} % quantile": (clean > np.quantile(clean, q)) * 1.0 for q in (0.04, 0.08, 0.15)
    }
    for tau, mean in zip(RADII, noisy, strict=True):
        scores[f"probability, noise {tau}"] = probability(mean)
        scores[f"above 8 %, noise {tau}"] = (mean > np.quantile(mean, 0.08)) * 1.0
        scores[f"against its own average, noise {tau}"] = in_class_ranks(clean - mean, labels)
    return scores


COMBINED = ("probability", "margin above the 8 % quantile", "rank of the margin", "probability, noise 0.05")


def largest_p(scores: Sequence[Floats], side: NDArray[np.bool_], labels: NDArray[np.int64], permutations: int) -> float:
    """Return p of the largest of several standardized differences, calibrated by permuting all of them together."""
    rng, tests = np.random.default_rng(0), []
    drawn = np.repeat(side[:, None], 1 + permutations, axis=1)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        drawn[rows, 1:] = rng.permuted(drawn[rows, 1:], axis=0)
    for score in scores:
        centered = score.copy()
        for label in np.unique(labels):
            centered[labels == label] -= centered[labels == label].mean()
        sums = centered @ drawn
        tests.append(sums / max(float(sums[1:].std()), 1e-12))
    largest = np.max(tests, axis=0)
    return float((largest >= largest[0] - 1e-9).mean())


def choose(pool: Path, data: str, size: Size) -> Iterator[list[object]]:
    """Yield for every candidate how often models are found, on development seeds."""
    hits, decoys = dict[tuple[str, str], list[bool]](), FEW
    for seed in size.development:
        case = case_of(pool, data, seed, decoys, all_rows(data), noisy=True)
        used = compared(case, decoys, seed)
        side, labels = case.part[used] == 0, case.labels[used]
        for row, margins in case.margins.items():
            group = row if row == ORIGINAL else "retrained models" if row in (RETRAINED, SHORT) else "methods"
            scores = candidates(margins[:, used], labels)
            p = {name: permutation_test(a, side, labels, permutations=199).p for name, a in scores.items()}
            p["largest of four"] = largest_p([scores[name] for name in COMBINED], side, labels, 199)
            for name, value in p.items():
                hits.setdefault((name, group), []).append(value <= SIGNIFICANCE)
    for (name, row), found in hits.items():
        yield ["choose", data, f"{name}: {row}", decoys, len(found), sum(found)]


def compared(case: Case, decoys: int, seed: int) -> NDArray[np.int64]:
    """Return the positions of the decoys and of at most four times as many held-out samples."""
    rng = np.random.default_rng(seed)
    held = rng.permutation(np.flatnonzero(case.part == 1))[: PER_DECOY * decoys]
    return np.concatenate([np.flatnonzero(case.part == 0), np.sort(held)])


def kept(path: Path, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain values)
    """Return what a file has, or what is computed now and kept in it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


def false_alarms(pool: Path, data: str, size: Size) -> Iterator[list[object]]:
    """Yield how often a retrained model is called out, and how often the gate refuses a random split.

    The first trial of a model compares the decoys that it was retrained without. The others draw as many, and the
    held-out samples, from everything that it never saw.
    """
    decoys = 200 if 200 in size.decoys[data] else min(size.decoys[data])
    models, redrawn = size.retrained[data]

    def trials(seed: int) -> list[float]:
        case = case_of(pool, data, seed, decoys, [RETRAINED])
        score, values = probability(case.margins[RETRAINED][0]), []
        for trial in range(redrawn):
            used = compared(case, decoys, seed)
            side = case.part[used] == 0
            if trial:
                order = np.random.default_rng([seed, trial]).permutation(len(case.part))
                used, side = order[: len(used)], np.arange(len(used)) < decoys
            values.append(permutation_test(score[used], side, case.labels[used], seed=trial).p)
        return values

    seeds = range(2000, 2000 + models)
    p = [kept(pool / f"{data}-null" / f"{seed}.json", lambda seed=seed: trials(seed)) for seed in seeds]
    for name, values in (("first trials", [of[0] for of in p]), ("all trials", [one for of in p for one in of])):
        yield ["null", data, name, decoys, len(values), sum(value <= SIGNIFICANCE for value in values)]

    def gate(seed: int) -> float:
        splits = study_of(data, seed).splits()
        sides = [splits.retain, splits.test]
        x = np.concatenate([side.x[:1000].flatten(1).double().numpy() for side in sides])
        y = np.concatenate([side.y[:1000].numpy() for side in sides])
        side = np.arange(len(x)) < min(1000, len(sides[0]))
        return two_sample_test(x, y, side, permutations=199, seed=seed).p

    gates = range(2000, 2000 + size.gates)
    p = [kept(pool / f"{data}-gate" / f"{seed}.json", lambda seed=seed: gate(seed)) for seed in gates]
    yield ["gate", data, "random split", "", len(p), sum(value <= SIGNIFICANCE for value in p)]


def file_order() -> Iterator[list[object]]:
    """Yield how often the gate fires on digits in the order of their file, cut at six places."""
    digits = load_dataset("digits").train
    x, y = digits.x.flatten(1).double().numpy(), digits.y.numpy()
    cuts = range(600, 1200, 100)
    p = [two_sample_test(x, y, np.arange(len(x)) < cut, permutations=199).p for cut in cuts]
    yield ["gate", "digits", "file order", "", len(p), sum(value <= SIGNIFICANCE for value in p)]


def power(pool: Path, data: str, size: Size) -> Iterator[list[object]]:
    """Yield how often each row is found by the number of decoys."""
    for decoys in size.decoys[data]:
        rows, hits = all_rows(data), dict[str, list[bool]]()

        def tested(seed: int, rows: Sequence[str], decoys: int) -> dict[str, float]:
            case = case_of(pool, data, seed, decoys, rows)
            used = compared(case, decoys, seed)
            side, labels = case.part[used] == 0, case.labels[used]
            return {row: permutation_test(probability(m[0, used]), side, labels).p for row, m in case.margins.items()}

        originals = range(3000, 3000 + size.originals)
        for of_rows, seeds in ((rows, size.fresh[data]), ([ORIGINAL], originals)):
            for seed in seeds:
                path = pool / f"{data}-{decoys}-p" / f"{seed}.json"
                values = kept(path, lambda seed=seed, of_rows=of_rows, decoys=decoys: tested(seed, of_rows, decoys))
                for row, p in values.items():
                    hits.setdefault(row, []).append(p <= SIGNIFICANCE)
        for row, found in hits.items():
            yield ["power", data, row, decoys, len(found), sum(found)]


def agreement(pool: Path, size: Size) -> Iterator[list[object]]:
    """Yield how often decoys and the verdict by retraining find each row, and what either costs, on digits-random.

    The verdict judges request and decoys together, against models retrained without both.
    """
    data, pairs, costs = "digits-random", dict[str, list[tuple[bool, bool]]](), []
    decoys = 200 if 200 in size.decoys[data] else min(size.decoys[data])

    def both(seed: int) -> dict[str, Any]:
        request, original = request_of(data, seed), original_of(data, seed)
        settings = {row.label: row for row in study_of(data, seed).rows}
        methods = {label: make_method(row.method, row.settings) for label, row in settings.items()}
        made = {name: request.unlearn(original, method, seed=seed, decoys=decoys) for name, method in methods.items()}
        audits = {name: request.decoy_audit(one, original, seed=seed) for name, one in made.items()}
        together = request.for_ids((*request.forget_ids, *drawn_decoys(request, decoys, seed)), ())
        models = {name: one.model for name, one in made.items()}
        options = AuditOptions(taus=[0.0, 0.1, 0.2, 0.3], draws=25, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            run = together.audit(original, models, options, out=f"{folder}/run", store=f"{folder}/store")
        record = run.record
        found = {label: record.judgments[label].verdict in (Verdict.FOUND, Verdict.MIXED) for label in made}
        retrained = [row for row in record.methods.values() if row.role.retrained]
        trained = sum(row.per_seed[str(seed)].passes for row in retrained)
        one = retrained[0].audits("gaussian")[0]
        shown = one.samples + (one.heldout.samples if one.heldout else 0)
        return {
            "rows": {label: [found[label], audits[label].conclusion is DecoyConclusion.FOUND] for label in made},
            "decoys": next(iter(audits.values())).passes,
            "retraining": 3 * trained + (2 + len(retrained)) * shown * sum(one.draws),  # a gradient is two passes more
        }

    for seed in size.audits:
        values = kept(pool / f"{data}-agreement" / f"{seed}.json", lambda seed=seed: both(seed))
        costs.append((values["decoys"], values["retraining"]))
        for row, (by_retraining, by_decoys) in values["rows"].items():
            pairs.setdefault(row, []).append((by_retraining, by_decoys))
    for row, of in pairs.items():
        yield ["by retraining", data, row, decoys, len(of), sum(one for one, _ in of)]
        yield ["by decoys", data, row, decoys, len(of), sum(other for _, other in of)]
        yield ["agree", data, row, decoys, len(of), sum(one == other for one, other in of)]
    for name, cost in zip(("decoy audit", "audit by retraining"), zip(*costs, strict=True), strict=True):
        yield ["passes", data, name, decoys, len(cost), round(float(np.mean(cost)))]


COLUMNS = ("study", "data", "row", "decoys", "trials", "count")
Line = tuple[str, str, str, str, int, int]


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a file of results; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [(a, b, c, d, int(e), int(f)) for a, b, c, d, e, f in list(csv.reader(file))[1:]]


def write_lines(path: Path, lines: Sequence[Sequence[object]]) -> None:
    """Put lines into a file in place of those of the same study and data."""
    new = {tuple(map(str, line[:2])) for line in lines}
    old = [line for line in read_lines(path) if line[:2] not in new]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *sorted([*map(list, old), *lines], key=order)])


def order(line: Sequence[object]) -> tuple[str, str]:
    """Return by what lines are sorted: others stay as they come."""
    return str(line[0]), str(line[1])


def share(line: Line) -> str:
    """Return a share in per cent."""
    return f"{100 * line[5] / line[4]:.0f}"


def tables(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the tables of the guide in markdown."""
    yield "| Retrained models called out | trials | called out | share, % | limit, % |"
    yield "|---|---|---|---|---|"
    for _, data, row, _, trials, count in of_study(lines, "null"):
        limit = 100 * (SIGNIFICANCE + 2 * (SIGNIFICANCE * (1 - SIGNIFICANCE) / trials) ** 0.5)
        yield f"| {data}, {row} | {trials:,} | {count} | {100 * count / trials:.1f} | {limit:.1f} |"
    yield ""
    yield "| The two-sample test refuses | trials | refused |"
    yield "|---|---|---|"
    for _, data, row, _, trials, count in of_study(lines, "gate"):
        yield f"| {data}, {row} | {trials} | {count} |"
    yield ""
    power = of_study(lines, "power")
    sets = list(dict.fromkeys((line[1], line[3]) for line in power))
    yield "| found, % | " + " | ".join(f"{data}, k = {k}" for data, k in sets) + " |"
    yield "|---" * (len(sets) + 1) + "|"
    cells = {(line[1], line[3], line[2]): share(line) for line in power}
    names = dict.fromkeys(line[2] for line in power)
    yield from grouped({row: [cells.get((*one, row), "–") for one in sets] for row in names})
    yield ""
    yield "| digits-random, 200 decoys | by retraining, % | by decoys, % | agree, % |"
    yield "|---|---|---|---|"
    studies = ("by retraining", "by decoys", "agree")
    three = [{line[2]: share(line) for line in of_study(lines, name)} for name in studies]
    yield from grouped({row: [shares[row] for shares in three] for row in three[-1]})
    yield ""
    yield "| digits-random, one method | passes |"
    yield "|---|---|"
    yield from (f"| {line[2]} | {line[5]:,} |" for line in of_study(lines, "passes"))


def candidates_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the table of the scores that were tried, in markdown."""
    chosen = of_study(lines, "choose")
    groups = [(ORIGINAL, "found"), ("methods", "found"), ("retrained models", "called out")]
    sets = list(dict.fromkeys((line[1], line[3]) for line in chosen))
    yield "| Candidate | " + " | ".join(f"{data}, k = {k}" for data, k in sets) + " |"
    yield "|---" * (len(sets) + 1) + "|"
    for name in dict.fromkeys(line[2].rpartition(": ")[0] for line in chosen):
        cells = {
            (line[1], line[3], line[2].rpartition(": ")[2]): line for line in chosen if line[2].startswith(f"{name}: ")
        }
        texts = [" / ".join(share(cells[*one, group]) for group, _ in groups) for one in sets]
        yield f"| {name} | " + " | ".join(texts) + " |"


def grouped(rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line of markdown for all rows that have the same cells.

    >>> list(grouped({"gd": ["100"], "eu_k": ["0"], "ga": ["100"]}))
    ['| gd, ga | 100 |', '| eu_k | 0 |']
    """
    for cells in dict.fromkeys(tuple(cells) for cells in rows.values()):
        yield f"| {', '.join(row for row, found in rows.items() if tuple(found) == cells)} | {' | '.join(cells)} |"


def of_study(lines: Sequence[Line], study: str) -> list[Line]:
    """Return the lines of one study."""
    return [line for line in lines if line[0] == study]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["choose", "measure", "tables"])
    parser.add_argument(
        "file", type=Path, nargs="?", default=Path("decoys.csv"), help="results that tables are made of"
    )
    parser.add_argument("--pool", type=Path, default=Path("pool"))
    parser.add_argument("--data", default=",".join(OVERRIDES))
    parser.add_argument("--out", type=Path, default=Path("decoys.csv"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "tables":
        lines = read_lines(arguments.file)
        print("\n".join([*tables(lines), "", *candidates_table(lines)]))
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ResiduumWarning)
    size, names = QUICK if arguments.quick else Size(), arguments.data.split(",")
    for data in names:
        if arguments.command == "choose":
            parts = [choose(arguments.pool, data, size)]
        else:
            parts = [false_alarms(arguments.pool, data, size), power(arguments.pool, data, size)]
            parts += [agreement(arguments.pool, size)] if data == "digits-random" else []
            parts += [file_order()] if data == "digits" else []
        lines = [line for part in parts for line in part]
        write_lines(arguments.out, lines)
        print(f"{data}: {len(lines)} lines in {arguments.out}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
