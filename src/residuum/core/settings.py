"""What the declared type of a setting says about the values that it may have; needs no torch."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import model_validator
from pydantic_core import ArgsKwargs

NO_NUMBER = {bool, str, Any}  # kinds of fields that may hold true or false, or refuse them by themselves


def _booleans_as_text(cls: type, settings: Any) -> Any:  # noqa: ANN401 (whatever the user gave)
    """Return the settings with true and false as texts where a number is expected, which pydantic then refuses."""
    if isinstance(settings, ArgsKwargs):
        return ArgsKwargs(settings.args, _booleans_as_text(cls, settings.kwargs or {}))
    if not isinstance(settings, dict):
        return settings
    return {key: _as_text(value) if key in _numbers(cls) else value for key, value in settings.items()}


# pydantic reads true as 1; a model or dataclass that has this validator refuses it
refused_booleans = model_validator(mode="before")(_booleans_as_text)


@cache
def _numbers(cls: type) -> frozenset[str]:
    """Return the fields that take numbers, also in lists and tables, but neither booleans nor texts."""
    leaves = {name: set(_leaf_types(kind)) for name, kind in get_type_hints(cls, include_extras=True).items()}
    return frozenset(name for name, kinds in leaves.items() if kinds & {int, float} and not kinds & NO_NUMBER)


def _leaf_types(kind: Any) -> list[Any]:  # noqa: ANN401 (types)
    """Return the types of single values that a field of this type may hold."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Annotated, dict):
        parts = parts[:1] if origin is Annotated else parts[1:]
    elif origin not in (Union, UnionType, list, tuple):
        return [kind]
    return [leaf for part in parts for leaf in _leaf_types(part)]


def _as_text(value: Any) -> Any:  # noqa: ANN401 (whatever the user gave)
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    if isinstance(value, dict):
        return {key: _as_text(part) for key, part in value.items()}
    return str(value).lower() if isinstance(value, bool) else value
