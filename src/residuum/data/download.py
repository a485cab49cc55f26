"""Fetch the official CIFAR-10 archive: written aside, hashed before it is unpacked, renamed when it is whole."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from residuum.data.cifar import BATCHES, FOLDER
from residuum.types import InputError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]


def download_cifar10(
    root: Path | str,
    *,
    url: str = URL,
    sha256: str = SHA256,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> Path:
    """Return the folder `root/cifar-10-batches-py`, fetched from its public home (163 MiB) unless it is there.

    The archive is written aside and must have the given SHA-256 before anything of it is unpacked; members that point
    outside the folder are refused. The folder appears whole or not at all. `progress` is called with the bytes received
    and the bytes expected (None if the server does not say); `timeout` is in seconds without any byte.
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
            _move(_unpacked(archive, Path(aside)), target)
    except OSError as error:
        raise InputError(f"cannot write below {base}: {error.strerror or error}; choose another data root") from error
    return target


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in BATCHES)


def _fetch(url: str, file: Path, sha256: str, progress: Progress | None, timeout: float) -> None:
    """Write what the server sends to a file, and refuse it unless it is complete and has the hash."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            expected = _announced_length(answer)
            received = _copy(answer, file, digest, expected, progress)
    except HTTPError as error:
        raise InputError(f"{url} answers {error.code} {error.reason}; try later or give another URL") from error
    except (URLError, TimeoutError, http.client.HTTPException, ConnectionError) as error:
        reason = error.reason if isinstance(error, URLError) else (str(error) or type(error).__name__)
        raise InputError(f"cannot fetch {url}: {reason}; see whether this machine is online") from error
    if expected is not None and received != expected:
        raise InputError(f"{url}: the transfer broke off after {received} of {expected} bytes; try again")
    if digest.hexdigest() != sha256:
        raise InputError(f"{url}: expected SHA-256 {sha256}, got {digest.hexdigest()}; nothing was unpacked")


def _announced_length(answer: Any) -> int | None:  # noqa: ANN401 (urllib's answers have no common type)
    length = answer.headers.get("Content-Length")
    return int(length) if length is not None and length.isdigit() else None


def _copy(answer: Any, file: Path, digest: Any, expected: int | None, progress: Progress | None) -> int:  # noqa: ANN401
    """Write the answer's bytes to the file and into the digest; return how many there were."""
    received = 0
    with file.open("wb") as out:
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if progress:
                progress(received, expected)
    return received


def _unpacked(archive: Path, aside: Path) -> Path:
    """Return the data folder inside the unpacked archive."""
    place = aside / "unpacked"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    except tarfile.FilterError as error:
        raise InputError(f"the archive is refused: {error}") from error
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"the archive cannot be unpacked ({error}); fetch it from its official home") from error
    if not _is_whole(place / FOLDER):
        raise InputError(f"the archive holds no folder {FOLDER} with {', '.join(BATCHES)}; it is another one")
    return place / FOLDER


def _move(source: Path, target: Path) -> None:
    """Rename the whole folder into place."""
    try:
        source.rename(target)
    except OSError:
        if not _is_whole(target):  # else another process was faster, and its files are as good
            raise
