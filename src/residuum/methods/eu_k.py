"""EU-k: train the last layers anew on the retain set."""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from residuum.methods.tail import TailMethod
from residuum.training import STRICT, Fraction


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EUk(TailMethod):
    """Exact unlearning of the last k layers: re-initialise them, freeze the rest, descend L(w, S_r).

    "Exact" is meant of the tail alone: the frozen part has seen the forget set. The tail starts as a fresh network
    would, weights, batch-norm and its statistics; the reference code leaves batch-norm as it was, and with it what
    it knows of the forget set. It is CF-k with keep = 0.
    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022.

    >>> EUk(k=2).share
    0.5
    """

    name: ClassVar[str] = "eu_k"
    title: ClassVar[str] = "EU-k"

    keep: Fraction = 0.0
