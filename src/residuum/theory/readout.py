"""Readout certificates: the divergence between one number of many unlearned and of many re-trained models."""

from __future__ import annotations

import numpy as np

from residuum.theory.result import Array, Bound, check

_ASSUMPTIONS = (
    "models of each kind are independent draws, one readout (accuracy, loss, attack score) per model",
    "by data processing it bounds the divergence of the models from below: it can refute forgetting, never prove it",
    "the plug-in estimate is biased upwards; read it against `null_high`",
)


def histogram_divergence(unlearned: Array, retrained: Array, *, bins: int = 10, prior: float = 0.5) -> float:
    """Return KL(unlearned || retrained) between histograms on pooled quantile bins, `prior` added to every cell.

    sum_b p_b log(p_b / q_b) in nats.

    >>> sample = np.linspace(0, 1, 1000)
    >>> histogram_divergence(sample, sample)
    0.0
    """
    p, q = _cells(unlearned, retrained, bins, prior)
    return float(np.sum(p * np.log(p / q)))


def readout_certificate(
    unlearned: Array, retrained: Array, *, bins: int = 10, prior: float = 0.5, draws: int = 1000,
    confidence: float = 0.95, seed: int = 0,
) -> Bound:  # fmt: skip
    """Return the histogram divergence with a bootstrap interval and the value that equal models would reach.

    `low`, `high`: percentile bootstrap over models. `null_high`: quantile under permutation of the two kinds; a
    value below it is no evidence of a difference, and the bound is then called vacuous.

    >>> rng = np.random.default_rng(7)
    >>> far = readout_certificate(rng.normal(1, 1, 500), rng.normal(0, 1, 500), draws=200)
    >>> far.vacuous, far.constants["low"] < far.value < far.constants["high"]
    (False, True)

    Reference: Golatkar et al., Eternal sunshine of the spotless net (2020).
    """
    _check_readouts(unlearned, retrained, bins, draws)
    check("confidence", confidence, low=0, high=1, ends="()")
    check("prior", prior, low=0, ends="(]")
    rng = np.random.default_rng(seed)
    value = histogram_divergence(unlearned, retrained, bins=bins, prior=prior)
    boot = [
        histogram_divergence(rng.choice(unlearned, len(unlearned)), rng.choice(retrained, len(retrained)),
                             bins=bins, prior=prior) for _ in range(draws)
    ]  # fmt: skip
    null = _permuted(unlearned, retrained, bins, prior, draws, rng)
    tail = (1 - confidence) / 2
    low, high = np.quantile(boot, [tail, 1 - tail])
    null_high = float(np.quantile(null, confidence))
    constants = {"low": float(low), "high": float(high), "null_high": null_high, "bins": float(bins), "prior": prior}
    return Bound(value, max(value, 0.0), value <= null_high, _ASSUMPTIONS, constants)


def _cells(a: Array, b: Array, bins: int, prior: float) -> tuple[Array, Array]:
    """Return the two smoothed histograms on bins that hold equal shares of the pooled readouts."""
    inner = np.unique(np.quantile(np.r_[a, b], np.linspace(0, 1, bins + 1)[1:-1]))
    counts = [np.bincount(np.searchsorted(inner, x), minlength=len(inner) + 1) + prior for x in (a, b)]
    return counts[0] / counts[0].sum(), counts[1] / counts[1].sum()


def _permuted(a: Array, b: Array, bins: int, prior: float, draws: int, rng: np.random.Generator) -> list[float]:
    pooled: Array = np.concatenate([a, b])
    shuffled = (rng.choice(pooled, len(pooled), replace=False) for _ in range(draws))
    return [histogram_divergence(s[: len(a)], s[len(a) :], bins=bins, prior=prior) for s in shuffled]


def _check_readouts(a: Array, b: Array, bins: int, draws: int) -> None:
    for name, readouts in {"unlearned": a, "retrained": b}.items():
        if readouts.ndim != 1 or not np.isfinite(readouts).all():
            raise ValueError(f"expected one finite readout per {name} model, got shape {readouts.shape}")
        check(f"number of {name} readouts", len(readouts), low=2)
    check("bins", bins, low=2)
    check("draws", draws, low=1)
