"""Any folder of class sub-folders of images as a data set."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from residuum.core.errors import InputError, plural, unknown_name, warn
from residuum.core.samples import Samples
from residuum.data.dataset import Dataset, checked_class_names
from residuum.data.files import GIVE_ROOT, data_roots, find_folder
from residuum.data.ids import refuse_unusable_ids
from residuum.data.images import ImageFiles, checked_sizes

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
PARTS = ("train", "test", "val")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_image_folder(
    folder: Path | str, *, size: int | None = None, channels: int = 3, name: str | None = None
) -> Dataset:
    """Return the images of a folder with one sub-folder per class, unread; an image's id is its path below the folder.

    If the folder holds only `train` and `test` or `val` (or both), and these hold the class folders, `test` (else
    `val`) becomes the test set. Classes are numbered in the order of their names; images may lie deeper inside. The
    largest square in the middle of each image is scaled to `size` (default: the size of the images, if all have the
    same). With 3 `channels`, gray and CMYK images become RGB; with 1, all images become gray.
    """
    root = Path(os.path.expanduser(folder))
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InputError(f"size must be a whole number of pixels, 1 or more, got {size!r}")
    if isinstance(channels, bool) or channels not in (1, 3):
        raise InputError(f"channels must be 1 (gray) or 3 (RGB), got {channels!r}")
    parts = _class_folders(root)
    class_names = checked_class_names([path.name for path in parts["train"]])
    paths = {part: _image_paths(root, folders, class_names) for part, folders in parts.items()}
    files = [root / path for listed in paths.values() for path, _ in listed]
    sizes = checked_sizes(files)
    side = size or _common_side(files, sizes)
    samples = {part: _samples(root, listed, side, channels) for part, listed in paths.items()}
    return Dataset(name or root.name, samples["train"], samples.get("test"), class_names)


def load_imagenet100(root: Path | None = None, size: int = 224) -> Dataset:
    """Return 100 classes of ImageNet, shape (3, 224, 224), from folders `imagenet100/train` and `val`, read lazily.

    Reference: Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015. The normalization
    constants are the usual published ones. The folder decides which 100 classes these are.
    """
    hint = "Make DIR/imagenet100/train/CLASS/*.JPEG and DIR/imagenet100/val/CLASS/*.JPEG"
    base = find_folder("ImageNet-100", data_roots(root), "imagenet100", f"{hint}, {GIVE_ROOT}.")
    images = load_image_folder(base / "imagenet100", size=size)
    return replace(images, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _class_folders(root: Path) -> dict[str, list[Path]]:
    """Return the class folders of the training part and, if there is one, of the test part."""
    top = _folders_in(root)
    names = {path.name for path in top}
    if "train" not in names or not names <= set(PARTS):
        return {"train": top}
    held_out = next((part for part in PARTS[1:] if part in names), None)
    parts = {"train": _folders_in(root / "train")}
    return parts | ({"test": _folders_in(root / held_out)} if held_out else {})


def _folders_in(root: Path) -> list[Path]:
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read {root}: {error.strerror}; give a folder with one sub-folder per class") from None
    if not folders:
        raise InputError(f"{root} has no sub-folders; put the images of each class in a sub-folder of its name")
    return folders


def _image_paths(root: Path, folders: Sequence[Path], class_names: Sequence[str]) -> list[tuple[str, int]]:
    """Return path below the root and label of every image, by class and then by path."""
    listed, others = [], []
    for folder in folders:
        if folder.name not in class_names:
            raise InputError(f"{folder}: {unknown_name('class', folder.name, class_names)}")
        files = sorted(_files_below(root, folder))
        images = [path for path in files if path.lower().endswith(SUFFIXES)]
        if not images:
            raise InputError(f"{folder} holds no image ({' '.join(SUFFIXES)}); fill the folder or remove it")
        listed += [(path, class_names.index(folder.name)) for path in images]
        others += [path for path in files if not path.lower().endswith(SUFFIXES)]
    if others:
        skipped = plural(len(others), "file")
        warn(f"{root}: skipped {skipped} without an image suffix, first {others[0]!r}", stacklevel=4)
    return listed


def _files_below(root: Path, folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder, onerror=_refuse):
        for name in names:
            if not name.startswith("."):
                yield (Path(parent) / name).relative_to(root).as_posix()


def _refuse(error: OSError) -> None:
    raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def _common_side(paths: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> int:
    """Return the side of the images if all are squares of one size."""
    width, height = sizes[0]
    for path, (columns, rows) in zip(paths, sizes, strict=True):
        if (columns, rows) != (width, width):
            same = (columns, rows) == (width, height)
            other = ", which is no square" if same else f", the first image {width}x{height}"
            text = f"{path} has {columns}x{rows} pixels{other}"
            raise InputError(f"{text}; give the size that all are scaled to (--set data.size=224, or --size, size=)")
    return width


def _samples(root: Path, listed: Sequence[tuple[str, int]], size: int, channels: int) -> Samples:
    ids = tuple(path for path, _ in listed)
    refuse_unusable_ids(ids, str(root))
    labels = torch.tensor([label for _, label in listed], dtype=torch.int64)
    return Samples(ImageFiles(root, ids, size, channels), labels, ids)
