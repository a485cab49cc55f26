"""Perturbations that no model influences: x' = clamp(x + tau * noise), and tokens of a text replaced by others."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import Bounds
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


@dataclass(frozen=True)
class Substitution(Perturbation):
    """Every token is replaced with chance tau by one drawn uniformly from the vocabulary 0..`vocabulary` - 1.

    Inputs are token ids, or parts (n, parts, length) of which the first are the ids and the one at position `mask`, if
    any, is 0 where there is no token. Tokens of `keep` (padding, separators) are neither replaced nor drawn.
    A token that is replaced at one radius is replaced, by the same, at every larger one.

    >>> text = torch.tensor([[5.0, 6.0, 7.0, 0.0]])
    >>> changed = Substitution(1.0, vocabulary=10, keep=(0,))(nn.Identity(), text, torch.tensor([0]), torch.Generator())
    >>> changed[0, 3].item(), bool((changed < 10).all())
    (0.0, True)
    """

    tau: float = 0.1
    bounds: Bounds = field(default=None, kw_only=True)
    vocabulary: int = field(default=2, kw_only=True)
    keep: tuple[int, ...] = field(default=(), kw_only=True)
    mask: int | None = field(default=None, kw_only=True)
    name: ClassVar[str] = "substitution"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at is not None or self.scale is not None:
            raise InputError("substitution: expected it to act on token ids, got a layer (at=) or a scale")
        if self.tau > 1 or len(self.drawn) < 1:
            raise InputError(
                f"substitution: expected tau <= 1 and tokens to draw, got {self.tau} and {self.vocabulary}"
            )

    def check(self, x: Tensor, ids: Sequence[str] | None = None) -> None:
        """Refuse inputs that are no token ids, the first by its id."""
        whole = ((x == x.round()) & (x >= 0)).flatten(1).all(1)
        if not bool(whole.all()):
            row = int(whole.to(torch.uint8).argmin())
            where = "" if ids is None else f" in {ids[row]!r}"
            raise InputError(f"substitution: expected token ids (whole numbers, 0 or more), got other inputs{where}")

    @property
    def drawn(self) -> list[int]:
        """The tokens that may take another's place."""
        return sorted(set(range(self.vocabulary)) - set(self.keep))

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return, for each token, a number that is compared with tau and one that picks another token."""
        tokens = shape[1:] if len(shape) == 2 else shape
        return Randomness(noise=torch.from_numpy(rng.random((rows, 2, *tokens), dtype=np.float32)))

    def apply(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Tensor:
        """Return the texts with some tokens replaced."""
        assert randomness.noise is not None
        chance, pick = randomness.noise.to(x).unbind(1)
        moved = x.clone()
        ids = moved[:, 0] if x.ndim == 3 else moved
        others = torch.tensor(self.drawn, device=x.device)
        free = ~torch.isin(ids.round().long(), torch.tensor(self.keep, device=x.device, dtype=torch.int64))
        if self.mask is not None and x.ndim == 3:
            free &= x[:, self.mask].round() != 0
        new = others[(pick * len(others)).long().clamp(max=len(others) - 1)].to(x)
        ids.copy_(torch.where(free & (chance < self.tau), new, ids))
        return moved

    def shifted(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """Return token ids as they are: noise cannot move them."""
        return x
