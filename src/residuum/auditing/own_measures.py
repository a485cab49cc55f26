"""Measures of a user's own: functions of the counts that a run computes beside ours."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from residuum.auditing.measures import interval, json_numbers
from residuum.core import components
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.registry import Registry, name_of


@dataclass(frozen=True)
class OwnMeasure:
    """A function `(counts, heldout) -> value`, or -> (value, low, high), with one number for each radius.

    `heldout` are the counts on held-out samples of the forgotten classes, None where there are none. The docstring's
    first line is its meaning, what stands there before a colon its title; an attribute `neutral` of the function is the
    value of a second re-trained model.

    >>> def most_often_right(counts, heldout):
    ...     "Best known sample: the largest share right on any forgotten sample."
    ...     return (counts.method_right / counts.draws).max(axis=0)
    >>> counts = Counts.of(["a", "b"], [0, 1], [0.1], draws=[[10], [10]], method_right=[[9], [6]],
    ...                    reference_right=[[6], [4]], both_right=[[6], [4]], same_prediction=[[7], [8]])
    >>> found = OwnMeasure(most_often_right).of(counts)
    >>> found["title"], found["value"]
    ('Best known sample', [0.9])
    """

    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """What it is called where it stands."""
        return name_of(self.function, self.function.__name__)

    @property
    def words(self) -> dict[str, Any]:
        """Title, meaning and neutral value, for whoever shows it."""
        meaning = (inspect.getdoc(self.function) or self.name.replace("_", " ")).split("\n", maxsplit=1)[0]
        title, colon, _ = meaning.partition(":")
        title = title if colon else self.name.replace("_", " ").capitalize()
        return {"title": title, "meaning": meaning, "neutral": getattr(self.function, "neutral", None)}

    def of(self, counts: Counts, heldout: Counts | None = None) -> dict[str, Any]:
        """Return the measure's entry in the record of an audit."""
        found = self.function(counts, heldout)
        parts = found if isinstance(found, tuple) else (found,)
        try:
            arrays = [np.asarray(part, np.float64) for part in parts]
        except (TypeError, ValueError):
            arrays = []
        if len(arrays) not in (1, 3) or any(array.shape != counts.taus.shape for array in arrays):
            expected = f"expected {len(counts.taus)} numbers, one for each radius, or three times as many (value, low, "
            raise InputError(f"measure {self.name}: {expected}high), got {found!r:.80}")
        curve = interval(*arrays) if len(arrays) == 3 else {"value": json_numbers(arrays[0])}
        return self.words | curve


def as_measure(candidate: object) -> OwnMeasure:
    """Return a plug-in's function as a measure; InputError where it is none."""
    if inspect.isfunction(candidate):
        return OwnMeasure(candidate)
    raise InputError(f"expected a function measure(counts, heldout), got {candidate!r}")


OWN_MEASURES: Registry[OwnMeasure] = components.OWN_MEASURES
