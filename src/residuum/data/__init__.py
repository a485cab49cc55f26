"""Data sets as pixels in [0, 1], integer labels and string ids, and their cut for one deletion request."""

from residuum.data.cifar import download_cifar10 as download_cifar10
from residuum.data.dataset import Dataset as Dataset
from residuum.data.ids import ids_of_ranks as ids_of_ranks
from residuum.data.image_folder import load_image_folder as load_image_folder
from residuum.data.loaders import DATASETS as DATASETS
from residuum.data.loaders import load_dataset as load_dataset
from residuum.data.splits import make_splits as make_splits
