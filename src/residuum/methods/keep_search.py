"""How much of the original to keep: the least with which validation accuracy comes back."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import TYPE_CHECKING

from torch import nn

from residuum.methods.held_out import error_rate
from residuum.types import ResiduumWarning, Splits

if TYPE_CHECKING:
    from residuum.methods.base import Context, GradientMethod

LOSS = 0.01  # of validation accuracy against the original's that still counts as come back
FINEST = 0.05  # two values of `keep` that are nearer than this are not told apart


def search_keep(method: GradientMethod, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
    """Return the model unlearned with the smallest `keep` found whose validation accuracy comes back; notes have all.

    Bisection on [0, 1], as if accuracy grew with keep: 0.5 first, then the half in which the least sufficient value
    lies. Every trial is a whole run of the method with the same seed, and its passes are counted. A further one is
    made while it fits into `keep_budget` times the passes of the original's training. If none comes back the largest
    keep tried is taken, with a warning.
    """
    least = 1 - error_rate(model, splits.validation, context.team) - LOSS
    budget = context.passes + method.keep_budget * context.training().epochs * len(splits.train)
    low, high, trials, best = 0.0, 1.0, [], None
    while best is None or (high - low > FINEST and context.passes + trials[-1]["passes"] <= budget):
        keep, own = (low + high) / 2, dataclasses.replace(context, passes=0, notes={})
        tried = dataclasses.replace(method, keep=keep).edit(copy.deepcopy(model), splits, own)
        reached = 1 - error_rate(tried, splits.validation, context.team)
        trials.append({"keep": keep, "validation_accuracy": round(100 * reached, 4), "passes": own.passes})
        context.passes += own.passes
        low, high = (low, keep) if reached >= least else (keep, high)
        if high in (keep, 1):
            best = keep, tried, own.notes
    if high == 1:
        text = f"no keep tried brought validation accuracy back to {100 * least:.1f} %; raise epochs or keep_budget"
        warnings.warn(f"{method.name}: {text}", ResiduumWarning, stacklevel=2)
    context.notes |= {**best[2], "keep": best[0], "keep_trials": trials}
    return best[1]
