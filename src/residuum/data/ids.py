"""Ids of samples: rules, lists in files, ranks within a class, and a random order that depends on the ids only."""

import errno
import os
import re
import select
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residuum.core.errors import InputError, unknown_name
from residuum.core.files import regular_file
from residuum.core.samples import Samples

Ids = Sequence[str] | Path | str
Positions = NDArray[np.int64]
PLAIN = re.compile(r"[!\"$-~]([ -~]*[!-~])?")  # what nearly all ids are: tells millions of them quickly
ONE_LINE = "one line of Unicode, not empty, without NUL and without spaces around it"
MOST_BYTES = 2**26  # of a list of ids or requests
SILENCE = 60.0  # seconds to wait for the content of a pipe
MOST_SHOWN = 100  # letters of an id that is unknown


def read_ids(ids: Ids) -> tuple[str, ...]:
    """Return ids from a sequence, or from a text file with one id per line (# comments and blank lines skipped)."""
    return tuple(read_lines(Path(ids), "one id per line") if isinstance(ids, Path | str) else map(str, ids))


def read_lines(path: Path, holding: str) -> list[str]:
    """Return the lines of a text file that are neither blank nor start with #, without spaces around them.

    The file is a regular one, or a pipe such as `<(command)`, of at most `MOST_BYTES`. A pipe that stays silent for
    `SILENCE` seconds is an error, and so is a device, because it never ends.
    """
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            regular_file(path)
        content = _read_list(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES >> 20} MiB; expected a list, one entry per line")
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file with {holding} ({error.reason})") from error
    return [line for line in lines if line and not line.startswith("#")]


def _read_list(path: Path) -> bytes:
    content, file = b"", os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while len(content) <= MOST_BYTES:
            if not select.select([file], [], [], SILENCE)[0]:
                raise OSError(errno.ETIMEDOUT, f"nothing came through this pipe for {SILENCE:g} s")
            if not (part := os.read(file, 1 << 16)):
                break
            content += part
    finally:
        os.close(file)
    return content


def as_texts(values: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return the entries of a list or of an array of one dimension as texts; bytes are UTF-8."""
    shape = getattr(values, "shape", None)
    if (shape is not None and len(shape) != 1) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list of texts, or an array of one dimension, got shape {shape or ()}")
    try:
        return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: {error.object!r} is not UTF-8; write it as a text") from None


def is_one_line(text: str) -> bool:
    """Tell whether a text can be a line of a file and an entry of a numpy array, where texts end at NUL."""
    return text == text.strip() and len(text.splitlines()) == 1 and "\0" not in text and is_utf8(text)


def is_utf8(text: str) -> bool:
    """Tell whether a text can be written down: a file name of unknown encoding cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def refuse_unusable_ids(names: Sequence[str], what: str) -> None:
    """Raise an InputError for an id that cannot be a line of a text file."""
    for position, text in enumerate(names):
        if not PLAIN.fullmatch(text) and (text.startswith("#") or not is_one_line(text)):
            raise InputError(f"{what}[{position}] is {text!r}; an id is {ONE_LINE}, and does not start with '#'")


def refuse_repeats(names: Sequence[str], what: str) -> None:
    """Raise an InputError that names the first repeated id."""
    if len(set(names)) < len(names):
        repeated, times = next((text, count) for text, count in Counter(names).items() if count > 1)
        raise InputError(f"{what}: {repeated!r} occurs {times} times; it must occur once")


def ids_by_rank(labels: Sequence[int] | NDArray[np.integer], class_names: Sequence[str], split: str) -> list[str]:
    """Return `split/class/rank` for every label, such as `train/cat/0000`."""
    ranks = ranks_within_class(labels)
    return [f"{split}/{class_names[label]}/{rank:04d}" for label, rank in zip(labels, ranks, strict=True)]


def ids_of_ranks(samples: Samples, first: int, last: int) -> list[str]:
    """Return the ids whose rank within their class, in the order of the data, is first..last.

    >>> import torch
    >>> points = Samples(torch.zeros(4, 1), torch.tensor([1, 0, 1, 1]), ("a", "b", "c", "d"))
    >>> ids_of_ranks(points, 1, 2)
    ['c', 'd']
    """
    if not 0 <= first <= last:
        raise InputError(f"ranks must be 0 or more, the first not above the last, got {first} to {last}")
    ranks = ranks_within_class(samples.y.numpy())
    ids = [name for name, rank in zip(samples.ids, ranks, strict=True) if first <= rank <= last]
    if not ids:
        raise InputError(f"no class has a sample of rank {first}; the largest has {max(ranks) + 1} samples")
    return ids


def ranks_within_class(labels: Sequence[int] | NDArray[np.integer]) -> Positions:
    """Return the rank of each sample among those of its class, in order."""
    labels = np.asarray(labels)
    ranks = np.zeros(len(labels), dtype=np.int64)
    for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
        ranks[labels == label] = np.arange(count)
    return ranks


def shuffled(ids: Sequence[str], seed: int, role: str) -> Positions:
    """Return the positions of the ids sorted by blake2b("seed/role/id"): a random order keyed by content."""
    keys = [blake2b(f"{seed}/{role}/{name}".encode(), digest_size=16).digest() for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def short_names(name: str) -> set[str]:
    """Return what an id may be called that is a path: the file's name, its stem, and the path without suffix.

    >>> sorted(short_names("cat/a.png"))
    ['a', 'a.png', 'cat/a']
    """
    path = PurePath(name)
    return {path.name, path.stem, path.with_suffix("").as_posix()}


def matched_ids(names: Ids | Sequence[int], samples: Samples) -> tuple[str, ...]:
    """Return the ids that a list or file names, each by the id itself, its file name or its stem.

    >>> import torch
    >>> photos = Samples(torch.zeros(2, 1), torch.tensor([0, 1]), ("cat/a.png", "dog/b.png"))
    >>> matched_ids(["b", "cat/a.png"], photos)
    ('dog/b.png', 'cat/a.png')
    """
    listed = read_ids(names if isinstance(names, str | Path) else [str(name) for name in names])
    if not listed:
        raise InputError("nothing to forget; expected at least one id")
    all_ids = set(samples.ids)
    by_short_name: dict[str, set[str]] = {}
    for name in samples.ids if not all_ids.issuperset(listed) else ():
        for short in short_names(name):
            by_short_name.setdefault(short, set()).add(name)

    def matched(name: str) -> str:
        path = PurePath(name)
        below_another_folder = ["/".join(path.parts[k:]) for k in range(1, len(path.parts) - 1)]
        for candidate in (name, *below_another_folder):
            if candidate in all_ids:
                return candidate
        matches = by_short_name.get(name) or (by_short_name.get(path.name) if len(path.parts) == 1 else None)
        if matches is None:
            hint = unknown_name("id", name, samples.ids) if len(samples) <= 20 else f"ids look like {samples.ids[0]}"
            one_each = "; expected one id per line" if re.search(r"[,;\t]", name) else ""
            raise InputError(
                f"forget: {name if len(name) <= MOST_SHOWN else name[:MOST_SHOWN] + '...'!r} is not among the "
                f"{len(samples)} training samples; {hint}{one_each}"
            )
        if len(matches) > 1:
            first, second = sorted(matches)[:2]
            raise InputError(f"forget: {name!r} can mean {first!r} or {second!r}; give the whole id")
        return next(iter(matches))

    ids = tuple(matched(name) for name in listed)
    refuse_repeats(ids, "forget")
    return ids
