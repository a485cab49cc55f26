"""The recovery radius: how far a sample must be moved until a model gives its label again."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residuum.auditing.intervals import Floats
from residuum.auditing.predictor import Predictor
from residuum.auditing.stream import rows_for
from residuum.auditing.witnesses.search import STEPS, Found, Goal, search
from residuum.bounds import UNIT, Bounds
from residuum.types import Samples

HALVINGS = 8


@dataclass(frozen=True)
class Recovery:
    """rho of each sample, shape (n,), and the input x' that was recognised (or, where signed, no longer) there."""

    rho: Floats
    x: Tensor


def recovery_radii(
    predictor: Predictor,
    samples: Samples,
    *,
    tau_max: float,
    labels: Tensor | None = None,
    signed: bool = False,
    bounds: Bounds = UNIT,
    steps: int = STEPS,
    halvings: int = HALVINGS,
) -> Recovery:
    """Return rho(x) = min{tau : some x' within tau of x is given the label}, an upper bound of it by search.

    0 where x is recognised already, infinite where nothing is found within `tau_max`. With `signed` a recognised x has
    minus the smallest radius at which it is *not* recognised: where nearly all are right, only this tells them apart.
    The radius is halved in between `halvings` times, each search starting from the last success clipped into the
    smaller ball. `labels` (default: the samples' own) are what the model is pushed to.

    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.tensor([[0.5], [0.2]]), torch.tensor([1, 0])
    >>> line = torch.nn.Linear(1, 2)
    >>> line.weight.data, line.bias.data = torch.tensor([[0.0], [1.0]]), torch.tensor([0.6, 0.0])
    >>> found = recovery_radii(Predictor(line, x), Samples(x, y, ("a", "b")), tau_max=0.5)
    >>> found.rho.round(2).tolist()
    [0.1, 0.0]
    """
    wanted = samples.y if labels is None else labels
    options = {"tau_max": tau_max, "bounds": bounds, "steps": steps, "halvings": halvings}
    parts = [
        _of_batch(predictor, samples.batch(rows)[0], wanted[rows], signed=signed, **options)
        for rows in torch.split(torch.arange(len(samples)), rows_for(samples.shape))
    ]
    return Recovery(np.concatenate([part.rho for part in parts]), torch.cat([part.x for part in parts]))


def _of_batch(predictor: Predictor, x: Tensor, y: Tensor, *, signed: bool, **options: object) -> Recovery:
    right = predictor(x) == y
    rho, nearest = torch.zeros(len(x), dtype=torch.float64), x.clone()
    for away, rows in ((False, ~right), (True, right)):
        if rows.any() and (signed or not away):
            found = _smallest(Goal(predictor, y[rows], away), x[rows], **options)  # type: ignore[arg-type]
            rho[rows] = found.norms(x[rows]) * (-1 if away else 1)
            nearest[rows] = found.x
    return Recovery(rho.numpy(), nearest)


def _smallest(goal: Goal, x: Tensor, *, tau_max: float, bounds: Bounds, steps: int, halvings: int) -> Found:
    low, radius = torch.zeros(len(x), dtype=torch.float64), torch.full((len(x),), tau_max, dtype=torch.float64)
    best = search(x, x, radius, goal.uphill, goal.reached, bounds=bounds, steps=steps)
    for _ in range(halvings):
        high = best.norms(x).clamp(max=tau_max)
        middle = (low + high) / 2
        tried = search(x, best.x, middle, goal.uphill, goal.reached, bounds=bounds, steps=steps)
        better = tried.success & best.success
        low = torch.where(better, low, middle)
        chosen = better.reshape(-1, *[1] * (x.ndim - 1))
        best = Found(best.success, torch.where(chosen, tried.x, best.x))
    return best


def pushed_to(samples: Samples, forgotten: Samples, *, seed: int) -> tuple[Samples, Tensor]:
    """Return held-out samples of other classes, at most as many as were forgotten, and labels drawn from those."""
    rng = np.random.default_rng(seed)
    others = np.flatnonzero(~np.isin(samples.y.numpy(), forgotten.y.numpy()))
    chosen = np.sort(rng.permutation(others)[: len(forgotten)])
    return samples.subset(chosen), torch.from_numpy(rng.choice(forgotten.y.numpy(), len(chosen)))


def easier_to_push(model: Floats, reference: Floats) -> float:
    """Return p of the one-sided sign test that rho of the model is not smaller: small p means fragility, not memory."""
    from residuum.theory.empirical import sign_test_p

    less, more = int((model < reference).sum()), int((model > reference).sum())
    return float(sign_test_p(np.array(less), np.array(more)))
