"""A coin, tossed before training, decides which samples train a model and which are held out for comparison."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.core.errors import InputError
from residuum.core.files import regular_file, write_arrays, write_whole
from residuum.core.samples import Samples
from residuum.data.ids import Positions, shuffled
from residuum.data.images import ImageFiles
from residuum.data.read import IDS, Reading, read_data, read_npz
from residuum.data.splits import stratified

SCHEMA = "residuum.split/1"
RECORD, TRAIN, HELD_OUT = "split.json", "train", "held_out"


@dataclass(frozen=True)
class CoinSplit:
    """For which training samples (`decoys`) and held-out samples a coin decided where they go; `sha256` of its file."""

    seed: int
    decoys: tuple[str, ...]
    held_out: tuple[str, ...]
    sha256: str = ""


def toss(samples: Samples, decoys: int, held_out: int, seed: int) -> CoinSplit:
    """Return so many samples that stay in training and so many that do not, in equal shares of every class.

    It depends on the ids, the labels and the seed only.

    >>> import torch
    >>> points = Samples(torch.rand(40, 2), torch.arange(40) % 2, tuple(map(str, range(40))))
    >>> coin = toss(points, 4, 8, seed=7)
    >>> len(coin.decoys), len(coin.held_out), toss(points, 4, 8, seed=7) == coin
    (4, 8, True)
    """
    if decoys < 1 or held_out < 1 or decoys + held_out >= len(samples):
        sizes = f"at least one decoy and one held-out sample, and fewer than {len(samples)} together"
        raise InputError(f"expected {sizes}, got {decoys} and {held_out}")
    labels, classes = samples.y.numpy(), int(samples.y.max()) + 1
    tossed = stratified(shuffled(samples.ids, seed, "coin"), labels, classes, decoys + held_out)[0]
    cut = stratified(tossed, labels, classes, decoys)
    decoy_ids, held_out_ids = (tuple(samples.ids[row] for row in np.sort(rows)) for rows in cut)
    return CoinSplit(seed, decoy_ids, held_out_ids)


def read_coin(path: Path | str) -> CoinSplit:
    """Return what `residuum split` recorded."""
    try:
        content = regular_file(path).read_bytes()
        stored = json.loads(content)
        lists = [tuple(map(str, stored[name])) for name in ("decoys", "held_out")]
        if stored["schema"] != SCHEMA or not all(lists):
            raise ValueError(stored["schema"])  # noqa: TRY301
        return CoinSplit(int(stored["seed"]), lists[0], lists[1], hashlib.sha256(content).hexdigest())
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: expected the {RECORD} that `residuum split` wrote, got another file") from error


def write_split(
    source: Path, folder: Path, *, decoys: int, held_out: int, seed: int, label: str | None = None
) -> CoinSplit:
    """Write training and held-out data as the coin decides, and its record; return the coin.

    An .npz or .csv file becomes two such files, a folder of images two folders of links to its files. Ids stay.
    """
    if folder.exists():
        raise InputError(f"{folder} exists; move it away, or give another folder with --out")
    samples = read_data(source, reading=Reading(label=label)).samples
    coin = toss(samples, decoys, held_out, seed)
    is_held_out = np.isin(samples.ids, coin.held_out)
    folder.mkdir(parents=True)
    for name, rows in ((TRAIN, np.flatnonzero(~is_held_out)), (HELD_OUT, np.flatnonzero(is_held_out))):
        if isinstance(samples.x, ImageFiles):
            _link(samples.x.root, [samples.x.names[row] for row in rows], folder / name)
        elif source.suffix == ".npz":
            write_arrays(folder / f"{name}.npz", _arrays(source, samples.ids, rows))
        else:
            write_whole(folder / f"{name}.csv", _csv(source, samples.ids, rows))
    record = {"schema": SCHEMA, "seed": seed, "decoys": coin.decoys, "held_out": coin.held_out}
    write_whole(folder / RECORD, json.dumps(record, indent=1) + "\n")
    return read_coin(folder / RECORD)


def _arrays(source: Path, ids: Sequence[str], rows: Positions) -> dict[str, NDArray[Any]]:
    arrays = read_npz(source)
    if "x_test" in arrays:
        raise InputError(f"{source} has test samples already; expected all samples in x and y")
    arrays |= {"ids": np.array(ids)}
    return {name: values if name == "class_names" else values[rows] for name, values in arrays.items()}


def _csv(source: Path, ids: Sequence[str], rows: Positions) -> str:
    head, *lines = csv.reader(regular_file(source).read_text(encoding="utf-8-sig").splitlines())
    named = any(name in IDS for name in head)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head if named else ["id", *head])
    writer.writerows(lines[row] if named else [ids[row], *lines[row]] for row in rows)
    return text.getvalue()


def _link(root: Path, names: Sequence[str], folder: Path) -> None:
    """Put files into a folder of class folders, without copying where the file system can link."""
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(root / name, place)
        except OSError:  # another file system
            shutil.copyfile(root / name, place)
