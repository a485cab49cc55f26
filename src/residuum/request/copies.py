"""Samples whose input stands in the data twice: an audit of them would compare what retrained models saw, too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch

from residuum.core.errors import InputError, plural
from residuum.core.samples import Samples, Splits
from residuum.data.images import ImageFiles

ROWS = 4096  # inputs that are hashed at a time


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


def equal_inputs(parts: Sequence[Samples], many: Samples) -> list[tuple[str, ...]]:
    """Return for each part the ids of samples whose input is equal to one among many, which are read once.

    Images in files are compared as files.

    >>> points = Samples(torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([0, 1]), ("a", "b"))
    >>> equal_inputs([points], Samples(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), ("c",)))
    [('b',)]
    """
    if all(isinstance(part.x, ImageFiles) for part in (*parts, many)):
        files = [cast(ImageFiles, part.x) for part in (*parts, many)]
        sizes = {state[0] for part in files[:-1] for state in part.states()}
        alike = [row for row, state in enumerate(files[-1].states()) if state[0] in sizes]
        hashes = [part.hashes for part in files[:-1]]
        digests_of_many = set(files[-1].subset(torch.tensor(alike, dtype=torch.int64)).hashes)
    else:
        hashes = [list(_input_hashes(part)) for part in parts]
        wanted = {digest for part in hashes for digest in part}
        digests_of_many = {digest for digest in _input_hashes(many) if digest in wanted}
    return [
        tuple(name for name, digest in zip(part.ids, digests, strict=True) if digest in digests_of_many)
        for part, digests in zip(parts, hashes, strict=True)
    ]


def _input_hashes(samples: Samples) -> Iterator[bytes]:
    for x, _, _ in samples.batches(torch.split(torch.arange(len(samples)), ROWS)):
        content = (x.flatten(1).float() + 0.0).contiguous().numpy()  # -0 is 0
        yield from (hashlib.blake2b(row.data, digest_size=16).digest() for row in content)
