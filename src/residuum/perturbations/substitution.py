"""Substitution: some tokens of a text are replaced by others."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from residuum.bounds import Bounds
from residuum.perturbations.base import Perturbation, Randomness
from residuum.types import InputError


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

    @property
    def drawn(self) -> list[int]:
        """The tokens that may take another's place."""
        return sorted(set(range(self.vocabulary)) - set(self.keep))

    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return, for each token, a number that is compared with tau and one that picks another token."""
        own = shape[1:] if len(shape) == 2 else shape
        return Randomness(noise=torch.from_numpy(rng.random((rows, 2, *own), dtype=np.float32)))

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
