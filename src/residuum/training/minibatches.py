"""Shuffled mini-batches of a stream, in shards of the processes that train together, with random crops and flips."""

import math
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from residuum.core import devices
from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, generator


class Batch(NamedTuple):
    """A mini-batch: inputs and labels, on the model's device, and their positions in the stream's samples.

    Images have their channels last in memory, which is fastest for convolutions. `label_smoothing` is the share of each
    label that is spread over the classes.
    """

    x: Tensor
    y: Tensor
    indices: Tensor
    label_smoothing: float = 0.0


Augmentation = bool | Literal["reflect"]


class MiniBatches:
    """Shuffled mini-batches of one stream: one pass at a time, or endless and re-shuffled after every pass.

    Order and crops have separate generators, fixed by `seed` and the stream's name. Crops are drawn for the whole
    batch, so that a process's shard of it looks as it would in one process. `drop_last` leaves out an incomplete last
    batch, whose samples differ from pass to pass; a single batch is never left out.
    While `clean` is set, batches are neither augmented nor smoothed.
    `rank` and `world_size` say which of the processes that share every batch this one is.
    """

    def __init__(
        self,
        name: str,
        samples: Samples,
        size: int,
        *,
        augment: Augmentation,
        label_smoothing: float = 0.0,
        seed: int,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.samples, self.size, self.device = samples, size, device
        self.augment, self.label_smoothing, self.clean = augment, label_smoothing, False
        self.rank, self.world_size = rank, world_size
        if len(samples) > size and size % world_size:
            raise InputError(f"expected batches that {world_size} processes can share, got batch_size {size}")
        self.count = max(len(samples) // size, 1) if drop_last and len(samples) else math.ceil(len(samples) / size)
        if world_size > 1:
            batches = torch.split(torch.arange(len(samples)), size)[: self.count]
            share = sum(len(self.shard(batch)) for batch in batches)
            devices.report_share(f"{share} of {len(samples)} samples of {name} in every pass")
        crops = generator(child_seed(seed, f"{name}/augment"))
        self.generators = {"order": generator(child_seed(seed, name)), "crops": crops}
        self.cycled = chain.from_iterable(self.one_pass() for _ in repeat(None))

    def shard(self, batch: Tensor) -> Tensor:
        """Return this process's rows of a batch: rank, rank + world_size, ..., or all of them.

        The mean of a batch is the mean of its shards' means only if these have the same size. So every process computes
        the whole of a last batch that cannot be divided.
        """
        return batch if len(batch) % self.world_size else batch[self.rank :: self.world_size]

    def one_pass(self) -> Iterator[Batch]:
        """Yield this process's shard of every batch, in a new order."""
        order = torch.randperm(len(self.samples), generator=self.generators["order"])
        batches = torch.split(order, self.size)[: self.count]
        for batch, (x, y, indices) in zip(batches, self.samples.batches(map(self.shard, batches)), strict=True):
            augment = False if self.clean else self.augment
            if augment:
                crops = self.shard(draw_crops(len(batch), x, self.generators["crops"], augment))
                x = cropped(x, crops, augment)  # noqa: PLW2901
            if x.ndim == 4:
                x = x.contiguous(memory_format=torch.channels_last)  # noqa: PLW2901
            smoothing = 0.0 if self.clean else self.label_smoothing
            yield Batch(x.to(self.device), y.to(self.device), indices, label_smoothing=smoothing)


def draw_crops(n: int, like: Tensor, noise: torch.Generator, augment: Augmentation = True) -> Tensor:
    """Return top, left and whether to mirror for n images like these, int64 of shape (n, 3)."""
    if like.ndim != 4:
        raise InputError(f"expected images of shape (n, c, h, w) for augment={augment}, got {tuple(like.shape)}")
    top, left = torch.randint(0, 2 * _longest_shift(like, augment) + 1, (2, n), generator=noise)
    return torch.stack([top, left, torch.rand(n, generator=noise) < 0.5], dim=1)


def cropped(x: Tensor, crops: Tensor, augment: Augmentation = True) -> Tensor:
    """Return images (n, c, h, w) shifted and mirrored as drawn, with channels last.

    Shifts go up to h // 8 pixels with zero padding, or with `augment="reflect"` up to h // 16 with reflected padding.
    """
    _, _, height, width = x.shape
    padded = F.pad(x, [_longest_shift(x, augment)] * 4, mode="reflect" if augment == "reflect" else "constant")
    top, left, mirrored = crops.T
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    columns = torch.where(mirrored[:, None].bool(), columns.flip(1), columns)
    samples = torch.arange(len(x))[:, None, None]
    return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _longest_shift(images: Tensor, augment: Augmentation) -> int:
    return images.shape[2] // (16 if augment == "reflect" else 8)
