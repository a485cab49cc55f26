"""The transfer matrix: who recognises what was crafted on whom?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import nn

from residuum.auditing.auditor import audit
from residuum.auditing.intervals import Floats
from residuum.perturbations import Perturbation
from residuum.types import Samples


class Transfers(NamedTuple):
    """Shares right of each sample, (crafted on, shown to, n, T), and the names of both axes."""

    names: tuple[str, ...]
    shares: Floats

    def matrix(self) -> Floats:
        """Return P[c, w] at each radius, shape (names, names, T)."""
        means: Floats = self.shares.mean(2)
        return means

    def ratio(self, crafted: str, shown: str, reference: str) -> Floats:
        """Return P[c, w] / P[c, a] at each radius, NaN where the reference is never right."""
        c, w, a = (self.names.index(name) for name in (crafted, shown, reference))
        p = self.matrix()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Floats = np.where(p[c, a] > 0, p[c, w] / p[c, a], np.nan)
        return ratio


def transfer_matrix(
    models: Mapping[str, nn.Module],
    samples: Samples,
    attack: Perturbation,
    *,
    taus: Sequence[float],
    draws: int = 1,
    seed: int,
) -> Transfers:
    """Craft the attack on each model and show it to all of them.

    P[c, w] is the share of samples on which w is right where c was attacked. Crafted towards the true label,
    P[m, m] / P[m, a] is above 1 by construction: compare it with P[a', a'] / P[a', a] of a control a'. The original o
    shares weights with m: P[o, m] - P[o, a'] > 0 shows lineage, not memory. FGSM without random targets is exact.
    """
    names = tuple(models)
    first = models[names[0]]
    found = [
        audit(models, first, samples, attack, taus=taus, draws=draws, seed=seed, crafted_on=models[source]).counts
        for source in names
    ]
    shares = [[counts[name].method_right / counts[name].draws for name in names] for counts in found]
    return Transfers(names, np.array(shares))
