"""KLoM: do the margins of unlearned models follow the law of retrained ones?"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from residuum.auditing.probes.base import FURTHER, Evidence, Probe, Value
from residuum.auditing.statistics import CHANCE, SIGNIFICANCE, Floats

BINS, CLIP, LEAST = 20, 100.0, 1e-5
FEWEST = 50  # with fewer models of a kind the bias (0.9 with 50 of each) hides all but gross differences


@dataclass(frozen=True)
class KLoM(Probe):
    """The 95th percentile over forgotten samples of KLoM between a row's models and retrained ones; see `klom`.

    The row shows more than retrained models if models permuted at random seldom differ so much (p), and if forgotten
    samples have larger values than held-out ones of their class (`above_heldout`, the AUC with its interval). Without
    the second condition a row that differs everywhere would seem to remember.
    """

    permutations: int = 99
    name: ClassVar[str] = "klom"
    meaning: ClassVar[str] = "KL of margins from retrained models', 95th percentile; memory if above validation's"
    reads: ClassVar[Literal["models", "margins"]] = "margins"
    per_seed: ClassVar[bool] = False

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the value of each row and the value expected by chance; p comes from permuted models."""
        rng = np.random.default_rng(evidence.seed)
        return {row: self._of_row(evidence, row, rng) for row in evidence.rows if row != FURTHER}

    def _of_row(self, evidence: Evidence, row: str, rng: np.random.Generator) -> Value:
        unlearned, retrained = evidence.margins_of(row, "forget")
        if reason := refuse_few(len(unlearned), len(retrained)):
            return Value(None, note=reason)
        parts = {
            part: klom(*both)
            for part in ("forget", "heldout", "retain", "validation")
            if (both := evidence.margins_of(row, part))[0].size
        }
        p = self.permutation_p(unlearned, retrained, rng)
        ranking = evidence.rank(parts["forget"], parts["heldout"]) if "heldout" in parts else None
        above = [ranking.auc, *ranking.interval()] if ranking else None
        details = {
            "above_heldout": above,
            "models": [len(unlearned), len(retrained)],
            "mean": float(parts["forget"].mean()),
            "expected_of_nothing": float(klom_of_chance(unlearned, retrained).mean()),
            **{f"{part}_q95": float(np.quantile(values, 0.95)) for part, values in parts.items()},
        }
        more = p <= SIGNIFICANCE and (above is None or above[1] > CHANCE)
        return Value(float(np.quantile(parts["forget"], 0.95)), p=p, more=more, details=details)

    def permutation_p(self, unlearned: Floats, retrained: Floats, rng: np.random.Generator) -> float:
        """Return the share of permutations of the models, this one included, whose mean KLoM is as large."""
        models, k = np.concatenate([unlearned, retrained]), len(unlearned)
        value, larger = klom(unlearned, retrained).mean(), 0
        for _ in range(self.permutations):
            mixed = models[rng.permutation(len(models))]
            larger += int(klom(mixed[:k], mixed[k:]).mean() >= value)
        return (1 + larger) / (1 + self.permutations)


def klom(unlearned: Floats, retrained: Floats) -> Floats:
    """Return KL(unlearned || retrained) of the margins of each sample, shape (n,), in nats.

    `unlearned` of shape (K, n), `retrained` of shape (N, n). Margins are clipped to +-100 and counted in 20 equal bins
    over the range of both. The share of the retrained models is at least 1e-5 where the other is positive, so the
    largest value is log(1e5) = 11.5. The last bin of the published code is open, so it loses the largest margin of all.

    Reference: Georgiev et al., "Attribute-to-Delete: Machine Unlearning via Datamodel Matching", 2024.

    >>> phi = np.array([[0.0, 1.0], [1.0, 5.0], [2.0, 2.0]])
    >>> klom(phi, phi).tolist(), klom(phi, phi + 90).round(1).tolist()
    ([0.0, 0.0], [11.5, 11.5])
    """
    edges = bin_edges(unlearned, retrained)
    p, q = (bin_shares(phi, edges) for phi in (unlearned, retrained))
    values: Floats = kl_terms(p, q).sum(1)
    return values


def kl_terms(p: Floats, q: Floats) -> Floats:
    """Return p log(p / max(q, 1e-5)), 0 where p is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms: Floats = np.where(p > 0, p * np.log(p / np.maximum(q, LEAST)), 0.0)
    return terms


def bin_edges(*margins: Floats) -> Floats:
    """Return the edges of 20 equal bins over the pooled range of each sample, shape (n, 21)."""
    pooled = np.clip(np.concatenate(margins), -CLIP, CLIP)
    low, high = pooled.min(0), pooled.max(0)
    edges: Floats = np.linspace(low, np.where(high > low, high, low + 1), BINS + 1, axis=1)
    return edges


def bin_shares(margins: Floats, edges: Floats) -> Floats:
    """Return the share of models in each bin, shape (n, 20)."""
    clipped = np.clip(margins, -CLIP, CLIP)
    place = np.arange(len(edges)) * BINS + np.zeros(clipped.shape, np.int64)
    for edge in edges[:, 1:-1].T:
        place += clipped >= edge
    counts = np.bincount(place.ravel(), minlength=edges[:, 1:].size).reshape(len(edges), BINS)
    shares: Floats = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def klom_of_chance(unlearned: Floats, retrained: Floats) -> Floats:
    """Return the mean of KLoM over all ways to call K of these K + N models unlearned, shape (n,).

    The bins span the range of all models, so they stay, and of the M_b models in bin b the unlearned ones are
    hypergeometric: sum_b E[p log(p / max(q, 1e-5))], K p ~ H(K + N, M_b, K) and N q = M_b - K p. Exact for any margins.
    (Two independent binomials with the shares M_b / (K + N) would give a tenth less with 50 of each: there a model can
    be in both halves.)

    >>> klom_of_chance(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(2).tolist()  # log 2 twice of three, or 11.5
    [4.3]
    """
    from scipy.stats import hypergeom

    k, n = len(unlearned), len(retrained)
    models = np.concatenate([unlearned, retrained])
    counts = np.rint((k + n) * bin_shares(models, bin_edges(models))).astype(np.int64)
    hits, in_bin = np.arange(k + 1), np.arange(k + n + 1)[:, None]
    by_count = (hypergeom.pmf(hits, k + n, in_bin, k) * kl_terms(hits / k, (in_bin - hits) / n)).sum(1)
    means: Floats = by_count[counts].sum(1)
    return means


def refuse_few(unlearned: int, retrained: int, fewest: int = FEWEST) -> str | None:
    """Return why so few models cannot be compared; None where they can."""
    if min(unlearned, retrained) >= fewest:
        return None
    return f"expected at least {fewest} unlearned and {fewest} retrained models, got {unlearned} and {retrained}"
