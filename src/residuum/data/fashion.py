"""Fashion-MNIST from gzipped IDX files."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data.arrays import checked_samples
from residuum.data.dataset import Dataset
from residuum.data.files import data_roots, find_folder, read_bytes
from residuum.data.ids import ids_by_rank

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLASS_NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot")
UINT8 = 8  # IDX type code of unsigned bytes


def load_fashion_mnist(root: Path | None = None) -> Dataset:
    """Return Fashion-MNIST, shape (1, 28, 28); ids `train/coat/0042`, the rank within the class in file order.

    Reference: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017. The normalization constants are the usual ones.
    """
    folders = [base / sub for base in data_roots(root) for sub in ("", "fashion-mnist", "FashionMNIST/raw")]
    put = "put the four files train- and t10k-images-idx3-ubyte.gz and -labels-idx1-ubyte.gz in a folder"
    hint = f"Install the Debian package dataset-fashion-mnist, or {put} and give it with --data-root or RESIDUUM_DATA."
    folder = find_folder("Fashion-MNIST", [*folders, DEBIAN_FOLDER], "train-images-idx3-ubyte.gz", hint)
    parts = [_read_part(folder, prefix, split) for prefix, split in (("train", "train"), ("t10k", "test"))]
    return Dataset("fashion-mnist", parts[0], parts[1], CLASS_NAMES, (0.2860,), (0.3530,))


def _read_part(folder: Path, prefix: str, split: str) -> Samples:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
    if len(images) != len(labels):
        raise InputError(f"{folder}: {len(images)} {prefix} images but {len(labels)} labels; fetch the files again")
    if labels.size and labels.max() >= len(CLASS_NAMES):
        raise InputError(f"{folder}: {prefix} labels reach {labels.max()}, expected 0..9; these are other data")
    ids = ids_by_rank(labels, CLASS_NAMES, split)
    return checked_samples(images[:, None], labels, ids, classes=len(CLASS_NAMES))


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes of a gzipped IDX file: magic 0, 0, type, dimensions, then sizes, then values."""
    try:
        content = gzip.decompress(read_bytes(path))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is truncated or not a gzip file ({error}); fetch it again") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, UINT8, dimensions]) or len(content) < header:
        raise InputError(f"{path} is not an IDX file of unsigned bytes with {dimensions} dimensions; fetch it again")
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(sizes):
        raise InputError(f"{path} holds {len(content) - header} values, its header promises {sizes}; fetch it again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)
