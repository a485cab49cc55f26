"""How often the other probes call a re-trained model remembering, and how often they find an original.

    python benchmarks/probes.py --pool FOLDER [--trials 200]

Digits models of `retrain_pool.py`. In a trial three seeds each have a reference, a control and a model in the row's
place, all drawn from the pool; the row is called as a run calls it. What was computed once stays in the pool's folder.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from retrain_pool import Pool

from residuum.auditing.predictor import Predictor
from residuum.auditing.probes import PROBES, KLoM, ULiRA, log_odds
from residuum.auditing.probes.klom import klom, klom_of_chance
from residuum.auditing.probes.rmia import log_relative
from residuum.auditing.probes.search import recovery_radii
from residuum.auditing.probes.ulira import u_lira
from residuum.auditing.probes.worst_case import worst_case
from residuum.auditing.statistics import CHANCE, SIGNIFICANCE, Classes, compare_with_retrained, rank
from residuum.models import forward
from residuum.studies import Study

SEEDS = 3
OTHERS, ORIGINALS = 6, 2  # of each group
REACH = 0.3
ALONE = ("recovery", "depth", "rmia")  # of a model alone, not against a reference
PERMUTATIONS = 39  # in a trial: enough for the level of 5 %, and a run makes more
REFERENCES = 50  # retrained whose mean probability RMIA compares with


@dataclass(frozen=True)
class Kept:
    """Numbers by name in one folder, computed when first asked for."""

    folder: Path

    def __call__(self, name: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the array of this name."""
        path = self.folder / f"{name}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, compute())
        return np.load(path)


class Statistics:
    """The value of each probe for a model w, alone or against a reference a."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.kept = pool, Kept(pool.folder / "witnesses")
        self.forget, self.heldout = pool.samples["forget"], pool.samples["heldout"]
        self.classes = Classes(self.forget.y.numpy(), self.heldout.y.numpy())
        taus = pool.study.scenario.audit.taus
        self.radii = [tau for tau in taus["pgd"] if tau > 0]

    @property
    def retrained(self) -> list[str]:
        """The names of all re-trained models of the pool."""
        return [f"retrain-{j}" for j in range(self.pool.others)] + [f"reference-{j}" for j in range(40)]

    @cache  # noqa: B019 (lives as long as the benchmark)
    def predictor(self, name: str) -> Predictor:
        """Return the predictor of a model."""
        return Predictor(self.pool.model(name), self.forget.x)

    def recovery_radii(self, w: str) -> np.ndarray:
        """Return the signed recovery radii of forgotten and held-out samples."""

        def computed() -> np.ndarray:
            own = self.predictor(w)
            both = (self.forget, self.heldout)
            return np.concatenate([recovery_radii(own, each, tau_max=REACH, signed=True).rho for each in both])

        return self.kept(f"recovery/{w}", computed)

    def recovery(self, w: str) -> float:
        """Return the area of the signed recovery radius."""
        rho, n = -self.recovery_radii(w), len(self.forget)
        return rank(rho[:n], rho[n:], self.classes).auc

    def depth(self, w: str) -> float:
        """Return the mean depth of the forgotten samples."""
        return -float(self.recovery_radii(w)[: len(self.forget)].clip(-REACH, REACH).mean())

    def worst_case(self, w: str, a: str) -> float:
        """Return s(w, a) - s(a, w) at one radius, searched from the samples alone."""

        def shares() -> np.ndarray:
            pair = self.predictor(w), self.predictor(a)
            asked = {"seed": 1, "restarts": 1}
            return np.array([worst_case(*own, self.forget, self.radii[1:2], **asked)[0] for own in (pair, pair[::-1])])

        there, back = self.kept(f"worst_case_once/{w}-{a}", shares)
        return float(there.mean() - back.mean())

    def margins(self, w: str) -> np.ndarray:
        """Return the margins of forgotten and held-out samples."""

        def phi() -> np.ndarray:
            model = self.pool.model(w)
            return np.concatenate([log_odds(forward(model, s), s.y).numpy() for s in (self.forget, self.heldout)])

        return self.kept(f"margins/{w}", phi)

    def rmia(self, w: str) -> float:
        """Return the area of RMIA's relative probability."""
        others = [name for name in (f"retrain-{j}" for j in range(self.pool.others)) if name != w][-REFERENCES:]
        log_q = log_relative(self.margins(w), np.stack([self.margins(name) for name in others]))
        n = len(self.forget)
        return rank(log_q[:n], log_q[n:], self.classes).auc


def trial(statistics: Statistics, probe: str, kind: str, asked: argparse.Namespace, rng: np.random.Generator) -> bool:
    """Return whether a row of three models of this kind is called remembering, beside so many controls of each seed."""
    controls = asked.controls
    value = getattr(statistics, probe)
    groups = [members_of(statistics.pool, int(group)) for group in rng.permutation(asked.groups)]
    if probe in ALONE:  # of a model alone: any retrained may stand in the row's place
        drawn = rng.permutation(sorted({name for reference, others, _ in groups for name in (reference, *others)}))
        originals = rng.permutation(sorted({name for _, _, own in groups for name in own}))
        row = [value(str(name)) for name in (originals if kind == "original" else drawn)[:SEEDS]]
        retrained = [value(str(name)) for name in drawn[SEEDS : (2 + controls) * SEEDS]]
    else:
        row, retrained = [], []
        for reference, others, originals in groups[:SEEDS]:
            m, *beside = rng.choice(others, 1 + controls, replace=False)
            judged = rng.choice(originals) if kind == "original" else m
            row.append(value(str(judged), reference))
            retrained += [value(str(control), reference) for control in beside]
    least = 0.5 / len(statistics.forget) if PROBES[probe].stepwise else 0.0
    return bool(compare_with_retrained(row, retrained, least=least).more)


def members_of(pool: Pool, group: int) -> tuple[str, list[str], list[str]]:
    """Return the reference of a group, and some of its other re-trained models and originals."""
    others, originals = pool.members(group)
    return f"reference-{group}", others[:OTHERS], originals[:ORIGINALS]


def ensemble_trial(statistics: Statistics, probe: str, kind: str, rng: np.random.Generator) -> tuple[float, bool]:
    """Return the value of many models of a kind beside many retrained, and whether they are called remembering."""
    sizes = {"ulira": (8, 40), "klom": (50, 50)}[probe]
    drawn = rng.permutation(statistics.retrained)
    if kind == "original":
        originals = rng.permutation([f"original-{j}" for j in range(50)])[: sizes[0]]
        drawn = [*originals, *drawn]
    n = len(statistics.forget)
    phi = np.stack([statistics.margins(str(name)) for name in drawn[: sum(sizes)]])
    own, retrained = phi[: sizes[0]], phi[sizes[0] :]
    if probe == "ulira":
        found = u_lira(own[:, :n], retrained[:, :n], seed=int(rng.integers(2**31)), permutations=PERMUTATIONS)
        more = found.low > (ULiRA().of_heldout(own[:, n:], retrained[:, n:]) or 0.0)
        return found.auc, found.p <= SIGNIFICANCE and more
    values = klom(own, retrained)
    low, _ = rank(values[:n], values[n:], statistics.classes).interval()
    p = KLoM(permutations=PERMUTATIONS).permutation_p(own[:, :n], retrained[:, :n], rng)
    return float(values[:n].mean()), p <= SIGNIFICANCE and low > CHANCE


class ScenarioPool(Pool):
    """A pool of models of another scenario."""

    scenario = "digits"

    @cached_property
    def study(self) -> Study:
        """The scenario."""
        return Study.create(self.scenario)


def print_ulira(pool: Pool) -> None:
    """Print U-LiRA of 12 originals and of 12 retrained, each beside 24 other retrained."""
    forget = pool.study.splits().forget

    def of_models(kind: str, numbers: range) -> np.ndarray:
        models = (pool.model(f"{kind}-{number}") for number in numbers)
        return np.stack([log_odds(forward(model, forget), forget.y).numpy() for model in models])

    retrained = of_models("retrain", range(24))
    for kind, numbers in (("original", range(12)), ("retrain", range(24, 36))):
        print(kind, u_lira(of_models(kind, numbers), retrained, seed=1))


def main() -> None:
    """Print the share of rows called, for each probe; of another scenario than digits U-LiRA alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--scenario", default="digits")
    parser.add_argument("--controls", type=int, default=1)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--probes", default="rmia,recovery,depth,worst_case,ulira,klom")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.scenario != "digits":
        ScenarioPool.scenario = asked.scenario
        print_ulira(ScenarioPool(asked.pool))
        return
    statistics = Statistics(Pool(asked.pool))
    print("| probe | re-trained called remembering, % | originals found, % |\n|---|---|---|")
    for probe in asked.probes.split(","):
        rates, means = [], []
        for kind in ("retrain", "original"):
            rng = np.random.default_rng(0)
            if probe in ("ulira", "klom"):
                found = [ensemble_trial(statistics, probe, kind, rng) for _ in range(asked.trials)]
                means.append(f"{np.mean([value for value, _ in found]):.2f}")
                rates.append(100 * np.mean([called for _, called in found]))
            else:
                rates.append(100 * np.mean([trial(statistics, probe, kind, asked, rng) for _ in range(asked.trials)]))
        shown = f" (means {' and '.join(means)})" if means else ""
        print(f"| {probe}{shown} | {rates[0]:.1f} | {rates[1]:.1f} |", flush=True)
    halves = np.stack([statistics.margins(name)[: len(statistics.forget)] for name in statistics.retrained[:100]])
    half, other = halves[::2], halves[1::2]
    print(f"KLoM of two halves of 100 retrained: {klom(half, other).mean():.2f}, ", end="")
    print(f"mean over all pairs of halves: {klom_of_chance(half, other).mean():.2f}")


if __name__ == "__main__":
    main()
