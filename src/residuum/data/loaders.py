"""The table of data sets and the one function that loads them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from residuum.data.bundled import load_digits, load_iris
from residuum.data.cifar import load_cifar10
from residuum.data.dataset import Dataset
from residuum.data.fashion import load_fashion_mnist
from residuum.data.folders import data_roots
from residuum.data.image_folder import load_image_folder, load_imagenet100
from residuum.data.npz import load_npz
from residuum.types import InputError, unknown_name

DATASETS: dict[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "iris": load_iris,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "imagenet100": load_imagenet100,
}
SCALABLE = {"imagenet100"}


def load_dataset(name: str, *, root: Path | str | None = None, size: int | None = None) -> Dataset:
    """Return a data set by name (see `DATASETS`), from a path that ends in `.npz`, or from a folder of class folders.

    `root` is the folder with data files; without it, or after it, the folder in `RESIDUUM_DATA` is tried. `size` is the
    side in pixels that the images of a folder are scaled to.

    >>> digits = load_dataset("digits")
    >>> len(digits.train), digits.shape, digits.classes, digits.train.ids[42]
    (1797, (1, 8, 8), 10, 'digits/0042')
    """
    base = None if root is None else Path(root).expanduser()
    if name in SCALABLE:
        return DATASETS[name](base) if size is None else DATASETS[name](base, size=size)
    folder = None if name in DATASETS or name.endswith(".npz") else _found(name, base)
    if folder is not None:
        return load_image_folder(folder, size=size)
    if size is not None:
        raise InputError(f"size scales the images of a folder, but {name!r} has a size of its own; leave size out")
    if name.endswith(".npz"):
        return load_npz(_npz_path(Path(name).expanduser(), base))
    return DATASETS[name](base)


def _found(name: str, root: Path | None) -> Path:
    """Return the folder of this name, as given or below a data root."""
    for folder in (Path(name).expanduser(), *(base / name for base in data_roots(root))):
        if folder.is_dir():
            return folder
    raise unknown_name("data set", name, [*DATASETS, "FILE.npz", "FOLDER"])


def _npz_path(path: Path, root: Path | None) -> Path:
    """Return the path as given, or below the data root when it is only there."""
    return root / path if root is not None and not path.exists() and (root / path).exists() else path
