"""The data set of a run: read once in a process, and again when its files were written since."""

import os
from functools import lru_cache
from pathlib import Path

from residuum.data import Dataset, load_dataset
from residuum.data.images import ImageFiles
from residuum.types import InputError


@lru_cache(maxsize=1)
def loaded_dataset(name: str, root: Path | None, size: int | None) -> Dataset:
    """Return the data set, which a process reads once; clear the cache to see what was written since."""
    dataset = load_dataset(name, root=root, size=size)
    states_when_loaded(dataset)
    return dataset


def current_dataset(name: str, root: Path | None, size: int | None) -> Dataset:
    """Return the data set as its files are now: it is loaded again if they were written since."""
    if file_states(dataset := loaded_dataset(name, root, size)) != states_when_loaded(dataset):
        loaded_dataset.cache_clear()
    return loaded_dataset(name, root, size)


def all_ids(dataset: Dataset) -> list[str]:
    """Return the ids of all samples of a data set."""
    return [sample_id for part in (dataset.train, dataset.test) if part is not None for sample_id in part.ids]


def file_states(dataset: Dataset) -> tuple[tuple[int, ...], ...]:
    """Return of every file that is read when it is asked for what changes whenever it is written."""
    images = [part.x for part in (dataset.train, dataset.test) if part is not None and isinstance(part.x, ImageFiles)]
    try:
        found = [os.stat(inputs.root / name) for inputs in images for name in inputs.names]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    return tuple((state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for state in found)


states_when_loaded = lru_cache(maxsize=4)(file_states)  # asked first when a data set is loaded


def refuse_changed_files(dataset: Dataset) -> None:
    """Raise an error if files were written since the data set was loaded, even if they are again what they were."""
    if file_states(dataset) != states_when_loaded(dataset):
        loaded_dataset.cache_clear()
        text = f"files of data set {dataset.name} were written while they were read"
        raise InputError(f"{text}; what was computed meanwhile is not kept: give the same command again")
