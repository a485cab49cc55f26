"""NTK: move from the solution of all data to the solution of the retained data, in the linearized network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.func import jacrev, jvp, vjp

from residuum.core.errors import InputError, warn
from residuum.core.samples import Samples, Splits
from residuum.models import evaluating, mean_loss
from residuum.training import Positive
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import MIB, Weights, by_row, functional, samples_at_once

DOUBLE = 8  # bytes of a float64
HALVINGS = 40  # after these the step is below one part in 1e12
Pull = tuple[Callable[[Tensor], tuple[Weights]], int]


class Solution(NamedTuple):
    """The step of a ridge solve, a bound on its distance from the exact one, and how it was reached."""

    step: Weights
    error: float
    iterations: int
    passes: int


class Step(NamedTuple):
    """delta, what it is multiplied by, and a bound on the error of the product, relative to its length."""

    delta: Weights
    scale: float
    error: float


@component
class NTK(Method):
    """Linearize the network and jump to the solution without the forget set.

    NTK moves the weights by the difference of two ridge solutions, `w <- w + scale * (d_retain - d_full)` with `d =
    -J^T (J J^T + n * weight_decay * I)^{-1} e`. J has a row for each sample and class, the gradient of that logit, and
    e holds the errors of the answers. J is formed only while it fits `memory_mib`. Beyond that, conjugate gradients use
    products with J until the step is known to the share `tolerance` of its length. The two solutions nearly cancel, so
    a small ridge needs `double`. `scale=predicted` takes (|delta| + 2 |cos(delta, err)| |err|) / |delta| with err = w -
    w_init - d_retain, and needs the initial weights.

    Use it for small networks and few samples. It is exact for a linear model with squared loss at `linearize_at=init`.

    Literature: The closed form in print has a wrong sign and a wrong block of the kernel. The derivation linearizes at
    the initial weights, the reference code at the original. The raw step is far too short, and without a guard the
    method can collapse: one published row shows 25.00 +- 0.00, which is one class of four.

    Attributes:
        weight_decay: Strength of the ridge.
        scale: Factor of the step, or predicted.
        linearize_at: Weights at which J and e are taken: original or init.
        loss: Errors e: ce takes softmax(h) - onehot(y), mse takes h - (2 onehot(y) - 1).
        guard: Halve the scale until the retain loss is at most this many times the original's; none means no guard.
        tolerance: Error of the step that is allowed, as a share of its length.
        max_iterations: Limit of the conjugate gradients; a warning says when it is reached.
        double: Compute the products in float64.
        memory_mib: Memory for J, in MiB.

    Reference: Golatkar, Achille, Soatto, "Forgetting Outside the Box", ECCV 2020, https://arxiv.org/abs/2003.02960

    >>> NTK(scale=1).scale
    1.0
    """

    name: ClassVar[str] = "ntk"
    title: ClassVar[str] = "NTK"

    weight_decay: Positive = 0.1
    scale: Literal["predicted"] | Positive = "predicted"
    linearize_at: Literal["original", "init"] = "original"
    loss: Literal["ce", "mse"] = "ce"
    guard: Annotated[float, Field(ge=1)] | None = 2.0
    tolerance: Positive = 0.01
    max_iterations: Annotated[int, Field(ge=1)] = 1000
    double: bool = False
    memory_mib: Positive = 256.0

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Move the copy."""
        if not len(splits.forget):
            return model  # both solutions are the same
        initial, traveled = context.origin.initial, None  # w - w_init, which predicts the scale
        if initial is not None:
            for name, value in model.state_dict().items():
                if name not in initial or initial[name].shape != value.shape:
                    what = f"{name!r} of shape {tuple(value.shape)}"
                    raise InputError(f"ntk: the initial weights have no {what}; they are another model's")
        elif self.linearize_at == "init":
            raise InputError("ntk: linearize_at='init' needs initial weights; pass origin=Origin(initial=)")
        if self.scale == "predicted" and initial is None:
            warn("the initial weights are not known, so the scale cannot be predicted and is 1")
        elif self.scale == "predicted" and initial is not None:
            weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
            traveled = {name: w.double() - initial[name] for name, w in weights.items()}
        retained, full = self.solve(model, splits, traveled, context)
        delta, scale, error = self.step(retained, full, traveled)
        used = self.move(model, delta, scale, splits.retain)
        context.passes += retained.passes + full.passes
        context.notes |= {"scale": used, "scale_before_guard": scale, "step_norm": math.sqrt(inner(delta, delta))}
        context.notes |= {"iterations": full.iterations, "step_error": error, "converged": error <= self.tolerance}
        return model

    def step(self, retained: Solution | RidgeDescent, full: Solution | RidgeDescent, traveled: Weights | None) -> Step:
        """Return the step of two solutions, and how far it can be from the step of the exact ones.

        With the predicted scale, scale * delta = delta +- 2 P m, m = w - w_init - d_retain, P the projection on delta.
        Two such projections differ by at most the sine of the angle between the deltas: at most E / |delta|.
        """
        delta = {name: retained.step[name] - step for name, step in full.step.items()}
        size, total = math.sqrt(inner(delta, delta)), retained.error + full.error
        if not size:
            return Step(delta, 1.0, math.inf if total else 0.0)
        if traveled is None:
            return Step(delta, self.scale if isinstance(self.scale, float) else 1.0, total / size)
        missing = {name: traveled[name] - step for name, step in retained.step.items()}
        scale = predicted_scale(delta, missing)
        error = total + 2 * (math.sqrt(inner(missing, missing)) * total / size + retained.error)
        return Step(delta, scale, error / (scale * size))

    def solve(
        self, model: nn.Module, splits: Splits, traveled: Weights | None, context: Context
    ) -> tuple[Solution, Solution]:
        """Return the ridge solutions on the retain set and on all data.

        Where J does not fit in memory, both solves advance side by side until the step is known.
        """
        at = context.origin.initial if self.linearize_at == "init" else None
        parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        fits = len(splits.train) * splits.classes * parameters * DOUBLE <= self.memory_mib * MIB
        batch, double = samples_at_once(model, splits.retain, self.memory_mib), fits or self.double
        parts = ([splits.retain], [splits.retain, splits.forget])
        retain, train = (Jacobian(model, part, at, batch, double=double) for part in parts)
        errors = self.errors(*train.outputs())
        ridges = (len(retain) * self.weight_decay, len(train) * self.weight_decay)
        context.notes["explicit"] = fits
        if fits:
            return solve_explicitly(train, errors, len(retain) * splits.classes, ridges)
        retained, full = RidgeDescent(retain, errors[: len(retain)], ridges[0]), RidgeDescent(train, errors, ridges[1])
        while full.iterations < self.max_iterations and self.step(retained, full, traveled).error > self.tolerance:
            retained.advance()
            full.advance()
            if context.progress:
                context.progress(full.iterations, self.max_iterations)
        solutions = retained.verified(), full.verified()
        error = self.step(*solutions, traveled).error
        if error > self.tolerance:
            warn(
                f"conjugate gradients stopped after {full.iterations} steps; the step may be off by {error:.2g} of "
                f"its length, more than {self.tolerance:g}; raise max_iterations, weight_decay or tolerance, or set "
                "double"
            )
        return solutions

    def errors(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the residuals e (n, classes) of the chosen loss."""
        target = F.one_hot(labels, logits.shape[1]).to(logits)
        return F.softmax(logits, 1) - target if self.loss == "ce" else logits - (2 * target - 1)

    @torch.no_grad()
    def move(self, model: nn.Module, delta: Weights, scale: float, retain: Samples) -> float:
        """Move the weights by scale * delta, halving the scale while the guard objects; return the scale used."""
        before = {name: p.clone() for name, p in model.named_parameters() if name in delta}
        limit = math.inf if self.guard is None else self.guard * mean_loss(model, retain)
        for halving in range(HALVINGS):
            used = math.ldexp(scale, -halving)
            for name, p in model.named_parameters():
                if name in delta:
                    p.copy_(before[name] + used * delta[name])
            if mean_loss(model, retain) <= limit or self.guard is None:
                return used
        model.load_state_dict(before, strict=False)
        return 0.0


def predicted_scale(delta: Weights, missing: Weights) -> float:
    """Return (|delta| + 2 |cos(delta, missing)| |missing|) / |delta|; 1 where there is no step."""
    square = inner(delta, delta)
    return 1 + 2 * abs(inner(delta, missing)) / square if square else 1.0


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
        values = {**model.state_dict(), **(state or {})}
        self.pulls: list[Pull] = []
        self.logits, self.weights = functional(model, {name: self._cast(value) for name, value in values.items()})

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def _cast(self, value: Tensor) -> Tensor:
        return value.double() if self.double and value.is_floating_point() else value

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in filter(len, self.parts):
            for x, y, _ in part.batches(self.batch_size):
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
                parts = by_row(jacrev(single), self.weights, x)
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

    def solve(gram: Tensor, goal: Tensor, ridge: float) -> Tensor:
        solved: Tensor = torch.linalg.solve(gram + ridge * torch.eye(len(gram)).to(gram), goal)
        return solved

    J, e = jacobian.matrix(), errors.flatten()
    systems = list(zip((slice(retained_rows), slice(None)), ridges, strict=True))
    if len(J) <= J.shape[1]:
        gram = J @ J.T
        flats = [-J[rows].T @ solve(gram[rows, rows], e[rows], ridge) for rows, ridge in systems]
    else:
        of_retain, of_forget = (part.T @ part for part in (J[:retained_rows], J[retained_rows:]))
        projected = zip((of_retain, of_retain + of_forget), systems, strict=True)
        flats = [-solve(gram, J[rows].T @ e[rows], ridge) for gram, (rows, ridge) in projected]
    residuals = [
        J[rows].T @ (e[rows] + J[rows] @ d) + ridge * d for d, (rows, ridge) in zip(flats, systems, strict=True)
    ]
    bounds = [g.norm().item() / ridge for g, ridge in zip(residuals, ridges, strict=True)]  # (J^T J + ridge I)^{-1} g
    retained, full = (Solution(jacobian.as_weights(d), bound, 0, 0) for d, bound in zip(flats, bounds, strict=True))
    return retained, full._replace(passes=len(J))


class RidgeDescent:
    """Conjugate gradients from zero for (J J^T + ridge I) a = e, which update the step -J^T a together with a.

    The step is at most |residual| / (2 sqrt(ridge)) away from the exact one: s / (s^2 + ridge), a singular value of
    J^T (J J^T + ridge I)^{-1}, is largest at s^2 = ridge.
    """

    def __init__(self, jacobian: Jacobian, errors: Tensor, ridge: float) -> None:
        self.jacobian, self.errors, self.ridge, self.iterations = jacobian, errors, ridge, 0
        self.dual, self.residual, self.direction = torch.zeros_like(errors), errors.clone(), errors.clone()
        self.step = {name: torch.zeros_like(value) for name, value in jacobian.weights.items()}

    @property
    def error(self) -> float:
        """A bound on the distance of the step from the exact one."""
        return math.sqrt(_dot(self.residual, self.residual) / self.ridge) / 2

    def advance(self) -> None:
        """Make one iteration: a pass back and a pass forth over the samples."""
        pulled, square = self.jacobian.transposed(self.direction), _dot(self.residual, self.residual)
        image = self.jacobian.times(pulled) + self.ridge * self.direction
        length = square / _dot(self.direction, image)
        self.dual.add_(self.direction, alpha=length)
        for name, value in pulled.items():
            self.step[name].sub_(value, alpha=length)
        self.residual.sub_(image, alpha=length)
        self.direction = self.residual + (_dot(self.residual, self.residual) / square) * self.direction
        self.iterations += 1

    def verified(self) -> Solution:
        """Return step and bound computed anew, whatever rounding has made of the recurrences."""
        self.step = {name: -value for name, value in self.jacobian.transposed(self.dual).items()}
        self.residual = self.errors + self.jacobian.times(self.step) - self.ridge * self.dual
        return Solution(self.step, self.error, self.iterations, 2 * (self.iterations + 1) * len(self.jacobian))


def inner(a: Weights, b: Weights) -> float:
    """Return the scalar product of two steps, in float64."""
    return sum(_dot(a[name], b[name]) for name in a)


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.flatten().double(), b.flatten().double()))
