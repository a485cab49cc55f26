"""Files and folders that several processes share: whole or not at all, locked while written; .npz of fixed bytes."""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout
from numpy.typing import ArrayLike, NDArray

from residuum.core.console import say
from residuum.core.errors import InputError, LostProcessError, first_line

MOST_BYTES = 4 * 2**30  # of arrays in one file, and of all files in one archive
MOST_RATIO = 200  # of bytes unpacked to bytes packed, beyond the first SMALL ones
SMALL = 64 * 2**20


def canonical(value: object, *, sort_keys: bool = True) -> bytes:
    """Return JSON with sorted keys, without spaces, in UTF-8 and without NaN: equal values give equal bytes.

    Without `sort_keys`, equal values in the same order do.

    >>> canonical({"b": 1.0, "a": [None, "ü"]}).decode()
    '{"a":[null,"ü"],"b":1.0}'
    """
    text = json.dumps(value, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
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


def write_sealed(path: Path, content: bytes | memoryview, key: str) -> None:
    """Write a file whole, after a line with the hash of the content and of a key that says what it belongs to."""
    write_whole(path, b"".join([_seal(content, key), b"\n", content]))


def read_sealed(path: Path, key: str) -> bytes | None:
    """Return the content that `write_sealed` wrote for this key; None if the file holds anything else.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_sealed(Path(folder) / "a", b"half done", "one")
    ...     read_sealed(Path(folder) / "a", "one"), read_sealed(Path(folder) / "a", "two")
    (b'half done', None)
    """
    seal, _, content = path.read_bytes().partition(b"\n")
    return content if seal == _seal(content, key) else None


def _seal(content: bytes | memoryview, key: str) -> bytes:
    digest = hashlib.sha256(key.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


def regular_file(path: str | Path) -> Path:
    """Return the path; an OSError for what is no regular file, because reading a named pipe would never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return Path(path)


def read_bytes(path: str | Path) -> bytes:
    """Return a file's content or an InputError that names the file."""
    try:
        return regular_file(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_json(path: str | Path) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Return the content of a JSON file; None where there is none that can be read."""
    try:
        return json.loads(regular_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


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


def read_arrays(path: str | Path, names: Iterable[str], what: str) -> dict[str, NDArray[np.generic]]:
    """Return the named arrays of a file that `write_arrays` made; `what` names it in the error."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            members = {name: there[name] for name in names}
            refuse_inflated(sum(promised_bytes(archive, m) for m in members.values()), os.stat(path).st_size)
            arrays = {}
            for name, member in members.items():
                with archive.open(member) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
            return arrays
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file may raise anything
        reason = str(error) if isinstance(error, InputError) else first_line(error)
        raise InputError(f"{path}: expected {what} written by residuum, got {reason}") from error


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
    residuum.core.errors.InputError: 1 GiB out of 0.001 MiB; expected at most 4 GiB and 200 times the size of the file
    """
    if unpacked > MOST_BYTES or unpacked > max(SMALL, MOST_RATIO * packed):
        limits = f"expected at most {MOST_BYTES // 2**30} GiB and {MOST_RATIO} times the size of the file"
        raise InputError(f"{unpacked / 2**30:.3g} GiB out of {packed / 2**20:.1g} MiB; {limits}")


LOCK = ".lock"
SILENT = 10.0  # seconds of waiting for a lock before it is said
PATIENCE = 24 * 3600.0  # seconds after which the process that has the lock is taken to be stuck
ASIDE = ".aside-"  # begins the names of what is being written or removed; the process that has the lock may clear it


def acquired(lock: BaseFileLock, holder: str) -> AbstractContextManager[object]:
    """Acquire the lock and return it for use in a `with`; say what the process waits for, and give up after a day."""
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

    A folder that cannot be written to needs none, because its files do not change.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        yield
        return
    try:
        lock = acquired(FileLock(folder / LOCK), f"another command that writes to {folder}")
    except OSError as error:
        text = f"cannot lock {folder / LOCK}: {error.strerror}"
        raise InputError(f"{text}; expected a file, remove what is there") from None
    with lock:
        yield


@contextmanager
def rewritten(folder: Path, last: str, old: Sequence[str]) -> Iterator[Path]:
    """Yield an empty folder; what the caller writes there takes the place of the `old` files in `folder`.

    The file `last` goes first and comes last: a process that is killed at any moment leaves the old files, the new
    ones, or a folder with `last` aside. Other files stay; one that is in the way is an error. The caller has the lock.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for text, old in (("old", []), ("new", ["index", "part/old"])):
    ...         with rewritten(Path(name), "index", old) as aside:
    ...             (aside / "part").mkdir()
    ...             for file in ("index", f"part/{text}"):
    ...                 (aside / file).touch()
    ...     sorted(path.relative_to(name).as_posix() for path in Path(name).rglob("*"))
    ['index', 'part', 'part/new']
    """
    if not (folder / last).exists():
        remove_files(folder, (last, *old))  # a killed process left them; what is aside says so and has to go later
    clear_aside(folder)
    aside = folder / f"{ASIDE}{uuid4().hex}"
    aside.mkdir()
    try:
        yield aside
        for path in sorted(aside.rglob("*")):
            name = path.relative_to(aside).as_posix()
            target = folder / name
            merged = path.is_dir() and target.is_dir() and not target.is_symlink()
            if os.path.lexists(target) and not merged and name not in old:
                raise InputError(f"{target} is in the way, and no run wrote it; move it, or choose another --out")
        remove_files(folder, (last, *old))
        for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
            _put(path, folder / path.name)
    finally:
        clear_aside(folder)


def _put(source: Path, target: Path) -> None:
    if source.is_dir() and target.is_dir():
        for path in sorted(source.iterdir()):
            _put(path, target / path.name)
    else:
        source.rename(target)


def remove_files(folder: Path, names: Sequence[str]) -> None:
    """Remove files by their paths below a folder, and folders that this empties.

    It renames all files, the first one first, and then removes them, the first one last. As long as anything is left,
    the first file is in the folder or in a folder aside.
    """
    aside = folder / f"{ASIDE}{uuid4().hex}"
    aside.mkdir()
    for name in names:
        if os.path.lexists(folder / name):
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).rename(aside / name)
            parent = (folder / name).parent
            while parent != folder and not any(parent.iterdir()):
                parent.rmdir()
                parent = parent.parent
    for path in aside.iterdir():
        if path.name != names[0]:
            remove(path)
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


def machine_memory() -> int:
    """Return this machine's memory in bytes; no bound where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
