"""The Jacobian of a network's logits: products with it, the matrix itself while it is small, and ridge solves."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jacrev, jvp, vjp

from residuum.core.samples import Samples
from residuum.models import evaluating
from residuum.unlearning.gradients import Weights, functional, of_each


class Solution(NamedTuple):
    """The step of a ridge solve, a bound on its distance from the exact one, and how it was reached."""

    step: Weights
    error: float
    iterations: int
    passes: int


Pull = tuple[Callable[[Tensor], tuple[Weights]], int]


class Jacobian:
    """J, one row for each (sample, class): the gradient of that logit; batch-norm in eval mode.

    Samples come in parts that are read batch by batch, so that neither J nor the inputs need be in memory. `double`
    computes in float64.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: Sequence[Samples],
        state: Mapping[str, Tensor] | None,
        batch_size: int,
        *,
        double: bool = False,
    ) -> None:
        self.model, self.parts, self.batch_size, self.double = model, parts, batch_size, double
        whole = {**model.state_dict(), **(state or {})}
        self.pulls: list[Pull] = []
        self.logits, self.weights = functional(model, {name: self._cast(value) for name, value in whole.items()})

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def _cast(self, value: Tensor) -> Tensor:
        return value.double() if self.double and value.is_floating_point() else value

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in filter(len, self.parts):
            for rows in torch.split(torch.arange(len(part)), self.batch_size):
                x, y = part.batch(rows)
                yield self._cast(x), y

    def _at(self, x: Tensor) -> Callable[[Weights], Tensor]:
        return lambda weights: self.logits(weights, x)

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Return logits (n, classes) and labels (n,) at the point of linearization."""
        with evaluating(self.model), torch.no_grad():
            pairs = [(self.logits(self.weights, x), y) for x, y in self._batches()]
        return torch.cat([h for h, _ in pairs]), torch.cat([y for _, y in pairs])

    def transposed(self, rows: Tensor) -> Weights:
        """Return J^T rows for rows (n, classes)."""
        total = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        start = 0
        with evaluating(self.model):
            pulls: Iterable[Pull] = self.pulls or (
                (vjp(self._at(x), self.weights)[1], len(x)) for x, _ in self._batches()
            )
            if len(self) <= self.batch_size:  # the products of a single batch are used again
                pulls = self.pulls = list(pulls)
            for pull, size in pulls:
                for name, value in pull(rows[start : start + size])[0].items():
                    total[name] += value
                start += size
        return total

    def times(self, step: Weights) -> Tensor:
        """Return J step, shape (n, classes)."""
        with evaluating(self.model), torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)  # torch's own first jvp
            return torch.cat([jvp(self._at(x), (self.weights,), (step,))[1] for x, _ in self._batches()])

    def matrix(self) -> Tensor:
        """Return J itself, shape (n * classes, parameters)."""

        def single(weights: Weights, one: Tensor) -> Tensor:
            return self.logits(weights, one[None])[0]

        blocks = []
        with evaluating(self.model):
            for x, _ in self._batches():
                parts = of_each(jacrev(single), self.weights, x)
                blocks.append(torch.cat([part.flatten(2) for part in parts.values()], 2).flatten(0, 1))
        return torch.cat(blocks)

    def as_weights(self, flat: Tensor) -> Weights:
        """Return a flat step in the shapes of the weights."""
        pieces = torch.split(flat, [value.numel() for value in self.weights.values()])
        return {n: p.view_as(value).to(value) for (n, value), p in zip(self.weights.items(), pieces, strict=True)}


def solve_explicitly(
    jacobian: Jacobian, errors: Tensor, retained_rows: int, ridges: tuple[float, float]
) -> tuple[Solution, Solution]:
    """Return -J^T (J J^T + ridge I)^{-1} e for the first `retained_rows` rows and for all.

    Both come from one product of J with itself: of J J^T and J^T J, which are equivalent systems, the smaller one.
    """
    J, e = jacobian.matrix(), errors.flatten()
    systems = list(zip((slice(retained_rows), slice(None)), ridges, strict=True))
    if len(J) <= J.shape[1]:
        gram = J @ J.T
        flats = [-J[rows].T @ _ridge_solve(gram[rows, rows], e[rows], ridge) for rows, ridge in systems]
    else:
        first, rest = (part.T @ part for part in (J[:retained_rows], J[retained_rows:]))
        projected = zip((first, first + rest), systems, strict=True)
        flats = [-_ridge_solve(gram, J[rows].T @ e[rows], ridge) for gram, (rows, ridge) in projected]
    left = [J[rows].T @ (e[rows] + J[rows] @ d) + ridge * d for d, (rows, ridge) in zip(flats, systems, strict=True)]
    bounds = [g.norm().item() / ridge for g, ridge in zip(left, ridges, strict=True)]  # (J^T J + ridge I)^{-1} g
    retained, full = (Solution(jacobian.as_weights(d), bound, 0, 0) for d, bound in zip(flats, bounds, strict=True))
    return retained, full._replace(passes=len(J))


def _ridge_solve(gram: Tensor, goal: Tensor, ridge: float) -> Tensor:
    solved: Tensor = torch.linalg.solve(gram + ridge * torch.eye(len(gram)).to(gram), goal)
    return solved


class RidgeDescent:
    """Conjugate gradients from zero for (J J^T + ridge I) a = e, with the step -J^T a kept beside a.

    The step is at most |residual| / (2 sqrt(ridge)) away from the exact one: s / (s^2 + ridge), a singular value of
    J^T (J J^T + ridge I)^{-1}, is largest at s^2 = ridge.
    """

    def __init__(self, jacobian: Jacobian, errors: Tensor, ridge: float) -> None:
        self.jacobian, self.errors, self.ridge, self.iterations = jacobian, errors, ridge, 0
        self.dual, self.left, self.direction = torch.zeros_like(errors), errors.clone(), errors.clone()
        self.step = {name: torch.zeros_like(value) for name, value in jacobian.weights.items()}

    @property
    def error(self) -> float:
        """A bound on the distance of the step from the exact one."""
        return math.sqrt(_dot(self.left, self.left) / self.ridge) / 2

    def advance(self) -> None:
        """Make one iteration: a pass back and a pass forth over the samples."""
        pulled, square = self.jacobian.transposed(self.direction), _dot(self.left, self.left)
        image = self.jacobian.times(pulled) + self.ridge * self.direction
        length = square / _dot(self.direction, image)
        self.dual.add_(self.direction, alpha=length)
        for name, value in pulled.items():
            self.step[name].sub_(value, alpha=length)
        self.left.sub_(image, alpha=length)
        self.direction = self.left + (_dot(self.left, self.left) / square) * self.direction
        self.iterations += 1

    def verified(self) -> Solution:
        """Return step and bound computed anew, whatever rounding has made of the recurrences."""
        self.step = {name: -value for name, value in self.jacobian.transposed(self.dual).items()}
        self.left = self.errors + self.jacobian.times(self.step) - self.ridge * self.dual
        return Solution(self.step, self.error, self.iterations, 2 * (self.iterations + 1) * len(self.jacobian))


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.flatten().double(), b.flatten().double()))


def difference(a: Weights, b: Weights) -> Weights:
    """Return a - b."""
    return {name: a[name] - b[name] for name in b}


def inner(a: Weights, b: Weights) -> float:
    """Return the scalar product of two steps, in float64."""
    return sum(_dot(a[name], b[name]) for name in a)
