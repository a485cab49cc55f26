"""Draw why a test at the forgotten samples misses what a model still knows around them.

    python examples/iris_figure.py OUT

Seven irises are forgotten by fine-tuning (GD). The unlearned model and a retrained one mostly agree at these flowers
and differ on noisy copies of them. The script writes OUT/iris-figure.svg, .png and .txt (the counts over 20 seeds),
OUT/one-iris.png (a single flower) and prints the counts. docs/concepts/residual-knowledge.md explains the picture, and
what it does not show.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

from residuum import Recipe, Splits, build_model, load_dataset, make_splits, train, unlearn
from residuum.unlearning import GD

Array = NDArray[Any]

FLOWERS = ["iris/041", "iris/054", "iris/068", "iris/077", "iris/086", "iris/134", "iris/149"]
RANDOM = 0.058  # of 120 training samples: seven flowers
RECIPE = Recipe(epochs=150, lr=0.6, momentum=0.9, batch_size=128)  # all flowers in one step
METHOD = GD(epochs=20, lr=0.01, batch_size=128)
SINGLE = 5  # position of the flower in the small picture
RETRAINED, UNLEARNED, CONTROL = 0, 1, 2  # positions of the models
NAMES = ("retrained", "unlearned (GD)")
RADIUS, COPIES, SHOWN, LEAST = (
    0.1,
    100,
    20,
    0.1,
)  # standard deviation of the noise; copies; drawn ones; share that differs
GRID, ZOOM = 61, 3.0  # points along a side; half a side of the slice around a flower, in radii
# Okabe and Ito's colors, which people with any kind of color vision tell apart: light for regions, full for samples
REGIONS, COLORS = ("#cfe8f7", "#fbe3b0", "#c3e6da"), ("#0072b2", "#b87700", "#00785a")
INK, SOFT, WRONG = "#1f2328", "#6e7781", "#c8102e"


@dataclass(frozen=True)
class Answers:
    """One seed: three models, copies (n, C, d) of n flowers, and the classes predicted at flowers and copies.

    `centers` is (3, n), `around` is (3, n, C); retrained, unlearned and retrained again.
    """

    models: Sequence[nn.Module]
    copies: Array
    centers: Array
    around: Array

    def contrasts(self, model: int) -> Array:
        """Tell for each flower whether a model agrees with the retrained one there and differs on many copies."""
        agrees = self.centers[model] == self.centers[RETRAINED]
        return np.asarray(agrees & ((self.around[model] != self.around[RETRAINED]).mean(1) >= LEAST))


def iris_splits(*, random: bool = False) -> Splits:
    """Return the irises with seven flowers to forget: the chosen ones, or random ones."""
    request = {"forget_fraction": RANDOM} if random else {"forget_ids": FLOWERS}
    return make_splits(load_dataset("iris"), test_size=30, **request)


def trained_models(splits: Splits, seed: int) -> list[nn.Module]:
    """Return a retrained model, the original unlearned by GD, and a second retrained model."""
    fresh = [build_model("mlp", (4,), 3, width=100, seed=10 * seed + role) for role in range(3)]
    retrained, original, control = (
        train(model, samples, RECIPE, seed=10 * seed + role)
        for role, (model, samples) in enumerate(zip(fresh, (splits.retain, splits.train, splits.retain), strict=True))
    )
    return [retrained, unlearn(original, splits, METHOD, seed=seed).model, control]


@torch.no_grad()
def leads(model: nn.Module, points: Array) -> Array:
    """Return by how much each class's logit is above the largest other one; the predicted class has a positive lead."""
    exact = copy.deepcopy(model).double().eval()
    logits = exact(torch.from_numpy(np.asarray(points, np.float64)).reshape(-1, points.shape[-1])).numpy()
    best, second = np.sort(logits)[:, :-3:-1].T[..., None]
    return np.asarray(logits - np.where(logits == best, second, best)).reshape(*points.shape[:-1], -1)


def answers_of(splits: Splits, seed: int) -> Answers:
    """Train the models of one seed and ask them about the flowers and their copies."""
    models, flowers = trained_models(splits, seed), splits.forget.x.numpy()
    noise = np.random.default_rng(seed).normal(0, RADIUS, (len(flowers), COPIES, flowers.shape[1]))
    copies = np.clip(flowers[:, None] + noise, 0, 1)
    centers, around = (np.stack([leads(model, x).argmax(-1) for model in models]) for x in (flowers, copies))
    return Answers(models, copies, centers, around)


def counts_text(seeds: Sequence[Answers]) -> str:
    """Say how many flowers show a contrast between unlearned and retrained, and between two retrained models."""
    shown, chance = (np.stack([answers.contrasts(model) for answers in seeds]) for model in (UNLEARNED, CONTROL))
    return (
        f"Unlearned and retrained models agree at a flower and differ on at least {100 * LEAST:g} % of its copies for "
        f"{shown.sum()} of {shown.size} pairs of seed and flower; two retrained models do so for {chance.sum()}."
    )


def principal_axes(inputs: Array) -> Array:
    """Return the first two principal components of the inputs, each with its largest entry above 0."""
    axes = np.linalg.svd(inputs - inputs.mean(0), full_matrices=False)[2][:2]
    return np.asarray(axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None])


def draw(splits: Splits, seeds: Sequence[Answers]) -> Figure:
    """Return the figure of the first seed, with the counts of all: both models above, every flower below."""
    inputs, first = splits.train.x.double().numpy(), seeds[0]
    mean, axes = inputs.mean(0), principal_axes(inputs)
    figure = Figure(figsize=(12.4, 9.2))
    rows = figure.add_gridspec(
        2, 1, height_ratios=(1, 0.9), hspace=0.17, left=0.05, right=0.985, top=0.88, bottom=0.115
    )
    above, below = (
        rows[0].subgridspec(1, 2, wspace=0.04),
        rows[1].subgridspec(2, len(FLOWERS), wspace=0.07, hspace=0.05),
    )
    for model, name in enumerate(NAMES):
        draw_overview(figure.add_subplot(above[model]), first.models[model], splits, mean, axes)
        figure.axes[-1].set_title(name, fontsize=12, weight="bold", loc="left")
        for flower in range(len(splits.forget)):
            draw_flower(figure.add_subplot(below[model, flower]), first, splits, model, flower, axes)
            if flower == 0:
                figure.axes[-1].set_ylabel(name, fontsize=11, weight="bold")
    figure.text(0.05, 0.955, "Same answer at the forgotten flower, other answers around it", fontsize=16, weight="bold")
    figure.text(0.05, 0.925, f"{counts_text(seeds)} Seed 1 is drawn.", fontsize=9)
    legend = f"✓ copy recognized   ✗ copy not recognized   % of all {COPIES} copies recognized   bold frame: counted"
    figure.text(0.05, 0.03, legend, fontsize=10)
    return figure


def draw_single(splits: Splits, answers: Answers) -> Figure:
    """Return a small figure of one flower: its copies as the retrained and the unlearned model answer them."""
    axes = principal_axes(splits.train.x.double().numpy())
    figure = Figure(figsize=(5.4, 2.9), layout="constrained")
    for panel, model, name in zip(figure.subplots(1, 2), (RETRAINED, UNLEARNED), NAMES, strict=True):
        draw_flower(panel, answers, splits, model, SINGLE, axes)
        recognized = (answers.around[model, SINGLE] == splits.forget.y.numpy()[SINGLE]).mean()
        panel.set_title(name, fontsize=11, weight="bold", color=INK)
        panel.set_xlabel(f"right at the flower and\non {100 * recognized:.0f} % of its copies", fontsize=9.5)
    return figure


def draw_overview(panel: Any, model: nn.Module, splits: Splits, mean: Array, axes: Array) -> None:  # noqa: ANN401
    """Draw a model's regions on the plane through the mean, the retained samples, and the numbered flowers."""
    points, flowers = ((part.x.double().numpy() - mean) @ axes.T for part in (splits.retain, splits.forget))
    both = np.concatenate([points, flowers])
    room = 0.06 * np.ptp(both, axis=0)
    across, up = np.linspace(both.min(0) - room, both.max(0) + room, 2 * GRID).T
    fill_regions(panel, model, across, up, mean, axes)
    bottom = leads(model, mean + np.stack([across, np.full_like(across, up[0])], axis=-1) @ axes).argmax(-1)
    for label, name in enumerate(splits.class_names):
        members = points[splits.retain.y.numpy() == label]
        panel.scatter(*members.T, s=9, color=COLORS[label], alpha=0.75, linewidths=0)
        style = {"color": COLORS[label], "fontsize": 11, "weight": "bold", "ha": "center", "va": "bottom"}
        panel.text(across[bottom == label].mean(), up[0] + 0.1 * room[1], name, **style)
    for number, (x, y) in enumerate(flowers, start=1):
        color = COLORS[splits.forget.y[number - 1]]
        panel.scatter(x, y, s=150, color="white", edgecolors=color, linewidths=1.6, zorder=4)
        panel.text(x, y, str(number), fontsize=8, weight="bold", ha="center", va="center_baseline", zorder=5)


def draw_flower(panel: Any, answers: Answers, splits: Splits, model: int, flower: int, axes: Array) -> None:  # noqa: ANN401
    """Draw a model's regions on the plane through one flower, and its copies as ticks and crosses."""
    label, center = int(splits.forget.y[flower]), splits.forget.x[flower].double().numpy()
    side = np.linspace(-ZOOM * RADIUS, ZOOM * RADIUS, GRID)
    fill_regions(panel, answers.models[model], side, side, center, axes)
    right, away = answers.around[model, flower] == label, (answers.copies[flower] - center) @ axes.T
    panel.scatter(0, 0, s=190, color="white", edgecolors=COLORS[label], linewidths=2, zorder=6)
    marks = [(right[k], away[k], 9) for k in range(SHOWN)] + [(answers.centers[model, flower] == label, (0, 0), 13)]
    for good, (x, y), size in marks:
        style = {"color": INK if good else WRONG, "fontsize": size, "ha": "center", "va": "center", "clip_on": True}
        panel.text(x, y, "✓" if good else "✗", zorder=7, **style)
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    percent = {"fontsize": 8.5, "weight": "bold", "ha": "right", "bbox": box, "zorder": 8, "transform": panel.transAxes}
    panel.text(0.96, 0.05, f"{100 * right.mean():.0f} %", **percent)
    if model == RETRAINED:
        title = f"{flower + 1}  {splits.class_names[label]}"
        panel.set_title(title, fontsize=9.5, weight="bold", color=COLORS[label])
    else:
        agree = "agree" if answers.centers[UNLEARNED, flower] == answers.centers[RETRAINED, flower] else "differ"
        differ = (answers.around[UNLEARNED, flower] != answers.around[RETRAINED, flower]).mean()
        panel.set_xlabel(f"{agree} at the flower,\ndiffer on {100 * differ:.0f} % around", fontsize=8.5)
    if answers.contrasts(UNLEARNED)[flower]:
        for edge in panel.spines.values():
            edge.set(linewidth=2.0, color=INK)


def fill_regions(panel: Any, model: nn.Module, across: Array, up: Array, center: Array, axes: Array) -> None:  # noqa: ANN401
    """Fill where each class is predicted on the plane of these axes through a point, and draw the boundaries."""
    fields = leads(model, center + np.stack(np.meshgrid(across, up), axis=-1) @ axes)
    for label, field in enumerate(np.moveaxis(fields, -1, 0)):
        if (field > 0).any():
            panel.contourf(across, up, field, levels=[0, np.inf], colors=[REGIONS[label]], zorder=0)
        if (field > 0).any() and (field < 0).any():
            panel.contour(across, up, field, levels=[0], colors=[SOFT], linewidths=1.1, zorder=1)
    panel.set(xticks=[], yticks=[], xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
    for edge in panel.spines.values():
        edge.set(linewidth=0.8, color="#d0d7de")


def write_figure(out: Path, number: int, *, random: bool = False) -> str:
    """Write the picture and the counts of this many seeds into a folder; return the counts."""
    splits = iris_splits(random=random)
    seeds = [answers_of(splits, seed) for seed in range(1, number + 1)]
    text = counts_text(seeds)
    out.mkdir(parents=True, exist_ok=True)
    (out / "iris-figure.txt").write_text(text + "\n", encoding="utf-8")
    with rc_context():
        rcdefaults()  # your own style would change the picture
        rcParams.update({"svg.hashsalt": "residuum", "font.size": 9, "text.color": INK})
        figure = draw(splits, seeds)
        figure.savefig(out / "iris-figure.svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        figure.savefig(out / "iris-figure.png", dpi=160, metadata={"Software": None}, facecolor="white")
        single = draw_single(splits, seeds[0])
        single.savefig(out / "one-iris.png", dpi=160, metadata={"Software": None}, facecolor="white")
    return text


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--seeds", type=int, default=20, help="seeds that are counted; the first is drawn (default 20)")
    parser.add_argument("--random", action="store_true", help="forget seven random flowers instead of the chosen ones")
    arguments = parser.parse_args()
    print(write_figure(arguments.out, arguments.seeds, random=arguments.random))


if __name__ == "__main__":
    main()
