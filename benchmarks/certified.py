"""Certified unlearning of logistic regression: a table against re-training, and RURK's eps over its radius.

    python benchmarks/certified.py --data digits --out runs/certified

Features are rows made free of their own mean and scaled to norm 1: no sample looks at another. Re-training is
counted twice: `law` = steps until the law of the weights is within the same (eps, delta) of its limit, the standard
that unlearning is held to; `accuracy` = steps until mean test accuracy is within half a point of its final value.
"""

from __future__ import annotations

import csv
import gzip
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
import typer
from scipy.optimize import brentq

from residuum.theory.deletion import (
    descend,
    distance_bound,
    output_epsilon,
    publish,
    publishing_epsilon,
    publishing_noise,
)
from residuum.theory.langevin import Chain, published_epsilon, removal_gap
from residuum.theory.logistic import Logistic, accuracy, noisy_descent, unit_rows
from residuum.theory.renyi import gaussian_epsilon
from residuum.theory.result import Array, Labels
from residuum.theory.robust import forget_pull, remaining_convexity, robust_epsilon
from residuum.theory.shifted import Phase, request_phases, shifted_epsilon, steps_needed
from residuum.unlearning.cr import Objective, fit_heads, newton_removal

T = TypeVar("T")
FASHION = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class Task:
    """Data and constants of one table."""

    x: Array
    y: Labels
    test_x: Array
    test_y: Labels
    problem: Logistic
    chain: Chain
    eps: float
    delta: float
    models: int

    @property
    def n(self) -> int:
        """Training samples, the public divisor of every gradient sum."""
        return len(self.y)

    def run(self, weights: Array, kept: int, steps: int, seed: int) -> Array:
        """Noisy descent on the last `kept` samples, the sum always divided by n."""
        rng = np.random.default_rng(seed)
        x, y = self.x[self.n - kept :], self.y[self.n - kept :]
        return noisy_descent(self.problem, weights, x, y, self.chain, steps, rng, normalizer=self.n)

    def start(self) -> Array:
        """Zero weights for every model of a row."""
        return self.problem.start(self.models, self.x.shape[1])

    def score(self, weights: Array) -> str:
        """Test accuracy in percent, mean and population std over the models."""
        shares = 100 * accuracy(self.problem, weights, self.test_x, self.test_y)
        return f"{shares.mean():.1f} +- {shares.std():.1f}"


def load(name: str, root: Path) -> tuple[Array, Labels]:
    from sklearn.datasets import load_digits, load_iris

    if name == "fashion-mnist":
        pairs = [(_idx(root, f"{part}-images-idx3"), _idx(root, f"{part}-labels-idx1")) for part in ("train", "t10k")]
        x, y = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        return x.reshape(len(x), -1) / 255.0, y.astype(np.int64)
    loaders = {"digits": load_digits, "iris": load_iris}
    if name not in loaders:
        raise typer.BadParameter(f"expected digits, iris or fashion-mnist, got {name}")
    x, y = loaders[name](return_X_y=True)
    return x.astype(float), y.astype(np.int64)


def _idx(root: Path, stem: str) -> np.ndarray:
    raw = gzip.decompress((root / f"{stem}-ubyte.gz").read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def make_task(
    name: str, root: Path, l2: float, sigma: float, eps: float, delta: float, models: int, samples: int | None
) -> Task:
    x, y = load(name, root)
    x = unit_rows(x - x.mean(axis=1, keepdims=True))
    order = np.random.default_rng(7).permutation(len(y))[:samples]
    cut = len(order) * 4 // 5
    train, test = order[:cut], order[cut:]
    problem = Logistic(l2=l2, classes=int(y.max()) + 1)
    return Task(x[train], y[train], x[test], y[test], problem, problem.chain(sigma), eps, delta, models)


def minimizer_norm(task: Task) -> float:
    """Norm of the noiseless minimizer: how far from its start re-training has to go."""
    single = descend(task.problem, task.problem.start(1, task.x.shape[1]), task.x, task.y, 2000)
    return float(np.linalg.norm(single))


def timed(call: Callable[..., T], *arguments: object) -> tuple[T, float]:
    begin = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - begin


def accuracy_steps(task: Task, kept: int, limit: int) -> int:
    """First multiple of 5 steps at which mean test accuracy is within half a point of the mean of the last 20."""
    weights, path = task.start(), []
    for block in range(limit // 5):
        weights = task.run(weights, kept, 5, seed=1000 + block)
        path.append(accuracy(task.problem, weights, task.test_x, task.test_y).mean())
    final = float(np.mean(path[-20:]))
    return 5 * (1 + next(i for i, share in enumerate(path) if share >= final - 0.005))


def langevin_row(task: Task, removed: int, norm: float, gain: float | None = None) -> dict[str, str]:
    """Learn, unlearn and re-train; `gain` only changes the label of the row."""
    clip, kept = task.problem.lipschitz, task.n - removed
    learn = steps_needed([], task.chain, task.eps, task.delta, start_gap=norm)
    gap = removal_gap(removed, task.n, clip, normalizer="fixed")
    serve = steps_needed([Phase(learn, gap)], task.chain, task.eps, task.delta)
    learned = task.run(task.start(), task.n, learn, seed=1)
    unlearned, seconds = timed(task.run, learned, kept, serve, 2)
    retrained, again = timed(task.run, task.start(), kept, learn, 3)
    phases = request_phases(task.n, [removed], learn, [serve], clip, normalizer="fixed")
    label = "langevin" if gain is None else f"langevin, noise for {gain:g}x"
    return {
        "method": label, "removed": str(removed), "sigma": f"{task.chain.sigma:.3g}",
        "eps": f"{shifted_epsilon(phases, task.chain, task.delta).value:.3f}",
        "accuracy": task.score(unlearned), "steps": str(serve), "seconds": f"{seconds / task.models:.3f}",
        "retrained accuracy": task.score(retrained), "retraining steps (law)": str(learn),
        "retraining seconds": f"{again / task.models:.3f}", "cheaper (law)": f"{learn / max(serve, 1):.1f}",
        "retraining steps (accuracy)": str(accuracy_steps(task, kept, learn)),
    }  # fmt: skip


def sigma_for(task: Task, removed: int, norm: float, gain: float) -> float:
    """Smallest noise at which unlearning takes `gain` times fewer steps than re-training (law)."""
    gap = removal_gap(removed, task.n, task.problem.lipschitz, normalizer="fixed")

    def enough(sigma: float) -> bool:
        chain = task.problem.chain(sigma)
        learn = steps_needed([], chain, task.eps, task.delta, start_gap=norm)
        return gain * steps_needed([Phase(learn, gap)], chain, task.eps, task.delta) <= learn

    low, high = 1e-4, 1e2
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def deletion_row(task: Task, removed: int, norm: float) -> dict[str, str]:
    """Descent-to-delete with as many steps as bring its publishing noise to the spread of the Langevin weights."""
    spread = math.sqrt(task.chain.noise_variance / (1 - task.chain.contraction**2))
    serve = 1
    while publishing_noise(distance_bound(task.problem, task.n, serve, removed=removed), task.eps, task.delta) > spread:
        serve += 1
    distance = distance_bound(task.problem, task.n, serve, removed=removed)
    noise = publishing_noise(distance, task.eps, task.delta)
    gamma = (task.problem.smoothness - task.problem.l2) / (task.problem.smoothness + task.problem.l2)
    learn = math.ceil(math.log(distance / norm) / math.log(gamma))
    start, x, y = task.problem.start(1, task.x.shape[1]), task.x[removed:], task.y[removed:]
    learned = descend(task.problem, start, task.x, task.y, learn)
    unlearned, seconds = timed(descend, task.problem, learned, x, y, serve)
    retrained, again = timed(descend, task.problem, start, x, y, learn)
    shown, fresh = (
        publish(np.repeat(w, task.models, 0), noise, np.random.default_rng(4)) for w in (unlearned, retrained)
    )
    return {
        "method": "descent_to_delete", "removed": str(removed), "sigma": f"{noise:.3g} (published)",
        "eps": f"{publishing_epsilon(distance, noise, task.delta).value:.3f}", "accuracy": task.score(shown),
        "steps": str(serve), "seconds": f"{seconds:.3f}", "retrained accuracy": task.score(fresh),
        "retraining steps (law)": str(learn), "retraining seconds": f"{again:.3f}",
        "cheaper (law)": f"{learn / serve:.1f}", "retraining steps (accuracy)": "-",
    }  # fmt: skip


def removal_row(task: Task, removed: int) -> dict[str, str]:
    """One-vs-rest heads, one Newton step, published with the noise that gives eps."""
    classes, l2, kept = task.problem.classes, task.problem.l2, task.n - removed
    x, labels = torch.from_numpy(task.x), torch.from_numpy(task.y)
    signs, offsets = 2.0 * F.one_hot(labels, classes).double() - 1, x.new_zeros(classes, x.shape[1])
    every = Objective(x, signs, l2, offsets, x.new_ones(task.n))
    rest = Objective(x[removed:], signs[removed:], l2, offsets, x.new_ones(kept))
    removal, seconds = timed(newton_removal, fit_heads(every), every, rest)
    retrained, again = timed(fit_heads, rest)
    mu = brentq(lambda m: gaussian_epsilon(m, task.delta) - task.eps, 1e-3, 10)
    residual = float(removal.bounds.norm())
    noise = residual / (l2 * kept) / mu
    shown, fresh = (
        publish(np.repeat(w.numpy()[None], task.models, 0), noise, np.random.default_rng(5))
        for w in (removal.heads, retrained)
    )
    return {
        "method": "cr, noise on the heads", "removed": str(removed), "sigma": f"{noise:.3g} (published)",
        "eps": f"{output_epsilon(residual, kept, l2, noise, task.delta).value:.3f}", "accuracy": task.score(shown),
        "steps": "1 Newton", "seconds": f"{seconds:.3f}", "retrained accuracy": task.score(fresh),
        "retraining steps (law)": "Newton to 1e-10", "retraining seconds": f"{again:.3f}", "cheaper (law)": "-",
        "retraining steps (accuracy)": "-",
    }  # fmt: skip


def table(task: Task, counts: list[int], gain: float) -> list[dict[str, str]]:
    norm = minimizer_norm(task)
    rows = [langevin_row(task, s, norm) for s in counts]
    for s in counts:
        chain = task.problem.chain(sigma_for(task, s, norm, gain))
        rows.append(langevin_row(Task(**{**vars(task), "chain": chain}), s, norm, gain))
    return rows + [deletion_row(task, s, norm) for s in counts] + [removal_row(task, s) for s in counts]


def as_markdown(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *[list(row.values()) for row in rows]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def plot_radius(task: Task, out: Path, steps: int = 2000) -> list[dict[str, str]]:
    """Plot certified eps of RURK's objective over the radius; dashed: the published form, where it exists."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    taus, rows = np.linspace(0, 2, 41), []
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    gap = removal_gap(1, task.n, task.problem.lipschitz, normalizer="fixed")
    for weight in (3e-5, 1e-4, 3e-4, 1e-3):
        ours = [_rurk_eps(task, gap, weight, tau, steps) for tau in taus]
        (line,) = axes.plot(taus, ours, label=f"$\\lambda_f = \\lambda_a = {weight:g}$")
        theirs = [_rurk_published(task, gap, weight, tau, steps) for tau in taus]
        axes.plot(taus, theirs, "--", color=line.get_color())
        pairs = zip(taus, ours, theirs, strict=True)
        rows += [
            {"lambda": f"{weight:g}", "tau": f"{t:g}", "eps": f"{a:.6g}", "published": f"{b:.6g}"} for t, a, b in pairs
        ]
    axes.set(xlabel="robustness radius (input norm 1)", ylabel=f"certified eps at delta = {task.delta:g}", yscale="log")
    axes.legend(title="solid: shifted, dashed: published")
    for suffix in ("svg", "png"):
        figure.savefig(out / f"rurk_radius.{suffix}", dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    plt.close(figure)
    return rows


def _rurk_eps(task: Task, gap: float, weight: float, tau: float, steps: int) -> float:
    phases = [Phase(2000, gap), Phase(steps, 0.0)]
    weights = {"lambda_f": weight, "lambda_a": weight, "tau": float(tau)}
    return robust_epsilon(task.problem, task.chain, phases, task.delta, **weights).value


def _rurk_published(task: Task, gap: float, weight: float, tau: float, steps: int) -> float:
    left = remaining_convexity(task.problem, weight, weight, float(tau))
    if left <= 0:
        return math.nan
    pull = forget_pull(task.problem, weight, weight, float(tau))
    chain = Chain(l2=left, step=task.chain.step, sigma=task.chain.sigma)
    return published_epsilon([gap], [steps], chain, task.delta, pull=pull).value


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(
    data: Annotated[str, typer.Option(help="digits, iris or fashion-mnist")] = "digits",
    out: Path = Path("runs/certified"), root: Path = FASHION, l2: float = 0.01, sigma: float = 0.02, eps: float = 1.0,
    delta: float = 1e-5, models: int = 20, removed: str = "1,10,50", gain: float = 5.0,
    samples: Annotated[int | None, typer.Option(help="Use only this many samples.")] = None,
) -> None:  # fmt: skip
    """Write certified.csv, certified.md, rurk_radius.csv, .svg and .png into OUT and print the table."""
    task = make_task(data, root, l2, sigma, eps, delta, models, samples)
    out.mkdir(parents=True, exist_ok=True)
    rows = table(task, [int(s) for s in removed.split(",")], gain)
    write_csv(out / "certified.csv", rows)
    (out / "certified.md").write_text(as_markdown(rows) + "\n")
    write_csv(out / "rurk_radius.csv", plot_radius(task, out))
    print(f"{data}: n = {task.n}, delta = {delta:g}, l2 = {l2:g}, {models} models per row")
    print(as_markdown(rows))


if __name__ == "__main__":
    typer.run(main)
