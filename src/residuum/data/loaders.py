"""The table of data sets and the one function that loads them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from residuum.data.bundled import load_digits, load_iris
from residuum.data.cifar import load_cifar10
from residuum.data.dataset import Dataset
from residuum.data.fashion import load_fashion_mnist
from residuum.data.npz import load_npz
from residuum.types import unknown_name

DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
    "digits": load_digits,
    "iris": load_iris,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
}


def load_dataset(name: str, *, root: Path | str | None = None) -> Dataset:
    """Return a data set by name (see `DATASETS`) or from a path that ends in `.npz`.

    `root` is the folder with data files; without it, or after it, the folder in `RESIDUUM_DATA` is tried.

    >>> digits = load_dataset("digits")
    >>> len(digits.train), digits.shape, digits.classes, digits.train.ids[42]
    (1797, (1, 8, 8), 10, 'digits/0042')
    """
    folder = None if root is None else Path(root).expanduser()
    if str(name).endswith(".npz"):
        return load_npz(_npz_path(Path(name).expanduser(), folder))
    if name not in DATASETS:
        raise unknown_name("data set", name, [*DATASETS, "FILE.npz"])
    return DATASETS[name](folder)


def _npz_path(path: Path, root: Path | None) -> Path:
    """Return the path as given, or below the data root when it is only there."""
    return root / path if root is not None and not path.exists() and (root / path).exists() else path
