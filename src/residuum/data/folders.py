"""Where data files may lie, and one clear line when they do not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from residuum.types import InputError

ROOT_VARIABLE = "RESIDUUM_DATA"


def data_roots(root: Path | None) -> list[Path]:
    """Return the data roots to try: the given one, then the environment's."""
    given = os.environ.get(ROOT_VARIABLE)
    return [folder for folder in (root, Path(given) if given else None) if folder is not None]


def find_folder(title: str, folders: Sequence[Path], marker: str, what_to_do: str) -> Path:
    """Return the first folder that holds the file `marker`, or say where it was sought and what to put there."""
    for folder in folders:
        if (folder / marker).is_file():
            return folder
    sought = ", ".join(str(folder) for folder in folders) or "nowhere (no data root given)"
    raise InputError(f"{title} was not found; looked for {marker} in: {sought}. {what_to_do}")


def read_bytes(path: Path) -> bytes:
    """Return a file's content or an InputError that names the file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
