"""Data sets (inputs, integer labels, string ids) and how they are split for a deletion request."""

from residuum.data.cifar import download_cifar10, load_cifar10
from residuum.data.dataset import Dataset
from residuum.data.ids import ids_of_ranks
from residuum.data.images import load_image_folder
from residuum.data.loaders import DATASETS, load_dataset, load_fashion_mnist
from residuum.data.read import read_data
from residuum.data.splits import make_splits
