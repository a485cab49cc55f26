"""What every perturbation shares: a radius, a draw of randomness, and its application at that radius.

Randomness by key: the same (seed, id, block) gives the same numbers, whatever the batch, order or process. Draw j of a
sample belongs to block j // 25. Each block has its own generator, so draws can be added later without making the
earlier ones again, and any subset of the samples sees the noise it would see in the whole set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError
from residuum.core.inputs import UNIT, Bounds, checked_bounds, checked_scale, clamped, fitting_scale, refuse_outside

BLOCK = 25
Unit = Literal["raw", "std"]


class Randomness(NamedTuple):
    """What chance contributes to a batch; it does not depend on the radius or on a model.

    `noise` float32 of shape (rows, ...), to be scaled by the radius; `uniform` float64 of shape (rows,), uniform in
    [0, 1), which picks a wrong label. Either is None where the perturbation does not use it.
    """

    noise: Tensor | None = None
    uniform: Tensor | None = None

    def rows(self, chosen: slice | Tensor) -> Randomness:
        """Return the randomness of some rows."""
        return Randomness(*(None if part is None else part[chosen] for part in self))

    def to(self, device: torch.device | str) -> Randomness:
        """Return the same randomness on a device."""
        return Randomness(*(None if part is None else part.to(device) for part in self))


def stack(parts: list[Randomness]) -> Randomness:
    """Return the randomness of several samples as one batch."""
    columns = zip(*parts, strict=True)
    return Randomness(*(None if column[0] is None else torch.cat(column) for column in columns))


@dataclass(frozen=True)
class Perturbation(ABC):
    """A way to move inputs within radius `tau` and within the `bounds` of the data.

    `bounds` are (0, 1) for images, (low, high) with a number for each feature, or None for data that have none, such as
    standardized features. Inputs outside are refused (`check`), never moved inside. `scale` is the unit of the radius,
    a number or one for each feature; a feature of scale 0 (a category) is left alone. `at` names a layer whose output
    an audit moves instead of the input; with `unit="std"` the radius is in standard deviations of that output, each
    model's own. `still` numbers at the start of each flat input are then what the model itself is asked about.

    Three steps, so that as much as possible is shared: `draw` makes the randomness, which all radii and models share;
    `aim` adds what depends on the model but not on the radius; `apply` moves the inputs at radius `tau`. Calling the
    object does all three, with fresh randomness from a torch generator. `crafted` says that the result depends on the
    model, `rowwise` that a crafted one treats one row at a time by itself, so that rows cannot influence others.
    """

    tau: float = 0.03
    bounds: Bounds = field(default=UNIT, kw_only=True)
    scale: Any = field(default=None, kw_only=True)
    at: str | None = field(default=None, kw_only=True)
    unit: Unit = field(default="raw", kw_only=True)
    still: int = field(default=0, kw_only=True)
    name: ClassVar[str]
    crafted: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tau) and self.tau >= 0):
            raise InputError(f"{self.name}: expected a finite radius tau >= 0, got {self.tau}")
        if self.unit not in get_args(Unit) or (self.unit == "std" and self.at is None):
            raise InputError(f"{self.name}: expected unit raw, or std with a layer (at=), got {self.unit!r}")
        if self.at is not None and self.scale is not None:
            raise InputError(f"{self.name}: expected a scale or a layer (at=), got both; a layer has unit=std")
        bounds = self.bounds if self.at is None else None  # what a layer returns has none
        object.__setattr__(self, "bounds", checked_bounds(bounds, self.name))
        object.__setattr__(self, "scale", checked_scale(self.scale, self.name))

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Randomness:
        """Return the randomness of `rows` draws for inputs of this shape."""

    def aim(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Randomness:
        """Return what `apply` needs at any radius; most perturbations need the randomness as it is."""
        return randomness

    def apply(self, model: nn.Module, x: Tensor, y: Tensor, randomness: Randomness) -> Tensor:
        """Return the perturbed inputs, one for each row of `x`; here x + tau * noise, clamped to the bounds."""
        return self.shifted(x, randomness.noise)

    def shifted(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """Return x + tau * noise, clamped to the bounds."""
        return x if noise is None else clamped(torch.add(x, self.scaled(noise.to(x)), alpha=self.tau), self.bounds)

    def scaled(self, step: Tensor) -> Tensor:
        """Return a step of radius one in the units of each feature."""
        return step if self.scale is None else step * fitting_scale(self.scale, step)

    def placed(self, noise: np.ndarray, shape: tuple[int, ...]) -> Tensor:
        """Return noise (rows, d - still) for inputs of this shape: nothing for the first `still` numbers."""
        if self.still:
            noise = np.pad(noise, ((0, 0), (self.still, 0)))
        return torch.from_numpy(noise.reshape(len(noise), *shape))

    def check(self, x: Tensor, ids: Sequence[str] | None = None) -> None:
        """Refuse inputs outside the bounds, the first by its id."""
        hint = "give the perturbation the bounds of your data, bounds=None if they have none"
        refuse_outside(x, self.bounds, f"{self.name}: expected inputs", hint, ids)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Return one perturbed copy of each input, with fresh randomness."""
        self.check(x)
        key = int(torch.randint(2**62, (), generator=generator))
        rng = np.random.Generator(np.random.Philox(key=key))
        randomness = self.draw(rng, len(x), tuple(x.shape[1:]))
        return self.apply(model, x, y, self.aim(model, x, y, randomness))

    def with_radius(self, tau: float) -> Self:
        """Return the same perturbation at another radius."""
        return replace(self, tau=float(tau))

    def outcomes(self, classes: int) -> Randomness | None:
        """Return the randomness of all equally likely results of one input, or None where they must be drawn."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return name and fields without the radius, for the run record.

        >>> from residuum.perturbations import Gaussian
        >>> Gaussian(tau=0.1).settings()
        {'name': 'gaussian', 'bounds': (0.0, 1.0)}
        """
        default = {field.name: field.default for field in fields(Perturbation) if field.name != "bounds"}
        changed = ((key, value) for key, value in asdict(self).items() if key not in default or value != default[key])
        return {"name": self.name} | {key: value for key, value in changed if key != "tau"}


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
