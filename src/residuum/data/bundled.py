"""The two data sets that come with scikit-learn: no download, no file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from residuum.data.dataset import Dataset

# Fixed bounds in centimetres for sepal length, sepal width, petal length and petal width: round numbers
# that hold every flower, so that no constant depends on which samples are in the training set.
IRIS_LOW = (4.0, 2.0, 1.0, 0.0)
IRIS_HIGH = (8.0, 4.5, 7.0, 2.5)


def load_digits(root: Path | None = None) -> Dataset:
    """Return 1,797 handwritten digits, shape (1, 8, 8), pixels / 16; ids `digits/0042`; no test set of its own."""
    from sklearn.datasets import load_digits as load

    x, y = load(return_X_y=True)
    pixels = (np.asarray(x) / 16).reshape(-1, 1, 8, 8)
    ids = [f"digits/{row:04d}" for row in range(len(y))]
    return Dataset.from_arrays(pixels, y, ids=ids, name="digits")


def load_iris(root: Path | None = None) -> Dataset:
    """Return 150 flowers of 3 species, shape (4,), scaled by fixed bounds to [0, 1]; ids `iris/017`."""
    from sklearn.datasets import load_iris as load

    bunch = load()
    scaled = (bunch.data - np.array(IRIS_LOW)) / (np.array(IRIS_HIGH) - np.array(IRIS_LOW))
    ids = [f"iris/{row:03d}" for row in range(len(bunch.target))]
    return Dataset.from_arrays(scaled, bunch.target, ids=ids, class_names=list(bunch.target_names), name="iris")
