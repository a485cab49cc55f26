"""The forget set: the training samples that one or more deletion requests take."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Form, Samples
from residuum.data.dataset import class_index
from residuum.data.ids import Positions, read_ids, refuse_repeats, shuffled

FIELDS = ("forget_class", "forget_fraction", "forget_ids")


@dataclass(frozen=True)
class Request:
    """What to forget: a class (its position), a share of it, a share of everything, or ids."""

    label: int | None
    fraction: float | None
    ids: tuple[str, ...] | None

    @property
    def form(self) -> Form:
        """Class form if the whole class goes, else sample form."""
        return "class" if self.label is not None and self.fraction in {None, 1} else "sample"


def checked_requests(requested: Sequence[Mapping[str, Any]], class_names: Sequence[str]) -> list[Request]:
    """Return the requests that these fields describe."""
    requests: list[Request] = []
    for fields in requested:
        with _numbered_errors(len(requests) + 1, len(requested)):
            requests.append(_checked_request(fields, class_names))
    return requests


def _checked_request(fields: Mapping[str, Any], class_names: Sequence[str]) -> Request:
    if (unknown := next((field for field in fields if field not in FIELDS), None)) is not None:
        raise unknown_name("field of a request", unknown, FIELDS)
    wanted, fraction, ids = (fields.get(field) for field in FIELDS)
    if ids is not None and (wanted is not None or fraction is not None):
        raise InputError("give either forget_ids or forget_class and forget_fraction, not both")
    if ids is None and wanted is None and fraction is None:
        raise InputError("nothing to forget; give forget_class, forget_fraction or forget_ids")
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if fraction is not None and not (is_number and 0 < fraction <= 1):
        raise InputError(f"forget_fraction must be a number above 0 and at most 1, got {fraction!r}")
    label = None if wanted is None else class_index(wanted, class_names)
    return Request(label, fraction, None if ids is None else read_ids(ids))


def requested_positions(
    requests: Sequence[Request], train: Samples, seed: int, others: Mapping[str, Samples]
) -> list[Positions]:
    """Return the positions in the training set that each request takes; none overlap.

    `others` are the other parts of the data, which errors about ids mention.
    """
    taken: list[Positions] = []
    for request in requests:
        with _numbered_errors(len(taken) + 1, len(requests)):
            taken.append(_forget_positions(request, train, seed, others, taken))
    return taken


@contextmanager
def _numbered_errors(number: int, requests: int) -> Iterator[None]:
    """Put the number of the request before an error, if there are several requests."""
    try:
        yield
    except InputError as error:
        raise error if requests == 1 else InputError(f"request {number}: {error}") from None


def _forget_positions(
    request: Request, train: Samples, seed: int, others: Mapping[str, Samples], taken: Sequence[Positions]
) -> Positions:
    """Return the positions of one request, without those `taken` by earlier ones."""
    free = left_over(train, taken)
    if request.ids is not None:
        forget = _positions_of(request.ids, train, others, taken)
    else:
        members = free if request.label is None else free[train.y.numpy()[free] == request.label]
        order = shuffled([train.ids[row] for row in members], seed, f"forget/{len(taken) + 1}" if taken else "forget")
        forget = members[order[: math.floor((request.fraction or 1) * len(members) + 0.5)]]
    left = "what earlier requests left of the training set" if taken else "the training set"
    if not len(forget):
        raise InputError(f"the forget set is empty; ask for at least one sample of {left}")
    if len(forget) == len(free):
        whole = left if taken else "the whole training set"
        raise InputError(f"the forget set is {whole} ({len(free)} samples); nothing would be retained")
    return np.sort(forget)


def left_over(train: Samples, taken: Sequence[Positions]) -> Positions:
    """Return the positions that none of these requests took."""
    return np.setdiff1d(np.arange(len(train)), np.concatenate([*taken, np.empty(0, np.int64)]))


def _positions_of(
    ids: Sequence[str], train: Samples, others: Mapping[str, Samples], taken: Sequence[Positions]
) -> Positions:
    refuse_repeats(ids, "forget_ids")
    position = {name: row for row, name in enumerate(train.ids)}
    if (unknown := next((name for name in ids if name not in position), None)) is not None:
        raise _not_in_training(unknown, train, others)
    forget = np.array([position[name] for name in ids], dtype=np.int64)
    for number, positions in enumerate(taken, start=1):
        if len(again := np.intersect1d(forget, positions)):
            first, more = train.ids[again[0]], f" and {len(again) - 1} more" if len(again) > 1 else ""
            raise InputError(f"forget_ids: {first!r}{more} was already taken by request {number}; leave it out here")
    return forget


def _not_in_training(name: str, train: Samples, others: Mapping[str, Samples]) -> InputError:
    for part in ("validation", "test"):
        if name in set(others[part].ids):
            return InputError(f"forget_ids: {name!r} is in the {part} set; the model was not trained on it")
    if name in set(others["whole"].ids):
        where = "in the data set but not in the training subset; see train_size, train_ids and classes"
        return InputError(f"forget_ids: {name!r} is {where}")
    near = difflib.get_close_matches(name, train.ids, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; ids look like {train.ids[0]}"
    return InputError(f"forget_ids: {name!r} does not exist{hint}")
