"""CF-k: fine-tune the last layers on the retain set."""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from residuum.methods.tail import TailMethod
from residuum.training import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CFk(TailMethod):
    """Catastrophic forgetting of the last k layers: freeze the rest, descend L(w, S_r) from the original.

    With every layer in the tail (`share=1`) it is GD. The literature's k = 5 means "the last two residual blocks and
    the head"; counted as the reference code counts, that needs k = 6, because the shortcut is a layer too.
    Reference: Goel et al., "Towards Adversarial Evaluations for Inexact Machine Unlearning", 2022.

    >>> CFk(blocks="layer4+fc").blocks
    ('layer4', 'fc')
    """

    name: ClassVar[str] = "cf_k"
    title: ClassVar[str] = "CF-k"
