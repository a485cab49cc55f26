"""The statistical rule of a verdict: is a row further from the retrained models than these are from each other?

A run is judged in columns. Every model has a score in each of them, from its recognition rates p, means over the n
samples:

- the level under each perturbation, from the mean of p over the radii above 0;
- radius 0, once: nothing is perturbed there, so it is the same under all perturbations;
- each radius above 0;
- the level of memory M, forgotten against held-out samples. It counts upwards only.

Level and radii above 0 also rise in models that never saw the samples and were trained for fewer epochs, because these
are smoother. They rise on held-out samples as well, so the difference cancels in M. Where M is judged, it takes the
upward shares of level and radii, and these count downwards only. In class form retrained models do not know the class
at all, so the level counts on both sides, and M takes the upward shares of the radii.

An untargeted attack makes every model wrong, and there the difference does not cancel: M rose in models of fewer epochs
that saw nothing. So in sample form only radius 0 counts upwards under it, and M is not judged.

Sample form: score = arcsin sqrt p. On this angle the sampling error of p is equally wide everywhere. Class form:
score = p. M is a ratio of ratios: score = log(p_F + 1/(2n)) - log(p_H + 1/(2n)), with half a forgotten sample added to
both rates, so that a model which is never right has no memory. In class form it is p_F - p_H.

Under noise all models of a seed meet the same inputs. If an attack is crafted on every model, each meets its own, the
references too. In both cases the S references and their k controls each are N = S(k + 1) exchangeable retrained models.
Only inputs crafted on the reference set it apart: then a score above radius 0 is the value against the reference of the
seed, N = Sk controls have one, and the neutral value is their mean, not r = 1. Radius 0 keeps all N.

If the row were a retrained model too, its S scores and the N scores of retrained models would be exchangeable, and

    T = (mean of the row - mean of the retrained) / e,  e = s sqrt(1/S + 1/N),  s = standard deviation of the retrained,

would follow Student's distribution with N - 1 degrees of freedom, because s covers the chance of training and of draws.
e is at least the effect of half a sample. Rates move in steps of a sample, and where retrained models agree on every
sample, another training moves the same sample in all seeds. A column with a share w of the error is evidence where
|T| > q = t_{N-1}(1 - ERROR w / 2). The shares of all columns that count on one side add up to 1 (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residuum.core.errors import InputError
from residuum.record import Verdict

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Scale = Literal["angle", "log", "share"]

RULE_VERSION = 5  # a record names the version by which its rows were judged; raise it with every change of the rule
FALSE_ALARMS = 0.05  # promised
ERROR = 0.035  # nominal: trained models have heavier tails than t; 0.05 called out up to 6.4 % (calibration.md)
LEVEL_SHARE, RADIUS_0_SHARE, RADII_SHARE = 0.2, 0.7, 0.1  # of the error
POWER = 0.8
FEWEST_RETRAINED = 3  # with two, t has one degree of freedom and detects only enormous effects
MOST_MORE = 50


class Shares(NamedTuple):
    """The parts of the error that the columns of one perturbation have; those of radius 0 are of all together."""

    level: float
    radius_0: float
    radius: float
    memory: float


def error_shares(
    radii: int,
    perturbations: int,
    *,
    form: Literal["sample", "class"] = "sample",
    memory: int = 1,
    radius_0: bool = True,
) -> Shares:
    """Return the shares under one of P `perturbations` with T `radii` above 0.

    0.2/P for the level, 0.7 for radius 0 and 0.1/(P T) for each radius. M has the shares of the columns that do not
    count upwards because of it: of level and radii in sample form, of the radii in class form. They are divided by
    `memory`, the number of perturbations under which M is judged, or 0 where it is not judged under this one. The level
    has the share of radius 0 where that was not audited. A single radius and the level are the same test, so both have
    the sum of their shares. Without any perturbation radius 0 has all.

    >>> error_shares(5, 1)  # doctest: +ELLIPSIS
    Shares(level=0.2, radius_0=0.7, radius=0.02, memory=0.3...)
    >>> error_shares(1, 2, memory=0)  # doctest: +ELLIPSIS
    Shares(level=0.15..., radius_0=0.7, radius=0.15..., memory=0.0)
    >>> error_shares(6, 0).radius_0
    1.0
    """
    if perturbations == 0:
        return Shares(0.0, 1.0, 0.0, 0.0)
    level = LEVEL_SHARE + (0.0 if radius_0 else RADIUS_0_SHARE)
    of_memory = 0.0 if not memory else RADII_SHARE if form == "class" else level + RADII_SHARE
    if radii == 1:
        level = radius = (level + RADII_SHARE - (of_memory if form == "class" else 0.0)) / perturbations
    else:
        level, radius = level / perturbations, RADII_SHARE / (perturbations * radii)
    return Shares(level, RADIUS_0_SHARE if radius_0 else 0.0, radius, of_memory / (memory or 1))


def counts_upwards(
    tau: float | None, radii: int, *, form: Literal["sample", "class"], memory: bool, untargeted: bool = False
) -> bool:
    """Return whether a column of r counts upwards: the level (`tau` is None) or a radius.

    It depends on whether M is judged under the perturbation, and on whether that is an `untargeted` attack.

    >>> [counts_upwards(tau, 2, form="sample", memory=True) for tau in (None, 0.0, 0.1)]
    [False, True, False]
    >>> [counts_upwards(tau, 2, form="class", memory=True) for tau in (None, 0.0, 0.1)]
    [True, True, False]
    """
    if tau == 0:
        return True
    if form == "sample":
        return not (memory or untargeted)
    return not memory or tau is None or radii == 1


def student_quantile(p: ArrayLike, freedom: ArrayLike) -> Floats:
    """Return the quantile of Student's distribution."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, p), np.float64)


@dataclass(frozen=True)
class Judgment:
    """A row in C columns: how far its mean lies from that of the retrained models, T, and where it is evidence.

    `outside` is 1 above and -1 below the noise floor, which may be no evidence.
    """

    shift: Floats
    statistic: Floats
    p_values: Floats
    outside: Integers
    above: Flags
    below: Flags


@dataclass(frozen=True)
class Columns:
    """What retrained models show in C columns: mean, s, their number per seed, and the column's share of the error.

    A standard error is never smaller than `least_error`, the effect of half a sample. A shift upwards is evidence only
    where `upwards`, one downwards only where `downwards`. With fewer than three retrained models nothing is.

    >>> columns = Columns(seeds=3, per_seed=[2], mean=[0.0], spread=[0.03], shares=[0.35])
    >>> columns.half_floor.round(4).tolist(), columns.detectable.round(4).tolist()
    ([0.0812], [0.1007])
    >>> columns.judge([0.1]).above.tolist()
    [True]
    """

    seeds: int
    per_seed: Integers
    mean: Floats
    spread: Floats
    shares: Floats
    least_error: Floats | float = 0.0
    upwards: Flags | bool = True
    downwards: Flags | bool = True

    def __post_init__(self) -> None:
        for name in ("mean", "spread", "shares"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        object.__setattr__(self, "per_seed", np.asarray(self.per_seed, np.int64))
        shapes = {part.shape for part in (self.per_seed, self.mean, self.spread, self.shares)}
        if len(shapes) > 1 or self.seeds < 1:
            raise InputError(f"expected one or more seeds and columns of one shape, got {self.seeds} and {shapes}")

    @cached_property
    def retrained(self) -> Integers:
        """The number N of retrained models."""
        return self.seeds * self.per_seed

    @cached_property
    def enough(self) -> Flags:
        """Where there are retrained models enough to judge by."""
        return self.retrained >= FEWEST_RETRAINED

    @cached_property
    def standard_error(self) -> Floats:
        """The standard error s sqrt(1/S + 1/N) of a shift, or half a sample if that is more."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.fmax(self.spread * np.sqrt(1 / self.seeds + 1 / self.retrained), self.least_error)

    def _quantile(self, p: ArrayLike) -> Floats:
        """Return t_{N-1}(p); not a number with too few retrained models."""
        freedom = np.where(self.enough, self.retrained - 1, 1)
        return np.where(self.enough, student_quantile(p, freedom), np.nan)

    @cached_property
    def half_floor(self) -> Floats:
        """Half the width of the noise floor, q s sqrt(1/S + 1/N); infinite where a column has no share."""
        return self._quantile(1 - ERROR * self.shares / 2) * self.standard_error

    @cached_property
    def detectable(self) -> Floats:
        """The shift upwards that is found with about 80 % power: half a noise floor and t_{N-1}(0.8) standard errors.

        Infinite where such a shift is no evidence.
        """
        return np.where(self.upwards, self.half_floor + self._quantile(POWER) * self.standard_error, np.inf)

    @cached_property
    def half_interval(self) -> Floats:
        """Half the width of a row's 95 % interval, t_{N-1}(0.975) s / sqrt(S), with the same least error."""
        return self._quantile(0.975) * np.fmax(self.spread / math.sqrt(self.seeds), self.least_error)

    def judge(self, value: ArrayLike) -> Judgment:
        """Judge the mean over seeds of a row's scores, (C,)."""
        from scipy.special import stdtr

        shift = np.asarray(value, np.float64) - self.mean
        half = self.half_floor
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(shift == 0, 0.0, shift / self.standard_error)
            statistic = np.where(self.enough, statistic, np.nan)
            distance = np.where(self.upwards, np.where(self.downwards, np.abs(statistic), statistic), -statistic)
            tail = stdtr(np.maximum(self.retrained - 1, 1), -distance)
            judged = self.enough & (self.shares > 0)
            p_values = np.where(judged, np.minimum(2 * tail / np.where(self.shares > 0, self.shares, 1), 1), 1.0)
            outside = np.sign(shift).astype(np.int64) * (np.abs(shift) > half)
        return Judgment(shift, statistic, p_values, outside, outside * self.upwards > 0, outside * self.downwards < 0)

    def reached(self, shift: ArrayLike) -> Flags:
        """Return in which columns a shift, such as the original's, is found with 80 % power."""
        with np.errstate(invalid="ignore"):
            return np.asarray(shift, np.float64) >= self.detectable

    def with_more(self, *, controls: int = 0, seeds: int = 0) -> Columns:
        """Return the same columns with more controls of each seed, or more seeds."""
        return replace(self, per_seed=self.per_seed + controls, seeds=self.seeds + seeds)


def verdict_of(residual: bool, over_forgotten: bool) -> Verdict:
    """Return the verdict on a row that is, or is not, above and below what retraining explains."""
    if residual and over_forgotten:
        return Verdict.MIXED
    return Verdict.FOUND if residual else Verdict.OVER_FORGOTTEN if over_forgotten else Verdict.NOT_DETECTED


def scores(rates: ArrayLike, taus: ArrayLike, samples: int, *, scale: Scale = "angle") -> Floats:
    """Return the level over the radii above 0 and the score at each radius, (..., T + 1), from rates (..., T).

    >>> scores([0.9, 0.5, 1.0], [0, 0.1, 0.2], 50).round(3).tolist()
    [1.047, 1.249, 0.785, 1.571]
    >>> scores([0.5, 1.0], [0.1, 0.2], 50, scale="log").round(3).tolist()
    [-0.274, -0.673, 0.01]
    >>> scores([0.5, 1.0], [0.1, 0.2], 50, scale="share").tolist()
    [0.75, 0.5, 1.0]
    """
    return _scored(with_level(rates, taus), samples, scale)


def with_level(rates: ArrayLike, taus: ArrayLike) -> Floats:
    """Return the mean over the radii above 0, then the rates themselves."""
    rates, above = np.asarray(rates, np.float64), np.asarray(taus, np.float64) > 0
    if rates.ndim == 0 or rates.shape[-1] != len(above) or not above.any() or not np.all((rates >= 0) & (rates <= 1)):
        raise InputError("expected recognition rates between 0 and 1 at each radius, one or more of them above 0")
    return np.concatenate([rates[..., above].mean(-1, keepdims=True), rates], axis=-1)


def _scored(rates: Floats, samples: int, scale: Scale) -> Floats:
    if scale == "share":
        return rates
    return np.log(rates + 1 / (2 * samples)) if scale == "log" else np.arcsin(np.sqrt(rates))


def ratio_of(angle: ArrayLike, base: ArrayLike, samples: int) -> Floats:
    """Return the ratio of the recognition rates at two angles, `angle` over `base`; angles are clipped to 0..pi/2.

    Half a sample is added to both rates, so the ratio exists even if the reference is never right.

    >>> ratio_of([math.pi / 6, math.pi / 2, 2], math.pi / 4, 50).round(3).tolist()
    [0.51, 1.98, 1.98]
    """
    rate, base_rate = (np.sin(np.clip(a, 0, math.pi / 2)) ** 2 + 1 / (2 * samples) for a in (angle, base))
    return np.asarray(rate / base_rate, np.float64)


def half_sample(
    rates: ArrayLike, taus: ArrayLike, samples: int, *, scale: Scale = "angle", forgotten: int | None = None
) -> Floats:
    """Return how far half a sample more or less moves each score, (T + 1,), at the mean of the rates (..., T).

    `forgotten` is the number of forgotten samples, of which half of one is added on the log scale, where `samples` are
    held-out ones.

    >>> half_sample([[0.5], [0.7]], [0.1], 50).round(4).tolist()
    [0.0102, 0.0102]
    """
    rates = np.asarray(rates, np.float64)
    mean = with_level(rates.reshape(-1, rates.shape[-1]).mean(0), taus)
    fewer, same, more = (
        _scored(np.clip(mean + step, 0, 1), forgotten or samples, scale)
        for step in (-1 / (2 * samples), 0, 1 / (2 * samples))
    )
    return np.asarray(np.maximum(more - same, same - fewer), np.float64)
