"""What ensembles of models say of a sample: the margin of its label, and by it RMIA and KLoM."""

import numpy as np
from torch import Tensor

from residuum.auditing.intervals import Floats
from residuum.types import InputError


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return phi = z_y - logsumexp_{k != y} z_k = log(p_y / (1 - p_y)) in float64, shape (n,).

    >>> import torch
    >>> margins(torch.tensor([[2.0, 1.0]]), torch.tensor([0])).tolist()
    [1.0]
    """
    precise, chosen = logits.double(), labels[:, None]
    others = precise.scatter(1, chosen, float("-inf")).logsumexp(1)
    return precise.gather(1, chosen)[:, 0] - others


C = 0.3


def log_relative(margins: Floats, innocent: Floats, *, c: float = C) -> Floats:
    """Return log q, q(x) = p_m(y|x) / ((1 + c)/2 * mean_k p_k(y|x) + (1 - c)/2), shape (n,).

    `margins` (n,) of the judged model, `innocent` (N, n) of all others, N >= 1; p = 1 / (1 + exp(-margin)). c < 1 keeps
    q finite where no innocent model knows the sample. The published score, the share of a population with less q,
    ranks samples as q does.

    Reference: Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", 2024.

    >>> log_relative(np.array([0.0]), np.array([[0.0], [0.0]])).round(3).tolist()
    [-0.3]
    """
    if len(innocent) == 0 or not 0 <= c < 1:
        raise InputError(f"expected at least one innocent model and 0 <= c < 1, got {len(innocent)} and {c}")
    from scipy.special import expit, log_expit

    known = (1 + c) / 2 * expit(innocent).mean(0) + (1 - c) / 2
    relative: Floats = log_expit(margins) - np.log(known)
    return relative


BINS, CLIP, LEAST = 20, 100.0, 1e-5
FEWEST = 50  # with fewer models of a kind the bias (0.9 with 50 of each) hides all but gross differences


def klom(unlearned: Floats, innocent: Floats, *, reference: bool = False) -> Floats:
    """Return KL(unlearned || innocent) of the margins of each sample, shape (n,), in nats.

    `unlearned` of shape (K, n), `innocent` of shape (N, n). Margins are clipped to +-100 and counted in 20 equal bins
    over the range of both; the innocents' share is at least 1e-5 where the other is positive, so the largest value is
    log(1e5) = 11.5. `reference=True` counts as the published code does, whose last bin is open: the largest margin of
    all is lost, and shares are of what is left.

    Reference: Georgiev et al., "Attribute-to-Delete: Machine Unlearning via Datamodel Matching", 2024.

    >>> phi = np.array([[0.0, 1.0], [1.0, 5.0], [2.0, 2.0]])
    >>> klom(phi, phi).tolist(), klom(phi, phi + 90).round(1).tolist()
    ([0.0, 0.0], [11.5, 11.5])
    """
    edges = bin_edges(unlearned, innocent)
    p, q = (bin_shares(phi, edges, reference=reference) for phi in (unlearned, innocent))
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


def bin_shares(margins: Floats, edges: Floats, *, reference: bool = False) -> Floats:
    """Return the share of models in each bin, shape (n, 20)."""
    clipped = np.clip(margins, -CLIP, CLIP)
    place = np.arange(len(edges)) * BINS + np.zeros(clipped.shape, np.int64)
    for edge in edges[:, 1:-1].T:
        place += clipped >= edge
    counted = clipped < edges[:, -1] if reference else np.ones(clipped.shape)
    found = np.bincount(place.ravel(), counted.ravel(), minlength=edges[:, 1:].size).reshape(len(edges), BINS)
    shares: Floats = found / np.maximum(found.sum(1, keepdims=True), 1)
    return shares


def klom_of_chance(unlearned: Floats, innocent: Floats) -> Floats:
    """Return the mean of KLoM over all ways to call K of these K + N models unlearned, shape (n,): what nothing shows.

    The bins span the range of all models, so they stay, and of the M_b models in bin b the unlearned ones are
    hypergeometric: sum_b E[p log(p / max(q, 1e-5))], K p ~ H(K + N, M_b, K) and N q = M_b - K p. Exact for any margins.
    (Two independent binomials with the shares M_b / (K + N) would give a tenth less with 50 of each: there a model can
    be in both halves.)

    >>> klom_of_chance(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(2).tolist()  # log 2 twice of three, or 11.5
    [4.3]
    """
    from scipy.stats import hypergeom

    k, n = len(unlearned), len(innocent)
    models = np.concatenate([unlearned, innocent])
    counts = np.rint((k + n) * bin_shares(models, bin_edges(models))).astype(np.int64)
    own, in_bin = np.arange(k + 1), np.arange(k + n + 1)[:, None]
    by_count = (hypergeom.pmf(own, k + n, in_bin, k) * kl_terms(own / k, (in_bin - own) / n)).sum(1)
    means: Floats = by_count[counts].sum(1)
    return means


def refuse_few(unlearned: int, innocent: int, fewest: int = FEWEST) -> str | None:
    """Return why so few models cannot be compared; None where they can."""
    if min(unlearned, innocent) >= fewest:
        return None
    return f"expected at least {fewest} unlearned and {fewest} innocent models, got {unlearned} and {innocent}"


def quantiles(values: Floats) -> dict[str, float]:
    """Return the median, the 95th percentile (the literature's) and the largest value over samples."""
    if len(values) == 0:
        raise InputError("expected at least one sample, got none")
    return {"median": float(np.median(values)), "q95": float(np.quantile(values, 0.95)), "max": float(values.max())}
