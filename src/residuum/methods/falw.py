"""FaLW: random labels, each forget sample weighed by how much better than unseen ones it is known."""

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from residuum.methods.random_labels import RandomLabels
from residuum.training import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FaLW(RandomLabels):
    """Forgetting-aware loss reweighting: one mean over a joint batch of CE(x_r, y) and w_i CE(x_i, random label).

    w_i is the gate of `ForgettingMethod`, between 0 (known worse than unseen samples of the class) and 2; any method
    with a term on the forget samples takes it by `gate="falw"`. The mean over validation samples is the current model's
    own generalisation, which still profits from the forget samples: too high where they are a large share of their
    class. Validation samples used here cannot serve as held-out ones of an audit.
    Reference: Yu et al., "FaLW: A Forgetting-aware Loss Reweighting for Long-tailed Unlearning", ICLR 2026 (defaults:
    a port's, not the authors').

    >>> FaLW().gate
    'falw'
    """

    name: ClassVar[str] = "falw"
    title: ClassVar[str] = "FaLW"
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget", "validation"})

    gate: Literal["falw"] | None = "falw"
    order: Literal["alternate", "joint"] = "joint"
