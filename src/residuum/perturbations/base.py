"""What every perturbation shares: a draw of randomness, and its application in a space at a radius.

Randomness by key: the same (seed, id, block) gives the same numbers, whatever the batch, order or process. Draw j of a
sample belongs to block j // 25. Each block has its own generator, so draws can be added later without making the
earlier ones again, and any subset of the samples sees the noise it would see in the whole set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import PIXELS, InputSpace

BLOCK = 25


class Randomness(NamedTuple):
    """What chance contributes to a batch; it does not depend on the radius or on a model.

    `noise` float32 of shape (rows, ...), to be scaled by the radius; `uniform` float64 of shape (rows,), uniform in
    [0, 1), which picks a wrong label. Either is None where the perturbation does not use it.
    """

    noise: Tensor | None = None
    uniform: Tensor | None = None

    def rows(self, rows: slice | Tensor) -> Randomness:
        """Return the randomness of some rows."""
        return Randomness(*(None if part is None else part[rows] for part in self))

    def after(self, zeros: int) -> Randomness:
        """Return the randomness with so many zeros before the noise of each flat input: these numbers stay."""
        if not zeros or self.noise is None:
            return self
        return self._replace(noise=torch.nn.functional.pad(self.noise.flatten(1), (zeros, 0)))

    def to(self, device: torch.device | str) -> Randomness:
        """Return the same randomness on a device."""
        return Randomness(*(None if part is None else part.to(device) for part in self))


def stack(parts: list[Randomness]) -> Randomness:
    """Return the randomness of several samples as one batch."""
    columns = zip(*parts, strict=True)
    return Randomness(*(None if column[0] is None else torch.cat(column) for column in columns))


@dataclass(frozen=True, kw_only=True)
class Perturbation(ABC):
    """A way to move inputs within a radius. Its fields are its own settings; space and radius are arguments.

    Three steps, so that as much as possible is shared: `draw` makes the randomness, which all radii and models share;
    `aim` adds what depends on the model but not on the radius; `apply` moves the inputs in an `InputSpace` at one
    radius. Calling the object does all three, with fresh randomness from a torch generator. `crafted` says that the
    result depends on the model, `rowwise` that a crafted one treats one row at a time by itself, so that rows cannot
    influence others. `moves_in_units` is False for what acts on the inputs themselves: neither at a layer nor in units
    of features.
    """

    name: ClassVar[str]
    crafted: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False
    moves_in_units: ClassVar[bool] = True

    @property
    def gradients(self) -> int:
        """How many gradients of the model one perturbed input takes."""
        return int(self.crafted)

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return the randomness of `rows` draws for inputs of this shape."""

    def aim(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Randomness:
        """Return what `apply` needs at any radius; most perturbations need the randomness as it is."""
        return randomness

    def apply(
        self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness, space: InputSpace, radius: float
    ) -> Tensor:
        """Return the perturbed inputs, one for each row of `x`; here clamp(x + radius * noise)."""
        return x if randomness.noise is None else space.move(x, randomness.noise.to(x), radius)

    def space_for(self, space: InputSpace) -> InputSpace:
        """Return the space in which the perturbation acts on inputs of a model that has this space."""
        return space if self.moves_in_units else replace(space, scale=None, fixed=(), at=None, unit="raw")

    def check(self, x: Tensor, space: InputSpace, ids: Sequence[str] | None = None) -> None:
        """Refuse inputs outside the bounds, the first by its id."""
        hint = "give the bounds of your data, bounds=None if they have none"
        space.check(x, f"{self.name}: expected inputs", hint, ids)

    def check_radius(self, radius: float) -> None:
        """Refuse a radius at which nothing can be perturbed."""
        if not (math.isfinite(radius) and radius >= 0):
            raise InputError(f"{self.name}: expected a finite radius >= 0, got {radius}")

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        generator: torch.Generator,
        radius: float,
        space: InputSpace = PIXELS,
    ) -> Tensor:
        """Return one perturbed copy of each input, with fresh randomness."""
        self.check_radius(radius)
        self.check(x, space)
        key = int(torch.randint(2**62, (), generator=generator))
        rng = np.random.Generator(np.random.Philox(key=key))
        randomness = self.draw(rng, len(x), tuple(x.shape[1:]))
        return self.apply(model, x, y, self.aim(model, x, y, randomness), space, radius)

    def outcomes(self, classes: int) -> Randomness | None:
        """Return the randomness of all equally likely results of one input, or None where they must be drawn."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return name and fields, for the run record.

        >>> from residuum.perturbations import FGSM
        >>> FGSM(target="true").settings()
        {'name': 'fgsm', 'target': 'true'}
        """
        return {"name": self.name} | asdict(self)


def block_generator(seed: int, sample_id: str, block: int) -> np.random.Generator:
    """Return the generator of one block of draws: Philox keyed by 128 bits of blake2b("seed/block/id")."""
    digest = blake2b(f"{seed}/{block}/{sample_id}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


def block_slices(first: int, last: int) -> Iterator[tuple[int, slice]]:
    """Yield (block, positions within the block) that cover draws first..last-1."""
    for block in range(first // BLOCK, -(-last // BLOCK)):
        start = block * BLOCK
        yield block, slice(max(first - start, 0), min(last - start, BLOCK))


def noise_check(seed: int) -> str:
    """Return 16 hexadecimal digits that change when the noise stream of this seed changes."""
    rng = block_generator(seed, "check", 0)
    drawn = (rng.standard_normal(64, dtype=np.float32), rng.random(64, dtype=np.float32))
    return blake2b(b"".join(part.tobytes() for part in drawn), digest_size=8).hexdigest()
