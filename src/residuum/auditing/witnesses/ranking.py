"""Membership as a ranking: the chance that a forgotten sample scores higher than a held-out one of its class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.intervals import Floats, normal_quantile
from residuum.types import InputError

Labels = NDArray[np.int64]
HALF = 0.5


@dataclass(frozen=True)
class Classes:
    """Labels of forgotten samples F and held-out samples H; every class of F has some in H."""

    forgotten: Labels
    heldout: Labels

    def __post_init__(self) -> None:
        missing = sorted(set(self.forgotten.tolist()) - set(self.heldout.tolist()))
        if missing or len(self.forgotten) == 0:
            raise InputError(f"expected held-out samples of every forgotten class, got none of {missing}")

    @property
    def same(self) -> NDArray[np.bool_]:
        """Which pairs (|F|, |H|) are of one class."""
        same: NDArray[np.bool_] = self.forgotten[:, None] == self.heldout
        return same

    def variance(self, forgotten: Floats, heldout: Floats) -> float:
        """Return var(V_F) / |F| + sum_c W_c^2 var_c(V_H) / n_c, DeLong's variance with the class mix W of F.

        Means of F vary with the mix of the next |F| samples too, so that a class with one of them needs no variance of
        its own; with one class this is DeLong's formula.
        """
        over_heldout = 0.0
        for label, share in zip(*np.unique(self.forgotten, return_counts=True), strict=True):
            own = heldout[self.heldout == label]
            weight = share / len(self.forgotten)
            over_heldout += weight**2 * (own.var(ddof=1) / len(own) if len(own) > 1 else np.inf)
        spread = forgotten.var(ddof=1) / len(forgotten) if len(forgotten) > 1 else np.inf
        return float(spread + over_heldout)


@dataclass(frozen=True)
class Ranking:
    """AUC = P(s_F > s_H) + P(s_F = s_H) / 2, class by class, pooled by F's class mix; higher scores mean "member".

    `forgotten` has each forgotten sample's share of held-out ones of its class below it, `heldout` each held-out
    sample's share of forgotten ones above it.

    Reference: DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", 1988.

    >>> one_class = Classes(np.zeros(3, int), np.zeros(2, int))
    >>> rank(np.array([1.0, 3.0, 4.0]), np.array([0.0, 3.0]), one_class).auc
    0.75
    """

    classes: Classes
    forgotten: Floats
    heldout: Floats

    @property
    def auc(self) -> float:
        """The area under the curve."""
        return float(self.forgotten.mean())

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval over samples on the logit scale; at 1 its low end is (alpha / 2)^(1 / min(n_F, n_H))."""
        auc, alpha = self.auc, 1 - confidence
        if auc in (0.0, 1.0):
            end = float((alpha / 2) ** (1 / min(len(self.forgotten), len(self.heldout))))
            return (end, 1.0) if auc == 1.0 else (0.0, 1 - end)
        se = np.sqrt(self.classes.variance(self.forgotten, self.heldout)) / (auc * (1 - auc))
        centre, half = np.log(auc / (1 - auc)), normal_quantile(confidence) * se
        low, high = 1 / (1 + np.exp(-(centre + np.array([-half, half]))))
        return float(low), float(high)

    def minus(self, other: "Ranking", confidence: float = 0.95) -> tuple[float, float, float, float]:
        """Return the difference of both areas on the same samples, low, high, and p of "not above" (paired DeLong)."""
        from scipy.special import ndtr

        value = self.auc - other.auc
        paired = (self.forgotten - other.forgotten, self.heldout - other.heldout)
        se = float(np.sqrt(self.classes.variance(*paired)))
        half = normal_quantile(confidence) * se
        p = float(ndtr(-value / se)) if se > 0 else HALF if value == 0 else float(value < 0)
        return value, value - half, value + half, p


def rank(forgotten: Floats, heldout: Floats, classes: Classes) -> Ranking:
    """Return how forgotten samples rank among held-out ones of their class by these scores."""
    wins = (forgotten[:, None] > heldout) + HALF * (forgotten[:, None] == heldout)
    same = classes.same
    of_forgotten: Floats = (wins * same).sum(1) / same.sum(1)
    of_heldout: Floats = (wins * same).sum(0) / np.maximum(same.sum(0), 1)
    return Ranking(classes, of_forgotten, of_heldout)
