"""Perturbations that no model influences: x' = clamp(x + tau * noise), to the bounds of the data."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from residuum.perturbations.base import Perturbation, Randomness

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True)
class Additive(Perturbation):
    """Noise drawn at radius one, scaled by `tau`, added and clamped."""

    @abstractmethod
    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return float32 noise of radius one, one row for each draw."""

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return the noise of `rows` draws."""
        noise = self.unit_noise(rng, (rows, prod(shape) - self.still))
        return Randomness(noise=self.placed(noise, shape))


@dataclass(frozen=True)
class Gaussian(Additive):
    """Gaussian noise: x' = clamp(x + tau * N(0, I)).

    `tau` is the standard deviation of one pixel, not the radius of a ball: before clamping the l2 norm of the noise
    is about tau * sqrt(d).

    >>> import torch
    >>> x = torch.full((2, 3), 0.5)
    >>> moved = Gaussian(tau=0.1)(torch.nn.Identity(), x, torch.zeros(2, dtype=torch.long), torch.Generator())
    >>> tuple(moved.shape), bool((moved != x).all())
    ((2, 3), True)
    """

    name: ClassVar[str] = "gaussian"

    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return independent standard normal numbers."""
        return rng.standard_normal(size, dtype=np.float32)


@dataclass(frozen=True)
class UniformLinf(Additive):
    """Uniform in the l-infinity ball: x' = clamp(x + tau * U(-1, 1)^d)."""

    name: ClassVar[str] = "uniform_linf"

    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return independent numbers in [-1, 1)."""
        return symmetric_uniform(rng, size)


@dataclass(frozen=True)
class UniformL2(Additive):
    """Uniform in the l2 ball: x' = clamp(x + tau * u^(1/d) * z / |z|), z normal, u uniform in [0, 1)."""

    name: ClassVar[str] = "uniform_l2"

    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return points of the unit ball: a direction from the normal law, a length from u^(1/d)."""
        z = rng.standard_normal(size)
        length = rng.random((size[0], 1)) ** (1 / size[1])
        inside: Array = (z * (length / np.linalg.norm(z, axis=1, keepdims=True))).astype(np.float32)
        return inside


def symmetric_uniform(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    """Return float32 numbers uniform in [-1, 1)."""
    return np.float32(2) * rng.random(size, dtype=np.float32) - np.float32(1)
