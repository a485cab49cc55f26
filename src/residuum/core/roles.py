"""What a row of a study is: the original, the reference, a control, or what a method made."""

from enum import StrEnum

from residuum.core.errors import InputError


class Role(StrEnum):
    """The part that a model plays in a comparison.

    The reference is the retrained model that the others are compared with; a control is any further retrained model.
    """

    ORIGINAL = "original"
    REFERENCE = "reference"
    CONTROL = "control"
    METHOD = "method"

    @property
    def retrained(self) -> bool:
        """Whether the model was trained without the forget set."""
        return self in (Role.REFERENCE, Role.CONTROL)


ORIGINAL, REFERENCE, CONTROL = "original", "retrain", "control"  # the labels of these rows


def retrained_label(number: int) -> str:
    """Return the label of the `number`-th retrained model: the reference is the first, then come the controls.

    >>> [retrained_label(k) for k in range(3)]
    ['retrain', 'control', 'control_2']
    """
    return (REFERENCE, CONTROL)[number] if number < 2 else f"{CONTROL}_{number}"


def trained_roles(controls: int) -> dict[str, Role]:
    """Return the roles of the original, the reference and so many controls, by their labels.

    >>> {label: str(role) for label, role in trained_roles(2).items()}
    {'original': 'original', 'retrain': 'reference', 'control': 'control', 'control_2': 'control'}
    """
    of_controls = {retrained_label(k): Role.CONTROL for k in range(1, controls + 1)}
    return {ORIGINAL: Role.ORIGINAL, REFERENCE: Role.REFERENCE, **of_controls}


def is_reserved(name: str) -> bool:
    """Tell whether no row of a method may have this name, because a trained model has it or might have it.

    >>> is_reserved("control_9"), is_reserved("controlled")
    (True, False)
    """
    return name in (ORIGINAL, REFERENCE, CONTROL) or name.startswith(f"{CONTROL}_")


def refuse_reserved(name: str, what: str = "a row label") -> str:
    """Return a name that the user chose; the name of a trained model, such as control_9, is an error.

    >>> refuse_reserved("rurk"), refuse_reserved("controlled")
    ('rurk', 'controlled')
    """
    if is_reserved(name):
        names = ", ".join((ORIGINAL, REFERENCE, CONTROL))
        raise InputError(f"expected {what} other than {names} and control_..., got {name!r}; rename it")
    return name
