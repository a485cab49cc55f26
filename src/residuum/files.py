"""Files and folders that several processes share: whole or not at all, locked while written; .npz of fixed bytes."""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout
from numpy.typing import ArrayLike, NDArray

from residuum.errors import InputError, LostProcessError, first_line, say

MOST_BYTES = 4 * 2**30  # of arrays in one file, and of all files in one archive
MOST_RATIO = 200  # of bytes unpacked to bytes packed, beyond the first SMALL ones
SMALL = 64 * 2**20


def canonical(value: Any) -> bytes:  # noqa: ANN401 (any JSON value)
    """Return JSON with sorted keys, without spaces, in UTF-8 and without NaN: equal values give equal bytes.

    >>> canonical({"b": 1.0, "a": [None, "ü"]}).decode()
    '{"a":[null,"ü"],"b":1.0}'
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


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


def regular_file(path: str | Path) -> Path:
    """Return the path; an OSError for what is no regular file, because reading a named pipe would never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return Path(path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with regular_file(path).open("rb") as file:
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
        with zipfile.ZipFile(regular_file(path)) as archive:
            there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            members = {name: there[name] for name in [*names, *(name for name in optional if name in there)]}
            refuse_inflated(sum(promised_bytes(archive, m) for m in members.values()), os.stat(path).st_size)
            return {name: _read_array(archive, member) for name, member in members.items()}
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file may raise anything
        found = str(error) if isinstance(error, InputError) else first_line(error)
        raise InputError(f"{path}: expected {what} written by residuum, got {found}") from error


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.generic]:
    with archive.open(member) as file:
        array: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def promised_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes that an array's header asks for; numpy would reserve them before it looks at the rest."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        promised, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if promised != there and not dtype.hasobject:
        raise ValueError(f"the header of {member.filename} promises {promised} bytes, but {there} follow")
    return promised


def refuse_inflated(unpacked: int, packed: int) -> None:
    """Refuse content that is too large, or much larger than the file that it comes out of.

    >>> refuse_inflated(1000, 10)
    >>> refuse_inflated(2**30, 2**10)
    Traceback (most recent call last):
    residuum.errors.InputError: 1 GiB out of 0.001 MiB; expected at most 4 GiB and 200 times the size of the file
    """
    if unpacked > MOST_BYTES or unpacked > max(SMALL, MOST_RATIO * packed):
        limits = f"expected at most {MOST_BYTES // 2**30} GiB and {MOST_RATIO} times the size of the file"
        raise InputError(f"{unpacked / 2**30:.3g} GiB out of {packed / 2**20:.1g} MiB; {limits}")


LOCK = ".lock"
SILENT = 10.0  # seconds of waiting for a lock before it is said
PATIENCE = 24 * 3600.0  # seconds after which whoever has the lock is taken to be stuck
ASIDE = ".aside-"  # begins the names of what is being written or removed; whoever has the lock may clear it


def acquired(lock: BaseFileLock, holder: str) -> AbstractContextManager[object]:
    """Return the lock once it is ours, for use in a `with`; say who is waited for, and give up after a day."""
    try:
        return lock.acquire(timeout=SILENT)
    except Timeout:
        say(f"waiting for {holder}")  # it may take hours
    try:
        return lock.acquire(timeout=PATIENCE)
    except Timeout:
        text = f"waited {PATIENCE / 3600:.0f} hours for {holder}"
        raise LostProcessError(f"{text}; look whether it hangs, stop it, and give the command again") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which is the operating system's: it ends with the process that has it.

    A folder that cannot be written to needs none, because nobody changes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        yield
        return
    with acquired(FileLock(folder / LOCK), f"another command that writes to {folder}"):
        yield


@contextmanager
def rewritten(folder: Path, last: str, others: Iterable[str]) -> Iterator[Path]:
    """Yield an empty folder; what the caller writes there takes the place of `last` and all `others` in `folder`.

    `last` goes first and comes last: a process that is killed at any moment leaves the old files, the new ones, or a
    folder without `last`. `others` are patterns. The caller has the lock.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for text in ("old", "new"):
    ...         with rewritten(Path(name), "index", ["part-*"]) as aside:
    ...             for file in ("index", f"part-{text}"):
    ...                 (aside / file).touch()
    ...     sorted(path.name for path in Path(name).iterdir())
    ['index', 'part-new']
    """
    clear_aside(folder)
    aside = folder / f"{ASIDE}{uuid4().hex}"
    aside.mkdir()
    try:
        yield aside
        remove_named(folder, last, others)
        for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
            path.rename(folder / path.name)
    finally:
        clear_aside(folder)


def remove_named(folder: Path, last: str, others: Iterable[str]) -> None:
    """Remove `last`, then what fits the patterns `others`; all of it is renamed away before any of it is removed."""
    aside = folder / f"{ASIDE}{uuid4().hex}"
    aside.mkdir()
    for pattern in (last, *others):
        for path in sorted(folder.glob(pattern)):
            path.rename(aside / path.name)
    remove(aside)


def clear_aside(folder: Path) -> None:
    """Remove what killed processes left aside."""
    for path in folder.glob(f"{ASIDE}*"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link but not what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
