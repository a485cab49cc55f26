"""The one way in for data: tensors, arrays, torch data sets, data frames, folders of images, .npz and .csv files."""

from __future__ import annotations

import csv
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from residuum.core.errors import InputError, plural, unknown_name
from residuum.core.files import machine_memory, promised_bytes, read_bytes
from residuum.core.samples import Samples
from residuum.data.dataset import Dataset, as_tensor, checked_class_names, checked_samples
from residuum.data.ids import refuse_repeats
from residuum.data.images import load_image_folder

LABELS = ("label", "labels", "target", "y")
IDS = ("id", "ids")
NPZ_ARRAYS = ("x", "y", "ids", "class_names", "x_test", "y_test", "ids_test")  # all but x and y are optional
WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Reading:
    """How data are read: the roles of a table's columns, the names of classes, and the format of images.

    Args:
        label: Column of a table (or entry of a data set's items) that holds the class; default: by its usual name.
        id_column: Column (or entry) with the ids of the samples; default: by its usual name.
        inputs: Columns (or entries) that the model takes, in this order; default: all others.
        class_names: Names of the classes in the order of the model's outputs, where the data do not have them.
        size: Side in pixels that the images of a folder are scaled to.
        channels: 1 to read the images of a folder as gray; default 3, RGB.
    """

    label: str | None = None
    id_column: str | None = None
    inputs: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    size: int | None = None
    channels: int | None = None


@dataclass(frozen=True)
class Source:
    """Samples, the names of their classes if the source has them, and what they were read from."""

    samples: Samples
    class_names: tuple[str, ...] | None
    name: str
    items: Any = None
    inputs: tuple[str, ...] = ()


def read_data(
    source: Any,  # noqa: ANN401 (see below)
    *,
    reading: Reading | None = None,
    what: str = "data",
) -> Source:
    """Return the samples of anything that holds inputs and labels.

    `source` is `Samples`, a `Dataset`, (x, y) or (x, y, ids) of arrays or tensors, a map-style torch data set of items
    (input, label) or dictionaries, a folder of class folders of images, a path to an .npz or .csv file, or a data
    frame. Inputs stay as they are, except that 8-bit images are divided by 255. Labels are integers; in a table, they
    may be names of classes.

    >>> read_data((torch.zeros(3, 2), [0, 1, 1])).samples.ids
    ('0', '1', '2')
    """
    reading = reading or Reading()
    if isinstance(source, Samples):
        return Source(source, None, what)
    if isinstance(source, Dataset):
        return Source(source.train, source.class_names, source.name)
    if isinstance(source, str | Path):
        return _from_path(Path(os.path.expanduser(source)), reading)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        table = {str(name): list(values) for name, values in source.to_dict("list").items()}
        return _from_table(table, reading, what)
    if isinstance(source, tuple | list) and len(source) in {2, 3}:
        x, y, sample_ids = source if len(source) == 3 else (*source, None)
        return Source(checked_samples(x, y, sample_ids, bounded=False), None, what)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, Mapping):
        return _from_items(source, reading, what)
    kinds = "a folder, .npz or .csv file, (x, y), a data frame or a map-style torch data set"
    part = (
        f"; give one of its parts, such as [{next(iter(source))!r}]" if isinstance(source, Mapping) and source else ""
    )
    raise InputError(f"{what}: expected {kinds}, got {type(source).__name__}{part}")


def _from_path(path: Path, reading: Reading) -> Source:
    if path.is_dir():
        channels = 3 if reading.channels is None else reading.channels
        images = load_image_folder(path, size=reading.size, channels=channels)
        return Source(images.train, images.class_names, path.resolve().name)
    if path.suffix == ".npz":
        arrays = read_npz(path)
        names = checked_class_names(arrays["class_names"]) if "class_names" in arrays else None
        try:
            samples = checked_samples(arrays["x"], arrays["y"], arrays.get("ids"), bounded=False)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return Source(samples, names, path.stem)
    if path.suffix == ".csv":
        return _from_table(_read_table(path), reading, path.stem)
    raise InputError(f"expected a folder of class folders, an .npz or a .csv file, got {path}")


def _read_table(path: Path) -> dict[str, list[str]]:
    try:
        lines = list(csv.reader(read_bytes(path).decode("utf-8-sig").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a table of comma-separated values in UTF-8 ({error})") from None
    if len(lines) < 2:
        raise InputError(
            f"{path} has {plural(len(lines), 'line')}; expected the names of the columns and a line for each sample"
        )
    head = lines[0]
    refuse_repeats(head, f"{path}: columns")
    if (short := next((k for k, line in enumerate(lines) if len(line) != len(head)), None)) is not None:
        raise InputError(f"{path}, line {short + 1}: expected {len(head)} values, got {len(lines[short])}")
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(head)}


def _from_table(table: Mapping[str, Sequence[Any]], reading: Reading, name: str) -> Source:
    label = _column(table, reading.label, LABELS, "label")
    id_column = _column(table, reading.id_column, IDS, "id_column", needed=False)
    inputs = list(reading.inputs or [column for column in table if column not in (label, id_column)])
    for column in inputs:
        if column not in table:
            raise unknown_name(f"column of {name}", column, table)
    features = np.array([_numbers(table[column], column) for column in inputs], np.float32).T
    labels, names = _class_numbers(table[str(label)], reading.class_names)
    sample_ids = None if id_column is None else table[id_column]
    return Source(checked_samples(features, labels, sample_ids, bounded=False), names, name, inputs=tuple(inputs))


def _column(
    table: Mapping[str, Any], name: str | None, usual: Sequence[str], what: str, *, needed: bool = True
) -> str | None:
    """Return the column of this name, or the one that has a usual name."""
    column = name if name is not None else next((column for column in usual if column in table), None)
    if column is None and needed:
        listed = ", ".join(map(str, table))
        raise InputError(f"expected a column {' or '.join(usual)}, got {listed}; name it with {what}=")
    if column is not None and column not in table:
        raise unknown_name("column", column, map(str, table))
    return column


def _numbers(values: Sequence[Any], column: str) -> list[float]:
    numbers = []
    for row, value in enumerate(values):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError):
            hint = "number its categories, or leave the column out with inputs="
            raise InputError(f"column {column!r}, row {row}: expected a number, got {value!r}; {hint}") from None
    return numbers


def _class_numbers(values: Sequence[Any], class_names: Sequence[str] | None) -> tuple[Any, tuple[str, ...] | None]:
    """Return labels as numbers, and the names of the classes if labels are names."""
    texts = [str(value) for value in values]
    if class_names is None:
        if all(WHOLE.fullmatch(text) for text in texts):
            return [int(text) for text in texts], None
        with suppress(ValueError):
            return [float(text) for text in texts], None  # which `checked_samples` refuses as labels
    names = checked_class_names(class_names or sorted(set(texts)))
    position = {name: k for k, name in enumerate(names)}
    if (unknown := next((text for text in texts if text not in position), None)) is not None:
        raise unknown_name("class", unknown, names)
    return [position[text] for text in texts], names


def _from_items(items: Any, reading: Reading, name: str) -> Source:  # noqa: ANN401 (a data set)
    """Read a map-style data set; it is an error if it augments, that is, returns other inputs each time."""
    if not len(items):
        raise InputError(f"{name}: expected at least one sample, got an empty data set")
    (first, label, parts, sample_id), (again, *_) = _item(items[0], reading, name), _item(items[0], reading, name)
    if not torch.equal(first, again):
        raise InputError(f"{name}: item 0 is another input each time; give the data set without random augmentation")
    if first.ndim == 3 and first.shape[0] > 4 >= first.shape[2]:
        text = f"{name}: expected images (channels, height, width), got {tuple(first.shape)} with the channels last"
        raise InputError(f"{text}; give the data set transform=ToTensor()")
    needed = first.numel() * 4 * len(items)
    if needed > machine_memory() / 2:
        raise InputError(f"{name}: its inputs need {needed / 2**30:.3g} GiB of memory; give a folder of images instead")
    inputs, labels, ids = [first], [label], [sample_id]
    for row in range(1, len(items)):
        x, y, _, sample_id = _item(items[row], reading, name)
        if x.shape != first.shape:
            shapes = f"{tuple(x.shape)}, item 0 of {tuple(first.shape)}"
            raise InputError(f"{name}: item {row} has an input of shape {shapes}; bring all to one shape (pad texts)")
        inputs.append(x)
        labels.append(y)
        ids.append(sample_id)
    listed = getattr(items, "samples", None)  # (path, label) in data sets of image files
    if isinstance(listed, list) and listed and isinstance(listed[0], tuple):
        ids = [str(path) for path, *_ in listed]
    entry = next((key for key in (reading.label, *LABELS) if key in (getattr(items, "features", None) or ())), None)
    kind = items.features[entry] if entry else None  # of Hugging Face
    classes = getattr(items, "classes", None) or getattr(kind, "names", None)
    names = checked_class_names(classes) if isinstance(classes, list | tuple) else None
    nameless = [row for row, sample_id in enumerate(ids) if sample_id is None]
    if 0 < len(nameless) < len(ids):
        raise InputError(f"{name}: item {nameless[0]} has no id, but others have; give every item one, or none")
    samples = checked_samples(torch.stack(inputs), np.array(labels), None if nameless else ids, bounded=False)
    return Source(samples, names, name, items, parts)


def _item(item: object, reading: Reading, name: str) -> tuple[Tensor, Any, tuple[str, ...], Any]:
    """Return input, label, names of the parts and id, if any, of one item; equal parts are stacked (parts, ...)."""
    if isinstance(item, Mapping):
        label = _column(item, reading.label, LABELS, "label")
        id_column = _column(item, reading.id_column, IDS, "id_column", needed=False)
        parts = tuple(reading.inputs or (key for key in item if key not in (label, id_column)))
        if (unknown := next((part for part in parts if part not in item), None)) is not None:
            raise unknown_name("entry of an item", unknown, map(str, item))
        values, y = [item[part] for part in parts], item[label]
        sample_id = None if id_column is None else item[id_column]
        sample_id = sample_id.tolist() if isinstance(sample_id, Tensor) else sample_id
    elif isinstance(item, tuple | list) and len(item) >= 2:
        *values, y = item
        parts, sample_id = (), None
    else:
        raise InputError(f"{name}: expected items (input, label) or dictionaries, got {type(item).__name__}")
    tensors = [_item_tensor(value, f"{name}: an item's input") for value in values]
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InputError(f"{name}: expected parts of one shape in an item, got {shapes}; choose them with inputs=")
    alone = len(tensors) == 1 and (not parts or tensors[0].is_floating_point() or tensors[0].dtype == torch.uint8)
    x = tensors[0] if alone else torch.stack(tensors)
    return x, y.item() if hasattr(y, "item") and np.size(y) == 1 else y, parts, sample_id


def _item_tensor(value: object, what: str) -> Tensor:
    """Return a part of an item as a tensor; the channels of a Pillow image come first."""
    if hasattr(value, "getbands"):
        pixels = as_tensor(np.asarray(value), what)
        return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()
    return as_tensor(value, what)


def load_npz(path: Path) -> Dataset:
    """Return the data set of an `.npz` file.

    Arrays: x and y; optionally ids, class_names, x_test, y_test and ids_test, as in `Dataset.from_arrays`.
    Arrays of Python objects are an error, because reading them could run code.
    """
    arrays = read_npz(path)
    test = (arrays["x_test"], arrays["y_test"], arrays.get("ids_test")) if "x_test" in arrays else None
    try:
        ids, names = arrays.get("ids"), arrays.get("class_names")
        return Dataset.from_arrays(arrays["x"], arrays["y"], ids=ids, class_names=names, name=path.stem, test=test)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a data set's `.npz` file; no Python objects, and no more than fits in memory."""
    if not os.path.isfile(path):
        raise InputError(f"{path} does not exist; give the path of an .npz file with arrays x and y")
    try:
        with zipfile.ZipFile(path) as archive:
            needed = sum(promised_bytes(archive, member) for member in archive.infolist())
        if needed > (memory := machine_memory()):
            raise ValueError(f"its arrays need {needed / 2**30:.3g} GiB, this machine has {memory / 2**30:.3g}")  # noqa: TRY301
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file may raise anything
        raise InputError(f"{path} is truncated, not an .npz file, or holds Python objects ({error})") from error
    if missing := [name for name in ("x", "y") if name not in arrays]:
        raise InputError(f"{path} lacks the array {missing[0]!r}; it holds: {', '.join(sorted(arrays)) or 'nothing'}")
    if unknown := sorted(set(arrays).difference(NPZ_ARRAYS)):
        raise InputError(f"{path}: {unknown_name('array', unknown[0], NPZ_ARRAYS)}")
    if ("x_test" in arrays) != ("y_test" in arrays) or ("ids_test" in arrays and "x_test" not in arrays):
        raise InputError(f"{path}: test samples need both x_test and y_test; ids_test is optional")
    return arrays
