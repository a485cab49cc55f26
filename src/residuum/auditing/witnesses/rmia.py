"""RMIA: membership from one model's probabilities, relative to those of a few innocent models."""

import numpy as np

from residuum.auditing.intervals import Floats
from residuum.types import InputError

C = 0.3
GAMMA = 1.0


def log_relative(margins: Floats, innocent: Floats, *, c: float = C) -> Floats:
    """Return log q, q(x) = p_m(y|x) / ((1 + c)/2 * mean_k p_k(y|x) + (1 - c)/2), shape (n,).

    `margins` (n,) of the judged model, `innocent` (N, n) of all others, N >= 1; p = 1 / (1 + exp(-margin)). c < 1 keeps
    q finite where no innocent model knows the sample.

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


def rmia_score(log_q: Floats, population: Floats, *, gamma: float = GAMMA) -> Floats:
    """Return the share of the population z with q(x) / q(z) > gamma, which calibrates thresholds, shape (n,)."""
    line = np.sort(population)
    share: Floats = np.searchsorted(line, log_q - np.log(gamma), side="left") / len(line)
    return share
