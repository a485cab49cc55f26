"""Files that appear whole or not at all, and .npz files whose bytes depend on nothing but their arrays."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residuum.errors import InputError


def write_whole(path: str | Path, content: str | bytes | memoryview) -> None:
    """Write the file aside and rename it: readers see the old or the new one, and an error leaves the old one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", "whole")
    ...     [file.read_text() for file in Path(folder).iterdir()]
    ['whole']
    """
    aside = Path(path).with_name(f".{Path(path).name}.{uuid4().hex}")
    try:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_arrays(path: str | Path, arrays: Mapping[str, ArrayLike], *, compress: bool = True) -> None:
    """Write an .npz file; equal arrays give equal bytes, because members are stored without a time."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_arrays(
    path: str | Path, names: Iterable[str], what: str, *, optional: Iterable[str] = ()
) -> dict[str, NDArray[np.generic]]:
    """Return the named arrays of a file that `write_arrays` made; `what` names it in the error."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in [*names, *(name for name in optional if name in archive)]}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: expected {what} written by residuum, got {error}") from error
