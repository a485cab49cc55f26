"""How often a verdict is wrong: trials drawn from the pools of `pool.py`, judged by the rule.

    python benchmarks/calibration.py FOLDER [--pools digits,wine] [--trials 1000] [--verdicts] [--out FILE]

Pools that are not in the folder yet are made first. A trial is a run of S seeds with k controls of each: original and
rows of methods of S seeds of the pool, S (k + 1) of its retrained models as references and controls, and S more that
pose as unlearned. Trials are judged in one pass over arrays, by the functions of `residuum.judging.rule`; the first of
each cell are judged again as records by `judged_record`, gates included, and must get the same verdicts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pool import POOLS, QUICK, make, studies

from residuum.auditing.heldout import choose_heldout
from residuum.auditing.probes import KLoM, ULiRA, log_odds
from residuum.auditing.probes.klom import klom
from residuum.auditing.probes.ulira import u_lira
from residuum.auditing.statistics import CHANCE, SIGNIFICANCE, Classes, rank
from residuum.core.roles import Role, trained_roles
from residuum.judging import judged_record, rule
from residuum.judging.chips import differences
from residuum.judging.findings import PARTS, is_untargeted, scale_of
from residuum.judging.rule import Columns, counts_upwards, error_shares, half_sample, scores, verdict_of
from residuum.metrics import summarize
from residuum.models import forward, load_weights
from residuum.record import Results, Row, Verdict
from residuum.studies.parsing import build_probe
from residuum.studies.probes import probe_rows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Line = tuple[str, str, str, float, int]  # table, row, column, percent, trials
DESIGNS = ((1, 3), (2, 1), (3, 1), (3, 2), (5, 1))  # seeds and controls of each
CALLED_OUT = {Verdict.FOUND, Verdict.MIXED, Verdict.OVER_FORGOTTEN}
FOUND = {Verdict.FOUND, Verdict.MIXED}
POSER = "unlearned"
THREE = ("gaussian", "fgsm", "pgd")  # at once
ENSEMBLES = {"ulira": (8, 40), "klom": (12, 48)}  # models of a row, and retrained ones
PERMUTATIONS = 39  # in a trial: enough for the level of 5 %, and a run makes more
AGAIN = 20  # trials of a cell that are judged as records too


@dataclass(frozen=True)
class Pool:
    """The record of a pool: the recognition rates of every model under every perturbation."""

    name: str
    record: Results

    @classmethod
    def load(cls, folder: Path, name: str) -> Pool:
        """Read the runs of a pool; that of PGD adds its audits to the other."""
        record, extra = Results.load(folder / name), folder / f"{name}-pgd"
        if not extra.exists():
            return cls(name, record)
        more = Results.load(extra)
        rows = {
            label: row.model_copy(
                update={
                    "per_seed": {
                        seed: one.model_copy(update={"audits": one.audits | more.methods[label].per_seed[seed].audits})
                        for seed, one in row.per_seed.items()
                    }
                }
            )
            for label, row in record.methods.items()
        }
        return cls(
            name, with_perturbations(record.model_copy(update={"methods": rows}), [*record.perturbations, "pgd"])
        )

    @cached_property
    def labels(self) -> list[str]:
        """All rows, the retrained models first."""
        return sorted(self.record.methods, key=lambda label: not self.record.methods[label].role.retrained)

    @property
    def retrained(self) -> list[str]:
        """The rows of retrained models."""
        return [label for label in self.labels if self.record.methods[label].role.retrained]

    @property
    def others(self) -> list[str]:
        """The original and the rows of methods."""
        return self.labels[len(self.retrained) :]

    def place(self, model: int) -> tuple[str, str]:
        """Return row and seed of a retrained model by its position among all rows and seeds."""
        row, seed = divmod(model, len(self.record.seeds))
        return self.retrained[row], str(self.record.seeds[seed])

    def rates(self, perturbation: str, part: str) -> tuple[int, Floats]:
        """Return the number of samples and the recognition rates of all models, (rows, seeds, T)."""
        audits = [self.record.methods[label].audits(perturbation) for label in self.labels]
        found = [[audit.recognition_rates(part)[:2] for audit in of_row] for of_row in audits]
        return found[0][0][0], np.clip(np.array([[rates for _, rates in of_row] for of_row in found], np.float64), 0, 1)

    def untargeted(self, perturbation: str) -> bool:
        """Return whether the perturbation is an attack that only makes models wrong, in sample form."""
        audit = self.record.methods[self.labels[0]].audits(perturbation)[0]
        return self.record.scenario.form == "sample" and is_untargeted(audit)

    def taus(self, perturbation: str) -> list[float]:
        """Return the radii of a perturbation."""
        return self.record.methods[self.labels[0]].audits(perturbation)[0].taus


def with_perturbations(record: Results, names: Sequence[str]) -> Results:
    """Return the record as if these perturbations were its own."""
    scenario = record.scenario
    chosen = scenario.settings.audit.model_copy(update={"perturbations": list(names)})
    settings = scenario.settings.model_copy(update={"audit": chosen})
    return record.model_copy(update={"scenario": scenario.model_copy(update={"settings": settings})})


@dataclass(frozen=True)
class Drawn:
    """Trials of S seeds: their positions, (trials, S), and retrained models, (trials, S, k + 2); the last one poses.

    A retrained model is a position among all rows and seeds of retrained models: they are exchangeable, so that a trial
    may take them from any seed.
    """

    seeds: Integers
    models: Integers

    @classmethod
    def of(cls, pool: Pool, seeds: int, controls: int, trials: int, *, of_seed: bool = False) -> Drawn:
        """Draw trials, the same ones for the same numbers; `of_seed` takes the retrained models of the seed itself.

        The first row, the reference, then stays the reference.
        """
        rng = np.random.default_rng([seeds, controls])
        number, rows = len(pool.record.seeds), len(pool.retrained)
        chosen = np.stack([rng.permutation(number)[:seeds] for _ in range(trials)])
        if not of_seed:
            size = seeds * (controls + 2)
            drawn = np.stack([rng.permutation(rows * number)[:size] for _ in range(trials)])
            return cls(chosen, drawn.reshape(trials, seeds, -1))
        later = rng.permuted(np.tile(np.arange(1, rows), (trials, seeds, 1)), axis=-1)[..., : controls + 1]
        ordered = np.concatenate([np.zeros((trials, seeds, 1), np.int64), later], axis=-1)
        return cls(chosen, ordered * number + chosen[..., None])

    def retrained(self, table: Floats) -> Floats:
        """Return the values of references and controls, (trials, S, k + 1, C), from those of all rows and seeds."""
        return self._flat(table)[self.models[..., :-1]]

    def row(self, table: Floats, position: int | None) -> Floats:
        """Return the values of a row, (trials, S, C); None is the retrained model that poses as unlearned."""
        return self._flat(table)[self.models[..., -1]] if position is None else table[position, self.seeds]

    def _flat(self, table: Floats) -> Floats:
        return table.reshape(-1, table.shape[-1])  # rows of retrained models come first


@dataclass(frozen=True)
class Part:
    """The columns of one quantity under one perturbation, for all trials at once."""

    perturbation: str
    quantity: str
    above_0: NDArray[np.bool_]  # which columns are the level, a radius above 0, or M
    table: Floats  # scores of all rows and seeds
    columns: Columns


@dataclass(frozen=True)
class Judged:
    """The verdicts of all trials of one design under some perturbations."""

    pool: Pool
    perturbations: tuple[str, ...]
    drawn: Drawn

    @cached_property
    def unshared(self) -> list[Part]:
        """All columns, without shares of the error."""
        form = self.pool.record.scenario.form
        heldout = [name for name in self.perturbations if self.pool.rates(name, "heldout")[0]]
        asked = [(name, "r") for name in self.perturbations] + [(name, "M") for name in heldout]
        return [self._part(*of, form) for of in asked]

    def _part(self, name: str, quantity: str, form: str) -> Part:
        scale, taus = scale_of(quantity, form), self.pool.taus(name)
        tables, least, forgotten = [], [], 0
        for part in PARTS[quantity]:
            samples, rates = self.pool.rates(name, part)
            forgotten = forgotten or samples
            tables.append(scores(rates, taus, forgotten, scale=scale))
            controls = self.drawn.retrained(rates)[:, :, 1:]
            least.append([half_sample(one, taus, samples, scale=scale, forgotten=forgotten) for one in controls])
        table = tables[0] if quantity == "r" else (tables[0] - tables[1])[..., :1]
        floor = np.hypot(*least)[:, :1] if quantity == "M" else np.array(least[0])
        models = self.drawn.retrained(table)
        flat = models.reshape(len(models), -1, models.shape[-1])
        columns = Columns(
            seeds=models.shape[1],
            per_seed=np.full(floor.shape, models.shape[2]),
            mean=flat.mean(1),
            spread=flat.std(1, ddof=1),
            shares=np.zeros(floor.shape),
            least_error=floor,
            downwards=quantity != "M",
        )
        above_0 = np.array([True, *(tau > 0 for tau in taus)])[: floor.shape[1]]
        return Part(name, quantity, above_0, table, columns)

    def _shared(self, seeing: NDArray[np.bool_]) -> list[Part]:
        """Return the columns with their shares where these perturbations, (trials, P), are not blind."""
        shared, form = [], self.pool.record.scenario.form
        heldout = {part.perturbation for part in self.unshared if part.quantity == "M"}
        remembered = np.array([name in heldout and not self.pool.untargeted(name) for name in self.perturbations])
        for part in self.unshared:
            taus, place = self.pool.taus(part.perturbation), self.perturbations.index(part.perturbation)
            radii, memory, sees = sum(tau > 0 for tau in taus), bool(remembered[place]), seeing[:, place]
            shares = np.zeros(part.columns.shares.shape)
            numbers = np.stack([seeing.sum(1), (seeing & remembered).sum(1)], axis=1)
            for number, together in np.unique(numbers, axis=0):
                of = error_shares(radii, int(number), form=form, memory=max(int(together), 1) * memory)
                by_column = [of.level, *np.where(part.above_0[1:], of.radius, of.radius_0)]
                rows = (numbers == (number, together)).all(1)
                shares[rows] = by_column if part.quantity == "r" else of.memory
            shares = np.where(part.above_0 & ~sees[:, None], 0.0, shares)
            given = {"form": form, "memory": memory, "untargeted": self.pool.untargeted(part.perturbation)}
            upwards = [counts_upwards(tau, radii, **given) for tau in (None, *taus)]
            counted = np.array(upwards) if part.quantity == "r" else True
            shared.append(replace(part, columns=replace(part.columns, shares=shares, upwards=counted)))
        return shared

    @cached_property
    def parts(self) -> list[Part]:
        """The columns that judge: perturbations under which the original is not seen have no share."""
        every = self._shared(np.ones((len(self.drawn.seeds), len(self.perturbations)), bool))
        above = [self._judged(part, "original").outside > 0 for part in every]
        seeing = np.stack(
            [
                np.any([(a & p.above_0).any(1) for p, a in zip(every, above, strict=True) if p.perturbation == name], 0)
                for name in self.perturbations
            ],
            axis=1,
        )
        anywhere = np.any([a.any(1) for a in above], axis=0)
        return self._shared(np.where(anywhere[:, None], seeing, True))

    def _judged(self, part: Part, label: str) -> Any:  # noqa: ANN401 (a Judgment)
        position = None if label == POSER else self.pool.labels.index(label)
        return part.columns.judge(self.drawn.row(part.table, position).mean(1))

    @cached_property
    def original_detected(self) -> NDArray[np.bool_]:
        """In which trials the original's shift is found with 80 % power in some column."""
        return np.any([p.columns.reached(self._judged(p, "original").shift).any(1) for p in self.parts], axis=0)

    def verdicts(self, label: str) -> list[Verdict]:
        """Return the verdict on a row in every trial."""
        judged = [self._judged(part, label) for part in self.parts]
        above, below = [j.above for j in judged], [j.below for j in judged]
        up, down = (np.any([flags.any(1) for flags in side], axis=0) for side in (above, below))
        told = up | down | self.original_detected
        return [
            verdict_of(bool(a), bool(b)) if conclusive else Verdict.INCONCLUSIVE
            for a, b, conclusive in zip(up, down, told, strict=True)
        ]

    def memory(self, label: str) -> NDArray[np.bool_]:
        """Return in which trials M of a row is above the noise floor."""
        parts = [part for part in self.parts if part.quantity == "M"]
        none = np.zeros(len(self.drawn.seeds), bool)
        return np.any([none, *(self._judged(part, label).above.any(1) for part in parts)], axis=0)

    def record(self, trial: int, label: str) -> Results:
        """Return the record of one trial with a row, as far as verdicts and gates read it."""
        pool, seeds = self.pool.record, [str(self.pool.record.seeds[i]) for i in self.drawn.seeds[trial]]
        roles = trained_roles(self.drawn.models.shape[-1] - 2)
        retrained = [name for name, role in roles.items() if role.retrained]
        models = {"original": [("original", seed) for seed in seeds], POSER: [(label, seed) for seed in seeds]}
        for number, name in enumerate([*retrained, POSER] if label == POSER else retrained):
            models[name] = [self.pool.place(int(model)) for model in self.drawn.models[trial, :, number]]
        found = {name: [pool.methods[of].per_seed[seed] for of, seed in places] for name, places in models.items()}
        metrics = {
            name: {seed: one.metrics.model_dump() for seed, one in zip(seeds, of_row, strict=True)}
            for name, of_row in found.items()
        }
        rows = {}
        for name, of_row in found.items():
            per_seed = {}
            for seed, one, base in zip(seeds, of_row, found[retrained[0]], strict=True):
                audits = {p: against(one.audits[p], base.audits[p]) for p in self.perturbations}
                per_seed[seed] = one.model_copy(update={"audits": audits})
            rows[name] = Row(
                role=roles.get(name, Role.METHOD),
                method=name,
                settings=pool.methods["original"].settings,
                per_seed=per_seed,
                summary=summarize(metrics[name], metrics[retrained[0]]),
                probes=pool.methods["original"].probes,
            )
        record = pool.model_copy(update={"methods": rows, "seeds": [int(seed) for seed in seeds]})
        return with_perturbations(record, self.perturbations)

    def refused(self, many: int) -> float:
        """Judge the first trials as records, compare the verdicts, and return the share that gates refused."""
        mine, refused = self.verdicts(POSER), 0
        for trial in range(min(many, len(mine))):
            accepted = self.record(trial, POSER)
            judgment = judged_record(accepted)
            theirs = judgment.judgments[POSER].verdict
            refused += theirs is Verdict.NOT_COMPARABLE
            if theirs not in (mine[trial], Verdict.NOT_COMPARABLE):
                raise AssertionError(f"{self.pool.name}, trial {trial}: {mine[trial]} here, {theirs} of the record")
        return refused / many


def against(audit: Any, reference: Any) -> Any:  # noqa: ANN401 (audits)
    """Return an audit beside another reference."""
    (_, own, _), (_, base, _) = audit.recognition_rates(), reference.recognition_rates()
    changes: dict[str, Any] = {
        "difference": audit.difference.model_copy(update={"value": np.subtract(own, base).tolist()})
    }
    if audit.heldout and reference.heldout:
        kept = audit.heldout.forgotten
        changes["heldout"] = audit.heldout.model_copy(
            update={
                "reference_rate": reference.heldout.rate,
                "forgotten": kept and kept.model_copy(update={"reference_rate": reference.heldout.forgotten.rate}),
            }
        )
    return audit.model_copy(update=changes)


def values_of(record: Results, spec: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what a probe measured, by row and seed."""
    return {
        label: {
            seed: one.probes[spec].model_dump(exclude_none=True)
            for seed, one in row.per_seed.items()
            if spec in one.probes  # a relative probe has no value of the reference
        }
        for label, row in record.methods.items()
    }


def probe_found(pool: Pool, spec: str, seeds: int, controls: int, trials: int) -> dict[str, list[bool]]:
    """Return in which trials a probe says "found", by row, judged by the function of a run."""
    values, probe = values_of(pool.record, spec), build_probe(spec)
    drawn = Drawn.of(pool, seeds, controls, trials, of_seed=probe.relative)
    roles = trained_roles(controls)
    retrained = [name for name, role in roles.items() if role.retrained]
    found: dict[str, list[bool]] = {label: [] for label in (POSER, *pool.others)}
    for chosen, positions in zip(drawn.seeds, drawn.models, strict=True):
        keys = [str(pool.record.seeds[i]) for i in chosen]
        models = {label: [(label, key) for key in keys] for label in pool.others}
        for number, name in enumerate((*retrained, POSER)):
            models[name] = [pool.place(int(model)) for model in positions[:, number]]
        results = {
            label: [
                SimpleNamespace(seed=key, label=label, probes={spec: values[of].get(seed)}, ensembles={})
                for key, (of, seed) in zip(keys, places, strict=True)
            ]
            for label, places in models.items()
        }
        rows = {
            label: pool.record.methods["original"].model_copy(update={"role": roles.get(label, Role.METHOD)})
            for label in models
        }
        record = pool.record.model_copy(update={"methods": rows})
        for label, (_, summary) in probe_rows(spec, results, record).items():
            if label in found:
                found[label].append(bool(summary.found))
    return found


def margins_of(pool: Pool, folder: Path) -> tuple[Classes, dict[str, Floats]]:
    """Return the margins of every row's models on forgotten and held-out samples, (seeds, n)."""
    study = next(iter(studies(pool.name, folder).values()))
    splits = study.splits()
    heldout = choose_heldout(splits.heldout, splits.forget)
    kept = splits.forget.subset(np.flatnonzero(np.isin(splits.forget.y.numpy(), heldout.y.numpy())))
    margins = {}
    for label in pool.labels:
        paths = [folder / pool.name / "models" / str(seed) / f"{label}.safetensors" for seed in pool.record.seeds]
        models = [load_weights(path).eval() for path in paths]
        parts = [np.stack([log_odds(forward(m, of), of.y).numpy() for m in models]) for of in (kept, heldout)]
        margins[label] = np.concatenate(parts, axis=1)
    return Classes(kept.y.numpy(), heldout.y.numpy()), margins


def ensemble_found(probe: str, own: Floats, retrained: Floats, classes: Classes, rng: np.random.Generator) -> bool:
    """Return whether U-LiRA or KLoM says "found" of models with these margins beside retrained ones."""
    n = len(classes.forgotten)
    if probe == "ulira":
        result = u_lira(own[:, :n], retrained[:, :n], seed=int(rng.integers(2**31)), permutations=PERMUTATIONS)
        least = ULiRA().of_heldout(own[:, n:], retrained[:, n:])
        return bool(result.p <= SIGNIFICANCE and least is not None and result.low > least)
    values = klom(own, retrained)
    p = KLoM(permutations=PERMUTATIONS).permutation_p(own[:, :n], retrained[:, :n], rng)
    return bool(p <= SIGNIFICANCE and rank(values[:n], values[n:], classes).interval()[0] > CHANCE)


def ensembles(pool: Pool, folder: Path, trials: int) -> Iterable[Line]:
    """Yield how often U-LiRA and KLoM say "found" of retrained models, originals and short or long trainings."""
    classes, margins = margins_of(pool, folder)
    retrained = np.concatenate([margins[label] for label in pool.retrained])
    shown = [label for label in pool.others if label == "original" or label.startswith("epochs")]
    for probe, (many, others) in ENSEMBLES.items():
        rng = np.random.default_rng(0)
        for label in (POSER, *shown):
            hits = 0
            for _ in range(trials):
                order = rng.permutation(len(retrained))
                own = (
                    retrained[order[others : others + many]]
                    if label == POSER
                    else rng.permutation(margins[label])[:many]
                )
                hits += ensemble_found(probe, own, retrained[order[:others]], classes, rng)
            yield "probes", f"{probe}, {pool.name}", label, 100 * hits / trials, trials


def rule_lines(pool: Pool, trials: int) -> Iterable[Line]:
    """Yield the rates of verdicts under each perturbation, and under three at once."""
    sets = [(name,) for name in pool.record.perturbations]
    sets += [THREE] if set(THREE) <= set(pool.record.perturbations) else []
    for names in sets:
        row = f"{pool.name}, {'three at once' if names == THREE else names[0]}"
        for seeds, controls in DESIGNS:
            design = f"{seeds}x{controls}"
            judged = Judged(pool, names, Drawn.of(pool, seeds, controls, trials))

            def share(label: str, counted: set[Verdict], judged: Judged = judged) -> float:
                return 100 * float(np.mean([verdict in counted for verdict in judged.verdicts(label)]))

            yield "null", row, design, share(POSER, CALLED_OUT), trials
            yield "originals", row, design, share("original", FOUND), trials
            again = min(AGAIN, trials)
            yield "gates", row, design, 100 * judged.refused(again), again
            for label in pool.others:
                if label.startswith("epochs"):
                    yield "epochs", f"{row}, {design}", label, share(label, FOUND), trials
                    yield "epochs memory", f"{row}, {design}", label, 100 * float(judged.memory(label).mean()), trials
                elif label != "original" and (seeds, controls) == (3, 1):
                    yield "methods", row, label, share(label, FOUND), trials
                    yield "methods memory", row, label, 100 * float(judged.memory(label).mean()), trials


def probe_lines(pool: Pool, trials: int) -> Iterable[Line]:
    """Yield how often each probe says "found" at three seeds and one control, and the mean of its value."""
    for spec in pool.record.scenario.settings.measures:
        row = f"{spec.partition(':')[0]}, {pool.name}"
        for label, found in probe_found(pool, spec, 3, 1, trials).items():
            yield "probes", row, label, 100 * float(np.mean(found)), trials
        for label, by_seed in values_of(pool.record, spec).items():
            numbers = [value["value"] for value in by_seed.values() if value.get("value") is not None]
            if numbers:
                yield "values", row, label, float(np.mean(numbers)), len(numbers)


def difference_lines(pool: Pool, trials: int) -> Iterable[Line]:
    """Yield how often rows differ from retrained models in each further measure, at three seeds and one control."""
    judged = Judged(pool, pool.record.perturbations[:1], Drawn.of(pool, 3, 1, trials))
    for label in (POSER, *(name for name in pool.others if name == "original" or name.startswith("epochs"))):
        hits: dict[str, int] = {}
        for trial in range(trials):
            record = judged.record(trial, label)
            of_row = differences(record, record.methods[POSER])
            for one in of_row:
                hits[one.measure] = hits.get(one.measure, 0) + one.differs
            hits["any"] = hits.get("any", 0) + any(one.differs for one in of_row)
        for measure, number in hits.items():
            yield "differs", f"{measure}, {pool.name}", label, 100 * number / trials, trials


def write(path: Path, lines: Iterable[Line]) -> None:
    """Replace these rows of the tables in the file: table -> row -> column -> value, with the number of trials."""
    tables: dict[str, dict[str, dict[str, float]]] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    )
    new: dict[tuple[str, str], dict[str, float]] = {}
    for table, row, column, value, trials in lines:
        new.setdefault((table, row), {"trials": trials})[column] = float(f"{value:.4g}")
    for (table, row), cells in new.items():
        tables.setdefault(table, {})[row] = cells
    order = {name: number for number, name in enumerate(POOLS)}

    def place(row: tuple[str, dict[str, float]]) -> tuple[int, bool]:
        return min(order.get(part, len(order)) for part in row[0].split(", ")), row[0].startswith("any, ")

    for table, rows in tables.items():
        tables[table] = dict(sorted(rows.items(), key=place))
    parts = [
        f"{json.dumps(table)}: {{\n"
        + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
        + "\n}"
        for table, rows in tables.items()
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pools", default=",".join(name for name in POOLS if name != QUICK))
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("website/calibration.json"))
    parser.add_argument("--shares", help="of level, radius 0 and radii, instead of the rule's; give --out, too")
    parser.add_argument("--verdicts", action="store_true", help="the tables of verdicts alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.shares:
        rule.LEVEL_SHARE, rule.RADIUS_0_SHARE, rule.RADII_SHARE = map(float, asked.shares.split(","))
    for name in asked.pools.split(","):
        if not (asked.folder / name / Results.FILE).exists():
            make(name, asked.folder, verdicts=asked.verdicts)
        pool = Pool.load(asked.folder, name)
        lines = [*rule_lines(pool, asked.trials)]
        if not asked.verdicts:
            lines += [*probe_lines(pool, max(1, asked.trials // 4)), *difference_lines(pool, max(1, asked.trials // 5))]
            lines += ensembles(pool, asked.folder, max(1, asked.trials // 10)) if POOLS[name].ensembles else []
        write(asked.out, lines)
        worst = max((line for line in lines if line[0] == "null"), key=lambda line: line[3])
        print(f"{name}: retrained models called out in at most {worst[3]:.1f} % ({worst[1]}, {worst[2]})", flush=True)


if __name__ == "__main__":
    main()
