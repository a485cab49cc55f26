"""NTK: move from the solution of all data to the solution of the retained data, in the linearized network."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from residuum.core.errors import InputError, warn
from residuum.core.samples import Samples, Splits
from residuum.models import forward
from residuum.training import Positive, Progress
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import MIB, Weights, samples_at_once
from residuum.unlearning.linearized import Jacobian, RidgeDescent, Solution, difference, inner, solve_explicitly

State = Mapping[str, Tensor] | None
DOUBLE = 8  # bytes of a float64
HALVINGS = 40  # after these the step is below one part in 1e12


class Step(NamedTuple):
    """delta, what it is multiplied by, and a bound on the error of the product, relative to its length."""

    delta: Weights
    scale: float
    error: float


@component
class NTK(Method):
    """NTK forgetting: w <- w + scale * (d_retain - d_full), d = -J^T (J J^T + n * weight_decay * I)^{-1} e.

    J has one row per (sample, class), the gradient of that logit; e = softmax(h) - onehot(y), or h - (2 onehot(y) - 1)
    for `loss="mse"`; d_full solves on S, d_retain on S_r with n_r in place of n. J is formed only while it fits
    `memory_mib`; beyond that conjugate gradients use products with J alone, until the step (scale and all) is known to
    the share `tolerance` of its length: the two solutions nearly cancel, so their residuals alone say little. For a
    small ridge float32 is too coarse for that, which is then said; `double` takes float64.
    The raw step is far too short for a deep network; `scale="predicted"` lengthens it by
    (|delta| + 2 |cos(delta, err)| |err|) / |delta|, err = w - w_init - d_retain, which needs the initial weights
    (without them: 1, and a warning). `linearize_at="init"` takes J and e there, as derived; the reference code, and the
    default, take them at the original. `guard` halves the scale until the retain loss is at most that many times the
    original's: without it the method can collapse.
    Reference: Golatkar, Achille, Soatto, "Forgetting Outside the Box", ECCV 2020.

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
        start = context.origin.initial
        for name, value in model.state_dict().items():
            if start is not None and (name not in start or start[name].shape != value.shape):
                what = f"{name!r} of shape {tuple(value.shape)}"
                raise InputError(f"ntk: the initial weights have no {what}; they are another model's")
        if self.linearize_at == "init" and start is None:
            raise InputError("ntk: linearize_at='init' needs initial weights; pass origin=Origin(initial=)")
        travelled = self.travelled(model, start)
        retained, full = self.solve(model, splits, start, travelled, context)
        delta, scale, error = self.step(retained, full, travelled)
        used = self.move(model, delta, scale, splits.retain)
        context.passes += retained.passes + full.passes
        context.notes |= {"scale": used, "scale_before_guard": scale, "step_norm": math.sqrt(inner(delta, delta))}
        context.notes |= {"iterations": full.iterations, "step_error": error, "converged": error <= self.tolerance}
        return model

    def travelled(self, model: nn.Module, start: State) -> Weights | None:
        """Return w - w_init, which predicts the scale; None where the scale is given or these weights are not known."""
        if isinstance(self.scale, float):
            return None
        if start is None:
            warn("the initial weights are not known, so the scale cannot be predicted and is 1")
            return None
        return {name: p.detach().double() - start[name] for name, p in model.named_parameters() if p.requires_grad}

    def step(self, retained: Solution | RidgeDescent, full: Solution | RidgeDescent, travelled: Weights | None) -> Step:
        """Return the step of two solutions, and how far it can be from the step of the exact ones.

        With the predicted scale, scale * delta = delta +- 2 P m, m = w - w_init - d_retain, P the projection on delta.
        Two such projections differ by at most the sine of the angle between the deltas: at most E / |delta|.
        """
        delta = difference(retained.step, full.step)
        size, total = math.sqrt(inner(delta, delta)), retained.error + full.error
        if not size:
            return Step(delta, 1.0, math.inf if total else 0.0)
        if travelled is None:
            return Step(delta, self.scale if isinstance(self.scale, float) else 1.0, total / size)
        missing = difference(travelled, retained.step)
        scale = predicted_scale(delta, missing)
        error = total + 2 * (math.sqrt(inner(missing, missing)) * total / size + retained.error)
        return Step(delta, scale, error / (scale * size))

    def solve(
        self, model: nn.Module, splits: Splits, start: State, travelled: Weights | None, context: Context
    ) -> tuple[Solution, Solution]:
        """Return the ridge solutions on the retain set and on all data."""
        at = start if self.linearize_at == "init" else None
        parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        fits = len(splits.train) * splits.classes * parameters * DOUBLE <= self.memory_mib * MIB
        batch, double = samples_at_once(model, splits.retain, self.memory_mib), fits or self.double
        parts = ([splits.retain], [splits.retain, splits.forget])
        retain, train = (Jacobian(model, part, at, batch, double=double) for part in parts)
        errors = self.errors(*train.outputs())
        context.notes["explicit"] = fits
        if not fits:
            return self.by_products(retain, train, errors, travelled, context.progress)
        ridges = (len(retain) * self.weight_decay, len(train) * self.weight_decay)
        return solve_explicitly(train, errors, len(retain) * splits.classes, ridges)

    def errors(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the residuals e (n, classes) of the chosen loss."""
        target = F.one_hot(labels, logits.shape[1]).to(logits)
        return F.softmax(logits, 1) - target if self.loss == "ce" else logits - (2 * target - 1)

    def by_products(
        self, retain: Jacobian, train: Jacobian, errors: Tensor, travelled: Weights | None, progress: Progress | None
    ) -> tuple[Solution, Solution]:
        """Solve both systems by conjugate gradients, side by side, until the step is known; say so if it is not."""
        ridges = [len(jacobian) * self.weight_decay for jacobian in (retain, train)]
        retained, full = (
            RidgeDescent(J, errors[: len(J)], ridge) for J, ridge in zip((retain, train), ridges, strict=True)
        )
        while full.iterations < self.max_iterations and self.step(retained, full, travelled).error > self.tolerance:
            retained.advance()
            full.advance()
            if progress:
                progress(full.iterations, self.max_iterations)
        solutions = retained.verified(), full.verified()
        error = self.step(*solutions, travelled).error
        if error > self.tolerance:
            warn(
                f"conjugate gradients stopped after {full.iterations} steps; the step may be off by {error:.2g} of "
                f"its length, asked {self.tolerance:g}; raise max_iterations, weight_decay or tolerance, or set double"
            )
        return solutions

    @torch.no_grad()
    def move(self, model: nn.Module, delta: Weights, scale: float, retain: Samples) -> float:
        """Move the weights by scale * delta, halving the scale while the guard objects; return the scale used."""
        before = {name: p.clone() for name, p in model.named_parameters() if name in delta}
        limit = math.inf if self.guard is None else self.guard * _retain_loss(model, retain)
        for halving in range(HALVINGS):
            used = math.ldexp(scale, -halving)
            for name, p in model.named_parameters():
                if name in delta:
                    p.copy_(before[name] + used * delta[name])
            if _retain_loss(model, retain) <= limit or self.guard is None:
                return used
        model.load_state_dict(before, strict=False)
        return 0.0


def predicted_scale(delta: Weights, missing: Weights) -> float:
    """Return (|delta| + 2 |cos(delta, missing)| |missing|) / |delta|; 1 where there is no step."""
    square = inner(delta, delta)
    return 1 + 2 * abs(inner(delta, missing)) / square if square else 1.0


def _retain_loss(model: nn.Module, retain: Samples) -> float:
    return F.cross_entropy(forward(model, retain).double(), retain.y).item()
