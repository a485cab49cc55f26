"""The statistical rule of a verdict: is a row further from re-training than re-trained models are from each other?

Every model of a run has a score at each radius and one for all radii together, its level (column 0):

- p(tau) is its share right, the mean over the n samples; the level is that of the mean of p over the radii above 0.
- Sample form: score = arcsin sqrt p, the angle on which the chance of n samples is as wide near 1 as elsewhere; on the
  logarithm's scale a model that is always right lies next to one that nearly is.
- Class form: score = p; values are differences. Memory M = r / G is a ratio of ratios: score = log(p + 1/(2n)).
- Under noise all models of a seed meet the same inputs. Under an attack crafted on each model, every one meets its own,
  the references too. In both cases the S references and their k controls each are N = S(k + 1) re-trained models like
  any other. Only inputs crafted on the reference set it apart: a score is then the value against the reference of the
  seed, N = Sk controls have one, and neutral is what they show, not r = 1.

If the row were re-trained too, its S scores and the N scores of re-trained models would be exchangeable, and

    T = (mean of the row - mean of the re-trained) / (s sqrt(1/S + 1/N)),    s = standard deviation of the re-trained,

would follow Student's distribution with N - 1 degrees of freedom: the chance of training and of the draws is in s. s is
taken to be at least what half a sample more makes: controls that happen to agree do not prove that all would. To look
at the level and at every radius, in both directions, is paid for: the level has four fifths of the error, the radii
share one fifth (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residuum.core.errors import InputError
from residuum.record import Verdict

Floats = NDArray[np.float64]
Scale = Literal["angle", "log", "share"]

RULE_VERSION = 1  # a record names the version by which its rows were judged; raise it with every change of the rule
FALSE_ALARMS = 0.05  # promised
ERROR = 0.035  # nominal: trained models have heavier tails than t, at 0.05 it called out up to 6.6 % (docs/audit.md)
LEVEL_SHARE = 0.8
POWER = 0.8
FEWEST_RETRAINED = 3  # two have one difference: t with one degree of freedom tells nothing but the enormous
MOST_MORE = 50


@dataclass(frozen=True)
class Judgment:
    """What the rule says of one row under one perturbation; arrays have the level first, then the radii.

    `value` is the row's mean over seeds (differences of scores) and low..high the bar, what re-trained models explain.
    `statistic` is T; `p_value` is for all columns and both directions. `detectable` is the distance from the middle of
    the bar that is found with 80 % power; value -+ `half_interval` is the row's own 95 % interval, if it varies as
    re-trained models do. `radius` is the position of the radius that tells most. Where the verdict is
    inconclusive, so many `more_controls` of each seed or `more_seeds` would do at this spread (None: not even 50), or
    are the least that show a spread at all.
    """

    verdict: Verdict
    retrained: int
    radius: int
    p_value: float
    value: Floats
    statistic: Floats
    low: Floats
    high: Floats
    detectable: Floats
    half_interval: Floats
    more_controls: int | None = None
    more_seeds: int | None = None


@dataclass(frozen=True)
class Design:
    """S seeds with so many re-trained models each, and what such a run can tell.

    >>> Design(seeds=3, retrained=2).half_bar(0.03, error=0.04).round(4).tolist()
    0.0585
    """

    seeds: int
    retrained: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom N - 1."""
        return self.seeds * self.retrained - 1

    def standard_error(self, spread: ArrayLike) -> Floats:
        """Return s sqrt(1/S + 1/N)."""
        return np.asarray(spread, np.float64) * math.sqrt((1 + 1 / self.retrained) / self.seeds)

    def half_bar(self, spread: ArrayLike, error: ArrayLike) -> Floats:
        """Return half the width of the bar, t_{N-1, 1 - error/2} s sqrt(1/S + 1/N)."""
        from scipy.special import stdtrit

        quantile = np.asarray(stdtrit(self.freedom, 1 - np.asarray(error) / 2), np.float64)
        return quantile * self.standard_error(spread)

    def detectable(self, spread: ArrayLike, error: ArrayLike) -> Floats:
        """Return the distance that is found with about 80 % power: half a bar and t_{N-1, 0.8} standard errors."""
        from scipy.special import stdtrit

        return self.half_bar(spread, error) + float(stdtrit(self.freedom, POWER)) * self.standard_error(spread)

    def half_interval(self, spread: ArrayLike) -> Floats:
        """Return half the width of the row's own 95 % interval, t_{N-1, 0.975} s / sqrt(S)."""
        from scipy.special import stdtrit

        return np.asarray(spread, np.float64) * float(stdtrit(self.freedom, 0.975)) / math.sqrt(self.seeds)

    def more_until(self, enough: Callable[[Design], bool]) -> tuple[int | None, int | None]:
        """Return how many more controls of each seed, or more seeds, make a design that is enough; None above 50."""
        numbers = range(1, MOST_MORE + 1)
        controls = (n for n in numbers if enough(replace(self, retrained=self.retrained + n)))
        seeds = (n for n in numbers if enough(replace(self, seeds=self.seeds + n)))
        return next(controls, None), next(seeds, None)


def scores(right: ArrayLike, samples: int, *, scale: Scale = "angle") -> Floats:
    """Return the level and the score at each radius, shape (..., T + 1), of shares right (..., T) at radii above 0.

    >>> scores([0.5, 1.0], 50).round(3).tolist()
    [1.047, 0.785, 1.571]
    >>> scores([0.5, 1.0], 50, scale="log").round(3).tolist()
    [-0.274, -0.673, 0.01]
    >>> scores([0.5, 1.0], 50, scale="share").tolist()
    [0.75, 0.5, 1.0]
    """
    shares = np.asarray(right, np.float64)
    if shares.ndim == 0 or shares.shape[-1] == 0 or not np.all((shares >= 0) & (shares <= 1)):
        raise InputError("expected shares between 0 and 1 at one or more radii above 0")
    columns = np.concatenate([shares.mean(-1, keepdims=True), shares], axis=-1)
    return _scored(columns, samples, scale)


def _scored(shares: Floats, samples: int, scale: Scale) -> Floats:
    if scale == "share":
        return shares
    return np.log(shares + 1 / (2 * samples)) if scale == "log" else np.arcsin(np.sqrt(shares))


def ratio_of(angle: ArrayLike, base: ArrayLike, samples: int) -> Floats:
    """Return how many times as often as at the angle `base` a model at this angle is right; beyond its ends as there.

    Half a sample is added to both shares, so that a reference that is never right has a ratio too.

    >>> ratio_of([math.pi / 6, math.pi / 2, 2], math.pi / 4, 50).round(3).tolist()
    [0.51, 1.98, 1.98]
    """
    own, reference = (np.sin(np.clip(each, 0, math.pi / 2)) ** 2 + 1 / (2 * samples) for each in (angle, base))
    return np.asarray(own / reference, np.float64)


def half_sample(right: ArrayLike, samples: int, *, scale: Scale = "angle") -> Floats:
    """Return how far half a sample more or less moves each score, (T + 1,), at the mean of shares right (..., T).

    >>> half_sample([[0.5], [0.7]], 50).round(4).tolist()
    [0.0102, 0.0102]
    """
    shares = np.asarray(right, np.float64)
    mean = scores(shares.reshape(-1, shares.shape[-1]).mean(0), samples, scale="share")
    fewer, same, more = (
        _scored(np.clip(mean + step, 0, 1), samples, scale) for step in (-1 / (2 * samples), 0, 1 / (2 * samples))
    )
    return np.asarray(np.maximum(more - same, same - fewer), np.float64)


def error_shares(columns: int) -> Floats:
    """Return the part of the error that each column has; with one radius it and the level are the same test.

    >>> error_shares(3).round(2).tolist()
    [0.8, 0.1, 0.1]
    """
    radii = columns - 1
    return np.ones(2) if radii == 1 else np.array([LEVEL_SHARE, *[(1 - LEVEL_SHARE) / radii] * radii])


def judge_scores(
    row: ArrayLike,
    controls: ArrayLike,
    *,
    reference: ArrayLike | None,
    least_spread: ArrayLike = 0.0,
    error: float = ERROR,
    must_detect: float | None = None,
) -> Judgment:
    """Return what the rule says of a row of S seeds, by k controls of each seed.

    Args:
        row: values of the row against the reference of its seed, (S, T + 1): differences of `scores`.
        controls: values of the controls against the same references, (S, k, T + 1); k = 0 has references alone.
        reference: `scores` of the references, (S, T + 1); None where the inputs are crafted on them.
        least_spread: the smallest s, a number or (T + 1,): `half_sample` of the re-trained models.
        error: largest chance of evidence against a re-trained model; `ERROR` / the number of perturbations judged.
        must_detect: a level, such as the original's, that may not be out of reach where "none" is said.

    >>> controls = np.array([[[0.02], [-0.01], [0.01]]]).repeat(2, axis=2)
    >>> result = judge_scores([[0.2, 0.2]], controls, reference=[[-0.1, -0.1]])
    >>> result.verdict.name, result.retrained, result.high.round(3).tolist()
    ('FOUND', 4, [0.058, 0.058])
    """
    values, others, known = _checked(row, controls, reference)
    design = Design(len(values), others.shape[1] + (known is not None))
    if design.seeds * design.retrained < FEWEST_RETRAINED:
        return _too_few(values, design)
    spread = np.maximum(_retrained_scores(others, known).std(axis=0, ddof=1), least_spread)
    center = others.sum(axis=1).mean(axis=0) / design.retrained  # a reference has the value 0 against itself
    judged = _judged(values.mean(0), center, spread, design, error)
    return judged if must_detect is None else _if_seen(judged, design, spread[0], error, abs(must_detect))


def _checked(row: ArrayLike, controls: ArrayLike, reference: ArrayLike | None) -> tuple[Floats, Floats, Floats | None]:
    values, others = np.asarray(row, np.float64), np.asarray(controls, np.float64)
    known = None if reference is None else np.asarray(reference, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or len(values) == 0:
        raise InputError(f"expected values of one or more seeds, level and radii, got shape {values.shape}")
    if others.ndim != 3 or (others.shape[0], others.shape[2]) != values.shape:
        raise InputError(f"expected controls of shape (S, k, T + 1) beside a row {values.shape}, got {others.shape}")
    if known is not None and known.shape != values.shape:
        raise InputError(f"expected scores of the references of shape {values.shape}, got {known.shape}")
    if not all(np.isfinite(part).all() for part in (values, others, known) if part is not None):
        raise InputError("expected finite values; leave a radius out at which a value does not exist")
    return values, others, known


def _retrained_scores(others: Floats, known: Floats | None) -> Floats:
    """Return the scores of all N re-trained models, (N, T + 1), on one scale for all seeds."""
    if known is None:
        return others.reshape(-1, others.shape[2])
    together = np.concatenate([known[:, None], known[:, None] + others], axis=1)
    return together.reshape(-1, others.shape[2])


def _judged(value: Floats, center: Floats, spread: Floats, design: Design, error: float) -> Judgment:
    from scipy.special import stdtr

    shares = error_shares(len(value))
    half, shift = design.half_bar(spread, error * shares), value - center
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(shift == 0, 0.0, shift / design.standard_error(spread))
    p_values = 2 * stdtr(design.freedom, -np.abs(statistic)) / shares
    verdict = _verdict(bool((shift > half).any()), bool((shift < -half).any()))
    return Judgment(
        verdict=verdict,
        retrained=design.freedom + 1,
        radius=_telling(statistic[1:], verdict),
        p_value=min(1.0, float(p_values.min())),
        value=value,
        statistic=statistic,
        low=center - half,
        high=center + half,
        detectable=design.detectable(spread, error * shares),
        half_interval=design.half_interval(spread),
    )


def _verdict(above: bool, below: bool) -> Verdict:
    if above and below:
        return Verdict.MIXED
    return Verdict.FOUND if above else Verdict.OVER_FORGOTTEN if below else Verdict.NONE_FOUND


def _telling(statistic: Floats, verdict: Verdict) -> int:
    """Return the position of the radius that is furthest out, on the side the verdict speaks of."""
    side = {Verdict.FOUND: statistic, Verdict.OVER_FORGOTTEN: -statistic}.get(verdict, np.abs(statistic))
    return int(np.argmax(side))


def _if_seen(judged: Judgment, design: Design, spread: float, error: float, wanted: float) -> Judgment:
    """Return the judgment, or "inconclusive" where "none" was said by a run that could not have seen what it must."""
    if judged.verdict is not Verdict.NONE_FOUND or judged.detectable[0] <= wanted:
        return judged
    level_error = error * error_shares(len(judged.value))[0]

    controls, seeds = design.more_until(lambda other: bool(other.detectable(spread, level_error) <= wanted))
    return replace(judged, verdict=Verdict.INCONCLUSIVE, more_controls=controls, more_seeds=seeds)


def _too_few(values: Floats, design: Design) -> Judgment:
    unknown = np.full(values.shape[1], np.nan)
    controls, seeds = design.more_until(lambda other: other.seeds * other.retrained >= FEWEST_RETRAINED)
    return Judgment(
        verdict=Verdict.INCONCLUSIVE,
        retrained=design.seeds * design.retrained,
        radius=int(np.argmax(np.abs(values.mean(0)[1:]))),
        p_value=1.0,
        value=values.mean(0),
        statistic=unknown,
        low=unknown,
        high=unknown,
        detectable=unknown,
        half_interval=unknown,
        more_controls=controls,
        more_seeds=seeds,
    )
