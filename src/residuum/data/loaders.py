"""Load data sets by name; a process reads one once, and again after its files were written."""

import inspect
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from residuum.core import components
from residuum.core.errors import InputError, unknown_name
from residuum.core.registry import Registry
from residuum.data.dataset import Dataset
from residuum.data.files import find_path
from residuum.data.ids import is_utf8
from residuum.data.image_folder import load_image_folder
from residuum.data.images import ImageFiles
from residuum.data.read import load_npz

# Fixed bounds in centimeters for sepal length, sepal width, petal length and petal width: round numbers
# that hold every flower, so that no constant depends on which samples are in the training set.
IRIS_LOW, IRIS_HIGH = np.array([4.0, 2.0, 1.0, 0.0]), np.array([8.0, 4.5, 7.0, 2.5])


def load_digits(root: Path | None = None) -> Dataset:
    """Return 1,797 handwritten digits, shape (1, 8, 8), pixels / 16; ids `digits/0042`; without a test set."""
    from sklearn.datasets import load_digits as load

    x, y = load(return_X_y=True)
    ids = [f"digits/{row:04d}" for row in range(len(y))]
    return Dataset.from_arrays((np.asarray(x) / 16).reshape(-1, 1, 8, 8), y, ids=ids, name="digits")


def load_iris(root: Path | None = None) -> Dataset:
    """Return 150 flowers of 3 species, shape (4,), scaled by fixed bounds to [0, 1]; ids `iris/017`."""
    from sklearn.datasets import load_iris as load

    bunch = load()
    scaled = (bunch.data - IRIS_LOW) / (IRIS_HIGH - IRIS_LOW)
    ids = [f"iris/{row:03d}" for row in range(len(bunch.target))]
    return Dataset.from_arrays(scaled, bunch.target, ids=ids, class_names=list(bunch.target_names), name="iris")


Loader = Callable[..., Dataset]


def as_loader(candidate: object) -> Loader:
    """Return a plug-in's function `load(root) -> Dataset`; InputError where it is none."""
    if inspect.isfunction(candidate):
        return candidate
    raise InputError(f"expected a function load(root) that returns a residuum.data.Dataset, got {candidate!r}")


DATASETS: Registry[Loader] = components.DATASETS
SCALABLE = {"imagenet100"}


def load_dataset(name: str, *, root: Path | str | None = None, size: int | None = None) -> Dataset:
    """Return a data set by name (see `DATASETS`), by FILE.py:NAME, from an `.npz` file or a folder of class folders.

    `root` is the folder with data files; without it, or after it, the folder in `RESIDUUM_DATA` is tried. `size` is the
    side in pixels that the images of a folder are scaled to.

    >>> digits = load_dataset("digits")
    >>> len(digits.train), digits.shape, digits.classes, digits.train.ids[42]
    (1797, (1, 8, 8), 10, 'digits/0042')
    """
    base = None if root is None else Path(os.path.expanduser(root))
    if not is_utf8(name):
        raise InputError(f"expected a data set's name in UTF-8, got {name!r}; rename the file or folder")
    if ".py:" in name:
        name = DATASETS.add(name)
    if name in SCALABLE and size is not None:
        return DATASETS[name](base, size=size)
    if name not in DATASETS and not name.endswith(".npz"):
        folder = find_path(name, base, os.path.isdir)
        if folder is None:
            raise unknown_name("data set", name, [*DATASETS, "FILE.npz", "FOLDER"])
        return load_image_folder(folder, size=size)
    if size is not None:
        raise InputError(f"size scales the images of a folder, but {name!r} has a fixed size; leave size out")
    if name not in DATASETS:
        return load_npz(find_path(name, base, os.path.isfile) or Path(name))
    dataset: object = DATASETS[name](base)
    if isinstance(dataset, Dataset):
        return dataset
    raise InputError(f"data set {name}: expected its function to return a residuum.data.Dataset, got {dataset!r:.80}")


@lru_cache(maxsize=1)
def loaded_dataset(name: str, root: Path | None, size: int | None) -> Dataset:
    """Return the data set, which a process reads once; clear the cache to read it again."""
    dataset = load_dataset(name, root=root, size=size)
    states_when_loaded(dataset)
    return dataset


def current_dataset(name: str, root: Path | None, size: int | None) -> Dataset:
    """Return the data set as its files are now; it is loaded again if they were written since."""
    if file_states(dataset := loaded_dataset(name, root, size)) != states_when_loaded(dataset):
        loaded_dataset.cache_clear()
    return loaded_dataset(name, root, size)


def all_ids(dataset: Dataset) -> list[str]:
    """Return the ids of all samples of a data set."""
    return [sample_id for part in (dataset.train, dataset.test) if part is not None for sample_id in part.ids]


def file_states(dataset: Dataset) -> tuple[tuple[int, ...], ...]:
    """Return what changes when a file is written, for every file that is read on demand."""
    images = [part.x for part in (dataset.train, dataset.test) if part is not None and isinstance(part.x, ImageFiles)]
    try:
        states = [os.stat(inputs.root / name) for inputs in images for name in inputs.names]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    return tuple((state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for state in states)


states_when_loaded = lru_cache(maxsize=4)(file_states)  # first called when a data set is loaded


def refuse_changed_files(dataset: Dataset) -> None:
    """Raise an error if files were written since the data set was loaded, even if their content is the same again."""
    if file_states(dataset) != states_when_loaded(dataset):
        loaded_dataset.cache_clear()
        text = f"files of data set {dataset.name} were written while they were read"
        raise InputError(f"{text}; results since then are discarded, so repeat the command")
