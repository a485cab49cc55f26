"""Perturbations that no model influences: x' = clamp(x + radius * noise), and tokens of a text replaced by others."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
from residuum.perturbations.base import Perturbation, Randomness

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Additive(Perturbation):
    """Noise drawn at radius one, scaled by the radius, added and clamped."""

    @abstractmethod
    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return float32 noise of radius one, one row for each draw."""

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return the noise of `rows` draws."""
        return Randomness(noise=torch.from_numpy(self.unit_noise(rng, (rows, prod(shape)))).view(rows, *shape))


@dataclass(frozen=True, kw_only=True)
class Gaussian(Additive):
    """Gaussian noise: x' = clamp(x + tau * N(0, I)).

    The radius tau is the standard deviation of one pixel, not the radius of a ball: before clamping the l2 norm of the
    noise is about tau * sqrt(d).

    >>> import torch
    >>> x = torch.full((2, 3), 0.5)
    >>> moved = Gaussian()(torch.nn.Identity(), x, torch.zeros(2, dtype=torch.long), torch.Generator(), 0.1)
    >>> tuple(moved.shape), bool((moved != x).all())
    ((2, 3), True)
    """

    name: ClassVar[str] = "gaussian"

    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return independent standard normal numbers."""
        return rng.standard_normal(size, dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class UniformLinf(Additive):
    """Uniform in the l-infinity ball: x' = clamp(x + tau * U(-1, 1)^d)."""

    name: ClassVar[str] = "uniform_linf"

    def unit_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        """Return independent numbers in [-1, 1)."""
        return symmetric_uniform(rng, size)


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Substitution(Perturbation):
    """Every token is replaced with probability tau by one drawn uniformly from the vocabulary 0..`vocabulary` - 1.

    The radius is tau. Inputs are token ids, or parts (n, parts, length) of which the first are the ids and the one at
    position `mask`, if any, is 0 where there is no token. Tokens of `keep` (padding, separators) are neither replaced
    nor drawn. A token that is replaced at one radius is replaced, by the same, at every larger one.

    >>> text = torch.tensor([[5.0, 6.0, 7.0, 0.0]])
    >>> words = Substitution(vocabulary=10, keep=(0,))
    >>> changed = words(nn.Identity(), text, torch.tensor([0]), torch.Generator(), 1.0)
    >>> changed[0, 3].item(), bool((changed < 10).all())
    (0.0, True)
    """

    vocabulary: int = 2
    keep: tuple[int, ...] = ()
    mask: int | None = None
    name: ClassVar[str] = "substitution"
    moves_in_units: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.drawn:
            raise InputError(f"substitution: expected tokens to draw, got a vocabulary of {self.vocabulary} to keep")

    def space_for(self, space: InputSpace) -> InputSpace:
        """Return the space of token ids."""
        return InputSpace(None, names=space.names, tokens=True)

    def check_radius(self, radius: float) -> None:
        """Refuse a radius that is not a probability."""
        super().check_radius(radius)
        if radius > 1:
            raise InputError(f"substitution: expected a radius <= 1, the chance of a token, got {radius}")

    def check(self, x: Tensor, space: InputSpace, ids: Sequence[str] | None = None) -> None:
        """Refuse inputs that are no token ids, the first by its id."""
        are_tokens = ((x == x.round()) & (x >= 0)).flatten(1).all(1)
        if not bool(are_tokens.all()):
            row = int(are_tokens.to(torch.uint8).argmin())
            where = "" if ids is None else f" in {ids[row]!r}"
            raise InputError(f"substitution: expected token ids (whole numbers, 0 or more), got other inputs{where}")

    @property
    def drawn(self) -> list[int]:
        """The tokens that may take another's place."""
        return sorted(set(range(self.vocabulary)) - set(self.keep))

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return, for each token, a number that is compared with the radius and one that picks another token."""
        tokens = shape[1:] if len(shape) == 2 else shape
        return Randomness(noise=torch.from_numpy(rng.random((rows, 2, *tokens), dtype=np.float32)))

    def apply(
        self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness, space: InputSpace, radius: float
    ) -> Tensor:
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
        ids.copy_(torch.where(free & (chance < radius), new, ids))
        return moved
