"""Any data set as one `.npz` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.data.dataset import Dataset
from residuum.types import InputError, unknown_name

REQUIRED = ("x", "y")
OPTIONAL = ("ids", "class_names", "x_test", "y_test", "ids_test")


def load_npz(path: Path) -> Dataset:
    """Return the data set of an `.npz` file.

    Arrays: x and y; if wanted ids, class_names, x_test, y_test and ids_test, as in `Dataset.from_arrays`.
    Arrays of Python objects are refused, as reading them could run code.
    """
    arrays = _read_arrays(path)
    _refuse_wrong_names(path, set(arrays))
    test = (arrays["x_test"], arrays["y_test"], arrays.get("ids_test")) if "x_test" in arrays else None
    try:
        return Dataset.from_arrays(
            arrays["x"],
            arrays["y"],
            ids=arrays.get("ids"),
            class_names=None if "class_names" not in arrays else list(arrays["class_names"]),
            name=path.stem,
            test=test,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the path of an .npz file with arrays x and y")
    try:
        with path.open("rb") as file:
            return _all_arrays(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is truncated, no .npz file, or holds Python objects ({error})") from error


def _all_arrays(file: object) -> dict[str, NDArray[Any]]:
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise ValueError("a single array")  # noqa: TRY004 - the file is wrong, not a type in the program
    return {name: file[name] for name in file.files}


def _refuse_wrong_names(path: Path, names: set[str]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InputError(f"{path} lacks the array {missing[0]!r}; it holds: {', '.join(sorted(names)) or 'nothing'}")
    unknown = sorted(names.difference(REQUIRED, OPTIONAL))
    if unknown:
        raise InputError(f"{path}: {unknown_name('array', unknown[0], [*REQUIRED, *OPTIONAL])}")
    if ("x_test" in names) != ("y_test" in names) or ("ids_test" in names and "x_test" not in names):
        raise InputError(f"{path}: test samples need both x_test and y_test (ids_test may be left out)")
