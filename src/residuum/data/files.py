"""Where data files may lie, how they are read, and one clear line when they cannot be."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from residuum.files import regular_file
from residuum.types import InputError

ROOT_VARIABLE = "RESIDUUM_DATA"
GIVE_ROOT = f"and give DIR with --data-root or {ROOT_VARIABLE}"


def data_roots(root: Path | None) -> list[Path]:
    """Return the data roots to try: the given one, then the environment's."""
    given = os.environ.get(ROOT_VARIABLE)
    return [folder for folder in (root, Path(given) if given else None) if folder is not None]


def find_path(name: str, root: Path | None, is_it: Callable[[Path], bool]) -> Path | None:
    """Return the first of the path as given and those below the data roots for which `is_it` holds."""
    candidates = [Path(os.path.expanduser(name)), *(base / name for base in data_roots(root))]
    return next((path for path in candidates if is_it(path)), None)


def find_folder(title: str, folders: Sequence[Path], marker: str, what_to_do: str) -> Path:
    """Return the first folder that has `marker` in it, or say where it was sought and what to put there."""
    for folder in folders:
        if os.path.exists(folder / marker):
            return folder
    sought = ", ".join(str(folder) for folder in folders) or "nowhere (no data root given)"
    raise InputError(f"{title} was not found; looked for {marker} in: {sought}. {what_to_do}")


def read_bytes(path: Path, *, regular: bool = True) -> bytes:
    """Return a file's content or an InputError that names the file; a named pipe only if it need not be `regular`."""
    try:
        return (regular_file(path) if regular else path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_lines(path: Path, holding: str) -> list[str]:
    """Return the lines of a text file that are neither blank nor start with #, without spaces around them."""
    try:
        lines = [line.strip() for line in read_bytes(path, regular=False).decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file with {holding} ({error.reason})") from error
    return [line for line in lines if line and not line.startswith("#")]
