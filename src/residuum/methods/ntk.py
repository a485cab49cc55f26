"""NTK: move from the solution of all data to the solution of the retained data, in the linearised network."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context, Method
from residuum.methods.linearised import Jacobian, Solution, inner, solve_explicitly, solve_matrix_free
from residuum.methods.per_sample import MIB, Weights, samples_at_once
from residuum.models import forward
from residuum.training import STRICT, Positive, Progress
from residuum.types import InputError, Samples, Splits, warn

State = Mapping[str, Tensor] | None
HALVINGS = 40  # after these the step is below one part in 1e12


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NTK(Method):
    """NTK forgetting: w <- w + scale * (d_retain - d_full), d = -J^T (J J^T + n * weight_decay * I)^{-1} e.

    J has one row per (sample, class), the gradient of that logit; e = softmax(h) - onehot(y), or h - (2 onehot(y) - 1)
    for `loss="mse"`; d_full solves on S, d_retain on S_r with n_r in place of n. J is formed only while it fits
    `memory_mib`; beyond that conjugate gradients use products with J alone, to a relative residual of `tolerance`.
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
    tolerance: Positive = 1e-3
    max_iterations: Annotated[int, Field(ge=1)] = 100
    memory_mib: Positive = 256.0

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Move the copy."""
        start = _initial(model, context.initial)
        retained, full = self.solve(model, splits, start, context)
        delta = {name: retained.step[name] - full.step[name] for name in full.step}
        scale = self.length(model, delta, retained.step, start)
        used = self.move(model, delta, scale, splits.retain)
        context.passes += retained.passes + full.passes
        context.notes |= {"scale": used, "scale_before_guard": scale, "step_norm": math.sqrt(inner(delta, delta))}
        context.notes |= {
            "cg_iterations": [retained.iterations, full.iterations],
            "cg_residual": [retained.residual, full.residual],
            "converged": all(solution.residual <= self.tolerance for solution in (retained, full)),
        }
        return model

    def solve(self, model: nn.Module, splits: Splits, start: State, context: Context) -> tuple[Solution, Solution]:
        """Return the ridge solutions on the retain set and on all data."""
        if self.linearize_at == "init" and start is None:
            raise InputError("ntk: linearize_at='init' needs initial weights; pass context=Context(seed, initial=...)")
        at = start if self.linearize_at == "init" else None
        batch = samples_at_once(model, splits.retain, self.memory_mib)
        kept, every = (Jacobian(model, parts, at, batch) for parts in ([splits.retain], [splits.retain, splits.forget]))
        logits, labels = every.outputs()
        errors = self.errors(logits, labels)
        fits = errors.numel() * every.row_bytes <= self.memory_mib * MIB
        context.notes["explicit"] = fits
        if not fits:
            return self.by_products(kept, every, errors, context.progress)
        ridges = (len(kept) * self.weight_decay, len(every) * self.weight_decay)
        return solve_explicitly(every, errors, len(kept) * splits.classes, ridges)

    def errors(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the residuals e (n, classes) of the chosen loss."""
        target = F.one_hot(labels, logits.shape[1]).to(logits)
        return F.softmax(logits, 1) - target if self.loss == "ce" else logits - (2 * target - 1)

    def by_products(
        self, kept: Jacobian, every: Jacobian, errors: Tensor, progress: Progress | None
    ) -> tuple[Solution, Solution]:
        """Solve both systems by conjugate gradients, and say so if one has not converged."""
        retained, full = (
            solve_matrix_free(
                jacobian, errors[: len(jacobian)], len(jacobian) * self.weight_decay,
                tolerance=self.tolerance, max_iterations=self.max_iterations, progress=_half(progress, part),
            )
            for part, jacobian in enumerate((kept, every))
        )  # fmt: skip
        worst = max(retained.residual, full.residual)
        if worst > self.tolerance:
            warn(
                f"conjugate gradients stopped after {self.max_iterations} iterations at a relative residual of "
                f"{worst:.2g}, asked {self.tolerance:g}; raise max_iterations, weight_decay or tolerance"
            )
        return retained, full

    def length(self, model: nn.Module, delta: Weights, retained: Weights, start: State) -> float:
        """Return the scale: the given one, or the predicted one."""
        if isinstance(self.scale, float):
            return float(self.scale)
        if start is None:
            warn("the initial weights are not known, so the scale cannot be predicted and is 1")
            return 1.0
        now = dict(model.named_parameters())
        missing = {name: now[name].detach() - start[name] - retained[name] for name in delta}
        return predicted_scale(delta, missing)

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


def _half(progress: Progress | None, part: int) -> Progress | None:
    return progress and (lambda done, total: progress(part * total + done, 2 * total))


def _initial(model: nn.Module, initial: State) -> State:
    if initial is None:
        return None
    for name, value in model.state_dict().items():
        if name not in initial or initial[name].shape != value.shape:
            shape = tuple(value.shape)
            raise InputError(f"ntk: the initial weights have no {name!r} of shape {shape}; they are another model's")
    return initial


def _retain_loss(model: nn.Module, retain: Samples) -> float:
    return F.cross_entropy(forward(model, retain).double(), retain.y).item()
