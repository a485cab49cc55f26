"""Counts: the integers every number of an audit is derived from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residuum.core.errors import InputError
from residuum.core.files import read_arrays, write_arrays

Integers = NDArray[np.int32]
INTEGER_FIELDS = ("draws", "method_right", "reference_right", "both_right", "same_prediction")
ORIGINAL, METHOD, REFERENCE = np.array([[pattern >> bit & 1 for pattern in range(8)] for bit in (2, 1, 0)])
EXCHANGED = [0, 2, 1, 3, 4, 6, 5, 7]  # the patterns with model and reference exchanged


@dataclass(frozen=True, eq=False)
class Counts:
    """How often a model and the reference were right, together and apart, per sample and radius.

    `ids` n unique strings, `labels` int64 of shape (n,), `taus` float64 of shape (T,); all others int32 of shape
    (n, T). Counts add up: over draws (`+`), over samples (`concat`). With the original model known, `joint` of shape
    (n, T, 8) has the draws of each pattern 4 [original right] + 2 [model right] + [reference right].

    >>> counts = Counts.of(["a"], [0], [0.1], draws=[[4]], method_right=[[3]], reference_right=[[2]],
    ...                    both_right=[[2]], same_prediction=[[3]])
    >>> (counts + counts).draws.tolist(), counts.swapped().method_right.tolist()
    ([[8]], [[2]])
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    taus: NDArray[np.float64]
    draws: Integers
    method_right: Integers
    reference_right: Integers
    both_right: Integers
    same_prediction: Integers
    joint: Integers | None = None

    def __post_init__(self) -> None:
        check_shapes(self)
        check_values(self)

    @classmethod
    def of(cls, ids: Sequence[str], labels: ArrayLike, taus: ArrayLike, **integers: ArrayLike) -> Counts:
        """Build counts from anything numpy understands."""
        arrays = {name: np.asarray(value, dtype=np.int32) for name, value in integers.items()}
        return cls(tuple(map(str, ids)), np.asarray(labels, np.int64), np.asarray(taus, np.float64), **arrays)

    @classmethod
    def of_patterns(
        cls, ids: Sequence[str], labels: ArrayLike, taus: ArrayLike, patterns: Integers, same: Integers, *, joint: bool
    ) -> Counts:
        """Build counts from the draws of each pattern, as in `joint`, which they keep if the original was asked."""
        return cls.of(
            ids,
            labels,
            taus,
            draws=patterns.sum(2),
            method_right=patterns @ METHOD,
            reference_right=patterns @ REFERENCE,
            both_right=patterns @ (METHOD * REFERENCE),
            same_prediction=same,
            **({"joint": patterns} if joint else {}),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return all(np.array_equal(getattr(self, part.name), getattr(other, part.name)) for part in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both sets of draws; samples must be the same, the radii of `other` some of these."""
        same = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("ids", "labels"))
        if not same or not np.isin(other.taus, self.taus).all():
            raise InputError("counts can be added when ids (in order), labels and radii are the same; use subset first")
        columns = [self.taus.tolist().index(tau) for tau in other.taus.tolist()]

        def total(name: str) -> Any:  # noqa: ANN401 (integers, of two or three dimensions)
            sums = getattr(self, name).copy()
            sums[:, columns] += getattr(other, name)
            return sums

        joint = None if self.joint is None or other.joint is None else total("joint")
        return replace(self, **{name: total(name) for name in INTEGER_FIELDS}, joint=joint)

    def concat(self, other: Counts) -> Counts:
        """Return the counts of both sets of samples; radii must be the same."""
        if not np.array_equal(self.taus, other.taus):
            raise InputError(f"expected the same radii, got {self.taus.tolist()} and {other.taus.tolist()}")
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in INTEGER_FIELDS}
        if self.joint is not None and other.joint is not None:
            joined["joint"] = np.concatenate([self.joint, other.joint])
        return Counts(self.ids + other.ids, np.concatenate([self.labels, other.labels]), self.taus, **joined)

    def swapped(self) -> Counts:
        """Return the counts with model and reference exchanged."""
        joint = None if self.joint is None else self.joint[..., EXCHANGED]
        return replace(self, method_right=self.reference_right, reference_right=self.method_right, joint=joint)

    def subset(self, ids: Sequence[str]) -> Counts:
        """Return the counts of these ids, in this order."""
        position = {sample_id: row for row, sample_id in enumerate(self.ids)}
        missing = [sample_id for sample_id in ids if sample_id not in position]
        if missing:
            raise InputError(f"expected ids that were audited; {len(missing)} were not, the first is {missing[0]!r}")
        return self.rows(np.array([position[sample_id] for sample_id in ids], dtype=np.int64))

    def rows(self, positions: NDArray[np.int64]) -> Counts:
        """Return the counts at these positions, in this order."""
        arrays = {name: getattr(self, name)[positions] for name in INTEGER_FIELDS}
        joint = None if self.joint is None else self.joint[positions]
        ids = tuple(self.ids[position] for position in positions)
        return Counts(ids, self.labels[positions], self.taus, **arrays, joint=joint)

    def save(self, path: str | Path) -> None:
        """Write an .npz file; equal counts give equal bytes."""
        stored = {field.name: getattr(self, field.name) for field in fields(self)}
        stored |= {"ids": np.array(self.ids, dtype=np.str_)}
        write_arrays(path, {name: array for name, array in stored.items() if array is not None}, compress=False)

    @classmethod
    def load(cls, path: str | Path) -> Counts:
        """Read an .npz file written by `save`; refuse what is damaged or not counts."""
        names = [field.name for field in fields(cls) if field.name != "joint"]
        stored: dict[str, Any] = read_arrays(path, names, "a counts file", optional=["joint"])
        return cls(**stored | {"ids": tuple(map(str, stored["ids"]))})


def check_shapes(counts: Counts) -> None:
    """Refuse arrays that do not belong together."""
    n, T = len(counts.ids), len(counts.taus)
    if len(set(counts.ids)) != n:
        raise InputError("expected unique ids in counts, got repeated ones")
    if np.shape(counts.labels) != (n,):
        raise InputError(f"expected {n} labels, one for each id, got shape {np.shape(counts.labels)}")
    for name in INTEGER_FIELDS:
        array = getattr(counts, name)
        if array.shape != (n, T) or array.dtype != np.int32:
            raise InputError(f"counts.{name}: expected int32 of shape {(n, T)}, got {array.dtype} {array.shape}")
    joint = counts.joint
    if joint is not None and (joint.shape != (n, T, 8) or joint.dtype != np.int32):
        raise InputError(f"counts.joint: expected int32 of shape {(n, T, 8)}, got {joint.dtype} {joint.shape}")


def check_values(counts: Counts) -> None:
    """Refuse counts that no experiment can give."""
    draws, m, a, both, same = (getattr(counts, name) for name in INTEGER_FIELDS)
    rules = {
        "0 <= both_right": both >= 0,
        "both_right <= method_right, reference_right": both <= np.minimum(m, a),
        "method_right, reference_right <= draws": np.maximum(m, a) <= draws,
        "method_right + reference_right - both_right <= draws": m + a - both <= draws,
        "both_right <= same_prediction": both <= same,
        "same_prediction <= draws - discordant": same <= draws - (m - both) - (a - both),
    }
    if (joint := counts.joint) is not None:
        rules |= {
            "0 <= joint": joint.min(axis=2) >= 0,
            "the sum of joint = draws": joint.sum(axis=2) == draws,
            "joint with the model right = method_right": joint @ METHOD == m,
            "joint with the reference right = reference_right": joint @ REFERENCE == a,
            "joint with both right = both_right": joint @ (METHOD * REFERENCE) == both,
        }
    for rule, holds in rules.items():
        if not np.all(holds):
            row, column = np.argwhere(~holds)[0]
            where = f"sample {counts.ids[row]!r}, radius {counts.taus[column]:g}"
            raise InputError(f"impossible counts at {where}: expected {rule}")
