"""Images in files, read by threads on demand, as squares of one size."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from residuum.core.errors import InputError
from residuum.core.files import file_sha256, regular_file

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MOST_THREADS = 8
PLAIN_MODES = {"1", "L", "P", "RGB", "CMYK", "YCbCr"}  # each pixel has one RGB value of 8 bits
WITH_ALPHA = {"LA", "RGBA", "PA"}
LAST_BYTES = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}


@dataclass(frozen=True)
class ImageFiles:
    """Images below `root`: a `LazyInputs` of shape (n, channels, size, size), RGB or gray as float32 in [0, 1].

    The largest square in the middle is scaled to `size` x `size` (bilinear; averaging where it shrinks). Only names are
    in memory; threads decode, because Pillow releases the interpreter lock.
    """

    root: Path
    names: tuple[str, ...]
    size: int
    channels: int = 3

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, channels, size, size)."""
        return len(self.names), self.channels, self.size, self.size

    def subset(self, indices: Tensor) -> ImageFiles:
        """Return the images at these positions, unread."""
        return replace(self, names=tuple(self.names[row] for row in indices.tolist()))

    def read(self, indices: Tensor) -> Callable[[], Tensor]:
        """Begin to decode these positions, each file once; the returned function waits for the pixels."""
        rows, inverse = torch.unique(torch.as_tensor(indices), return_inverse=True)
        files = [self.root / self.names[row] for row in rows.tolist()]
        squares = [_threads().submit(read_square, file, self.size, self.channels) for file in files]

        def pixels() -> Tensor:
            if not squares:
                return torch.empty(0, *self.shape[1:])
            stacked = torch.from_numpy(np.stack([square.result() for square in squares]))
            return stacked[inverse].permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)

        return pixels

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 over the bytes of every file and the version of the decoder."""
        from PIL import __version__ as decoder

        files = [self.root / name for name in self.names]
        return hashlib.sha256(decoder.encode() + b"\0" + content_digest(files)).digest()


def read_square(path: Path, size: int, channels: int = 3) -> NDArray[np.uint8]:
    """Return the middle of an image as (size, size, channels) bytes: 3 are RGB, 1 is gray."""
    from PIL.Image import Resampling
    from PIL.ImageOps import fit

    with opened(path) as image:
        image.draft("RGB", (2 * size, 2 * size))  # JPEG decodes at a fraction of its size, but not below this one
        color = image.convert("RGB") if channels == 3 else image.convert("L")
        return np.asarray(fit(color, (size, size), Resampling.BILINEAR)).reshape(size, size, channels)


def checked_sizes(paths: Iterable[Path]) -> list[tuple[int, int]]:
    """Return width and height of every image, after a check of its header and its end."""
    return list(_threads().map(checked_size, paths))


def checked_size(path: Path) -> tuple[int, int]:
    """Return an image's width and height, or an InputError that names it.

    A file without its format's last bytes is decoded here, so that a truncated one fails before hours of training.
    """
    with opened(path) as image:
        if image.mode not in PLAIN_MODES | WITH_ALPHA or _is_deep(image):
            raise ValueError(f"mode {image.mode}; expected gray or color of 8 bits per channel")
        if not _ends_well(path, image.format):
            image.load()
        if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
            raise ValueError("it has transparent pixels; put it on a background")
        return image.size


def _is_deep(image: ImageFile) -> bool:
    """Tell whether an image that is not yet decoded has 16 bits per channel, of which Pillow would keep 8."""
    layout = str(image.tile[:1])  # names the bytes of a pixel, and in a PPM file the largest value
    most = re.search(r"args=\(.*, (\d+)\)", layout) if image.format == "PPM" else None
    return re.search(";16[BLN]", layout) is not None or (most is not None and int(most[1]) > 255)


def _ends_well(path: Path, kind: str | None) -> bool:
    marker = LAST_BYTES.get(kind or "")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1024))  # some writers add a few bytes after the end
        return marker is not None and marker in file.read()


@contextmanager
def opened(path: Path) -> Iterator[ImageFile]:
    """Open an image; whatever goes wrong inside becomes an InputError that names the file."""
    import PIL.Image

    try:
        with PIL.Image.open(regular_file(path)) as image:
            yield image
    except Exception as error:  # decoders raise nearly anything on damaged files
        unknown = isinstance(error, PIL.UnidentifiedImageError)
        reason = "it is not an image" if unknown else getattr(error, "strerror", None) or error
        raise InputError(f"cannot use {path}: {reason}; replace the file or remove it") from error


_DIGESTS: dict[bytes, bytes] = {}  # by the files' states, because a run needs them several times


def content_digest(paths: Sequence[Path]) -> bytes:
    """Return the SHA-256 of all files' SHA-256; unchanged files are not read again."""
    try:
        facts = [(path, path.stat()) for path in paths]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    states = "\n".join(f"{path} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}" for path, s in facts)
    state = hashlib.sha256(os.fsencode(states)).digest()
    if state not in _DIGESTS:
        hashes = _threads().map(file_sha256, paths)
        _DIGESTS[state] = hashlib.sha256(b"".join(map(bytes.fromhex, hashes))).digest()
    return _DIGESTS[state]


def _threads() -> ThreadPoolExecutor:
    return _pool_of(os.getpid())  # threads do not survive a fork


@cache
def _pool_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="residuum-images")
