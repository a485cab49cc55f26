"""Images in files, read by threads on demand, as squares of one size; a folder of class folders is a data set."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from residuum.core.errors import InputError, plural, unknown_name, warn
from residuum.core.files import file_sha256, machine_memory, regular_file
from residuum.core.samples import Samples
from residuum.data.dataset import Dataset, checked_class_names
from residuum.data.ids import refuse_unusable_ids

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MOST_THREADS = 8
MOST_SIDE = 8192  # pixels: one such image takes 800 MB
KEPT = 1 / 8  # of the machine's memory, that decoded images of a folder may take
MODES = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "RGBA", "PA"}  # each pixel has one RGB value of 8 bits
LAST_BYTES = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
PARTS = ("train", "test", "val")


class Decoded(dict[str, tuple[tuple[int, ...], NDArray[np.uint8]]]):
    """Squares by the names of their files, with the state of the file; every process decodes for itself."""

    def __reduce__(self) -> tuple[type[Decoded], tuple[()]]:
        """Leave the squares behind when a data set goes to another process."""
        return Decoded, ()


@dataclass(frozen=True)
class ImageFiles:
    """Images below `root`: a `LazyInputs` of shape (n, channels, size, size), RGB or gray as float32 in [0, 1].

    The largest square in the middle is scaled to `size` x `size` (bilinear; averaging where it shrinks). Threads
    decode, because Pillow releases the interpreter lock. `decoded` keeps the squares of a folder that fits in memory;
    with None only names are in memory.
    """

    root: Path
    names: tuple[str, ...]
    size: int
    channels: int = 3
    decoded: Decoded | None = field(default=None, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, channels, size, size)."""
        return len(self.names), self.channels, self.size, self.size

    def subset(self, indices: Tensor) -> ImageFiles:
        """Return the images at these positions, unread."""
        return replace(self, names=tuple(self.names[row] for row in indices.tolist()))

    def read(self, indices: Tensor) -> Callable[[], Tensor]:
        """Begin to decode these positions, each file once; the returned function waits for the pixels."""
        names = [self.names[row] for row in torch.as_tensor(indices).tolist()]
        files = dict.fromkeys(names)
        squares = {name: square for name in files if (square := self._square(name)) is not None}
        missing = [name for name in files if name not in squares]
        if len(files) == 1:  # a thread would cost more than it saves
            squares |= {name: self._decode(name) for name in missing}
            missing = []
        started = {name: _threads().submit(self._decode, name) for name in missing}

        def pixels() -> Tensor:
            if not names:
                return torch.empty(0, *self.shape[1:])
            decoded = squares | {name: square.result() for name, square in started.items()}
            stacked = torch.from_numpy(np.stack([decoded[name] for name in names]))
            return stacked.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)

        return pixels

    def _square(self, name: str) -> NDArray[np.uint8] | None:
        """Return the square of a file that was decoded before and did not change since."""
        state, square = self.decoded.get(name, ((), None)) if self.decoded is not None else ((), None)
        return square if state and state == file_state(self.root / name) else None

    def _decode(self, name: str) -> NDArray[np.uint8]:
        state = file_state(self.root / name)
        square = read_square(self.root / name, self.size, self.channels)
        if self.decoded is not None:
            self.decoded[name] = state, square
        return square

    def states(self) -> list[tuple[int, ...]]:
        """Return what changes when a file is written, for every file."""
        return [file_state(self.root / name) for name in self.names]

    @property
    def hashes(self) -> list[bytes]:
        """SHA-256 of every file."""
        return list(_threads().map(_sha256, [self.root / name for name in self.names], self.states()))

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 over the bytes of every file and the version of the decoder."""
        from PIL import __version__ as decoder

        contents = hashlib.sha256(b"".join(self.hashes))
        return hashlib.sha256(decoder.encode() + b"\0" + contents.digest()).digest()


def file_state(path: Path) -> tuple[int, ...]:
    """Return size, times and inode of a file: what changes when it is written."""
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


@cache
def _sha256(path: Path, state: tuple[int, ...]) -> bytes:
    """Return the hash of a file that has this state; a run asks several times, and it is read once."""
    return bytes.fromhex(file_sha256(path))


def read_square(path: Path, size: int, channels: int = 3) -> NDArray[np.uint8]:
    """Return the middle of an image as (size, size, channels) bytes: 3 are RGB, 1 is gray."""
    from PIL.Image import Resampling
    from PIL.ImageOps import fit

    with opened(path) as image:
        image.draft("RGB", (2 * size, 2 * size))  # JPEG decodes at a fraction of its size, but not below this one
        color = image.convert("RGB") if channels == 3 else image.convert("L")
        return np.asarray(fit(color, (size, size), Resampling.BILINEAR)).reshape(size, size, channels)


def checked_size(path: Path) -> tuple[int, int]:
    """Return an image's width and height, or an InputError that names it.

    A file without its format's last bytes is decoded here, so that a truncated one fails before hours of training.
    """
    with opened(path) as image:
        # of 16 bits per channel Pillow would keep 8; its tiles name the bytes of a pixel, or a PPM's largest value
        layout = str(image.tile[:1])
        largest = re.search(r"args=\(.*, (\d+)\)", layout) if image.format == "PPM" else None
        deep = re.search(";16[BLN]", layout) is not None or (largest is not None and int(largest[1]) > 255)
        if image.mode not in MODES or deep:
            raise ValueError(f"mode {image.mode}; expected gray or color of 8 bits per channel")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1024))  # some writers add a few bytes after the end
            end = file.read()
        if image.format not in LAST_BYTES or LAST_BYTES[image.format] not in end:
            image.load()
        if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
            raise ValueError("it has transparent pixels; put it on a background")
        return image.size


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


def _threads() -> ThreadPoolExecutor:
    return _pool_of(os.getpid())  # threads do not survive a fork


@cache
def _pool_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="residuum-images")


def load_image_folder(folder: Path | str, *, size: int | None = None, channels: int = 3) -> Dataset:
    """Return the images of a folder with one sub-folder per class, unread; an image's id is its path below the folder.

    If the folder holds only `train` and `test` or `val` (or both), and these hold the class folders, `test` (else
    `val`) becomes the test set. Classes are numbered in the order of their names; images may lie deeper inside. The
    largest square in the middle of each image is scaled to `size` (default: the size of the images, if all have the
    same). With 3 `channels`, gray and CMYK images become RGB; with 1, all images become gray.
    """
    root = Path(os.path.expanduser(folder))
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InputError(f"size must be a whole number of pixels, 1 or more, got {size!r}")
    if size is not None and size > MOST_SIDE:
        raise InputError(f"size: expected at most {MOST_SIDE} pixels, got {size}; give the side that the network takes")
    if isinstance(channels, bool) or channels not in (1, 3):
        raise InputError(f"channels must be 1 (gray) or 3 (RGB), got {channels!r}")
    folders = {"train": _folders_in(root)}
    names = {path.name for path in folders["train"]}
    if "train" in names and names <= set(PARTS):
        parts = {"train": "train"} | ({"test": "test" if "test" in names else "val"} if len(names) > 1 else {})
        folders = {part: _folders_in(root / inside) for part, inside in parts.items()}
    class_names = checked_class_names([path.name for path in folders["train"]])
    listed = {part: _listed_images(root, inside, class_names) for part, inside in folders.items()}
    files = [root / path for images in listed.values() for path, _ in images]
    sizes = list(_threads().map(checked_size, files))
    side = size or _common_side(files, sizes)
    fits = len(files) * side * side * channels <= machine_memory() * KEPT
    decoded = Decoded() if fits else None
    samples: dict[str, Samples] = {}
    for part, images in listed.items():
        ids = tuple(path for path, _ in images)
        refuse_unusable_ids(ids, str(root))
        labels = torch.tensor([label for _, label in images], dtype=torch.int64)
        samples[part] = Samples(ImageFiles(root, ids, side, channels, decoded), labels, ids)
    return Dataset(root.name, samples["train"], samples.get("test"), class_names)


def _folders_in(root: Path) -> list[Path]:
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read {root}: {error.strerror}; give a folder with one sub-folder per class") from None
    if not folders:
        raise InputError(f"{root} has no sub-folders; put the images of each class in a sub-folder of its name")
    return folders


def _listed_images(root: Path, folders: Sequence[Path], class_names: Sequence[str]) -> list[tuple[str, int]]:
    """Return path below the root and label of every image, by class and then by path."""

    def refuse(error: OSError) -> None:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error

    listed, others = [], []
    for folder in folders:
        if folder.name not in class_names:
            raise InputError(f"{folder}: {unknown_name('class', folder.name, class_names)}")
        walked = [Path(parent) / name for parent, _, names in os.walk(folder, onerror=refuse) for name in names]
        files = sorted(path.relative_to(root).as_posix() for path in walked if not path.name.startswith("."))
        images = [path for path in files if path.lower().endswith(SUFFIXES)]
        if not images:
            raise InputError(f"{folder} holds no image ({' '.join(SUFFIXES)}); fill the folder or remove it")
        listed += [(path, class_names.index(folder.name)) for path in images]
        others += [path for path in files if not path.lower().endswith(SUFFIXES)]
    if others:
        skipped = plural(len(others), "file")
        warn(f"{root}: skipped {skipped} without an image suffix, first {others[0]!r}", stacklevel=4)
    return listed


def _common_side(paths: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> int:
    """Return the side of the images if all are squares of one size."""
    width, height = sizes[0]
    for path, (columns, rows) in zip(paths, sizes, strict=True):
        if (columns, rows) != (width, width):
            same = (columns, rows) == (width, height)
            other = ", which is no square" if same else f", the first image {width}x{height}"
            text = f"{path} has {columns}x{rows} pixels{other}"
            raise InputError(f"{text}; give the size that all are scaled to (--set data.size=224, or --size, size=)")
    return width
