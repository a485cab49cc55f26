"""Any data set as one `.npz` file."""

import math
import os
import sys
import zipfile
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
    arrays = read_npz(path)
    test = (arrays["x_test"], arrays["y_test"], arrays.get("ids_test")) if "x_test" in arrays else None
    try:
        ids, names = arrays.get("ids"), arrays.get("class_names")
        return Dataset.from_arrays(arrays["x"], arrays["y"], ids=ids, class_names=names, name=path.stem, test=test)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file of a data set; no Python objects, and no more than the memory holds."""
    if not os.path.isfile(path):
        raise InputError(f"{path} does not exist; give the path of an .npz file with arrays x and y")
    try:
        with zipfile.ZipFile(path) as archive:
            needed = sum(_promised_bytes(archive, member) for member in archive.infolist())
        if needed > memory():
            raise ValueError(f"its arrays need {needed / 2**30:.3g} GiB, this machine has {memory() / 2**30:.3g}")  # noqa: TRY301
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file may raise anything
        raise InputError(f"{path} is truncated, not an .npz file, or holds Python objects ({error})") from error
    _refuse_wrong_names(path, set(arrays))
    return arrays


def _promised_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes that an array's header asks for; numpy would reserve them before it looks at the rest."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        promised, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if promised != there and not dtype.hasobject:
        raise ValueError(f"the header of {member.filename} promises {promised} bytes, but {there} follow")
    return promised


def memory() -> int:
    """Return this machine's memory in bytes; no bound where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize


def _refuse_wrong_names(path: Path, names: set[str]) -> None:
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(f"{path} lacks the array {missing[0]!r}; it holds: {', '.join(sorted(names)) or 'nothing'}")
    if unknown := sorted(names.difference(REQUIRED, OPTIONAL)):
        raise InputError(f"{path}: {unknown_name('array', unknown[0], [*REQUIRED, *OPTIONAL])}")
    if ("x_test" in names) != ("y_test" in names) or ("ids_test" in names and "x_test" not in names):
        raise InputError(f"{path}: test samples need both x_test and y_test (ids_test may be left out)")
