"""Load data sets by name; a process reads one once, and again after its files were written."""

import gzip
import inspect
import math
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from residuum.core import components
from residuum.core.errors import InputError, unknown_name
from residuum.core.files import read_bytes
from residuum.core.registry import Registry
from residuum.core.samples import Samples
from residuum.data.dataset import Dataset, checked_samples
from residuum.data.ids import ids_by_rank, is_utf8
from residuum.data.images import ImageFiles, load_image_folder
from residuum.data.read import load_npz

Loader = Callable[..., Dataset]
DATASETS: Registry[Loader] = components.DATASETS
ROOT_VARIABLE = "RESIDUUM_DATA"
GIVE_ROOT = f"and give DIR with --data-root or {ROOT_VARIABLE}"

# Fixed bounds in centimeters for sepal length, sepal width, petal length and petal width: round numbers
# that hold every flower, so that no constant depends on which samples are in the training set.
IRIS_LOW, IRIS_HIGH = np.array([4.0, 2.0, 1.0, 0.0]), np.array([8.0, 4.5, 7.0, 2.5])
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot")
UINT8 = 8  # IDX type code of unsigned bytes


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
    paths = [Path(os.path.expanduser(name)), *(folder / name for folder in data_roots(base))]
    if name not in DATASETS and not name.endswith(".npz"):
        folder = next((path for path in paths if os.path.isdir(path)), None)
        if folder is None:
            raise unknown_name("data set", name, [*DATASETS, "FILE.npz", "FOLDER"])
        return load_image_folder(folder, size=size)
    if name == "imagenet100" and size is not None:
        return load_imagenet100(base, size)
    if size is not None:
        raise InputError(f"size scales the images of a folder, but {name!r} has a fixed size; leave size out")
    if name not in DATASETS:
        return load_npz(next((path for path in paths if os.path.isfile(path)), Path(name)))
    dataset: object = DATASETS[name](base)
    if isinstance(dataset, Dataset):
        return dataset
    raise InputError(f"data set {name}: expected its function to return a residuum.data.Dataset, got {dataset!r:.80}")


def as_loader(candidate: object) -> Loader:
    """Return a plug-in's function `load(root) -> Dataset`; InputError where it is none."""
    if inspect.isfunction(candidate):
        return candidate
    raise InputError(f"expected a function load(root) that returns a residuum.data.Dataset, got {candidate!r}")


def data_roots(root: Path | None) -> list[Path]:
    """Return the data roots to try: `root`, then the environment's."""
    variable = os.environ.get(ROOT_VARIABLE)
    return [folder for folder in (root, Path(variable) if variable else None) if folder is not None]


def find_folder(title: str, folders: Sequence[Path], marker: str, what_to_do: str) -> Path:
    """Return the first folder that contains `marker`; the error lists the folders and says what to put there."""
    for folder in folders:
        if os.path.exists(folder / marker):
            return folder
    places = ", ".join(str(folder) for folder in folders) or "nowhere (no data root given)"
    raise InputError(f"{title} was not found; looked for {marker} in: {places}. {what_to_do}")


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


def load_fashion_mnist(root: Path | None = None) -> Dataset:
    """Return Fashion-MNIST, shape (1, 28, 28); ids `train/coat/0042`, the rank within the class in file order.

    Reference: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017. The normalization constants are the usual ones.
    """
    folders = [base / sub for base in data_roots(root) for sub in ("", "fashion-mnist", "FashionMNIST/raw")]
    put = "put the four files train- and t10k-images-idx3-ubyte.gz and -labels-idx1-ubyte.gz in a folder"
    hint = f"Install the Debian package dataset-fashion-mnist, or {put} and give it with --data-root or RESIDUUM_DATA."
    folder = find_folder("Fashion-MNIST", [*folders, DEBIAN_FOLDER], "train-images-idx3-ubyte.gz", hint)

    def samples(prefix: str, split: str) -> Samples:
        images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
        labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
        if len(images) != len(labels):
            raise InputError(f"{folder}: {len(images)} {prefix} images but {len(labels)} labels; fetch the files again")
        if labels.size and labels.max() >= len(CLOTHES):
            raise InputError(f"{folder}: {prefix} labels reach {labels.max()}, expected 0..9; these are other data")
        return checked_samples(images[:, None], labels, ids_by_rank(labels, CLOTHES, split), classes=len(CLOTHES))

    return Dataset("fashion-mnist", samples("train", "train"), samples("t10k", "test"), CLOTHES, (0.2860,), (0.3530,))


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes of a gzipped IDX file: magic 0, 0, type, dimensions, then sizes, then values."""
    try:
        content = gzip.decompress(read_bytes(path))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is truncated or not a gzip file ({error}); fetch it again") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, UINT8, dimensions]) or len(content) < header:
        raise InputError(f"{path} is not an IDX file of unsigned bytes with {dimensions} dimensions; fetch it again")
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(sizes):
        raise InputError(f"{path} holds {len(content) - header} values, its header promises {sizes}; fetch it again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)


def load_imagenet100(root: Path | None = None, size: int = 224) -> Dataset:
    """Return 100 classes of ImageNet, shape (3, 224, 224), from folders `imagenet100/train` and `val`, read lazily.

    Reference: Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015. The normalization
    constants are the usual published ones. The folder decides which 100 classes these are.
    """
    hint = "Make DIR/imagenet100/train/CLASS/*.JPEG and DIR/imagenet100/val/CLASS/*.JPEG"
    base = find_folder("ImageNet-100", data_roots(root), "imagenet100", f"{hint}, {GIVE_ROOT}.")
    images = load_image_folder(base / "imagenet100", size=size)
    return replace(images, mean=IMAGENET_MEAN, std=IMAGENET_STD)


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


def file_states(dataset: Dataset) -> list[tuple[int, ...]]:
    """Return what changes when a file is written, for every file that is read on demand."""
    inputs = [part.x for part in (dataset.train, dataset.test) if part is not None]
    return [state for images in inputs if isinstance(images, ImageFiles) for state in images.states()]


states_when_loaded = lru_cache(maxsize=4)(file_states)  # first called when a data set is loaded


def refuse_changed_files(dataset: Dataset) -> None:
    """Raise an error if files were written since the data set was loaded, even if their content is the same again."""
    if file_states(dataset) != states_when_loaded(dataset):
        loaded_dataset.cache_clear()
        text = f"files of data set {dataset.name} were written while they were read"
        raise InputError(f"{text}; results since then are discarded, so repeat the command")
