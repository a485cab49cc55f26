"""Samples whose input stands in the data twice: an audit of them would compare what retrained models saw, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from residuum.core.errors import InputError, plural
from residuum.core.samples import Samples, Splits
from residuum.data.copies import equal_inputs


def without_copies(splits: Splits) -> tuple[Splits, dict[str, int]]:
    """Return the splits without copies, and how many were left out of the forgotten and of the held-out samples.

    A forgotten sample with an equal input among the retained ones is known to retrained models as well. A held-out
    sample that is training data is not held out. Where nothing else is left, an audit is refused.
    """
    copied, leaked = copied_ids(splits)
    if len(copied) == len(splits.forget):
        raise InputError(
            f"expected samples to forget that are not among the retained ones, too; all {len(copied)} have equal "
            f"copies there, the first is {copied[0]!r}; add the copies to the request"
        )
    if len(leaked) == len(splits.test):
        raise InputError(
            f"expected held-out samples that no model saw; all {len(leaked)} are training data as well, the first is "
            f"{leaked[0]!r}; give others with held_out="
        )
    if copied or leaked:
        splits = replace(splits, forget=_without(splits.forget, copied), test=_without(splits.test, leaked))
    return splits, {"forgotten": len(copied), "held-out": len(leaked)}


def copied_ids(splits: Splits) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the forgotten samples that equal a retained one, and the held-out samples that are training data."""
    copied, retained = equal_inputs([splits.forget, splits.test], splits.retain)
    (forgotten,) = equal_inputs([splits.test], splits.forget)
    return copied, tuple(dict.fromkeys((*retained, *forgotten)))


def _without(samples: Samples, ids: Sequence[str]) -> Samples:
    return samples.subset([row for row, name in enumerate(samples.ids) if name not in set(ids)]) if ids else samples


def copies_left_out(left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield what was left out of an audit, and what to do about it.

    >>> list(copies_left_out({"forgotten": 0, "held-out": 1}))
    ['1 held-out sample is training data as well and was left out; check held_out']
    """
    if many := left_out["forgotten"]:
        verb = "have equal copies" if many > 1 else "has an equal copy"
        text = f"{plural(many, 'forgotten sample')} {verb} among the retained ones and"
        yield f"{text} {'were' if many > 1 else 'was'} left out of the audit; add the copies to the request"
    if many := left_out["held-out"]:
        verbs = ("are", "were") if many > 1 else ("is", "was")
        text = f"{plural(many, 'held-out sample')} {verbs[0]} training data as well"
        yield f"{text} and {verbs[1]} left out; check held_out"


def near_copies_found(forgotten: int, held_out: int) -> Iterator[str]:
    """Yield how many samples have nearly equal copies, and what to do about it.

    >>> list(near_copies_found(0, 2))
    ['2 held-out samples are nearly equal to training samples; leave copies out of held_out']
    """
    for number, what, others, advice in (
        (forgotten, "forgotten sample", "retained samples", "add copies to the request"),
        (held_out, "held-out sample", "training samples", "leave copies out of held_out"),
    ):
        if number:
            yield f"{plural(number, what)} {'are' if number > 1 else 'is'} nearly equal to {others}; {advice}"
