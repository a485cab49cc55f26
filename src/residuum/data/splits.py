"""Cut a data set for a deletion request: retain, forget, validation and test sets."""

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from residuum.core.errors import InputError, unknown_name
from residuum.core.samples import Samples, Splits
from residuum.data.dataset import Dataset, class_index, keep_classes
from residuum.data.ids import Ids, Positions, ranks_within_class, read_ids, refuse_repeats, shuffled

FIELDS = ("forget_class", "forget_fraction", "forget_ids")


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples; None is the rest of the training set, or the whole official test set."""

    train: int | None
    validation: int
    test: int | None

    def __post_init__(self) -> None:
        for name, size, least in (("train", self.train, 1), ("validation", self.validation, 0), ("test", self.test, 1)):
            if size is None and name != "validation":
                continue
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least:
                raise InputError(f"{name}_size must be a whole number of samples, {least} or more, got {size!r}")


@dataclass(frozen=True)
class ForgetRequest:
    """What to forget: a class (its position), a share of it, a share of everything, or ids."""

    label: int | None
    fraction: float | None
    ids: tuple[str, ...] | None

    @property
    def whole_class(self) -> bool:
        """Whether a class goes as a whole, which is class form."""
        return self.label is not None and self.fraction in {None, 1}


def make_splits(
    dataset: Dataset,
    *,
    forget_class: int | str | None = None,
    forget_fraction: float | None = None,
    forget_ids: Ids | None = None,
    earlier: Sequence[Mapping[str, Any]] = (),
    cumulative: bool = False,
    classes: Sequence[int | str] | None = None,
    train_ids: Ids | None = None,
    train_size: int | None = None,
    validation_size: int = 0,
    test_size: int | None = None,
    seed: int = 7,
) -> Splits:
    """Return the data set cut for one deletion request; the cut depends on `seed` and the ids only.

    What to forget, one of:
      `forget_class` alone: the whole class (form "class": validation and test leave it out, `forgotten_test` holds it);
      `forget_class` and `forget_fraction` below 1: that share of the class, rounded half up (form "sample");
      `forget_fraction` alone: that share of the training set, drawn at random whatever the class;
      `forget_ids`: these ids, or a text file with one id per line (blank lines and # comments are skipped).
      Ids that make up a whole class keep form "sample": use `forget_class` for class form.
    `earlier` are the requests before this one, in order, with the same three fields. Every request takes from what
    those before it left, so none overlap, and a fraction is of what is left. `train` is then what the model may still
    know (`retain` and this request's `forget`). With `cumulative`, which audits use, `forget` holds all requests up to
    this one and `train` everything that the original saw. Classes that a request took whole leave validation and test;
    form "class" with `cumulative` means that everything forgotten belongs to such classes.
    `classes` selects these classes and renumbers them 0..k-1 in this order; `forget_class` means the new numbers.
    `train_ids` restricts the pool from which training, validation and (without an official test set) test are cut.
    Sizes are numbers of samples, and cuts keep the class proportions: test first, then validation, then training, which
    takes the rest without a `train_size`. All parts are in the data set's order.

    >>> from residuum.data import load_dataset
    >>> sizes = {"train_size": 897, "validation_size": 450, "test_size": 450}
    >>> splits = make_splits(load_dataset("digits"), forget_class=8, forget_fraction=0.5, **sizes)
    >>> [len(part) for part in (splits.train, splits.retain, splits.forget, splits.validation, splits.test)]
    [897, 853, 44, 450, 450]
    """
    selected = dataset if classes is None else keep_classes(dataset, classes)
    pool = selected.train if train_ids is None else _restricted(selected.train, train_ids, dataset.train)
    train, validation, test = _cut(selected, pool, Sizes(train_size, validation_size, test_size), seed)
    current = dict(zip(FIELDS, (forget_class, forget_fraction, forget_ids), strict=True))
    requests: list[ForgetRequest] = []
    removed: list[Positions] = []  # positions in the training set that each request removes; none overlap
    for number, fields in enumerate((*earlier, current), start=1):
        try:
            requests.append(_checked_request(fields, selected.class_names))
            if requests[-1].ids is None:
                positions = _drawn_positions(requests[-1], train, removed, seed)
            else:
                _refuse_unknown(requests[-1].ids, train, {"validation": validation, "test": test}, dataset.train)
                positions = _named_positions(requests[-1].ids, train, removed)
            left = "what earlier requests left of the training set" if removed else "the training set"
            if not len(positions):
                raise InputError(f"the forget set is empty; ask for at least one sample of {left}")  # noqa: TRY301
            if len(positions) == len(_left_over(train, removed)):
                whole = left if removed else "the whole training set"
                text = f"the forget set is {whole} ({len(positions)} samples); nothing would be retained"
                raise InputError(text)  # noqa: TRY301
        except InputError as error:
            raise InputError(f"request {number}: {error}" if earlier else str(error)) from None
        removed.append(np.sort(positions))
    whole_classes = {request.label for request in requests if request.label is not None and request.whole_class}
    test, forgotten_test = _without_classes(test, whole_classes)
    if not len(test):
        raise InputError("no test sample is left but those of forgotten classes; take a larger test_size")
    first = 0 if cumulative else len(removed) - 1  # of the requests that the forget set holds
    forget = train.subset(np.sort(np.concatenate(removed[first:])))
    labels = {request.label for request in requests[first:]}
    return Splits(
        train=train.subset(_left_over(train, removed[:first])) if first else train,
        retain=train.subset(_left_over(train, removed)),
        forget=forget,
        validation=_without_classes(validation, whole_classes)[0],
        test=test,
        forgotten_test=forgotten_test,
        class_names=selected.class_names,
        form="class" if set(forget.y.tolist()) <= whole_classes else "sample",
        forget_class=labels.pop() if len(labels) == 1 else None,
    )


def _restricted(samples: Samples, ids: Ids, whole: Samples) -> Samples:
    """Return the samples that are in the list; every id must exist in the whole training set."""
    listed = read_ids(ids)
    refuse_repeats(listed, "train_ids")
    listed_ids, all_ids = set(listed), set(whole.ids)
    if (unknown := next((name for name in listed if name not in all_ids), None)) is not None:
        raise InputError(f"train_ids: {unknown!r} is not in the training set; ids look like {whole.ids[0]}")
    rows = [row for row, name in enumerate(samples.ids) if name in listed_ids]
    if not rows:
        raise InputError("train_ids leaves no training sample; leave it out to use the whole training set")
    return samples.subset(rows)


def _cut(dataset: Dataset, pool: Samples, sizes: Sizes, seed: int) -> tuple[Samples, Samples, Samples]:
    """Return training, validation and test samples."""
    cuts = {"validation": sizes.validation}
    if dataset.test is None:
        if sizes.test is None:
            raise InputError(f"data set {dataset.name!r} has no test set; give test_size to cut one")
        cuts = {"test": sizes.test, **cuts}
    left = len(pool) - sum(cuts.values())
    cuts["train"] = left if sizes.train is None else sizes.train
    if not 1 <= cuts["train"] <= left:
        listed = ", ".join(f"{name} {size}" for name, size in cuts.items() if name != "train" or sizes.train)
        raise InputError(f"the training set has {len(pool)} samples, too few for {listed}; take smaller sizes")
    parts = _stratified_parts(pool, cuts, dataset.classes, seed)
    if dataset.test is not None:
        if sizes.test is not None and sizes.test > len(dataset.test):
            have = f"the test set has {len(dataset.test)} samples"
            raise InputError(f"test_size is {sizes.test}, but {have}; take a smaller size")
        parts["test"] = dataset.test
        if sizes.test is not None:
            parts |= _stratified_parts(dataset.test, {"test": sizes.test}, dataset.classes, seed)
    return parts["train"], parts["validation"], parts["test"]


def _stratified_parts(samples: Samples, sizes: Mapping[str, int], classes: int, seed: int) -> dict[str, Samples]:
    """Return parts of these sizes, cut one after the other from the same random order."""
    rest, parts = shuffled(samples.ids, seed, "split"), {}
    for name, size in sizes.items():
        part, rest = stratified(rest, samples.y.numpy(), classes, size)
        parts[name] = samples.subset(np.sort(part))
    return parts


def stratified(order: Positions, labels: Positions, classes: int, size: int) -> tuple[Positions, Positions]:
    """Return the first positions of each class in `order`, `size` in all, and the rest; both keep the order."""
    ordered_labels = labels[order]
    share = shares(np.bincount(ordered_labels, minlength=classes).tolist(), size)
    in_cut = ranks_within_class(ordered_labels) < np.array(share)[ordered_labels]
    return order[in_cut], order[~in_cut]


def shares(counts: Sequence[int], size: int) -> list[int]:
    """Return how many samples of each class a stratified cut of `size` takes (largest remainder, ties to lower class).

    >>> shares([5, 3, 2], 5)
    [3, 1, 1]
    """
    total = max(sum(counts), 1)
    whole = [size * count // total for count in counts]
    remainders = [size * count % total for count in counts]
    largest_first = sorted(range(len(counts)), key=lambda c: (-remainders[c], c))
    for c in largest_first[: size - sum(whole)]:
        whole[c] += 1
    return whole


def _checked_request(fields: Mapping[str, Any], class_names: Sequence[str]) -> ForgetRequest:
    if (unknown := next((field for field in fields if field not in FIELDS), None)) is not None:
        raise unknown_name("field of a request", unknown, FIELDS)
    name, fraction, ids = (fields.get(field) for field in FIELDS)
    if ids is not None and (name is not None or fraction is not None):
        raise InputError("give either forget_ids or forget_class and forget_fraction, not both")
    if ids is None and name is None and fraction is None:
        raise InputError("nothing to forget; give forget_class, forget_fraction or forget_ids")
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if fraction is not None and not (is_number and 0 < fraction <= 1):
        raise InputError(f"forget_fraction must be a number above 0 and at most 1, got {fraction!r}")
    label = None if name is None else class_index(name, class_names)
    return ForgetRequest(label, fraction, None if ids is None else read_ids(ids))


def _drawn_positions(request: ForgetRequest, train: Samples, removed: Sequence[Positions], seed: int) -> Positions:
    """Return the positions of a class, or of a share drawn at random, without those that earlier requests removed."""
    free = _left_over(train, removed)
    members = free if request.label is None else free[train.y.numpy()[free] == request.label]
    order = shuffled([train.ids[row] for row in members], seed, f"forget/{len(removed) + 1}" if removed else "forget")
    return members[order[: math.floor((request.fraction or 1) * len(members) + 0.5)]]


def _named_positions(ids: Sequence[str], train: Samples, removed: Sequence[Positions]) -> Positions:
    """Return the positions of training samples by their ids; an earlier request must not have removed them."""
    position = {name: row for row, name in enumerate(train.ids)}
    forget = np.array([position[name] for name in ids], dtype=np.int64)
    for number, positions in enumerate(removed, start=1):
        if len(again := np.intersect1d(forget, positions)):
            first, more = train.ids[again[0]], f" and {len(again) - 1} more" if len(again) > 1 else ""
            raise InputError(f"forget_ids: {first!r}{more} was already taken by request {number}; leave it out here")
    return forget


def _refuse_unknown(ids: Sequence[str], train: Samples, others: Mapping[str, Samples], whole: Samples) -> None:
    """Refuse repeated ids, and ids that the training set does not have; say where the first one is instead."""
    refuse_repeats(ids, "forget_ids")
    train_ids = set(train.ids)
    if (unknown := next((name for name in ids if name not in train_ids), None)) is None:
        return
    for part, samples in others.items():
        if unknown in samples.ids:
            raise InputError(f"forget_ids: {unknown!r} is in the {part} set; the model was not trained on it")
    if unknown in whole.ids:
        where = "in the data set but not in the training subset; see train_size, train_ids and classes"
        raise InputError(f"forget_ids: {unknown!r} is {where}")
    near = difflib.get_close_matches(unknown, train.ids, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; ids look like {train.ids[0]}"
    raise InputError(f"forget_ids: {unknown!r} does not exist{hint}")


def _left_over(train: Samples, removed: Sequence[Positions]) -> Positions:
    """Return the positions that no request has removed."""
    return np.setdiff1d(np.arange(len(train)), np.concatenate([*removed, np.empty(0, np.int64)]))


def _without_classes(samples: Samples, labels: Collection[int]) -> tuple[Samples, Samples]:
    """Return the samples of the other classes and those of these classes."""
    of_classes = np.isin(samples.y.numpy(), list(labels))
    return samples.subset(np.flatnonzero(~of_classes)), samples.subset(np.flatnonzero(of_classes))
