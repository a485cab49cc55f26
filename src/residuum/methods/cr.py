"""CR: fit linear heads on frozen features, and take samples out of them with a certificate."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.base import Context, Method
from residuum.methods.removal import Objective, Removal, fit_heads, newton_removal, one_by_one
from residuum.models import give_unit_head, head_features
from residuum.theory.removal import objective_epsilon
from residuum.theory.result import finite_or_none
from residuum.training import STRICT, NonNegative, Positive
from residuum.types import ResiduumWarning, Splits, generator

USELESS = 10.0  # an observer may be 22,000 times as sure after seeing the model


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CR(Method):
    """Certified removal: w_k <- w_k + step_size * H_r^{-1} sum_{S_f} (dloss/dw + l2 w), one-vs-rest heads.

    The heads minimise J_k(w; S) = sum_i [loss(y_ik w.x_i) + l2/2 |w|^2] + b_k.w, b_k ~ N(0, std^2 I), on the original's
    features x_i scaled to length one, without bias; they replace its last linear layer. What a Newton step leaves is
    bounded, |dJ(w_new; S_r)/dw| <= |dJ(w; S)/dw| + |X_r| |Delta| |X_r Delta| / 4, and the perturbation b hides it up to
    (epsilon, delta), noted for `step_size=1` and the logistic loss. The step from a small residual to epsilon is the
    literature's; it is not proved, and docs/theory.md has a counter-example to its sharp form, so the note lists what
    it assumes. It covers the heads only: the features have seen the forget set. Above `budget` the heads are fitted
    anew on the retain set.
    The literature's lambda = 0.1 may be `l2` or `step_size`; with step_size 0.1 a tenth of the influence is removed. A
    whole class cannot be removed: its head would have no positive sample.
    Reference: Guo et al., "Certified Data Removal from Machine Learning Models", ICML 2020.

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
    sequential: bool = False
    loss: Literal["logistic", "squared"] = "logistic"

    def refusal(self, splits: Splits) -> str | None:
        """Refuse to remove a whole class."""
        lost = sorted(set(splits.forget.y.tolist()) - set(splits.retain.y.tolist()))
        if not lost and splits.form != "class":
            return None
        names = ", ".join(splits.class_names[label] for label in lost) or "the class"
        return (
            f"cr cannot remove a whole class ({names}): its one-vs-rest head would have no positive sample; "
            "forget a part of it, or take another method"
        )

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Put heads on the copy that never counted the forget set."""
        every, forget = self.objective(model, splits, context.noise_seed)
        kept = every.keeping(torch.where(forget, 0.0, every.weights))
        heads = fit_heads(every)
        removal = self.remove(heads, every, kept, forget)
        facts = self.certificate(removal, kept)
        if self.budget is not None and (facts["epsilon"] is None or facts["epsilon"] > self.budget):
            anew = fit_heads(kept)
            removal = Removal(anew, kept.gradient(anew).norm(dim=1))
            step = {"heads_fitted_anew": True, "epsilon_of_the_step": facts["epsilon"]}
            facts = self.certificate(removal, kept) | step
        context.notes |= facts | {"feature_forwards": len(every.x)}
        return give_unit_head(model, removal.heads)

    def objective(self, model: nn.Module, splits: Splits, noise_seed: int) -> tuple[Objective, Tensor]:
        """Return the objective on all samples, and which of them are to be forgotten."""
        parts = (splits.retain, splits.forget)
        x = F.normalize(torch.cat([head_features(model, part) for part in parts]).double(), dim=1)
        labels = torch.cat([part.y for part in parts])
        signs = 2.0 * F.one_hot(labels, splits.classes).double() - 1
        noise = torch.randn(splits.classes, x.shape[1], generator=generator(noise_seed), dtype=torch.float64)
        ones = torch.ones(len(x), dtype=torch.float64)
        forget = torch.arange(len(x)) >= len(splits.retain)
        return Objective(x, signs, self.l2, self.std * noise, ones, self.loss), forget

    def remove(self, heads: Tensor, every: Objective, kept: Objective, forget: Tensor) -> Removal:
        """Take the forgotten samples out, in one step or one by one."""
        if self.sequential:
            return one_by_one(heads, every, forget.nonzero().flatten(), step_size=self.step_size)
        return newton_removal(heads, every, kept, step_size=self.step_size)

    def certificate(self, removal: Removal, kept: Objective) -> dict[str, Any]:
        """Return the bound, what was really left, and the epsilon that the bound certifies for the heads."""
        residual = kept.gradient(removal.heads).norm(dim=1)
        facts: dict[str, Any] = {
            "covers": "head only: the features have seen the forget set",
            "residual": float(residual.norm()),
            "epsilon": None,
            "delta": self.delta,
            "constants": {"l2": self.l2, "std": self.std, "retained": int(kept.weights.sum())},
        }
        if self.step_size != 1 or self.loss != "logistic" or not self.std:
            return facts | {"epsilon_missing": "needs step_size = 1, the logistic loss and std > 0"}
        bound = float(removal.bounds.norm())
        exact, printed = (objective_epsilon(bound, self.std, self.delta, printed=form) for form in (False, True))
        if exact.value > USELESS:
            text = (
                f"cr: the certificate says next to nothing (epsilon {exact.value:.3g}); raise std or l2, or set budget"
            )
            warnings.warn(text, ResiduumWarning, stacklevel=3)
        epsilons = {"epsilon": finite_or_none(exact.value), "epsilon_printed": finite_or_none(printed.value)}
        return facts | {"bound": bound, "assumes": list(exact.assumptions)} | epsilons
