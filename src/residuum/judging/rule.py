"""The statistical rule of a verdict: is a row further from the retrained models than these are from each other?

Every model of a run has a score at each radius and one for all radii together, its level (column 0):

- p(tau) is its recognition rate, a mean over the n samples. The level is the score of the mean of p over the radii
  above 0.
- Sample form: score = arcsin sqrt p. On this angle the sampling error of p is equally wide everywhere; on a logarithm
  it would shrink near p = 1.
- Class form: score = p, so values are differences. M = r / G is a ratio of ratios: score = log(p + 1/(2n)).
- Under noise all models of a seed meet the same inputs. If an attack is crafted on every model, each meets its own
  inputs, the references too. In both cases the S references and their k controls each are N = S(k + 1) exchangeable
  retrained models. Only inputs crafted on the reference set it apart: then a score is the value against the reference
  of the seed, N = Sk controls have one, and the neutral value is their mean, not r = 1.

If the row were a retrained model too, its S scores and the N scores of retrained models would be exchangeable, and

    T = (mean of the row - mean of the retrained) / (s sqrt(1/S + 1/N)),    s = standard deviation of the retrained,

would follow Student's distribution with N - 1 degrees of freedom, because s covers the chance of training and of draws.
s is at least the effect of half a sample, because a few controls may agree by accident. The rule looks at the level
and at every radius, in both directions. So the level gets four fifths of the error, and the radii share one fifth
(Bonferroni).
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
ERROR = 0.035  # nominal: trained models have heavier tails than t; 0.05 gave up to 6.6 % false alarms (docs/audit.md)
LEVEL_SHARE = 0.8
POWER = 0.8
FEWEST_RETRAINED = 3  # with two, t has one degree of freedom and detects only enormous effects
MOST_MORE = 50


@dataclass(frozen=True)
class Judgment:
    """What the rule says of one row under one perturbation; arrays have the level first, then the radii.

    `value` is the row's mean over seeds (differences of scores); `low` and `high` are the noise floor. `statistic` is
    T; `p_value` covers all columns and both directions. `detectable` is the distance from the middle of the noise
    floor that is detected with 80 % power; value -+ `half_interval` is the row's 95 % interval, if the row varies as
    retrained models do. `radius` is the position of the radius with the largest effect. Where the verdict is
    inconclusive, `more_controls` per seed or `more_seeds` would decide it at this spread (None: more than 50), or are
    the fewest that show a spread.
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
    """S seeds with a number of retrained models each, and what such a run can detect.

    >>> Design(seeds=3, retrained=2).half_floor(0.03, error=0.04).round(4).tolist()
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

    def half_floor(self, spread: ArrayLike, error: ArrayLike) -> Floats:
        """Return half the width of the noise floor, t_{N-1, 1 - error/2} s sqrt(1/S + 1/N)."""
        from scipy.special import stdtrit

        quantile = np.asarray(stdtrit(self.freedom, 1 - np.asarray(error) / 2), np.float64)
        return quantile * self.standard_error(spread)

    def detectable(self, spread: ArrayLike, error: ArrayLike) -> Floats:
        """Return the distance detected with about 80 % power: half a noise floor and t_{N-1, 0.8} standard errors."""
        from scipy.special import stdtrit

        return self.half_floor(spread, error) + float(stdtrit(self.freedom, POWER)) * self.standard_error(spread)

    def half_interval(self, spread: ArrayLike) -> Floats:
        """Return half the width of the row's 95 % interval, t_{N-1, 0.975} s / sqrt(S)."""
        from scipy.special import stdtrit

        return np.asarray(spread, np.float64) * float(stdtrit(self.freedom, 0.975)) / math.sqrt(self.seeds)

    def more_until(self, enough: Callable[[Design], bool]) -> tuple[int | None, int | None]:
        """Return how many more controls per seed, or how many more seeds, are enough; None above 50."""
        numbers = range(1, MOST_MORE + 1)
        controls = (n for n in numbers if enough(replace(self, retrained=self.retrained + n)))
        seeds = (n for n in numbers if enough(replace(self, seeds=self.seeds + n)))
        return next(controls, None), next(seeds, None)


def scores(rates: ArrayLike, samples: int, *, scale: Scale = "angle") -> Floats:
    """Return the level and the score at each radius, (..., T + 1), from recognition rates (..., T) at radii above 0.

    >>> scores([0.5, 1.0], 50).round(3).tolist()
    [1.047, 0.785, 1.571]
    >>> scores([0.5, 1.0], 50, scale="log").round(3).tolist()
    [-0.274, -0.673, 0.01]
    >>> scores([0.5, 1.0], 50, scale="share").tolist()
    [0.75, 0.5, 1.0]
    """
    rates = np.asarray(rates, np.float64)
    if rates.ndim == 0 or rates.shape[-1] == 0 or not np.all((rates >= 0) & (rates <= 1)):
        raise InputError("expected recognition rates between 0 and 1 at one or more radii above 0")
    columns = np.concatenate([rates.mean(-1, keepdims=True), rates], axis=-1)
    return _scored(columns, samples, scale)


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


def half_sample(rates: ArrayLike, samples: int, *, scale: Scale = "angle") -> Floats:
    """Return how far half a sample more or less moves each score, (T + 1,), at the mean of the rates (..., T).

    >>> half_sample([[0.5], [0.7]], 50).round(4).tolist()
    [0.0102, 0.0102]
    """
    rates = np.asarray(rates, np.float64)
    mean = scores(rates.reshape(-1, rates.shape[-1]).mean(0), samples, scale="share")
    fewer, same, more = (
        _scored(np.clip(mean + step, 0, 1), samples, scale) for step in (-1 / (2 * samples), 0, 1 / (2 * samples))
    )
    return np.asarray(np.maximum(more - same, same - fewer), np.float64)


def error_shares(columns: int) -> Floats:
    """Return each column's part of the error; with a single radius, it and the level are the same test.

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
    """Judge a row of S seeds by k controls per seed.

    Args:
        row: values of the row against the reference of its seed, (S, T + 1): differences of `scores`.
        controls: values of the controls against the same references, (S, k, T + 1); with k = 0, references only.
        reference: `scores` of the references, (S, T + 1); None where the inputs are crafted on them.
        least_spread: the smallest s, a number or (T + 1,): `half_sample` of the retrained models.
        error: largest chance of evidence against a retrained model; `ERROR` / the number of perturbations judged.
        must_detect: a level, such as the original's, that the run must be able to detect before it says "none found".

    >>> controls = np.array([[[0.02], [-0.01], [0.01]]]).repeat(2, axis=2)
    >>> result = judge_scores([[0.2, 0.2]], controls, reference=[[-0.1, -0.1]])
    >>> result.verdict.name, result.retrained, result.high.round(3).tolist()
    ('FOUND', 4, [0.058, 0.058])
    """
    values, control_values, reference_scores = _checked(row, controls, reference)
    design = Design(len(values), control_values.shape[1] + (reference_scores is not None))
    if design.seeds * design.retrained < FEWEST_RETRAINED:
        return _too_few(values, design)
    retrained_scores = control_values  # (S, k or k + 1, T + 1), on one scale for all seeds
    if reference_scores is not None:
        both = [reference_scores[:, None], reference_scores[:, None] + control_values]
        retrained_scores = np.concatenate(both, axis=1)
    retrained_scores = retrained_scores.reshape(-1, values.shape[1])
    spread = np.maximum(retrained_scores.std(axis=0, ddof=1), least_spread)
    center = control_values.sum(axis=1).mean(axis=0) / design.retrained  # a reference's value against itself is 0
    judgment = _judged(values.mean(0), center, spread, design, error)
    if must_detect is None or judgment.verdict is not Verdict.NONE_FOUND or judgment.detectable[0] <= abs(must_detect):
        return judgment
    level_error = error * error_shares(values.shape[1])[0]
    more_controls, more_seeds = design.more_until(
        lambda larger: bool(larger.detectable(spread[0], level_error) <= abs(must_detect))
    )
    return replace(judgment, verdict=Verdict.INCONCLUSIVE, more_controls=more_controls, more_seeds=more_seeds)


def _checked(row: ArrayLike, controls: ArrayLike, reference: ArrayLike | None) -> tuple[Floats, Floats, Floats | None]:
    values, control_values = np.asarray(row, np.float64), np.asarray(controls, np.float64)
    reference_scores = None if reference is None else np.asarray(reference, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or len(values) == 0:
        raise InputError(f"expected values of one or more seeds, level and radii, got shape {values.shape}")
    if control_values.ndim != 3 or (control_values.shape[0], control_values.shape[2]) != values.shape:
        shapes = f"beside a row {values.shape}, got {control_values.shape}"
        raise InputError(f"expected controls of shape (S, k, T + 1) {shapes}")
    if reference_scores is not None and reference_scores.shape != values.shape:
        raise InputError(f"expected scores of the references of shape {values.shape}, got {reference_scores.shape}")
    if not all(np.isfinite(part).all() for part in (values, control_values, reference_scores) if part is not None):
        raise InputError("expected finite values; leave out the radii at which a value does not exist")
    return values, control_values, reference_scores


def _judged(value: Floats, center: Floats, spread: Floats, design: Design, error: float) -> Judgment:
    from scipy.special import stdtr

    shares = error_shares(len(value))
    half, shift = design.half_floor(spread, error * shares), value - center
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(shift == 0, 0.0, shift / design.standard_error(spread))
    p_values = 2 * stdtr(design.freedom, -np.abs(statistic)) / shares
    verdict = verdict_of(bool((shift > half).any()), bool((shift < -half).any()))
    distance = {Verdict.FOUND: statistic, Verdict.OVER_FORGOTTEN: -statistic}.get(verdict, np.abs(statistic))
    return Judgment(
        verdict=verdict,
        retrained=design.freedom + 1,
        radius=int(np.argmax(distance[1:])),
        p_value=min(1.0, float(p_values.min())),
        value=value,
        statistic=statistic,
        low=center - half,
        high=center + half,
        detectable=design.detectable(spread, error * shares),
        half_interval=design.half_interval(spread),
    )


def verdict_of(residual: bool, over_forgotten: bool) -> Verdict:
    """Return the verdict on a row that is, or is not, above and below what retraining explains."""
    if residual and over_forgotten:
        return Verdict.MIXED
    return Verdict.FOUND if residual else Verdict.OVER_FORGOTTEN if over_forgotten else Verdict.NONE_FOUND


def _too_few(values: Floats, design: Design) -> Judgment:
    unknown = np.full(values.shape[1], np.nan)
    controls, seeds = design.more_until(lambda larger: larger.seeds * larger.retrained >= FEWEST_RETRAINED)
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
