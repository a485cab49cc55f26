"""The published Renyi accountant of Langevin unlearning: one request, a sequence of requests, and RURK's objective.

Update: w <- Proj_R(w - eta grad f(w) + sqrt(2 eta sigma^2) N(0, I)), f m-strongly convex and L-smooth, eta <= 1/L,
learning run until stationary. `gap` is the largest norm of the difference between the gradients of learning and of
retraining; with mean losses and clip M it is 2 s M / n for s of n samples. The accountant of `shifted.py` needs no
stationarity and is never worse on the cases tested; this one is kept because the literature states it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from residuum.theory.renyi import minimal_epsilon
from residuum.theory.result import Array, Bound, check

CONVEX = "convex model: every loss convex and L-smooth, plus an l2 term m; never a deep network"
ASSUMPTIONS = (
    CONVEX,
    "per-sample gradients bounded by the clip, which leaves convexity intact",
    "full-batch steps of size at most 1/L, fresh Gaussian noise each step, no momentum",
)
STATIONARY = "learning ran until stationary, and retraining would too"
Normalizer = Literal["mean", "fixed"]


@dataclass(frozen=True)
class Chain:
    """The constants of one noisy gradient descent: strong convexity `l2`, step size and noise temperature."""

    l2: float
    step: float
    sigma: float

    def __post_init__(self) -> None:
        check("l2", self.l2, low=0, ends="(]")
        check("sigma", self.sigma, low=0, ends="(]")
        check("step", self.step, low=0, high=1 / self.l2, ends="(]")

    @property
    def contraction(self) -> float:
        """Lipschitz constant 1 - eta m of one noiseless step."""
        return 1 - self.step * self.l2

    @property
    def noise_variance(self) -> float:
        """Variance 2 eta sigma^2 of the noise added in one step."""
        return 2 * self.step * self.sigma**2


def removal_gap(removed: int, n: int, clip: float, *, normalizer: Normalizer = "mean") -> float:
    """Bound the difference of two averaged, clipped gradients when `removed` of `n` samples go.

    "mean": each average over its own samples, 2 s M / n. "fixed": both sums divided by the same public n, s M / n.

    >>> removal_gap(10, 1000, 1.0), removal_gap(10, 1000, 1.0, normalizer="fixed")
    (0.02, 0.01)
    """
    check("n", n, low=1)
    check("removed", removed, low=0, high=n)
    check("clip", clip, low=0, ends="(]")
    if normalizer not in ("mean", "fixed"):
        raise ValueError(f"expected normalizer 'mean' or 'fixed', got {normalizer!r}")
    return (2 if normalizer == "mean" else 1) * removed * clip / n


def request_gaps(n: int, removed: Sequence[int], clip: float, *, normalizer: Normalizer = "mean") -> list[float]:
    """Return the gap that each request of a sequence opens by itself, among the samples it still finds.

    >>> request_gaps(100, [1, 2], 1.0)  # 2 / 100, 4 / 99
    [0.02, 0.04040404040404041]
    """
    sizes = [n if normalizer == "fixed" else n - sum(removed[:j]) for j in range(len(removed))]
    return [removal_gap(s, size, clip, normalizer=normalizer) for s, size in zip(removed, sizes, strict=True)]


def stationary_divergence(alpha: Array, gap: float, chain: Chain) -> Array:
    """Bound the Renyi divergence of two stationary distributions: e0 = alpha gap^2 / (m sigma^2).

    With gap = 2 s M / n this is 4 alpha s^2 M^2 / (m sigma^2 n^2).

    >>> round(float(stationary_divergence(np.float64(2.0), 0.02, Chain(l2=0.1, step=1.0, sigma=0.1))), 12)
    0.8

    Reference: Chien et al., Langevin unlearning (NeurIPS 2024).
    """
    return np.asarray(alpha * gap**2 / (chain.l2 * chain.sigma**2))


def decay(alpha: Array, steps: int, chain: Chain) -> Array:
    """Return exp(-K m eta / alpha), by which K steps shrink a Renyi divergence of order alpha."""
    return np.asarray(np.exp(-steps * chain.l2 * chain.step / alpha))


def one_request(alpha: Array, gap: float, steps: int, chain: Chain) -> Array:
    """Return the divergence after unlearning one request for `steps` steps: decay times e0."""
    return decay(alpha, steps, chain) * stationary_divergence(alpha, gap, chain)


def many_requests(alpha: Array, gaps: Sequence[float], steps: Sequence[int], chain: Chain) -> Array:
    """Return the divergence after a sequence of requests; the larger of both directions.

    e_j(alpha) = q (w(alpha) e_{j-1}(2 alpha) + e0(2 alpha - 1)) one way, and
    e_j(alpha) = q (w(alpha) e0(2 alpha) + e_{j-1}(2 alpha - 1)) the other, w(alpha) = (alpha - 1/2)/(alpha - 1).
    """
    if len(gaps) != len(steps) or not gaps:
        raise ValueError(f"expected one number of steps per request, got {len(steps)} for {len(gaps)} requests")
    return np.maximum(*(_one_way(alpha, gaps, steps, chain, forward=way) for way in (True, False)))


def rurk_request(alpha: Array, gap: float, pull: float, steps: int, chain: Chain) -> Array:
    """Return the divergence of an objective that also reads the forget set; one term never decays.

    `chain.l2` is m', the convexity left after subtracting the forget terms; `pull` = G bounds their gradient.
    w(alpha) exp(-K m' eta / (2 alpha)) e0'(2 alpha) + eB(2 alpha - 1), e0' with gap + G and eB with G, and the same
    with the roles of the two terms swapped for the other direction; the larger of both.
    """
    start = one_request(2 * alpha, gap + pull, steps, chain)
    swapped = one_request(2 * alpha - 1, gap + pull, steps, chain)
    forward = _weight(alpha) * start + stationary_divergence(2 * alpha - 1, pull, chain)
    backward = _weight(alpha) * stationary_divergence(2 * alpha, pull, chain) + swapped
    return np.maximum(forward, backward)


def published_epsilon(
    gaps: Sequence[float], steps: Sequence[int], chain: Chain, delta: float, *, pull: float = 0.0
) -> Bound:
    """Return eps of the published accountant, minimized over orders; `pull` > 0 for RURK with one request.

    >>> chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    >>> few, many = (published_epsilon([0.02], [k], chain, 1e-5).value for k in (100, 1000))
    >>> many < few
    True
    """
    if pull and len(gaps) != 1:
        raise ValueError(f"expected one request for an objective that reads the forget set, got {len(gaps)}")
    if pull:
        bound = minimal_epsilon(lambda alpha: rurk_request(alpha, gaps[0], pull, steps[0], chain), delta)
    else:
        bound = minimal_epsilon(lambda alpha: many_requests(alpha, gaps, steps, chain), delta)
    constants = {**vars(chain), "gap": float(gaps[-1]), "pull": pull, "steps": float(sum(steps))}
    return replace(bound, assumptions=(*ASSUMPTIONS, STATIONARY), constants={**bound.constants, **constants})


def _weight(alpha: Array) -> Array:
    return np.asarray((alpha - 0.5) / (alpha - 1))


def _one_way(alpha: Array, gaps: Sequence[float], steps: Sequence[int], chain: Chain, *, forward: bool) -> Array:
    if len(gaps) == 1:
        return one_request(alpha, gaps[0], steps[0], chain)
    twice, less = 2 * alpha, 2 * alpha - 1
    before = _one_way(twice if forward else less, gaps[:-1], steps[:-1], chain, forward=forward)
    fresh = stationary_divergence(less if forward else twice, gaps[-1], chain)
    first, second = (before, fresh) if forward else (fresh, before)
    return decay(alpha, steps[-1], chain) * (_weight(alpha) * first + second)
