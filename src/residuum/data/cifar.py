"""CIFAR-10 from the files of its Python release, read without running anything they contain."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residuum.data.dataset import Dataset
from residuum.data.folders import data_roots, find_folder, read_bytes
from residuum.data.ranks import ids_by_rank
from residuum.data.validation import checked_samples
from residuum.types import InputError, Samples

FOLDER = "cifar-10-batches-py"
BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def load_cifar10(root: Path | None = None) -> Dataset:
    """Return CIFAR-10, shape (3, 32, 32); ids `train/airplane/0042`, the rank within the class in file order.

    Reference: Krizhevsky, "Learning multiple layers of features from tiny images", 2009. The normalisation constants
    are the usual published ones.
    """
    folder = find_folder(
        "CIFAR-10",
        [folder for base in data_roots(root) for folder in (base / FOLDER, base)],
        "data_batch_1",
        f"Unpack cifar-10-python.tar.gz so that DIR/{FOLDER}/data_batch_1 exists, "
        "and give DIR with --data-root or RESIDUUM_DATA; or fetch it with --download.",
    )
    train = _samples([folder / name for name in BATCHES[:5]], "train")
    return Dataset("cifar10", train, _samples([folder / BATCHES[5]], "test"), CLASS_NAMES, MEAN, STD)


def _samples(paths: list[Path], split: str) -> Samples:
    batches = [read_batch(path) for path in paths]
    images = np.concatenate([images for images, _ in batches]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([labels for _, labels in batches])
    return checked_samples(images, labels, ids_by_rank(labels, CLASS_NAMES, split), len(CLASS_NAMES))


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pixels (n, 3072) and labels (n,) of one batch file."""
    content = read_bytes(path)
    try:
        batch = ArrayUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle may raise anything
        raise InputError(f"{path} is no readable CIFAR-10 batch ({error}); unpack the archive again") from error
    return _checked_batch(batch, path)


def _checked_batch(batch: object, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    wrong = InputError(f"{path} is no CIFAR-10 batch: expected b'data' (n, 3072) uint8 and b'labels', n integers 0..9")
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise wrong
    data, labels = batch[b"data"], batch[b"labels"]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise wrong
    if not isinstance(labels, list) or len(labels) != len(data):
        raise wrong
    if not all(type(label) is int and 0 <= label < 10 for label in labels):
        raise wrong
    return data, np.array(labels, dtype=np.int64)


def _dtype(spec: str | bytes, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    """Return the type of a pickled array: bytes only (the official files pass integers for the two flags)."""
    text = spec.decode() if isinstance(spec, bytes) else spec
    if text != "u1":
        raise pickle.UnpicklingError(f"array of type {text!r}, expected uint8")
    return np.dtype(np.uint8)


def _latin1(text: str, encoding: str) -> bytes:
    """Return the bytes that Python 3 writes as text in old protocols."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text in {encoding!r}, expected latin1")
    return text.encode(encoding)


# numpy's two ways to rebuild an array, taken from numpy itself as their home has moved between versions
_REBUILD: Any = np.empty(0, np.uint8).__reduce_ex__(4)[0]
_FROM_BUFFER: Any = np.empty(0, np.uint8).__reduce_ex__(5)[0]


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler that knows numpy's array reconstruction and nothing else.

    >>> ArrayUnpickler(io.BytesIO(pickle.dumps({b"labels": [1, 2]}))).load()
    {b'labels': [1, 2]}
    >>> ArrayUnpickler(io.BytesIO(pickle.dumps(print))).load()
    Traceback (most recent call last):
        ...
    _pickle.UnpicklingError: it asks for builtins.print, which no CIFAR-10 file needs
    """

    allowed: ClassVar[dict[tuple[str, str], Callable[..., Any]]] = {
        ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
        ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
        ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
        ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): _dtype,
        ("_codecs", "encode"): _latin1,
    }

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="bytes")

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return an allowed name or refuse."""
        try:
            return self.allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 file needs") from None
