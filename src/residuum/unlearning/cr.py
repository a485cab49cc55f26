"""CR: fit linear heads on frozen features, and take samples out of them with a certificate."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from residuum.core.errors import InputError, warn
from residuum.core.samples import Splits
from residuum.core.seeds import generator
from residuum.models import give_unit_head, head_features
from residuum.theory import finite_or_none, objective_epsilon
from residuum.training import NonNegative, Positive
from residuum.unlearning.base import Method, component
from residuum.unlearning.context import Context

CURVATURE_CHANGE = 0.25  # Lipschitz constant of the second derivative of the logistic loss
COVERS = "head only: the features have seen the forget set"
NEWTON_STEPS = 100
USELESS = 10.0  # an observer may be 22,000 times as sure after seeing the model


@component
class CR(Method):
    """Replace the head and take the forget set out of it with one Newton step.

    CR (certified removal) fits one-vs-rest heads on the original's features x_i, scaled to length one, without bias.
    They minimize `sum_i [log(1 + exp(-y_ik w.x_i)) + l2/2 |w|^2] + b_k.w` with `b_k ~ N(0, std^2 I)`. Then `w <- w +
    step_size * H_r^{-1} g_f` takes the forget set out. What the step leaves is at most `|dJ(w; S)| + |X_r| |Delta| |X_r
    Delta| / 4`, and the perturbation hides it up to (epsilon, delta). The record has the bound, the measured residual
    and two epsilons: the exact one, and the one in print, which is false beyond about 2.

    Use it to study certified removal. It covers the head only: the features have seen the forget set, and on random
    samples they still remember it.

    Literature: Both epsilons rest on a step that nobody has proved and whose sharp form has a counter-example
    (docs/reference/theory.md), so neither is a guarantee. Lambda = 0.1 is called a step size in one paper and is the l2
    strength in the code it follows; with `step_size=0.1` nine tenths of the influence stay. A whole class cannot be
    removed, because its head would have no positive sample.

    Attributes:
        l2: Strength of the regularization.
        step_size: Share of the Newton step that is taken.
        std: Standard deviation of the perturbation b in the objective.
        delta: The delta of (epsilon, delta).
        budget: Bound above which the heads are fitted again on the retain set; none means never.

    Reference: Guo et al., "Certified Data Removal from Machine Learning Models", ICML 2020,
    https://arxiv.org/abs/1911.03030

    >>> CR(l2=0.01).step_size
    1.0
    """

    name: ClassVar[str] = "cr"
    title: ClassVar[str] = "CR"

    l2: Positive = 0.1
    step_size: Annotated[float, Field(gt=0, le=1)] = 1.0
    std: NonNegative = 10.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    budget: Positive | None = None

    def refusal(self, splits: Splits) -> str | None:
        """Refuse to remove a whole class."""
        lost = sorted(set(splits.forget.y.tolist()) - set(splits.retain.y.tolist()))
        if not lost and splits.form != "class":
            return None
        names = ", ".join(splits.class_names[label] for label in lost) or "the class"
        reason = "its one-vs-rest head would have no positive sample"
        return f"cr cannot remove a whole class ({names}): {reason}; forget a part of it, or take another method"

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Replace the heads by heads from which the forget set was removed."""
        train, forget = self.objective(model, splits, context.noise_seed)
        retain = train._replace(weights=torch.where(forget, 0.0, train.weights))
        heads = fit_heads(train)
        removal = newton_removal(heads, train, retain, step_size=self.step_size)
        facts = self.certificate(removal, retain)
        if self.budget is not None and (facts["epsilon"] is None or facts["epsilon"] > self.budget):
            refitted = fit_heads(retain)
            removal = Removal(refitted, retain.gradient(refitted).norm(dim=1))
            step = {"heads_fitted_anew": True, "epsilon_of_the_step": facts["epsilon"]}
            facts = self.certificate(removal, retain) | step
        context.notes |= facts | {"feature_forwards": len(train.x)}
        return give_unit_head(model, removal.heads)

    def objective(self, model: nn.Module, splits: Splits, noise_seed: int) -> tuple[Objective, Tensor]:
        """Return the objective on all samples, and which of them are to be forgotten."""
        parts = (splits.retain, splits.forget)
        x = F.normalize(torch.cat([head_features(model, part) for part in parts]).double(), dim=1)
        labels = torch.cat([part.y for part in parts])
        signs = 2.0 * F.one_hot(labels, splits.classes).double() - 1
        noise = torch.randn(splits.classes, x.shape[1], generator=generator(noise_seed), dtype=torch.float64)
        train = Objective(x, signs, self.l2, self.std * noise, torch.ones_like(x[:, 0]))
        return train, torch.arange(len(x)) >= len(splits.retain)

    def certificate(self, removal: Removal, retain: Objective) -> dict[str, Any]:
        """Return the bound, what was really left, and the epsilon that the bound certifies for the heads."""
        residual = retain.gradient(removal.heads).norm(dim=1)
        facts: dict[str, Any] = {"covers": COVERS, "residual": float(residual.norm()), "epsilon": None}
        constants = {"l2": self.l2, "std": self.std, "retained": int(retain.weights.sum())}
        facts |= {"delta": self.delta, "constants": constants}
        if self.step_size != 1 or not self.std:
            return facts | {"epsilon_missing": "needs step_size = 1 and std > 0"}
        bound = float(removal.bounds.norm())
        exact, printed = (objective_epsilon(bound, self.std, self.delta, printed=form) for form in (False, True))
        if exact.value > USELESS:
            text = f"the certificate says next to nothing (epsilon above {USELESS:g}); raise std or l2, or set budget"
            warn(text, stacklevel=3)
        epsilons = {"epsilon": finite_or_none(exact.value), "epsilon_printed": finite_or_none(printed.value)}
        return facts | {"bound": bound, "assumes": list(exact.assumptions)} | epsilons


class Objective(NamedTuple):
    """J_k(w) = sum_i weights_i [log(1 + exp(-y_ik w.x_i)) + l2/2 |w|^2] + b_k.w, for every class k at once.

    `x` (n, d) with rows of length at most one, `signs` (n, classes) of -1 and +1, `offset` b (classes, d), `weights`
    (n,), where 0 leaves a sample out; all float64.
    """

    x: Tensor
    signs: Tensor
    l2: float
    offset: Tensor
    weights: Tensor

    def value(self, heads: Tensor) -> Tensor:
        """Return J_k (classes,)."""
        margins = self.signs * (self.x @ heads.T)
        return (
            self.weights @ F.softplus(-margins) + self._ridge / 2 * heads.square().sum(1) + (self.offset * heads).sum(1)
        )

    def gradient(self, heads: Tensor) -> Tensor:
        """Return dJ_k/dw (classes, d)."""
        margins = self.signs * (self.x @ heads.T)
        return (
            (self.weights[:, None] * -torch.sigmoid(-margins) * self.signs).T @ self.x
            + self._ridge * heads
            + self.offset
        )

    def curvature(self, heads: Tensor) -> Tensor:
        """Return d2J_k/dw2 (classes, d, d)."""
        s = torch.sigmoid(self.x @ heads.T)
        ridge = self._ridge * torch.eye(self.x.shape[1], dtype=self.x.dtype)
        return torch.stack([(self.x.T * (self.weights * column)) @ self.x + ridge for column in (s * (1 - s)).T])

    @property
    def _ridge(self) -> float:
        return self.l2 * float(self.weights.sum())


class Removal(NamedTuple):
    """Heads after a removal, and the bound on |dJ_k/dw| on the retain set, per class; valid for a full step."""

    heads: Tensor
    bounds: Tensor


def fit_heads(objective: Objective, *, tolerance: float = 1e-10) -> Tensor:
    """Return the minimizer (classes, d) by damped Newton steps from zero, to gradients below tolerance * n."""
    heads = torch.zeros_like(objective.offset)
    for _ in range(NEWTON_STEPS):
        slope = objective.gradient(heads)
        if float(slope.norm(dim=1).max()) <= tolerance * len(objective.x):
            return heads
        move = torch.linalg.solve(objective.curvature(heads), slope)
        share, value = torch.ones(len(heads), dtype=heads.dtype), objective.value(heads)
        slack = 1e-12 * (1 + value.abs())
        for _ in range(30):  # each class takes the first of 1, 1/2, ... that does not raise J beyond rounding
            worse = objective.value(heads - share[:, None] * move) > value + slack
            if not bool(worse.any()):
                break
            share = torch.where(worse, share / 2, share)
        heads = heads - share[:, None] * move
    raise InputError(f"cr: the heads did not converge in {NEWTON_STEPS} Newton steps; raise l2 (now {objective.l2:g})")


def newton_removal(heads: Tensor, train: Objective, retain: Objective, *, step_size: float = 1.0) -> Removal:
    """Return w + step_size * H_retain^{-1} (dJ_train/dw - dJ_retain/dw).

    Bound: |dJ_train/dw| + c |X_retain|_2 |Delta| |X_retain Delta|, the first term being what fitting left, c = 1/4 the
    Lipschitz constant of the second derivative of the logistic loss.
    """
    slope = train.gradient(heads)
    move = torch.linalg.solve(retain.curvature(heads), slope - retain.gradient(heads))
    rows = retain.x * retain.weights.sqrt()[:, None]
    bent = float(torch.linalg.matrix_norm(rows, 2)) * move.norm(dim=1) * (rows @ move.T).norm(dim=0)
    return Removal(heads + step_size * move, slope.norm(dim=1) + CURVATURE_CHANGE * bent)
