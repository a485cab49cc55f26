"""Probabilistic indistinguishability: what (eps, delta) says about the likelihood ratio of two models."""

from __future__ import annotations

import math

from residuum.theory.result import Bound, check, probability_bound

_ASSUMPTIONS = (
    "both directions of (eps, delta)-indistinguishability hold between unlearned and re-trained models",
    "the value is an upper bound on a probability: the event may well have probability 0",
)


def ratio_violation(eps: float, delta: float, *, tight: bool = True) -> Bound:
    """Bound the probability that the likelihood ratio of unlearned to re-trained leaves [exp(-2 eps), exp(2 eps)].

    Printed: p = 2 delta / (1 - exp(-eps)). Tight: p = delta (1 + exp(-2 eps)) / (1 - exp(-eps)).

    >>> print(f"{ratio_violation(1.0, 1e-5, tight=False).value:.3e} {ratio_violation(1.0, 1e-5).value:.3e}")
    3.164e-05 1.796e-05
    >>> ratio_violation(0.1, 0.05, tight=False).vacuous
    True

    Reference: Hsu et al., The Unseen Threat (2025), Proposition 1, with its direction and factor put right.
    """
    check("eps", eps, low=0)
    check("delta", delta, low=0, high=1, ends="[)")
    factor = 1 + math.exp(-2 * eps) if tight else 2.0
    value = _ratio(factor * delta, -math.expm1(-eps))
    constants = {"eps": eps, "delta": delta, "ratio_low": math.exp(-2 * eps), "ratio_high": _exp(2 * eps)}
    return probability_bound(value, _ASSUMPTIONS, constants)


def ratio_statement(eps: float, delta: float) -> str:
    """Say in words what `ratio_violation` proves.

    >>> ratio_statement(1.0, 1e-5)
    'with probability at least 0.999982 the likelihood ratio lies in [0.135335, 7.38906]'
    >>> ratio_statement(0.1, 0.06)
    'nothing: the bound on the probability of a larger ratio is 1 or more'
    """
    bound = ratio_violation(eps, delta)
    if bound.vacuous:
        return "nothing: the bound on the probability of a larger ratio is 1 or more"
    low, high = bound.constants["ratio_low"], bound.constants["ratio_high"]
    return f"with probability at least {1 - bound.value:.6g} the likelihood ratio lies in [{low:.6g}, {high:.6g}]"


def _ratio(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return 0.0 if numerator == 0 else math.inf
    return numerator / denominator


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf
