"""Samples that methods read: joined in one stream, moved by noise, and validation samples of the forgotten classes."""

from collections.abc import Callable

import torch
from torch import Tensor

from residuum.core.inputs import InputSpace
from residuum.core.samples import DerivedInputs, Samples, Splits


def joined(*parts: Samples) -> Samples:
    """Return the samples of all parts, one part after the other; lazy inputs stay unread.

    >>> one = Samples(torch.zeros(2, 3), torch.tensor([0, 1]), ("a", "b"))
    >>> two = Samples(torch.ones(1, 3), torch.tensor([1]), ("c",))
    >>> joined(one, two).batch(torch.tensor([2, 0]))[0].tolist()
    [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """
    parts = tuple(part for part in parts if len(part))
    if len(parts) == 1:
        return parts[0]
    labels, ids = torch.cat([part.y for part in parts]), tuple(name for part in parts for name in part.ids)
    inputs = [part.x for part in parts if isinstance(part.x, Tensor)]
    if len(inputs) == len(parts):
        return Samples(torch.cat(inputs), labels, ids)

    def reader(rows: Tensor) -> Callable[[], Tensor]:
        first, waiting = 0, []
        for part in parts:
            inside = rows.ge(first) & rows.lt(first + len(part))
            waiting.append((inside, part.read(rows[inside] - first)))
            first += len(part)

        def wait() -> Tensor:
            together = torch.empty(len(rows), *parts[0].shape)
            for inside, read in waiting:
                together[inside] = read()
            return together

        return wait

    return Samples(DerivedInputs(reader, parts[0].shape, torch.arange(len(ids))), labels, ids)


def noisy_copies(x: Tensor, tau: float, noise: torch.Generator, space: InputSpace) -> Tensor:
    """Return clamp(x + u * N(0, I)) with u ~ U[0, tau] for each sample: every radius up to tau, not one shell."""
    radii = tau * torch.rand(len(x), *[1] * (x.ndim - 1), generator=noise)
    return space.move(x, (radii * torch.randn(x.shape, generator=noise)).to(x))


def unseen_of_forgotten_classes(splits: Splits) -> Samples:
    """Return the validation samples of the forgotten classes, ordered by id so that their order changes nothing."""
    rows = torch.isin(splits.validation.y, splits.forget.y).nonzero().flatten().tolist()
    return splits.validation.subset(sorted(rows, key=lambda row: splits.validation.ids[row]))


def class_means(values: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return the mean of the values (n, ...) over the samples of each class; NaN where a class does not occur."""
    means = values.new_full((classes, *values.shape[1:]), torch.nan)
    for label in sorted(set(y.tolist())):
        means[label] = values[y == label].mean(0)
    return means


def refusal_without_validation(splits: Splits, what: str) -> str | None:
    """Return why what needs validation samples of every forgotten class cannot work; None if there are some of each."""
    missing = sorted(set(splits.forget.y.tolist()) - set(splits.validation.y.tolist()))
    if not missing:
        return None
    name = splits.class_names[missing[0]]
    return (
        f"{what} needs validation samples of the forgotten classes, and there are none of {name!r}; "
        "set data.validation_size, or take another method (class form has none at all)"
    )
