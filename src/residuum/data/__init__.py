"""Data sets as pixels in [0, 1], integer labels and string ids, and their cut for one deletion request."""

from residuum.data.dataset import Dataset
from residuum.data.loaders import DATASETS, load_dataset
from residuum.data.splits import make_splits

__all__ = ["DATASETS", "Dataset", "load_dataset", "make_splits"]
