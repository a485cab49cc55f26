"""The tutorial picture: decision regions of re-trained and unlearned models around each forgotten sample.

The plane is spanned by the first two principal components of the training inputs. The overview shows its slice
through their mean; around each forgotten sample a parallel slice through the sample itself is shown. The perturbed
copies are those of the audit: noise in all dimensions, of which a drawing shows two.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from residuum.files import read_arrays, write_arrays
from residuum.models import evaluating
from residuum.perturbations import BLOCK, Gaussian, block_generator, block_slices
from residuum.types import InputError, Samples, Splits, child_seed

Array = NDArray[Any]

ZOOM = 3.0  # half the side of the slice around a sample, in radii: one copy in 200 lies outside
MARGIN = 0.06  # free space around the training samples, as a share of their spread


@dataclass(frozen=True, eq=False)
class Picture:
    """What one seed's models say about n forgotten samples, C copies of each, and points of the plane.

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
        """Write an .npz file; equal pictures give equal bytes."""
        write_arrays(path, {part.name: getattr(self, part.name) for part in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> Picture:
        """Read what `save` wrote."""
        stored: dict[str, Any] = read_arrays(path, [part.name for part in fields(cls)], "a picture")
        return cls(**stored)

    def projected(self, inputs: Array) -> NDArray[np.float64]:
        """Return inputs (..., d) as points (..., 2) of the plane."""
        return np.asarray((inputs - self.mean) @ self.axes.T)


def make_picture(
    models: Mapping[str, nn.Module],
    splits: Splits,
    *,
    seed: int,
    radius: float,
    copies: int,
    shown: int,
    least: float,
    resolution: int,
) -> Picture:
    """Return the picture of one seed; the first of `models` is the reference, and copy j is draw j of its audit.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_ids=["iris/068", "iris/041"], test_size=30)
    >>> models = {name: build_model("mlp", (4,), 3, seed=k) for k, name in enumerate(["retrain", "gd"])}
    >>> picture = make_picture(models, splits, seed=1, radius=0.1, copies=5, shown=5, least=0.1, resolution=9)
    >>> picture.copies_say.shape, picture.around.shape
    ((2, 2, 5), (2, 2, 9, 9, 3))
    """
    exact = [copy.deepcopy(model).double() for model in models.values()]
    forget, train = splits.forget, _flat(splits.train)
    mean, axes, explained = principal_plane(train)
    moved = perturbed_copies(forget, radius, copies, child_seed(seed, "audit"))
    points = (train - mean) @ axes.T
    low, high = points.min(0), points.max(0)
    room = MARGIN * (high - low)
    across, up = (np.linspace(low[k] - room[k], high[k] + room[k], 2 * resolution) for k in (0, 1))
    aside = np.linspace(-ZOOM * radius, ZOOM * radius, resolution)
    inputs = _flat(forget)
    leads = _Asker(exact, splits.train.shape)
    return Picture(
        seed=np.array(seed),
        models=np.array(list(models), np.str_),
        class_names=np.array(splits.class_names, np.str_),
        ids=np.array(forget.ids, np.str_),
        labels=forget.y.numpy(),
        inputs=inputs.astype(np.float32),
        copies=moved,
        centre_says=leads(inputs).argmax(-1),
        copies_say=leads(moved).argmax(-1),
        radius=np.array(radius),
        least=np.array(least),
        shown=np.array(min(shown, copies)),
        mean=mean,
        axes=axes,
        explained=explained,
        train=points,
        train_labels=splits.train.y.numpy(),
        train_forgotten=np.isin(splits.train.ids, forget.ids),
        overview_x=across,
        overview_y=up,
        overview=leads(mean + plane_points(across, up) @ axes).astype(np.float32),
        around_at=aside,
        around=leads(inputs[:, None, None] + plane_points(aside, aside) @ axes).astype(np.float32),
    )


def principal_plane(x: Array) -> tuple[Array, Array, Array]:
    """Return mean (d), the first two principal axes (2, d) and their shares of the variance of rows x (n, d).

    An axis may point either way; here its largest entry is positive.

    >>> principal_plane(np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 1.5], [1.0, 0.5]]))[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    mean = x.mean(0)
    _, size, axes = np.linalg.svd(x - mean, full_matrices=False)
    if len(size) < 2:
        raise InputError(f"expected at least 2 training samples of 2 features for a plane, got shape {x.shape}")
    axes = axes[:2]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], axis=1)
    return mean, axes * np.sign(largest), size[:2] ** 2 / (size**2).sum()


def plane_points(across: Array, up: Array) -> Array:
    """Return the points (H, W, 2) of a grid.

    >>> plane_points(np.array([0, 1]), np.array([5])).tolist()
    [[[0, 5], [1, 5]]]
    """
    return np.stack(np.meshgrid(across, up), axis=-1)


def perturbed_copies(samples: Samples, radius: float, copies: int, audit_seed: int) -> NDArray[np.float32]:
    """Return copies (n, C, d) with Gaussian noise: the first draws of an audit with this seed at this radius."""
    noisy = Gaussian(tau=radius)
    found = []
    for position, name in enumerate(samples.ids):
        x, y = samples.batch(torch.tensor([position]))
        for block, inside in block_slices(0, copies):
            drawn = noisy.draw(block_generator(audit_seed, name, block), BLOCK, samples.shape).rows(inside)
            many = inside.stop - inside.start
            moved = noisy.apply(nn.Identity(), x.expand(many, *samples.shape), y.expand(many), drawn)
            found.append(moved.flatten(1).numpy())
    return np.concatenate(found).reshape(len(samples), copies, -1)


class _Asker:
    """Asks float64 models for every class's lead at flat inputs (..., d): an array (M, ..., K)."""

    def __init__(self, models: Sequence[nn.Module], shape: tuple[int, ...]) -> None:
        self.models, self.shape = models, shape

    def __call__(self, inputs: Array) -> Array:
        rows = torch.from_numpy(np.asarray(inputs, np.float64)).reshape(-1, *self.shape)
        return np.stack([self._leads(model, rows).reshape(*inputs.shape[:-1], -1) for model in self.models])

    @staticmethod
    def _leads(model: nn.Module, rows: torch.Tensor) -> Array:
        with evaluating(model), torch.no_grad():
            logits = model(rows).numpy()
        return lead(logits)


def lead(logits: Array) -> Array:
    """Return, for each class, its logit minus the largest of the others.

    >>> lead(np.array([[3.0, 1.0, 2.5]])).tolist()
    [[0.5, -2.0, -0.5]]
    """
    ordered = np.sort(logits, axis=-1)
    best, second = ordered[..., -1:], ordered[..., -2:-1]
    return np.asarray(logits - np.where(logits == best, second, best))


def _flat(samples: Samples) -> Array:
    return samples.batch(torch.arange(len(samples)))[0].flatten(1).double().numpy()
