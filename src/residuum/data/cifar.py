"""CIFAR-10: download its Python release, and read it without running code from the files."""

import hashlib
import http.client
import io
import pickle
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError, URLError

import numpy as np
from numpy.typing import NDArray

from residuum.core.errors import InputError
from residuum.core.files import read_bytes
from residuum.core.samples import Samples
from residuum.data.dataset import Dataset, checked_samples
from residuum.data.ids import ids_by_rank
from residuum.data.loaders import GIVE_ROOT, data_roots, find_folder

FOLDER = "cifar-10-batches-py"
BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def load_cifar10(root: Path | None = None) -> Dataset:
    """Return CIFAR-10, shape (3, 32, 32); ids `train/airplane/0042`, the rank within the class in file order.

    Reference: Krizhevsky, "Learning multiple layers of features from tiny images", 2009. The normalization constants
    are the usual published ones.
    """
    folders = [folder for base in data_roots(root) for folder in (base / FOLDER, base)]
    hint = f"Unpack cifar-10-python.tar.gz so that DIR/{FOLDER}/data_batch_1 exists, {GIVE_ROOT}"
    folder = find_folder("CIFAR-10", folders, "data_batch_1", f"{hint}; or fetch it with --download.")

    def samples(names: Sequence[str], split: str) -> Samples:
        batches = [read_batch(folder / name) for name in names]
        images = np.concatenate([images for images, _ in batches]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([labels for _, labels in batches])
        return checked_samples(images, labels, ids_by_rank(labels, CLASS_NAMES, split), classes=len(CLASS_NAMES))

    return Dataset("cifar10", samples(BATCHES[:5], "train"), samples(BATCHES[5:], "test"), CLASS_NAMES, MEAN, STD)


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pixels (n, 3072) and labels (n,) of one batch file."""
    content = read_bytes(path)
    try:
        batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise InputError(f"{path} is not a readable CIFAR-10 batch ({error}); unpack the archive again") from error
    fields: dict[bytes, Any] = batch if isinstance(batch, dict) else {}
    data, labels = fields.get(b"data"), fields.get(b"labels")
    if (
        not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape[1:] == (3072,))
        or not (isinstance(labels, list) and len(labels) == len(data))
        or not all(type(label) is int and 0 <= label < 10 for label in labels)
    ):
        expected = "b'data' (n, 3072) uint8 and b'labels', n integers 0..9"
        raise InputError(f"{path} is not a CIFAR-10 batch: expected {expected}")
    return data, np.array(labels, dtype=np.int64)


def _dtype(spec: str | bytes, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    """Return the type of a pickled array: bytes only (the official files pass integers for the two flags)."""
    if spec not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"array of type {spec!r}, expected uint8")
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

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return an allowed name or refuse."""
        try:
            return self.allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 file needs") from None


def download_cifar10(
    root: Path | str, *, url: str = URL, sha256: str = SHA256, progress: Progress | None = None, timeout: float = 30.0
) -> Path:
    """Return the folder `root/cifar-10-batches-py`; download it (163 MiB) if it does not exist.

    The archive is written to a temporary folder and must have this SHA-256 before it is unpacked; members that point
    outside the folder are an error. The folder appears whole or not at all. `progress` is called with the bytes
    received and the bytes expected (None if the server does not say); `timeout` is in seconds without any byte.
    """
    base = Path(root).expanduser()
    target = base / FOLDER
    if _is_whole(target):
        return target
    if target.exists():
        raise InputError(f"{target} lacks some of {', '.join(BATCHES)}; remove it, and it will be fetched")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"expected a URL that begins with http:// or https://, got {url!r}")
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=base) as aside:
            archive = Path(aside) / "archive.tar.gz"
            _fetch(url, archive, sha256, progress, timeout)
            unpacked = _unpacked(archive, Path(aside) / "unpacked")
            try:
                unpacked.rename(target)
            except OSError:
                if not _is_whole(target):  # else another process was faster, and its files are as good
                    raise
    except OSError as error:
        raise InputError(f"cannot write below {base}: {error.strerror or error}; choose another data root") from error
    return target


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in BATCHES)


def _fetch(url: str, file: Path, sha256: str, progress: Progress | None, timeout: float) -> None:
    """Write what the server sends to a file, and refuse it unless it is complete and has the hash."""
    digest, received = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer, file.open("wb") as out:
            length = answer.headers.get("Content-Length") or ""
            expected = int(length) if length.isdigit() else None
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                if progress:
                    progress(received, expected)
    except HTTPError as error:
        raise InputError(f"{url} answers {error.code} {error.reason}; try later or give another URL") from error
    except (URLError, TimeoutError, http.client.HTTPException, ConnectionError) as error:
        reason = error.reason if isinstance(error, URLError) else (str(error) or type(error).__name__)
        raise InputError(f"cannot fetch {url}: {reason}; check that this machine is online") from error
    if expected is not None and received != expected:
        raise InputError(f"{url}: the transfer broke off after {received} of {expected} bytes; try again")
    if digest.hexdigest() != sha256:
        raise InputError(f"{url}: expected SHA-256 {sha256}, got {digest.hexdigest()}; nothing was unpacked")


def _unpacked(archive: Path, unpacked: Path) -> Path:
    """Return the data folder inside the unpacked archive."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
    except tarfile.FilterError as error:
        raise InputError(f"the archive is unsafe: {error}") from error
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"the archive cannot be unpacked ({error}); fetch it from its official URL") from error
    if not _is_whole(unpacked / FOLDER):
        raise InputError(f"the archive holds no folder {FOLDER} with {', '.join(BATCHES)}; give another archive")
    return unpacked / FOLDER
