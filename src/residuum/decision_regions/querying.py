"""Ask the models of one seed about a plane through the data and about perturbed copies of the forgotten samples.

The plane is spanned by the first two principal components of the training inputs. The overview shows its slice
through their mean; around each forgotten sample a parallel slice through the sample itself is shown. The perturbed
copies are those of the audit: noise in all dimensions, of which a drawing shows two.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from residuum.decision_regions.answers import Answers
from residuum.perturbations import BLOCK, Gaussian, block_generator, block_slices
from residuum.types import InputError, Samples, Splits, child_seed

Array = NDArray[Any]

ZOOM = 3.0  # half the side of the slice around a sample, in radii: one copy in 200 lies outside
MARGIN = 0.06  # free space around the training samples, as a share of their spread


def query_models(
    models: Mapping[str, nn.Module],
    splits: Splits,
    *,
    seed: int,
    radius: float,
    copies: int,
    shown: int,
    least: float,
    resolution: int,
) -> Answers:
    """Return the answers of one seed; the first of `models` is the reference, and copy j is draw j of its audit.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_ids=["iris/068", "iris/041"], test_size=30)
    >>> models = {name: build_model("mlp", (4,), 3, seed=k) for k, name in enumerate(["retrain", "gd"])}
    >>> answers = query_models(models, splits, seed=1, radius=0.1, copies=5, shown=5, least=0.1, resolution=9)
    >>> answers.copies_say.shape, answers.around.shape
    ((2, 2, 5), (2, 2, 9, 9, 3))
    """

    @torch.no_grad()
    def leads(inputs: Array) -> Array:
        rows = torch.from_numpy(np.asarray(inputs, np.float64)).reshape(-1, *splits.train.shape)
        return np.stack([lead(model(rows).numpy()).reshape(*inputs.shape[:-1], -1) for model in exact])

    exact = [copy.deepcopy(model).double().eval() for model in models.values()]
    forget, inputs, train = splits.forget, _flat(splits.forget), _flat(splits.train)
    mean, axes, explained = principal_plane(train)
    moved = perturbed_copies(forget, radius, copies, child_seed(seed, "audit"))
    points = (train - mean) @ axes.T
    room = MARGIN * np.ptp(points, axis=0)
    across, up = np.linspace(points.min(0) - room, points.max(0) + room, 2 * resolution).T
    aside = np.linspace(-ZOOM * radius, ZOOM * radius, resolution)
    return Answers(
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
        overview=leads(mean + grid_points(across, up) @ axes).astype(np.float32),
        around_at=aside,
        around=leads(inputs[:, None, None] + grid_points(aside, aside) @ axes).astype(np.float32),
    )


def principal_plane(x: Array) -> tuple[Array, Array, Array]:
    """Return mean (d), the first two principal axes (2, d) and their shares of the variance of rows x (n, d).

    An axis may point either way; here its largest entry is positive.
    """
    mean = x.mean(0)
    _, size, axes = np.linalg.svd(x - mean, full_matrices=False)
    if len(size) < 2:
        raise InputError(f"expected at least 2 training samples of 2 features for a plane, got shape {x.shape}")
    largest = np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], axis=1)
    return mean, (axes * np.sign(largest))[:2], size[:2] ** 2 / (size**2).sum()


def grid_points(across: Array, up: Array) -> Array:
    """Return the points (H, W, 2) of a grid."""
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


def lead(logits: Array) -> Array:
    """Return, for each class, its logit minus the largest of the others."""
    ordered = np.sort(logits, axis=-1)
    best, second = ordered[..., -1:], ordered[..., -2:-1]
    return np.asarray(logits - np.where(logits == best, second, best))


def _flat(samples: Samples) -> Array:
    return samples.batch(torch.arange(len(samples)))[0].flatten(1).double().numpy()
