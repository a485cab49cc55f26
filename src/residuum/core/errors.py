"""What users are told when something cannot be used or may not mean what it seems to; needs no torch."""

import difflib
import warnings
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used; the command line prints it as one line and exits with 2."""


class DivergedError(InputError):
    """A training's loss is not finite any more: its settings do not suit the model that it started from."""


class LostProcessError(RuntimeError):
    """A process that shared the work is gone; the command line says so and exits with 1."""


class MethodError(RuntimeError):
    """A method did what no method may; the text names it. Its row fails, other rows go on, the exit code is 1."""


class ResiduumWarning(UserWarning):
    """A number may not mean what it seems to; collected into the run record."""


_shown: set[str] = set()


def warn(text: str, stacklevel: int = 2) -> None:
    """Show a warning once in a process, every time where a filter of the caller's asks for it or makes it an error.

    Python's own memory of what was shown is lost whenever any library touches the filters, which torch does.
    """
    actions = (
        action for action, message, kind, *_ in warnings.filters if not message and issubclass(ResiduumWarning, kind)
    )
    if text in _shown and next(actions, "default") in ("default", "module", "once"):
        return
    _shown.add(text)
    warnings.warn(text, ResiduumWarning, stacklevel=stacklevel + 1)


def first_line(error: BaseException) -> str:
    """Return kind and first line of an error.

    >>> first_line(ValueError()), first_line(KeyError("name"))
    ('ValueError', "KeyError: 'name'")
    """
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].strip().removesuffix(":")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not in a table, with the nearest names.

    >>> str(unknown_name("method", "rukr", ["rurk", "ga"]))
    "unknown method 'rukr'; did you mean rurk? Known: ga, rurk"
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return InputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def plural(number: int, noun: str) -> str:
    """Return the number with its noun.

    >>> plural(1, "seed"), plural(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
