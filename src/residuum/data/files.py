"""Find and read data files."""

import errno
import os
import select
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from residuum.core.errors import InputError
from residuum.core.files import regular_file

ROOT_VARIABLE = "RESIDUUM_DATA"
MOST_BYTES = 2**26  # of a list of ids or requests
SILENCE = 60.0  # seconds to wait for the content of a pipe
GIVE_ROOT = f"and give DIR with --data-root or {ROOT_VARIABLE}"


def data_roots(root: Path | None) -> list[Path]:
    """Return the data roots to try: `root`, then the environment's."""
    variable = os.environ.get(ROOT_VARIABLE)
    return [folder for folder in (root, Path(variable) if variable else None) if folder is not None]


def find_path(name: str, root: Path | None, accepts: Callable[[Path], bool]) -> Path | None:
    """Return the path `name` itself or below a data root, the first that `accepts` holds for."""
    candidates = [Path(os.path.expanduser(name)), *(base / name for base in data_roots(root))]
    return next((path for path in candidates if accepts(path)), None)


def find_folder(title: str, folders: Sequence[Path], marker: str, what_to_do: str) -> Path:
    """Return the first folder that contains `marker`; the error says where it was sought and what to put there."""
    for folder in folders:
        if os.path.exists(folder / marker):
            return folder
    sought = ", ".join(str(folder) for folder in folders) or "nowhere (no data root given)"
    raise InputError(f"{title} was not found; looked for {marker} in: {sought}. {what_to_do}")


def read_bytes(path: Path) -> bytes:
    """Return a file's content or an InputError that names the file."""
    try:
        return regular_file(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_list(path: Path) -> bytes:
    """Return the content of a list: a regular file, or a pipe such as `<(command)`, of at most `MOST_BYTES`.

    A pipe that stays silent for `SILENCE` seconds is an error, and so is a device, because it never ends.
    """
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            regular_file(path)
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        else:
            content = _read_pipe(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES >> 20} MiB; expected a list, one entry a line")
    return content


def _read_pipe(path: Path) -> bytes:
    content, pipe = b"", os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while len(content) <= MOST_BYTES:
            if not select.select([pipe], [], [], SILENCE)[0]:
                raise OSError(errno.ETIMEDOUT, f"nothing came through this pipe for {SILENCE:g} s")
            if not (part := os.read(pipe, 1 << 16)):
                break
            content += part
    finally:
        os.close(pipe)
    return content


def read_lines(path: Path, holding: str) -> list[str]:
    """Return the lines of a text file that are neither blank nor start with #, without spaces around them."""
    try:
        lines = [line.strip() for line in read_list(path).decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file with {holding} ({error.reason})") from error
    return [line for line in lines if line and not line.startswith("#")]
