"""A tight accountant of noisy gradient descent by shifted divergences; exact on quadratic losses.

Two chains start alike and use the same noise law. In phase i (N_i steps) their gradients differ by at most `gap_i`
everywhere, and the retrained chain's noiseless step contracts by c = 1 - eta m. Splitting every shift
z_t = c z_{t-1} + eta gap_t - a_t >= 0, z_T = 0, costs sum a_t^2 / (2 nu^2) with nu^2 = 2 eta sigma^2, so that
D_alpha <= alpha rho, rho = min sum a_t^2 / (2 nu^2). In the coordinates P = sum c^{2(T-t)}, S = sum c^{T-t} eta gap_t
the minimum is the energy of the greatest convex minorant of S over P; S is concave within a phase, so only the ends
of phases matter. Only one of the two chains must contract: the unlearning objective may be any bounded change of the
retraining one, attacks on the current model included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from residuum.theory.langevin import ASSUMPTIONS, Chain, Normalizer, removal_gap
from residuum.theory.renyi import gaussian_epsilon, minimal_epsilon
from residuum.theory.result import Bound, check, check_delta, epsilon_bound

_REFERENCE = "the reference is retraining by the same chain for the same total number of steps from the same start"


@dataclass(frozen=True)
class Phase:
    """A number of steps during which both chains' gradients differ by at most `gap` in norm."""

    steps: int
    gap: float

    def __post_init__(self) -> None:
        check("steps", self.steps, low=0)
        check("gap", self.gap, low=0)


def request_phases(
    n: int, removed: Sequence[int], learn_steps: int, steps: Sequence[int], clip: float,
    *, normalizer: Normalizer = "mean", pull: float = 0.0,
) -> list[Phase]:  # fmt: skip
    """Return the phases of learning on n samples and then serving requests, against retraining on what is left.

    While request j is served, the data still hold all later requests; `pull` adds an objective that reads S_f.

    >>> request_phases(100, [1, 2], 500, [10, 20], 1.0)
    [Phase(steps=500, gap=0.06), Phase(steps=10, gap=0.04040404040404041), Phase(steps=20, gap=0.0)]
    """
    if len(removed) != len(steps) or not removed:
        raise ValueError(f"expected one number of steps per request, got {len(steps)} for {len(removed)} requests")
    phases = [Phase(learn_steps, removal_gap(sum(removed), n, clip, normalizer=normalizer))]
    for j, count in enumerate(steps):
        size = n if normalizer == "fixed" else n - sum(removed[: j + 1])
        gap = removal_gap(sum(removed[j + 1 :]), size, clip, normalizer=normalizer)
        phases.append(Phase(count, gap + pull))
    return phases


def divergence_rate(phases: Sequence[Phase], chain: Chain, *, start_gap: float = 0.0) -> float:
    """Return rho such that the Renyi divergence of every order alpha is at most alpha * rho, in both directions.

    `start_gap` is the distance of the two chains' starting points.

    >>> chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    >>> round(divergence_rate([Phase(1000, 0.02)], chain), 6)  # gap^2 (1 - eta m / 2) / (2 m sigma^2), exact
    0.19

    Reference: Feldman et al. (2018); Altschuler and Talwar (2022); Bok, Su and Altschuler (2024).
    """
    check("start_gap", start_gap, low=0)
    points = _phase_ends([phase for phase in phases if phase.steps], chain, start_gap)
    if len(points) == 1:
        return math.inf if start_gap else 0.0
    return _minorant_energy(points) / (2 * chain.noise_variance)


def shifted_epsilon(
    phases: Sequence[Phase], chain: Chain, delta: float, *, start_gap: float = 0.0, gaussian: bool = False
) -> Bound:
    """Return eps at `delta`; Renyi with the best order, or by the sharper Gaussian trade-off (mu = sqrt(2 rho)).

    >>> chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    >>> phases = [Phase(1000, 0.02), Phase(20, 0.0)]
    >>> [round(shifted_epsilon(phases, chain, 1e-5, gaussian=sharper).value, 3) for sharper in (False, True)]
    [0.275, 0.249]
    """
    check_delta(delta)
    rho = divergence_rate(phases, chain, start_gap=start_gap)
    mu = math.sqrt(2 * rho)
    if math.isinf(rho):
        value = math.inf
    else:
        value = gaussian_epsilon(mu, delta) if gaussian else minimal_epsilon(lambda alpha: alpha * rho, delta).value
    constants = {**vars(chain), "rho": rho, "mu": mu, "start_gap": start_gap}
    constants |= {f"{name}_{i}": float(v) for i, p in enumerate(phases) for name, v in vars(p).items()}
    return epsilon_bound(value, delta, (*ASSUMPTIONS, _REFERENCE), constants)


def steps_needed(
    learning: Sequence[Phase], chain: Chain, eps: float, delta: float,
    *, pull: float = 0.0, start_gap: float = 0.0, limit: int = 10**6,
) -> int | None:  # fmt: skip
    """Return the fewest further steps that certify (eps, delta), or None where no number up to `limit` does.

    With no learning phase and a `start_gap`: how long retraining takes to forget where it started.

    >>> chain = Chain(l2=0.1, step=1.0, sigma=0.1)
    >>> k = steps_needed([Phase(1000, 0.02)], chain, 1.0, 1e-5)
    >>> shifted_epsilon([Phase(1000, 0.02), Phase(k, 0.0)], chain, 1e-5).value <= 1.0
    True
    >>> steps_needed([Phase(1000, 0.02)], chain, 1.0, 1e-5, pull=0.02) is None
    True
    """
    check("eps", eps, low=0, ends="(]")

    def enough(steps: int) -> bool:
        return shifted_epsilon([*learning, Phase(steps, pull)], chain, delta, start_gap=start_gap).value <= eps

    if not enough(limit):
        return None
    low, high = -1, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _phase_ends(phases: Sequence[Phase], chain: Chain, start_gap: float) -> list[tuple[float, float]]:
    """Return the points (P, S) at the ends of the phases."""
    c, left = chain.contraction, sum(phase.steps for phase in phases)
    points, P, S = [(0.0, 0.0)], 0.0, c**left * start_gap
    for phase in phases:
        left -= phase.steps
        P += c ** (2 * left) * _geometric(c * c, phase.steps)
        S += c**left * _geometric(c, phase.steps) * chain.step * phase.gap
        if points[-1][0] < P:
            points.append((P, S))
    return points


def _geometric(ratio: float, count: int) -> float:
    return (1 - ratio**count) / (1 - ratio)


def _minorant_energy(points: list[tuple[float, float]]) -> float:
    """Return the sum of (dS)^2 / dP along the greatest convex minorant of the points."""
    hull: list[tuple[float, float]] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return sum(_slope(a, b) ** 2 * (b[0] - a[0]) for a, b in pairwise(hull))


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])
