"""The Jacobian of a network's logits: products with it, the matrix itself while it is small, and ridge solves."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jacrev, jvp, vjp, vmap

from residuum.methods.per_sample import Weights, functional
from residuum.models import evaluating
from residuum.training import Progress
from residuum.types import Samples


class Solution(NamedTuple):
    """The step of a ridge solve, and how it was reached."""

    step: Weights
    iterations: int
    residual: float
    passes: int


class Jacobian:
    """J, one row for each (sample, class): the gradient of that logit; batch-norm in eval mode.

    Samples come in parts that are read batch by batch, so that neither J nor the inputs need be in memory.
    """

    def __init__(
        self, model: nn.Module, parts: Sequence[Samples], state: Mapping[str, Tensor] | None, batch_size: int
    ) -> None:
        self.model, self.parts, self.batch_size = model, parts, batch_size
        self.logits, self.weights = functional(model, state)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def row_bytes(self) -> int:
        """Memory of one row of J."""
        return sum(value.numel() * value.element_size() for value in self.weights.values())

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in filter(len, self.parts):
            for rows in torch.split(torch.arange(len(part)), self.batch_size):
                yield part.batch(rows)

    def _at(self, x: Tensor) -> Callable[[Weights], Tensor]:
        return lambda weights: self.logits(weights, x)

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Return logits (n, classes) and labels (n,) at the point of linearisation."""
        with evaluating(self.model), torch.no_grad():
            pairs = [(self.logits(self.weights, x), y) for x, y in self._batches()]
        return torch.cat([h for h, _ in pairs]), torch.cat([y for _, y in pairs])

    def transposed(self, rows: Tensor) -> Weights:
        """Return J^T rows for rows (n, classes)."""
        total = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        start = 0
        with evaluating(self.model):
            for x, _ in self._batches():
                pull = vjp(self._at(x), self.weights)[1]
                for name, value in pull(rows[start : start + len(x)])[0].items():
                    total[name] += value
                start += len(x)
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
                parts = vmap(jacrev(single), in_dims=(None, 0))(self.weights, x)
                blocks.append(torch.cat([part.flatten(2) for part in parts.values()], 2).flatten(0, 1))
        return torch.cat(blocks)

    def as_weights(self, flat: Tensor) -> Weights:
        """Return a flat step in the shapes of the weights."""
        pieces = torch.split(flat, [value.numel() for value in self.weights.values()])
        return {n: p.view_as(value).to(value) for (n, value), p in zip(self.weights.items(), pieces, strict=True)}


def solve_explicitly(
    jacobian: Jacobian, errors: Tensor, kept: int, ridges: tuple[float, float]
) -> tuple[Solution, Solution]:
    """Return -J^T (J J^T + ridge I)^{-1} e for the first `kept` rows and for all, from one product of J with itself.

    Of the two equivalent systems, J J^T and J^T J, the smaller one is solved, in float64.
    """
    J, e = jacobian.matrix(), errors.flatten()
    systems = list(zip((slice(kept), slice(None)), ridges, strict=True))
    if len(J) <= J.shape[1]:
        gram = J @ J.T
        flats = [J[rows].T @ _ridge_solve(gram[rows, rows], e[rows], ridge) for rows, ridge in systems]
    else:
        first, rest = (part.T @ part for part in (J[:kept], J[kept:]))
        projected = zip((first, first + rest), systems, strict=True)
        flats = [_ridge_solve(gram, J[rows].T @ e[rows], ridge) for gram, (rows, ridge) in projected]
    retained, full = (Solution(jacobian.as_weights(-flat), 0, 0.0, 0) for flat in flats)
    return retained, full._replace(passes=len(J))


def _ridge_solve(gram: Tensor, goal: Tensor, ridge: float) -> Tensor:
    system = gram.double() + ridge * torch.eye(len(gram), dtype=torch.float64)
    solved: Tensor = torch.linalg.solve(system, goal.double())
    return solved.to(goal)


def solve_matrix_free(
    jacobian: Jacobian, errors: Tensor, ridge: float, tolerance: float, max_iterations: int, progress: Progress | None
) -> Solution:
    """Return the same by conjugate gradients from zero, with two passes over the samples for each iteration."""

    def kernel(rows: Tensor) -> Tensor:
        return jacobian.times(jacobian.transposed(rows)) + ridge * rows

    solution, residual, done = conjugate_gradients(kernel, errors, tolerance, max_iterations, progress)
    step = {name: -value for name, value in jacobian.transposed(solution).items()}
    return Solution(step, done, residual, (2 * done + 1) * len(jacobian))


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    goal: Tensor,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> tuple[Tensor, float, int]:
    """Solve apply(u) = goal for a symmetric positive definite map; return u, its relative residual, the iterations."""
    solution, left = torch.zeros_like(goal), goal.clone()
    direction, square = left.clone(), _dot(left, left)
    size = square**0.5
    done = 0
    while done < max_iterations and square**0.5 > tolerance * size:
        image = apply(direction)
        length = square / _dot(direction, image)
        solution.add_(direction, alpha=length)
        left.sub_(image, alpha=length)
        square, before = _dot(left, left), square
        direction = left + (square / before) * direction
        done += 1
        if progress:
            progress(done, max_iterations)
    return solution, (square**0.5 / size if size else 0.0), done


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.flatten().double(), b.flatten().double()))


def inner(a: Weights, b: Weights) -> float:
    """Return the scalar product of two steps, in float64."""
    return sum(_dot(a[name], b[name]) for name in a)
