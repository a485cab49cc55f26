"""Samples with ids that survive every split, file and report, and their cut for a deletion request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

Form = Literal["sample", "class"]


class LazyInputs(Protocol):
    """Inputs of shape (n, ...) that are read on demand, so that they need not fit in memory."""

    @property
    def shape(self) -> Sequence[int]:
        """(n, ...) as a tensor's."""

    def subset(self, indices: Tensor) -> LazyInputs:
        """Return the inputs at these positions, unread."""

    def read(self, indices: Tensor) -> Callable[[], Tensor]:
        """Begin to read these positions; the returned function waits for the inputs, float32 in [0, 1]."""


@dataclass(frozen=True)
class DerivedInputs:
    """Lazy inputs that a function computes: `reader` begins to read some rows and returns a function that waits.

    >>> squares = DerivedInputs(lambda rows: lambda: rows[:, None].float() ** 2, (1,), torch.arange(5))
    >>> squares.subset(torch.tensor([4, 2])).read(torch.tensor([0]))().tolist()
    [[16.0]]
    """

    reader: Callable[[Tensor], Callable[[], Tensor]]
    input_shape: tuple[int, ...]
    rows: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, ...) as a tensor's."""
        return (len(self.rows), *self.input_shape)

    def subset(self, indices: Tensor) -> DerivedInputs:
        """Return the inputs at these positions, unread."""
        return replace(self, rows=self.rows[indices])

    def read(self, indices: Tensor) -> Callable[[], Tensor]:
        """Begin to read these positions; the returned function waits for the inputs."""
        return self.reader(self.rows[indices])


@dataclass(frozen=True)
class Samples:
    """Labeled inputs with ids that survive every split, file and report.

    `x` float32 of shape (n, ...) with values in [0, 1], or what reads such inputs on demand; `y` int64 of shape (n,);
    `ids` n unique strings. Code that loops over samples calls `batch` or `batches`, never `x`: inputs need not be in
    memory.
    """

    x: Tensor | LazyInputs
    y: Tensor
    ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        """Return input and label at one position, as a map-style torch data set does: a `DataLoader` can read it.

        >>> Samples(torch.tensor([[0.5], [1.0]]), torch.tensor([3, 4]), ("a", "b"))[1]
        (tensor([1.]), 4)
        """
        x, y = self.batch(torch.tensor([range(len(self))[position]]))
        return x[0], int(y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of the given positions."""
        return self.read(indices)(), self.y[indices]

    def batches(self, parts: Iterable[Tensor] | int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs, labels and positions of one part after the other; lazy inputs are read one part ahead.

        `parts` are the positions of every part, or the size of parts in order.

        >>> points = Samples(torch.tensor([[0.1], [0.2], [0.3]]), torch.tensor([0, 1, 1]), ("a", "b", "c"))
        >>> [y.tolist() for x, y, rows in points.batches(2)]
        [[0, 1], [1]]
        """
        if isinstance(parts, int):
            parts = torch.split(torch.arange(len(self)), parts)
        ahead: tuple[Callable[[], Tensor], Tensor] | None = None
        for indices in parts:
            now, ahead = ahead, (self.read(indices), indices)
            if now is not None:
                yield now[0](), self.y[now[1]], now[1]
        if ahead is not None:
            yield ahead[0](), self.y[ahead[1]], ahead[1]

    def read(self, indices: Tensor) -> Callable[[], Tensor]:
        """Begin to read the inputs at these positions; the returned function waits for them."""
        x = self.x
        return (lambda: x[indices]) if isinstance(x, Tensor) else x.read(indices)

    def subset(self, indices: Sequence[int] | np.ndarray) -> Samples:
        """Return the samples at these positions, in this order.

        >>> digits = Samples(torch.rand(3, 2), torch.tensor([0, 1, 1]), ("a", "b", "c"))
        >>> digits.subset([2, 0]).ids
        ('c', 'a')
        """
        rows = torch.as_tensor(np.asarray(indices, dtype=np.int64))
        x = self.x[rows] if isinstance(self.x, Tensor) else self.x.subset(rows)
        return Samples(x, self.y[rows], tuple(self.ids[i] for i in rows.tolist()))


@dataclass(frozen=True)
class Splits:
    """A data set cut for a deletion request.

    `train` is what the model to unlearn from saw and may still know; `retain` and `forget` partition it. In class form
    the test set leaves the forgotten class out, and `forgotten_test` holds its test images (for membership inference).
    `forget_class` is None where not exactly one class was named.
    """

    train: Samples
    retain: Samples
    forget: Samples
    validation: Samples
    test: Samples
    forgotten_test: Samples
    class_names: tuple[str, ...]
    form: Form = "sample"
    forget_class: int | None = None

    @property
    def classes(self) -> int:
        """Number of classes, the forgotten one included."""
        return len(self.class_names)

    @property
    def heldout(self) -> Samples:
        """Test samples among which those of the forgotten classes are."""
        return self.forgotten_test if self.form == "class" else self.test
