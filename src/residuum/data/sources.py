"""Data as users have them: tensors, arrays, torch data sets, folders of images, .npz and .csv files, as `Samples`."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residuum.data.arrays import (
    as_tensor,
    checked_ids,
    checked_labels,
    refuse_bad_labels,
    refuse_channels_last,
    refuse_nonfinite,
)
from residuum.data.dataset import Dataset, checked_class_names, memory, read_npz
from residuum.data.files import read_bytes
from residuum.data.ids import Ids, read_ids, refuse_repeats
from residuum.data.image_folder import load_image_folder
from residuum.errors import plural
from residuum.types import InputError, Samples, unknown_name

LABELS = ("label", "labels", "target", "y")
IDS = ("id", "ids")
WHOLE = re.compile(r"-?[0-9]{1,18}")
LARGEST_INTEGER = 2**24  # the inputs of samples are float32, which holds integers up to here


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or entries of a data set's items, are what; None: by their usual names.

    `label` is the class, `ids` names the samples, `inputs` are the features, or the parts of an input in this order.
    """

    label: str | None = None
    ids: str | None = None
    inputs: Sequence[str] | None = None


@dataclass(frozen=True)
class Source:
    """Samples, the names of their classes where these are known, and what they were read from."""

    samples: Samples
    class_names: tuple[str, ...] | None
    name: str
    items: Any = None
    inputs: tuple[str, ...] = ()


def read_source(
    given: Any,  # noqa: ANN401 (see below)
    *,
    ids: Iterable[Any] | None = None,
    columns: Columns | None = None,
    class_names: Sequence[str] | None = None,
    size: int | None = None,
    channels: int | None = None,
    what: str = "data",
) -> Source:
    """Return the samples of anything that holds inputs and labels.

    `given` is `Samples`, a `Dataset`, (x, y) or (x, y, ids) of arrays or tensors, a map-style torch data set of items
    (input, label) or dictionaries, a folder of class folders of images, a path to an .npz or .csv file, or a data
    frame. Inputs are kept as they are, but for 8-bit images, which are divided by 255; labels are integers, or names of
    classes where a table has them.

    >>> read_source((torch.zeros(3, 2), [0, 1, 1])).samples.ids
    ('0', '1', '2')
    """
    columns = columns or Columns()
    if isinstance(given, Samples):
        return Source(given, None, what)
    if isinstance(given, Dataset):
        return Source(given.train, given.class_names, given.name)
    if isinstance(given, str | Path):
        return _from_path(Path(os.path.expanduser(given)), ids, columns, class_names, size, channels)
    if hasattr(given, "columns") and hasattr(given, "to_dict"):
        table = {str(name): list(values) for name, values in given.to_dict("list").items()}
        return _from_table(table, ids, columns, class_names, what)
    if isinstance(given, tuple | list) and len(given) in {2, 3}:
        return Source(own_samples(given[0], given[1], given[2] if len(given) == 3 else ids), None, what)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, Mapping):
        return _from_items(given, ids, columns, what)
    kinds = "a folder, .npz or .csv file, (x, y), a data frame or a map-style torch data set"
    raise InputError(f"{what}: expected {kinds}, got {type(given).__name__}")


def own_samples(x: Any, y: Any, ids: Iterable[Any] | None = None) -> Samples:  # noqa: ANN401 (arrays)
    """Return samples of inputs of any shape: floats and integers as they are, 8-bit images divided by 255."""
    values, labels = as_tensor(x, "x"), checked_labels(y, "y")
    values = values.float() if values.dtype == torch.bool else values
    if values.ndim < 2 or values.numel() == 0:
        raise InputError(f"x must hold one input a row, (n, ...), got shape {tuple(values.shape)}")
    refuse_channels_last(values, "x")
    if len(labels) != len(values):
        raise InputError(f"x has {len(values)} samples but y has {len(labels)} labels; give one per sample")
    if values.dtype == torch.uint8 and values.ndim > 2:
        inputs = values.to(torch.float32).div_(255)
    else:
        if values.is_complex() or (not values.is_floating_point() and bool(values.abs().max() >= LARGEST_INTEGER)):
            raise InputError(f"x must hold real numbers, integers below {LARGEST_INTEGER}, got {values.dtype}")
        inputs = values.to(torch.float32, copy=True).contiguous()
    names = checked_ids(ids, len(inputs), "")
    refuse_nonfinite(inputs, names, "x")
    refuse_bad_labels(labels, names, "y", int(labels.max()) + 1)
    return Samples(inputs, labels, names)


def _from_path(
    path: Path,
    ids: Iterable[Any] | None,
    columns: Columns,
    class_names: Sequence[str] | None,
    size: int | None,
    channels: int | None,
) -> Source:
    if path.is_dir():
        found = load_image_folder(path, size=size, channels=3 if channels is None else channels)
        return Source(found.train, found.class_names, path.resolve().name)
    if path.suffix == ".npz":
        arrays = read_npz(path)
        names = checked_class_names(arrays["class_names"]) if "class_names" in arrays else None
        try:
            samples = own_samples(arrays["x"], arrays["y"], arrays.get("ids", ids))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return Source(samples, names, path.stem)
    if path.suffix == ".csv":
        return _from_table(_read_table(path), ids, columns, class_names, path.stem)
    raise InputError(f"expected a folder of class folders, an .npz or a .csv file, got {path}")


def _read_table(path: Path) -> dict[str, list[str]]:
    try:
        lines = list(csv.reader(read_bytes(path).decode("utf-8-sig").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no table of comma-separated values in UTF-8 ({error})") from None
    if len(lines) < 2:
        raise InputError(
            f"{path} has {plural(len(lines), 'line')}; expected the names of the columns and a line for each sample"
        )
    head = lines[0]
    refuse_repeats(head, f"{path}: columns")
    if (short := next((k for k, line in enumerate(lines) if len(line) != len(head)), None)) is not None:
        raise InputError(f"{path}, line {short + 1}: expected {len(head)} values, got {len(lines[short])}")
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(head)}


def _from_table(
    table: Mapping[str, Sequence[Any]],
    ids: Iterable[Any] | None,
    columns: Columns,
    class_names: Sequence[str] | None,
    name: str,
) -> Source:
    label, own = _column(table, columns.label, LABELS, "label"), _column(table, columns.ids, IDS, "ids", needed=False)
    chosen = list(columns.inputs or [column for column in table if column not in (label, own)])
    for column in chosen:
        if column not in table:
            raise unknown_name(f"column of {name}", column, table)
    features = np.array([_numbers(table[column], column) for column in chosen], np.float32).T
    labels, names = _class_numbers(table[str(label)], class_names)
    listed = table[own] if own is not None else ids
    return Source(own_samples(features, labels, listed), names, name, inputs=tuple(chosen))


def _column(
    table: Mapping[str, Any], given: str | None, usual: Sequence[str], what: str, *, needed: bool = True
) -> str | None:
    """Return the column of this name, or the one that has a usual name."""
    found = given if given is not None else next((column for column in usual if column in table), None)
    if found is None and needed:
        listed = ", ".join(map(str, table))
        raise InputError(f"expected a column {' or '.join(usual)}, got {listed}; say which it is with {what}=")
    if found is not None and found not in table:
        raise unknown_name("column", found, map(str, table))
    return found


def _numbers(values: Sequence[Any], column: str) -> list[float]:
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            hint = "number its categories, or leave the column out with inputs="
            raise InputError(f"column {column!r}, row {row}: expected a number, got {value!r}; {hint}") from None
    return [float(value) for value in values]


def _class_numbers(values: Sequence[Any], class_names: Sequence[str] | None) -> tuple[Any, tuple[str, ...] | None]:
    """Return labels as integers, and the names of the classes where labels are names; else by number."""
    texts = [str(value) for value in values]
    if class_names is None:
        if all(WHOLE.fullmatch(text) for text in texts):
            return [int(text) for text in texts], None
        if all(_is_number(text) for text in texts):
            return [float(text) for text in texts], None  # refused as labels, in one place
    names = checked_class_names(class_names or sorted(set(texts)))
    position = {name: k for k, name in enumerate(names)}
    if (unknown := next((text for text in texts if text not in position), None)) is not None:
        raise unknown_name("class", unknown, names)
    return [position[text] for text in texts], names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_items(items: Any, ids: Iterable[Any] | None, columns: Columns, name: str) -> Source:  # noqa: ANN401 (a data set)
    """Read a map-style data set once; one that gives another input each time augments, and is refused."""
    if not len(items):
        raise InputError(f"{name}: expected at least one sample, got an empty data set")
    (first, label, parts), (again, _, _) = _item(items[0], columns, name), _item(items[0], columns, name)
    if not torch.equal(first, again):
        raise InputError(f"{name}: item 0 is another input each time; give the data set without random augmentation")
    if first.ndim == 3 and first.shape[0] > 4 >= first.shape[2]:
        text = f"{name}: expected images (channels, height, width), got {tuple(first.shape)} with the channels last"
        raise InputError(f"{text}; give the data set transform=ToTensor()")
    needed = first.numel() * 4 * len(items)
    if needed > memory() / 2:
        raise InputError(f"{name}: its inputs need {needed / 2**30:.3g} GiB of memory; give a folder of images instead")
    inputs, labels = [first], [label]
    for row in range(1, len(items)):
        x, y, _ = _item(items[row], columns, name)
        if x.shape != first.shape:
            shapes = f"{tuple(x.shape)}, item 0 of {tuple(first.shape)}"
            raise InputError(f"{name}: item {row} has an input of shape {shapes}; bring all to one shape (pad texts)")
        inputs.append(x)
        labels.append(y)
    listed = getattr(items, "samples", None)  # (path, label) in data sets of image files
    if ids is None and isinstance(listed, list) and listed and isinstance(listed[0], tuple):
        ids = [str(path) for path, *_ in listed]
    classes = getattr(items, "classes", None)
    names = checked_class_names(classes) if isinstance(classes, list | tuple) else None
    samples = own_samples(torch.stack(inputs), np.array(labels), ids)
    return Source(samples, names, name, items, parts)


def _item(item: Any, columns: Columns, name: str) -> tuple[Tensor, Any, tuple[str, ...]]:  # noqa: ANN401 (whatever it gives)
    """Return input, label and names of the parts of one item; equal parts are stacked (parts, ...)."""
    if isinstance(item, Mapping):
        label = _column(item, columns.label, LABELS, "label")
        own = _column(item, columns.ids, IDS, "ids", needed=False)
        parts = tuple(columns.inputs or (key for key in item if key not in (label, own)))
        if (unknown := next((part for part in parts if part not in item), None)) is not None:
            raise unknown_name("entry of an item", unknown, map(str, item))
        values, y = [item[part] for part in parts], item[label]
    elif isinstance(item, tuple | list) and len(item) >= 2:
        *values, y = item
        parts = ()
    else:
        raise InputError(f"{name}: expected items (input, label) or dictionaries, got {type(item).__name__}")
    tensors = [_item_tensor(value, f"{name}: an item's input") for value in values]
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InputError(f"{name}: expected parts of one shape in an item, got {shapes}; choose them with inputs=")
    alone = len(tensors) == 1 and (not parts or tensors[0].is_floating_point() or tensors[0].dtype == torch.uint8)
    x = tensors[0] if alone else torch.stack(tensors)
    return x, y.item() if hasattr(y, "item") and np.size(y) == 1 else y, parts


def _item_tensor(value: Any, what: str) -> Tensor:  # noqa: ANN401 (whatever an item holds)
    """Return a part of an item as a tensor; a picture of Pillow's with its channels first."""
    if hasattr(value, "getbands"):
        pixels = as_tensor(np.asarray(value), what)
        return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()
    return as_tensor(value, what)


def matched_ids(asked: Ids | Sequence[int], samples: Samples) -> tuple[str, ...]:
    """Return the ids of the samples that a list or file asks for: by the id itself, its file name or its stem.

    >>> photos = Samples(torch.zeros(2, 1), torch.tensor([0, 1]), ("cat/a.png", "dog/b.png"))
    >>> matched_ids(["b", "cat/a.png"], photos)
    ('dog/b.png', 'cat/a.png')
    """
    wanted = read_ids(asked if isinstance(asked, str | Path) else [str(name) for name in asked])
    if not wanted:
        raise InputError("nothing to forget; expected at least one id")
    known = set(samples.ids)
    shorter: dict[str, set[str]] = {}
    for name in samples.ids if not known.issuperset(wanted) else ():
        path = PurePath(name)
        for short in {path.name, path.stem, path.with_suffix("").as_posix()}:
            shorter.setdefault(short, set()).add(name)
    found = tuple(_matched(name, known, shorter, samples) for name in wanted)
    refuse_repeats(found, "forget")
    return found


def _matched(name: str, known: set[str], shorter: Mapping[str, set[str]], samples: Samples) -> str:
    if name in known:
        return name
    path = PurePath(name)
    ends = ["/".join(path.parts[k:]) for k in range(1, len(path.parts))]  # a path from another folder
    for candidate in ends[:-1]:
        if candidate in known:
            return candidate
    meant = shorter.get(name) or (shorter.get(path.name) if len(path.parts) == 1 else None)
    if meant is None:
        hint = unknown_name("id", name, samples.ids) if len(samples) <= 20 else f"ids look like {samples.ids[0]}"
        raise InputError(f"forget: {name!r} is not among the {len(samples)} training samples; {hint}")
    if len(meant) > 1:
        first, second = sorted(meant)[:2]
        raise InputError(f"forget: {name!r} can mean {first!r} or {second!r}; give the whole id")
    return next(iter(meant))
