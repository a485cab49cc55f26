"""What each seed's models answer around the forgotten samples, and how often their answers show a contrast.

A contrast: a model and its reference agree at a sample, and differ on a given share of its perturbed copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.errors import plural
from residuum.files import read_arrays, write_arrays

REFERENCE, UNLEARNED, CONTROL = 0, 1, 2  # positions of the models


@dataclass(frozen=True, eq=False)
class Answers:
    """What one seed's models say about n forgotten samples, C copies of each, and points of a plane.

    `models` names M models, the reference first. `inputs` (n, d), `copies` (n, C, d); `centre_says` (M, n) and
    `copies_say` (M, n, C) are predicted classes. `mean` (d) and `axes` (2, d) are the plane; `train` (N, 2) are the
    training samples in it. `overview` (M, H, W, K) holds, for each class, its lead, that is its logit minus the largest
    other one, at the points `overview_x` (W) and `overview_y` (H) of the mean slice; `around` (M, n, S, S, K) the same
    on the samples' own slices, `around_at` (S) away from the sample. A class is predicted where its lead is above 0.
    """

    seed: NDArray[np.int64]
    models: NDArray[np.str_]
    class_names: NDArray[np.str_]
    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    inputs: NDArray[np.float32]
    copies: NDArray[np.float32]
    centre_says: NDArray[np.int64]
    copies_say: NDArray[np.int64]
    radius: NDArray[np.float64]
    least: NDArray[np.float64]
    shown: NDArray[np.int64]
    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    explained: NDArray[np.float64]
    train: NDArray[np.float64]
    train_labels: NDArray[np.int64]
    train_forgotten: NDArray[np.bool_]
    overview_x: NDArray[np.float64]
    overview_y: NDArray[np.float64]
    overview: NDArray[np.float32]
    around_at: NDArray[np.float64]
    around: NDArray[np.float32]

    def save(self, path: str | Path) -> None:
        """Write an .npz file; equal answers give equal bytes."""
        write_arrays(path, {part.name: getattr(self, part.name) for part in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> Answers:
        """Read what `save` wrote."""
        stored: dict[str, Any] = read_arrays(path, [part.name for part in fields(cls)], "a picture")
        return cls(**stored)

    @property
    def centres(self) -> NDArray[np.float64]:
        """The samples as points (n, 2) of the plane."""
        return np.asarray((self.inputs - self.mean) @ self.axes.T)

    @property
    def offsets(self) -> NDArray[np.float64]:
        """How far the copies lie from their samples along the plane (n, C, 2)."""
        return np.asarray((self.copies - self.inputs[:, None]) @ self.axes.T)

    @property
    def least_copies(self) -> int:
        """The smallest whole number of copies that is at least the share `least`, and never none."""
        return max(1, int(np.ceil(round(float(self.least) * self.copies_say.shape[2], 9))))


@dataclass(frozen=True, eq=False)
class Contrast:
    """One model beside the reference, for each of n samples.

    `agrees`: same prediction at the sample; `differs`: share of copies with different predictions; `right` and
    `reference_right`: share of copies that each recognises; `shown`: agrees, and differs on at least `least_copies`.
    """

    agrees: NDArray[np.bool_]
    differs: NDArray[np.float64]
    right: NDArray[np.float64]
    reference_right: NDArray[np.float64]
    shown: NDArray[np.bool_]

    @property
    def remembers(self) -> NDArray[np.bool_]:
        """Which samples show a contrast and are recognised more often than by the reference."""
        return self.shown & (self.right > self.reference_right)


def contrast(answers: Answers, model: int) -> Contrast:
    """Return what one of the models says beside the reference."""
    reference, says = answers.copies_say[REFERENCE], answers.copies_say[model]
    agrees = answers.centre_says[model] == answers.centre_says[REFERENCE]
    labels, different = answers.labels[:, None], says != reference
    return Contrast(
        agrees=agrees,
        differs=different.mean(1),
        right=(says == labels).mean(1),
        reference_right=(reference == labels).mean(1),
        shown=agrees & (different.sum(1) >= answers.least_copies),
    )


def contrasts(seeds: Sequence[Answers], model: int) -> NDArray[np.bool_]:
    """Return for all seeds and samples (seeds, n) whether a model shows a contrast beside the reference."""
    return np.stack([contrast(answers, model).shown for answers in seeds])


def caption(seeds: Sequence[Answers]) -> str:
    """Return the figure's caption: what is drawn (the first seed), and the counts over all seeds."""
    first, (astray, marks) = seeds[0], marks_astray(seeds[0])
    return (
        f"Drawn is seed {int(first.seed)}: {len(first.ids)} forgotten samples, each with {int(first.shown)} perturbed "
        f"copies (Gaussian, radius {float(first.radius):g} in all {first.inputs.shape[1]} dimensions); a tick is a "
        f"copy that the model recognises, a cross one that it does not. The plane is that of the first two principal "
        f"components ({100 * first.explained.sum():.0f} % of the variance), above through the mean, below through "
        f"each sample. {astray} of the {marks} marks lie in a region of another class, because noise also moves what "
        f"is not drawn. {counts_text(seeds)}"
    )


def counts_text(seeds: Sequence[Answers]) -> str:
    """Say how many samples show a contrast between unlearned and re-trained, and between two re-trained models."""
    first, found, floor = seeds[0], contrasts(seeds, UNLEARNED), contrasts(seeds, CONTROL)
    more = sum(int(contrast(answers, UNLEARNED).remembers.sum()) for answers in seeds)
    ending = f"; in {more} of these {found.sum()} the unlearned model recognises more copies than re-train"
    return (
        f"Over {plural(len(seeds), 'seed')}, {first.models[UNLEARNED]} and re-train give the same answer at the "
        f"sample, but different answers on at least {first.least_copies} of its {first.copies_say.shape[2]} copies, "
        f"for {_of_pairs(found)}{ending if found.any() else ''}. Two re-trained models, which never saw the samples, "
        f"do this for {_of_pairs(floor)}."
    )


def _of_pairs(shown: NDArray[np.bool_]) -> str:
    each = shown.sum(1)
    spread = f"{each.min()}" if each.min() == each.max() else f"{each.min()} to {each.max()}"
    average = f"{each.mean():.1f} of {shown.shape[1]} a seed on average, {spread}"
    return f"{shown.sum()} of {shown.size} pairs of seed and sample ({average})"


def marks_astray(answers: Answers) -> tuple[int, int]:
    """Return how many drawn marks lie where the sample's slice predicts another class, and how many are drawn.

    The slice's prediction at a mark is read off the nearest point of its grid.
    """
    shown, grid = int(answers.shown), answers.around_at
    away = answers.offsets[:, :shown]
    inside = (np.abs(away) <= grid[-1]).all(-1)
    nearest = np.rint((away - grid[0]) / (grid[1] - grid[0])).astype(int).clip(0, len(grid) - 1)
    samples = np.arange(len(answers.ids))[:, None]
    regions = answers.around[:2, samples, nearest[..., 1], nearest[..., 0]].argmax(-1)
    astray = (regions != answers.copies_say[:2, :, :shown]) & inside
    return int(astray.sum()), 2 * int(inside.sum())
