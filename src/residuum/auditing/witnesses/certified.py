"""The certified band: what r can be anywhere near the audited samples, from the counts under Gaussian noise."""

from typing import NamedTuple

import numpy as np

from residuum.auditing.counts import Counts
from residuum.auditing.intervals import Floats
from residuum.types import InputError


class Band(NamedTuple):
    """Bounds of r for each radius of the counts; NaN where there is none."""

    low: Floats
    high: Floats


def shifted_share(p: Floats, k: float) -> Floats:
    """Return Phi(Phi^-1(p) + k), the most (k > 0) or least (k < 0) a share becomes when the centre moves by |k| sigma.

    >>> shifted_share(np.array([0.5]), 1.0).round(4).tolist()
    [0.8413]
    """
    from scipy.special import ndtr, ndtri

    moved: Floats = ndtr(ndtri(p) + k)
    return moved


def certified_band(counts: Counts, *, shift: float, confidence: float = 0.95) -> Band:
    """Return bounds of r for all centres x_i + d_i with ||d_i||_2 <= shift * sigma, sigma = tau, noise N(0, sigma^2).

    With u(p) = Phi(Phi^-1(p) + shift) and l(p) = Phi(Phi^-1(p) - shift):

        l(pm_low) / u(pa_high) <= r <= u(pm_high) / l(pa_low),

    low and high being Clopper-Pearson limits of all hits together, each at alpha / 4, alpha shared by the radii above
    0: one end alone holds at alpha / 2. Pooled shares suffice because u is concave and l convex. Clamping after the
    noise is part of the classifier. It says nothing of l-infinity shifts, and `shift` must not be chosen on them.

    Reference: Salman et al., "Provably robust deep learning via adversarially trained smoothed classifiers", 2019
    (Phi^-1 of a smoothed classifier is 1/sigma-Lipschitz).
    """
    from residuum.theory.empirical import binomial_limits

    if shift < 0:
        raise InputError(f"expected a shift of 0 or more standard deviations, got {shift}")
    if (counts.draws != counts.draws[:1]).any():
        raise InputError("expected the same number of draws of every sample for a certified band")
    radii = max(int((counts.taus > 0).sum()), 1)
    level = 1 - (1 - confidence) / 2 / radii
    draws = counts.draws.sum(0)
    (m_low, m_high), (a_low, a_high) = (
        binomial_limits(hits.sum(0).astype(np.float64), draws, level)
        for hits in (counts.method_right, counts.reference_right)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        low = shifted_share(m_low, -shift) / shifted_share(a_high, shift)
        high = shifted_share(m_high, shift) / shifted_share(a_low, -shift)
    known = counts.taus > 0
    return Band(np.where(known, low, np.nan), np.where(known & np.isfinite(high), high, np.nan))
