"""Intervals and tests on counts: what chance alone can do.

Intervals of ratios, differences and shares are over the perturbation draws with the samples fixed. Those over the
samples (bootstrap, Wilson) say so in their names.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from residuum.auditing.counts import Counts

Floats = NDArray[np.float64]
UNSEEN = 1 / 20  # added to each cell for the variance only, so that an unseen event still has width
BOOTSTRAP_RESAMPLES = 1000


def normal_quantile(confidence: float) -> float:
    """Return z with Pr[|N(0,1)| <= z] = confidence."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def paired_variance(counts: Counts, r: Floats | float, weights: Floats | float = 1.0) -> Floats:
    """Return the variance of sum_i w_i (p_m,i - r p_a,i) over the draws, shape (T,): sum_i w_i^2 v_i / draws_i.

    v_i is the variance of 1[m right] - r 1[a right] over the smoothed cells: both right, only m, only a, neither.
    `weights` of shape (n,).
    """
    m, a, both = counts.method_right, counts.reference_right, counts.both_right
    cells = np.stack([both, m - both, a - both, counts.draws - m - a + both]) + UNSEEN
    shares = cells / (counts.draws + 4 * UNSEEN)
    ratio = np.broadcast_to(r, counts.taus.shape)
    values = np.stack([1 - ratio, np.ones_like(ratio), -ratio, np.zeros_like(ratio)])[:, None, :]
    mean = (shares * values).sum(0)
    v = (shares * values**2).sum(0) - mean**2
    return total_over_draws(v * np.square(np.reshape(weights, (-1, 1))), counts)


def share_variance(hits: NDArray[np.int32], counts: Counts) -> tuple[Floats, Floats]:
    """Return mean and variance over the draws of the mean of hits_i / draws_i, both smoothed, shape (T,)."""
    share = (hits + 2 * UNSEEN) / (counts.draws + 4 * UNSEEN)
    return share.mean(0), total_over_draws(share * (1 - share), counts) / len(counts) ** 2


def total_over_draws(v: Floats, counts: Counts) -> Floats:
    """Return sum_i v_i / draws_i, the variance of a sum of means, with v_i made unbiased as for its cells' total."""
    cells = counts.draws + 4 * UNSEEN
    total: Floats = (v * cells / (cells - 1) / counts.draws).sum(0)
    return total


def ratio_interval(r: Floats, variance: Floats, reference_sum: Floats, z: float) -> tuple[Floats, Floats]:
    """Return r exp(-+ z se(r) / r), the interval of a pooled ratio on the log scale; at r = 0 it is [0, z se]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        se = np.sqrt(variance) / reference_sum
        low, high = r * np.exp(-z * se / r), r * np.exp(z * se / r)
    return np.where(r == 0, 0.0, low), np.where(r == 0, z * se, high)


def wilson_interval(share: Floats, n: Floats | int, z: float) -> tuple[Floats, Floats]:
    """Return Wilson's interval of a share of n."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def sign_test(counts: Counts) -> Floats:
    """Return one-sided exact p-values of "the model is right more often", shape (n, T).

    Under the null a draw on which exactly one of both is right favours either with chance 1/2:
    p = Pr[Bin(n10 + n01, 1/2) >= n10].
    """
    from residuum.theory.empirical import sign_test_p

    both = counts.both_right
    return sign_test_p(counts.method_right - both, counts.reference_right - both)


def discoveries(p: Floats, level: float = 0.05) -> NDArray[np.bool_]:
    """Return which p-values of each column survive Benjamini and Hochberg's control of false discoveries."""
    from scipy.stats import false_discovery_control

    found: NDArray[np.bool_] = false_discovery_control(p, axis=0) <= level
    return found


def bootstrap_tail(confidence: float) -> float:
    """Return the share of resamples below a percentile interval: rank 25 of 1000 for 0.95.

    (1 - 0.95) / 2 is a little more than 0.025, which would be rank 26.

    >>> bootstrap_tail(0.95)
    0.025
    """
    return round((1 - confidence) / 2, 12)


def bootstrap_ratio(p_m: Floats, p_a: Floats, *, confidence: float, seed: int) -> tuple[Floats, Floats]:
    """Return the percentile interval of sum p_m / sum p_a over resampled samples; NaN where it does not exist.

    `p_m`, `p_a` of shape (n, T); all radii share the resamples.
    """
    rng = np.random.default_rng(seed)
    n = len(p_m)
    both = np.concatenate([p_m, p_a], axis=1)
    sums = np.empty((BOOTSTRAP_RESAMPLES, both.shape[1]))
    for row in sums:
        row[:] = np.bincount(rng.integers(n, size=n), minlength=n) @ both
    top, bottom = np.split(sums, 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = top / bottom
    tail = bootstrap_tail(confidence)
    low, high = np.quantile(np.where(bottom > 0, ratios, np.inf), [tail, 1 - tail], axis=0, method="inverted_cdf")
    return np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(high), high, np.nan)
