"""Counts: the integers every number of an audit is derived from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residuum.core.errors import InputError, first_line
from residuum.core.files import canonical, read_arrays, read_bytes, write_arrays

Integers = NDArray[np.int32]
ORIGINAL, METHOD, REFERENCE = np.array([[k >> bit & 1 for k in range(8)] for bit in (2, 1, 0)], dtype=np.int32)
EXCHANGED = [0, 2, 1, 3, 4, 6, 5, 7]  # the patterns with model and reference exchanged


@dataclass(frozen=True, eq=False)
class Counts:
    """How often a model and the reference were right, together and apart, per sample and radius.

    `ids` n unique strings, `labels` int64 of shape (n,), `taus` float64 of shape (T,). `joint`, int32 of shape
    (n, T, 8), has the draws of each pattern 4 [original right] + 2 [model right] + [reference right]; without the
    original, there is no third bit, and the shape is (n, T, 4). `same_prediction`, int32 of shape (n, T), has the draws
    on which model and reference predict the same class, right or wrong. Everything else is a sum over patterns. Counts
    add up: over draws (`+`), over samples (`concat`).

    >>> counts = Counts.of(["a"], [0], [0.1], draws=[[4]], method_right=[[3]], reference_right=[[2]],
    ...                    both_right=[[2]], same_prediction=[[3]])
    >>> counts.joint.tolist()  # neither, only the reference, only the model, both
    [[[1, 0, 1, 2]]]
    >>> (counts + counts).draws.tolist(), counts.swapped().method_right.tolist()
    ([[8]], [[2]])
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    taus: NDArray[np.float64]
    joint: Integers
    same_prediction: Integers

    def __post_init__(self) -> None:
        n, T = len(self.ids), len(self.taus)
        if len(set(self.ids)) != n:
            raise InputError("expected unique ids in counts, got repeated ones")
        if np.shape(self.labels) != (n,):
            raise InputError(f"expected {n} labels, one for each id, got shape {np.shape(self.labels)}")
        for name, shapes in (("same_prediction", [(n, T)]), ("joint", [(n, T, 8), (n, T, 4)])):
            array = getattr(self, name)
            if array.shape not in shapes or array.dtype != np.int32:
                shape = " or ".join(map(str, shapes))
                raise InputError(f"counts.{name}: expected int32 of shape {shape}, got {array.dtype} {array.shape}")
        neither = self.draws - self.method_right - self.reference_right + self.both_right
        rules = {
            "0 <= joint": self.joint.min(axis=2) >= 0,
            "both_right <= same_prediction": self.both_right <= self.same_prediction,
            "same_prediction <= both_right + neither right": self.same_prediction <= self.both_right + neither,
        }
        for rule, holds in rules.items():
            if not np.all(holds):
                row, column = np.argwhere(~holds)[0]
                where = f"sample {self.ids[row]!r}, radius {self.taus[column]:g}"
                raise InputError(f"impossible counts at {where}: expected {rule}")

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        labels: ArrayLike,
        taus: ArrayLike,
        *,
        draws: ArrayLike,
        method_right: ArrayLike,
        reference_right: ArrayLike,
        both_right: ArrayLike,
        same_prediction: ArrayLike,
    ) -> Counts:
        """Build counts without the original from how often each was right, all of shape (n, T)."""
        total, model, reference, both = map(np.asarray, (draws, method_right, reference_right, both_right))
        joint = np.stack([total - model - reference + both, reference - both, model - both, both], axis=-1)
        return cls.of_joint(ids, labels, taus, joint, same_prediction)

    @classmethod
    def of_joint(
        cls, ids: Sequence[str], labels: ArrayLike, taus: ArrayLike, joint: ArrayLike, same_prediction: ArrayLike
    ) -> Counts:
        """Build counts from the draws of each pattern, in anything numpy understands."""
        tables = (np.asarray(part, dtype=np.int32) for part in (joint, same_prediction))
        return cls(tuple(map(str, ids)), np.asarray(labels, np.int64), np.asarray(taus, np.float64), *tables)

    @cached_property
    def draws(self) -> Integers:
        """How many draws were made, shape (n, T)."""
        return self._sum(np.ones(8, dtype=np.int32))

    @cached_property
    def method_right(self) -> Integers:
        """On how many draws the model was right, shape (n, T)."""
        return self._sum(METHOD)

    @cached_property
    def reference_right(self) -> Integers:
        """On how many draws the reference was right, shape (n, T)."""
        return self._sum(REFERENCE)

    @cached_property
    def both_right(self) -> Integers:
        """On how many draws both were right, shape (n, T)."""
        return self._sum(METHOD * REFERENCE)

    def _sum(self, patterns: Integers) -> Integers:
        """Return the draws of the patterns that are marked with 1."""
        total: Integers = self.joint @ patterns[: self.joint.shape[2]]
        return total

    @property
    def knows_original(self) -> bool:
        """Whether the counts include the original."""
        return bool(self.joint.shape[2] == len(ORIGINAL))

    def without_original(self) -> Counts:
        """Return the counts of model and reference alone."""
        return replace(self, joint=self.joint[..., :4] + self.joint[..., 4:]) if self.knows_original else self

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
        if self.knows_original != other.knows_original:
            return self.without_original() + other.without_original()
        columns = [self.taus.tolist().index(tau) for tau in other.taus.tolist()]
        joint, same_prediction = self.joint.copy(), self.same_prediction.copy()
        joint[:, columns] += other.joint
        same_prediction[:, columns] += other.same_prediction
        return replace(self, joint=joint, same_prediction=same_prediction)

    def concat(self, other: Counts) -> Counts:
        """Return the counts of both sets of samples; radii must be the same."""
        if not np.array_equal(self.taus, other.taus):
            raise InputError(f"expected the same radii, got {self.taus.tolist()} and {other.taus.tolist()}")
        if self.knows_original != other.knows_original:
            return self.without_original().concat(other.without_original())
        labels, joint, same_prediction = (
            np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("labels", "joint", "same_prediction")
        )
        return Counts(self.ids + other.ids, labels, self.taus, joint, same_prediction)

    def swapped(self) -> Counts:
        """Return the counts with model and reference exchanged."""
        return replace(self, joint=self.joint[..., EXCHANGED[: self.joint.shape[2]]])

    def subset(self, ids: Sequence[str]) -> Counts:
        """Return the counts of these ids, in this order."""
        position = {sample_id: row for row, sample_id in enumerate(self.ids)}
        missing = [sample_id for sample_id in ids if sample_id not in position]
        if missing:
            raise InputError(f"expected ids that were audited; {len(missing)} were not, the first is {missing[0]!r}")
        return self.rows(np.array([position[sample_id] for sample_id in ids], dtype=np.int64))

    def rows(self, positions: NDArray[np.int64]) -> Counts:
        """Return the counts at these positions, in this order."""
        ids = tuple(self.ids[position] for position in positions)
        tables = self.joint[positions], self.same_prediction[positions]
        return Counts(ids, self.labels[positions], self.taus, *tables)

    def save(self, path: str | Path) -> None:
        """Write an .npz file, or a .json file that needs no numpy to be read; equal counts give equal bytes."""
        if Path(path).suffix == ".json":
            Path(path).write_bytes(self.json())
            return
        stored = {part.name: getattr(self, part.name) for part in fields(self)}
        write_arrays(path, stored | {"ids": np.array(self.ids, dtype=np.str_)}, compress=False)

    def json(self) -> bytes:
        """Return the canonical JSON of all five fields, tables as nested lists."""
        tables = {part.name: getattr(self, part.name).tolist() for part in fields(self) if part.name != "ids"}
        return canonical(tables | {"ids": list(self.ids)})

    @classmethod
    def load(cls, path: str | Path) -> Counts:
        """Read a file written by `save`; refuse what is damaged or not counts."""
        if Path(path).suffix != ".json":
            stored: dict[str, Any] = read_arrays(path, [part.name for part in fields(cls)], "a counts file")
            return cls(**stored | {"ids": tuple(map(str, stored["ids"]))})
        content = read_bytes(path)
        try:
            values = json.loads(content)
            if not values["ids"]:  # a list of no samples does not tell the number of radii
                empty = np.zeros((0, len(values["taus"]), 4))
                values |= {"joint": empty, "same_prediction": empty[..., 0]}
            counts = cls.of_joint(**values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except Exception as error:  # a file from elsewhere may hold anything
            raise InputError(f"{path}: expected counts written by residuum, got {first_line(error)}") from None
        if counts.json() != content:
            raise InputError(f"{path}: expected counts written by residuum, got other JSON than their canonical form")
        return counts
