"""Cut a data set for a deletion request: retain, forget, validation and test sets."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from residuum.core.errors import InputError
from residuum.core.samples import Samples, Splits
from residuum.data.dataset import Dataset, keep_classes
from residuum.data.forget_set import FIELDS, checked_requests, left_over, requested_positions
from residuum.data.ids import Ids, Positions, ranks_within_class, read_ids, refuse_repeats, shuffled


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
    this = dict(zip(FIELDS, (forget_class, forget_fraction, forget_ids), strict=True))
    requests = checked_requests([*earlier, this], selected.class_names)
    pool = selected.train if train_ids is None else _restricted(selected.train, train_ids, dataset.train)
    train, validation, test = _cut(selected, pool, train_size, validation_size, test_size, seed)
    others = {"validation": validation, "test": test, "whole": dataset.train}
    taken = requested_positions(requests, train, seed, others)
    whole = {request.label for request in requests if request.label is not None and request.form == "class"}
    kept_test, forgotten_test = _without_classes(test, whole)
    if not len(kept_test):
        raise InputError("no test sample is left but those of forgotten classes; take a larger test_size")
    first = 0 if cumulative else len(taken) - 1  # of the requests that the forget set holds
    forget = train.subset(np.sort(np.concatenate(taken[first:])))
    labels = {request.label for request in requests[first:]}
    return Splits(
        train=train.subset(left_over(train, taken[:first])) if first else train,
        retain=train.subset(left_over(train, taken)),
        forget=forget,
        validation=_without_classes(validation, whole)[0],
        test=kept_test,
        forgotten_test=forgotten_test,
        class_names=selected.class_names,
        form="class" if set(forget.y.tolist()) <= whole else "sample",
        forget_class=labels.pop() if len(labels) == 1 else None,
    )


def _restricted(samples: Samples, ids: Ids, whole: Samples) -> Samples:
    """Return the samples that are in the list; every id must exist in the whole training set."""
    wanted = read_ids(ids)
    refuse_repeats(wanted, "train_ids")
    wanted_ids, all_ids = set(wanted), set(whole.ids)
    if (unknown := next((name for name in wanted if name not in all_ids), None)) is not None:
        raise InputError(f"train_ids: {unknown!r} is not in the training set; ids look like {whole.ids[0]}")
    rows = [row for row, name in enumerate(samples.ids) if name in wanted_ids]
    if not rows:
        raise InputError("train_ids leaves no training sample; leave it out to use the whole training set")
    return samples.subset(rows)


def _cut(
    dataset: Dataset, pool: Samples, train_size: int | None, validation_size: int, test_size: int | None, seed: int
) -> tuple[Samples, Samples, Samples]:
    """Return training, validation and test samples."""
    _refuse_bad_sizes(train_size, validation_size, test_size)
    wanted = {"validation": validation_size}
    if dataset.test is None:
        if test_size is None:
            raise InputError(f"data set {dataset.name!r} has no test set; give test_size to cut one")
        wanted = {"test": test_size, **wanted}
    left = len(pool) - sum(wanted.values())
    wanted["train"] = left if train_size is None else train_size
    if not 1 <= wanted["train"] <= left:
        asked = ", ".join(f"{name} {size}" for name, size in wanted.items() if name != "train" or train_size)
        raise InputError(f"the training set has {len(pool)} samples, too few for {asked}; take smaller sizes")
    parts = _stratified_parts(pool, wanted, dataset.classes, seed)
    if dataset.test is not None:
        parts["test"] = _official_test(dataset.test, test_size, dataset.classes, seed)
    return parts["train"], parts["validation"], parts["test"]


def _official_test(test: Samples, size: int | None, classes: int, seed: int) -> Samples:
    if size is not None and size > len(test):
        raise InputError(f"test_size is {size}, but the test set has {len(test)} samples; take a smaller size")
    return test if size is None else _stratified_parts(test, {"test": size}, classes, seed)["test"]


def _refuse_bad_sizes(train: int | None, validation: int, test: int | None) -> None:
    for name, size, least in (("train_size", train, 1), ("validation_size", validation, 0), ("test_size", test, 1)):
        if size is None and name != "validation_size":
            continue
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least:
            raise InputError(f"{name} must be a whole number of samples, {least} or more, got {size!r}")


def _stratified_parts(samples: Samples, wanted: Mapping[str, int], classes: int, seed: int) -> dict[str, Samples]:
    """Return parts of these sizes, cut one after the other from the same random order."""
    rest, parts = shuffled(samples.ids, seed, "split"), {}
    for name, size in wanted.items():
        part, rest = stratified(rest, samples.y.numpy(), classes, size)
        parts[name] = samples.subset(np.sort(part))
    return parts


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


def stratified(order: Positions, labels: Positions, classes: int, size: int) -> tuple[Positions, Positions]:
    """Return the first positions of each class in `order`, `size` in all, and the rest; both keep the order."""
    ordered_labels = labels[order]
    share = shares(np.bincount(ordered_labels, minlength=classes).tolist(), size)
    in_cut = ranks_within_class(ordered_labels) < np.array(share)[ordered_labels]
    return order[in_cut], order[~in_cut]


def _without_classes(samples: Samples, labels: Collection[int]) -> tuple[Samples, Samples]:
    """Return the samples of the other classes and those of these classes."""
    of_classes = np.isin(samples.y.numpy(), list(labels))
    return samples.subset(np.flatnonzero(~of_classes)), samples.subset(np.flatnonzero(of_classes))
