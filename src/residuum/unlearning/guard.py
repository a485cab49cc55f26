"""A guard around methods: what a plug-in raises, writes into its inputs or returns becomes one clear error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, LostProcessError, MethodError, first_line
from residuum.core.registry import home_of
from residuum.core.samples import Samples, Splits
from residuum.models import build_model, check_model
from residuum.unlearning.base import Method
from residuum.unlearning.context import Context


@contextmanager
def guarded(method: Method, splits: Splits) -> Iterator[Splits]:
    """Yield splits for a method and name it in errors.

    A plug-in gets a private copy of all samples in memory, so that nothing else sees what it writes there. Writing
    there is an error. Tests check this for built-in methods.
    """
    if _is_ours(method):
        with blamed(method):
            yield splits
        return
    values = {field.name: getattr(splits, field.name) for field in fields(splits)}
    parts = {name: value for name, value in values.items() if isinstance(value, Samples)}
    copies: dict[str, Any] = {  # inputs that are read on demand are new each time anyway
        name: Samples(part.x.clone() if isinstance(part.x, Tensor) else part.x, part.y.clone(), part.ids)
        for name, part in parts.items()
    }
    with blamed(method):
        yield replace(splits, **copies)
    for name, part in parts.items():
        for axis, before in (("x", part.x), ("y", part.y)):
            if isinstance(before, Tensor) and not torch.equal(before, getattr(copies[name], axis)):
                raise MethodError(f"{described(method)} changed its input: splits.{name}.{axis}; work on a copy of it")


@contextmanager
def blamed(method: Method) -> Iterator[None]:
    """Turn whatever a method raises, including SystemExit, into an error that names it."""
    try:
        yield
    except (KeyboardInterrupt, LostProcessError, InputError, Warning):
        raise
    except BaseException as error:  # a plug-in may raise anything
        what = "tried to end the program" if isinstance(error, SystemExit) else "failed"
        raise MethodError(f"{described(method)} {what} ({first_line(error)})") from error


def check_answer(method: Method, original: nn.Module, answer: object, splits: Splits, context: Context) -> nn.Module:
    """Return what a method returned, after checking that it is a usable model and that passes and notes are sound."""
    if not isinstance(answer, nn.Module):
        raise MethodError(f"{described(method)} must return an nn.Module, got {type(answer).__name__}")
    if type(context.passes) is not int or context.passes < 0:
        raise MethodError(f"{described(method)}: expected context.passes 0 or more, got {context.passes!r}")
    if not isinstance(context.notes, dict) or not is_json(context.notes):
        raise MethodError(f"{described(method)}: expected context.notes that JSON can hold, got {context.notes!r}")
    if not _is_ours(method):
        try:
            if isinstance(getattr(original, "architecture", None), dict):  # a weights file could rebuild the original
                plan = getattr(answer, "architecture", None)
                try:
                    rebuilt = build_model(**plan, seed=0).state_dict() if isinstance(plan, dict) else {}
                except TypeError as error:
                    raise InputError(f"its architecture {plan!r} cannot be built ({error})") from error
                if {key: v.shape for key, v in rebuilt.items()} != {k: v.shape for k, v in answer.state_dict().items()}:
                    text = "its layers are not those of its architecture, so no weights file could rebuild it"
                    raise InputError(text)  # noqa: TRY301
            check_model(answer, splits.retain, splits.classes)
        except InputError as error:
            raise MethodError(f"{described(method)} returned a model that cannot be used: {error}") from error
    return answer


def described(method: Method) -> str:
    """Return the method's name and where it comes from.

    >>> from residuum.unlearning import GD
    >>> described(GD())
    'method gd of residuum'
    """
    return f"method {method.name} of {home_of(type(method))}"


def is_json(value: object) -> bool:
    """Tell whether JSON can hold a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_ours(method: Method) -> bool:
    return type(method).__module__.startswith("residuum.unlearning.")
