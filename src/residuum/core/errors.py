"""Errors and warnings; needs no torch."""

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any


class InputError(ValueError):
    """The user's input cannot be used; the command line prints one line and exits with 2."""


class DivergedError(InputError):
    """The loss of a training is no longer finite: its settings do not suit the model it started from."""


class LostProcessError(RuntimeError):
    """A process that shared the work is gone; the command line says so and exits with 1."""


class MethodError(RuntimeError):
    """A method broke a rule that all methods keep. Its row fails, other rows go on, and the exit code is 1."""


class ResiduumWarning(UserWarning):
    """A number may not mean what it seems to; collected into the run record."""


_shown: set[str] = set()


def warn(text: str, stacklevel: int = 2) -> None:
    """Show a warning once per process, or every time if the caller's filters say so.

    Python forgets which warnings it showed whenever a library changes the filters, and torch does.
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


def unknown_name(kind: str, name: str, names: Iterable[str]) -> InputError:
    """Return the error for an unknown name, with the nearest names.

    >>> str(unknown_name("method", "rukr", ["rurk", "ga"]))
    "unknown method 'rukr'; did you mean rurk? Known: ga, rurk"
    """
    names = sorted(names)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return InputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")


EXPECTED = {  # what a setting should have been, by the beginning of the type of pydantic's complaint
    "string": "a text",
    "path": "a path",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "date": "a date such as 2026-11-02",
    "tuple": "a list",
    "list": "a list",
    "dict": "a table",
    "dataclass": "a table",
    "model_type": "a table",
    "literal": "{expected}",
    "greater_than_equal": "{ge:.10g} or more",
    "greater_than": "more than {gt:.10g}",
    "less_than_equal": "{le:.10g} or less",
    "less_than": "less than {lt}",
    "missing": "a longer list",
    "too_long": "at most {max_length} values",
    "too_short": "at least {min_length} values",
}


def expected(problems: Iterable[Mapping[str, Any]], depth: int) -> str:
    """Return what a setting should be, from pydantic's complaints about it, one for each alternative.

    A complaint whose place has more than `depth` parts and ends in a position is about an item of a list.

    >>> expected([{"type": "int_parsing", "loc": ("size",)}, {"type": "float_type", "loc": ("size", "tuple", 1)}], 1)
    'expected a whole number or a list of numbers'
    """
    alternatives = []
    for problem in problems:
        words = next((text for kind, text in EXPECTED.items() if problem["type"].startswith(kind)), None)
        if words is None:
            return str(problem["msg"]).removeprefix("Value error, ")
        phrase = words.format(**problem.get("ctx", {}))
        if len(problem["loc"]) > depth and isinstance(problem["loc"][-1], int) and problem["type"] != "missing":
            phrase = f"a list of {phrase[2:]}s" if phrase.startswith("a ") else f"a list, each {phrase}"
        alternatives.append(phrase)
    return f"expected {' or '.join(dict.fromkeys(alternatives))}"


def plural(number: int, noun: str) -> str:
    """Return the number with its noun.

    >>> plural(1, "seed"), plural(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
