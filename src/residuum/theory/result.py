"""What every calculator returns, and how every calculator refuses impossible input."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Bound:
    """One computed statement: the raw `value`, the `clipped` one, and what both rest on.

    `vacuous` is true when the statement says nothing (a probability of 1 or more, an epsilon that allows a perfect
    test). `constants` holds every number that went in or that stands beside the value.

    >>> Bound(value=1.05, clipped=1.0, vacuous=True, assumptions=("a",)).as_dict()["vacuous"]
    True
    """

    value: float
    clipped: float
    vacuous: bool
    assumptions: tuple[str, ...]
    constants: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; what is not finite becomes None."""
        return {
            "value": finite_or_none(self.value),
            "clipped": finite_or_none(self.clipped),
            "vacuous": self.vacuous,
            "assumptions": list(self.assumptions),
            "constants": {name: finite_or_none(value) for name, value in self.constants.items()},
        }


def finite_or_none(value: float) -> float | None:
    """Return the value, or None where JSON has no number for it.

    >>> finite_or_none(float("inf")) is None
    True
    """
    return float(value) if math.isfinite(value) else None


def check(name: str, value: float, *, low: float, high: float = math.inf, ends: str = "[]") -> None:
    """Refuse a value outside the interval from `low` to `high`; `ends` says which ends belong to it.

    >>> check("delta", 1.0, low=0, high=1, ends="()")
    Traceback (most recent call last):
    ValueError: expected delta in (0, 1), got 1.0
    """
    above = value >= low if ends[0] == "[" else value > low
    below = value <= high if ends[1] == "]" else value < high
    if not (above and below and math.isfinite(value)):
        right = ends[1] if math.isfinite(high) else ")"
        raise ValueError(f"expected {name} in {ends[0]}{low:g}, {high:g}{right}, got {value}")


def check_delta(delta: float) -> None:
    """Refuse a delta that is not strictly between 0 and 1."""
    check("delta", delta, low=0, high=1, ends="()")


def probability_bound(value: float, assumptions: tuple[str, ...], constants: Mapping[str, float]) -> Bound:
    """Return an upper bound on a probability: clipped to [0, 1], vacuous from 1 on."""
    return Bound(value, min(max(value, 0.0), 1.0), value >= 1, assumptions, constants)


def epsilon_bound(value: float, delta: float, assumptions: tuple[str, ...], constants: Mapping[str, float]) -> Bound:
    """Return an upper bound on epsilon; vacuous once a test with false-positive rate delta may have power 1.

    The power of such a test is at most exp(epsilon) * delta + delta.
    """
    vacuous = bool(value >= math.log1p(-delta) - math.log(delta))
    return Bound(value, max(value, 0.0), vacuous, assumptions, {"delta": delta, **constants})
