"""Same answer at the sample, different answers around it: counted over samples and seeds, beside the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residuum.experiments.picture import Picture

REFERENCE, UNLEARNED, CONTROL = 0, 1, 2  # positions of a picture's models


@dataclass(frozen=True, eq=False)
class Contrast:
    """One model beside the reference, for each of n samples.

    `agrees`: same prediction at the sample; `differs`: share of copies with different predictions; `right` and
    `reference_right`: share of copies that each recognises; `shown`: agrees, and differs on at least the share `least`.
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


def contrast(picture: Picture, model: int) -> Contrast:
    """Return what one of the picture's models says beside its reference."""
    reference, says = picture.copies_say[REFERENCE], picture.copies_say[model]
    agrees = picture.centre_says[model] == picture.centre_says[REFERENCE]
    different = (says != reference).sum(1)
    labels = picture.labels[:, None]
    copies = says.shape[1]
    return Contrast(
        agrees=agrees,
        differs=different / copies,
        right=(says == labels).mean(1),
        reference_right=(reference == labels).mean(1),
        shown=agrees & (different >= least_copies(float(picture.least), copies)),
    )


def least_copies(least: float, copies: int) -> int:
    """Return the smallest whole number of copies that is at least this share, and never none.

    >>> least_copies(0.1, 100), least_copies(0.1, 25), least_copies(0.001, 10)
    (10, 3, 1)
    """
    return max(1, int(np.ceil(round(least * copies, 9))))


@dataclass(frozen=True)
class Tally:
    """How many of `samples` show a contrast in each seed, and in how many the model recognises more copies."""

    per_seed: tuple[int, ...]
    remembers: int
    samples: int

    @property
    def total(self) -> int:
        """Pairs of seed and sample that show a contrast."""
        return sum(self.per_seed)

    @property
    def pairs(self) -> int:
        """All pairs of seed and sample."""
        return self.samples * len(self.per_seed)


def tally(pictures: Sequence[Picture], model: int) -> Tally:
    """Count contrasts of one model beside the reference over the pictures of all seeds."""
    found = [contrast(picture, model) for picture in pictures]
    return Tally(
        per_seed=tuple(int(one.shown.sum()) for one in found),
        remembers=sum(int(one.remembers.sum()) for one in found),
        samples=len(pictures[0].ids),
    )


def caption(pictures: Sequence[Picture]) -> str:
    """Return the picture's caption: what is drawn, and the counts over all seeds."""
    return " ".join([drawn_sentence(pictures[0]), counted_sentence(pictures), floor_sentence(pictures)])


def drawn_sentence(picture: Picture) -> str:
    """Say what the drawing shows and how much of the noise it cannot show."""
    astray, marks = marks_astray(picture)
    samples, shown = len(picture.ids), int(picture.shown)
    return (
        f"Drawn is seed {int(picture.seed)}: {samples} forgotten samples, each with {shown} perturbed copies "
        f"(Gaussian, radius {float(picture.radius):g} in all {picture.inputs.shape[1]} dimensions); a tick is a copy "
        f"that the model recognises, a cross one that it does not. The plane is that of the first two principal "
        f"components ({100 * picture.explained.sum():.0f} % of the variance), above through the mean, below through "
        f"each sample. {astray} of the {marks} marks lie in a region of another class, because noise also moves what "
        f"is not drawn."
    )


def counted_sentence(pictures: Sequence[Picture]) -> str:
    """Say how many samples show a contrast between the unlearned and the re-trained model."""
    first, found = pictures[0], tally(pictures, UNLEARNED)
    copies = first.copies_say.shape[2]
    many = least_copies(float(first.least), copies)
    more = f"; in {found.remembers} of these {found.total} the unlearned model recognises more copies than re-train"
    ending = more if found.total else ""
    return (
        f"Over {len(pictures)} seeds, {first.models[UNLEARNED]} and re-train give the same answer at the sample, but "
        f"different answers on at least {many} of its {copies} copies, for {_of_pairs(found)}{ending}."
    )


def floor_sentence(pictures: Sequence[Picture]) -> str:
    """Say how many samples do the same between two re-trained models."""
    return f"Two re-trained models, which never saw the samples, do this for {_of_pairs(tally(pictures, CONTROL))}."


def _of_pairs(found: Tally) -> str:
    seeds, low, high = len(found.per_seed), min(found.per_seed), max(found.per_seed)
    mean = found.total / seeds
    spread = f"{low}" if low == high else f"{low} to {high}"
    each = f"{mean:.1f} of {found.samples} a seed on average, {spread}"
    return f"{found.total} of {found.pairs} pairs of seed and sample ({each})"


def marks_astray(picture: Picture) -> tuple[int, int]:
    """Return how many drawn marks lie where the sample's slice predicts another class, and how many are drawn.

    The slice's prediction at a mark is read off the nearest point of its grid.
    """
    shown, last = int(picture.shown), len(picture.around_at) - 1
    away = (picture.copies[:, :shown] - picture.inputs[:, None]) @ picture.axes.T
    step = picture.around_at[1] - picture.around_at[0]
    column, row = np.moveaxis(np.rint((away - picture.around_at[0]) / step).astype(int), -1, 0)
    inside = (np.abs(away) <= picture.around_at[-1]).all(-1)
    samples = np.arange(len(picture.ids))[:, None]
    regions = picture.around[:2, samples, row.clip(0, last), column.clip(0, last)].argmax(-1)
    astray = (regions != picture.copies_say[:2, :, :shown]) & inside
    return int(astray.sum()), 2 * int(inside.sum())
