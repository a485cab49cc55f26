"""The gallery of an audit in a file: perturbed pictures of samples, and which models recognize them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.core.files import read_arrays, write_arrays


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures of n samples at R radii with D draws.

    `images` uint8 of shape (n, R, D, ...); `reference_right` bool (n, R, D); `right` bool (rows, n, R, D), one entry
    for each name in `rows`.
    """

    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    taus: NDArray[np.float64]
    rows: NDArray[np.str_]
    images: NDArray[np.uint8]
    reference_right: NDArray[np.bool_]
    right: NDArray[np.bool_]

    def save(self, path: str | Path) -> None:
        """Write an .npz file; equal galleries give equal bytes."""
        write_arrays(path, {part.name: getattr(self, part.name) for part in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> Gallery:
        """Read what `save` wrote."""
        stored: dict[str, Any] = read_arrays(path, [part.name for part in fields(cls)], "a gallery")
        return cls(**stored)
