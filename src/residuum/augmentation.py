"""Random shifts and mirror images: drawn for a whole batch, so that a part of it looks as it would in the whole."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from residuum.types import InputError


def crop_and_flip(x: Tensor, noise: torch.Generator) -> Tensor:
    """Return images (n, c, h, w) shifted by up to h // 8 pixels with zero padding, half of them mirrored."""
    return cropped(x, draw_crops(len(x), x, noise))


def draw_crops(n: int, like: Tensor, noise: torch.Generator) -> Tensor:
    """Return top, left and whether to mirror for n images like these, int64 of shape (n, 3)."""
    if like.ndim != 4:
        raise InputError(f"expected images of shape (n, c, h, w) for augment=True, got {tuple(like.shape)}")
    top, left = torch.randint(0, 2 * _padding(like) + 1, (2, n), generator=noise)
    return torch.stack([top, left, torch.rand(n, generator=noise) < 0.5], dim=1)


def cropped(x: Tensor, crops: Tensor) -> Tensor:
    """Return the images moved and mirrored as drawn."""
    _, _, height, width = x.shape
    padded = F.pad(x, [_padding(x)] * 4)
    top, left, mirrored = crops.T
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    columns = torch.where(mirrored[:, None].bool(), columns.flip(1), columns)
    samples = torch.arange(len(x))[:, None, None]
    return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _padding(x: Tensor) -> int:
    return x.shape[2] // 8
