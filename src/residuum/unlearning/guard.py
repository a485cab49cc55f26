"""A guard around methods: what one of them breaks is noticed and named, so that others are not harmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, LostProcessError, MethodError, first_line, warn
from residuum.core.registry import home_of
from residuum.core.samples import Samples, Splits
from residuum.models import build_model, check_model
from residuum.unlearning.base import Method
from residuum.unlearning.context import Context

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@contextmanager
def guarded(method: Method, splits: Splits) -> Iterator[Splits]:
    """Yield splits for a method; whatever it raises, changes or leaves behind becomes an error or a warning.

    A plug-in gets a private copy of all samples in memory, which is compared bit for bit afterwards: a method that
    writes into its inputs has no result, and nobody else sees what it wrote. Tests check this for built-in methods.
    """
    private = splits
    if not _is_ours(method):  # inputs that are read when asked for are new each time anyway
        copies: dict[str, Any] = {
            name: Samples(part.x.clone() if isinstance(part.x, Tensor) else part.x, part.y.clone(), part.ids)
            for name, part in _parts(splits).items()
        }
        private = replace(splits, **copies)
    with blamed(method):
        yield private
    for name, part in _parts(private).items() if private is not splits else ():
        for axis in ("x", "y"):
            after, before = getattr(part, axis), getattr(getattr(splits, name), axis)
            if isinstance(after, Tensor) and not _same_bits(after, before):
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
        for layer in remove_hooks(original, answer):
            warn(f"{described(method)} left a hook on {layer}; it was removed")
        try:
            _check_architecture(original, answer)
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


def _parts(splits: Splits) -> dict[str, Samples]:
    values = {field.name: getattr(splits, field.name) for field in fields(splits)}
    return {name: value for name, value in values.items() if isinstance(value, Samples)}


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.numel() == 0 or torch.equal(*(t.detach().contiguous().view(torch.uint8) for t in (one, other)))


def remove_hooks(original: nn.Module, answer: nn.Module) -> list[str]:
    """Remove the hooks that the original did not have, and return the layers that had one."""
    modules, layers = dict(original.named_modules()), []
    for name, module in answer.named_modules():
        for kind in HOOKS:
            before, now = (getattr(part, kind, {}) for part in (modules.get(name), module))
            for key in list(now)[len(before) :]:
                del now[key]
                layers.append(name or "the model")
    return layers


def _check_architecture(original: nn.Module, answer: nn.Module) -> None:
    """Raise an error if a weights file could rebuild the original, but not the result."""
    if not isinstance(getattr(original, "architecture", None), dict):
        return
    plan = getattr(answer, "architecture", None)
    try:
        whole = build_model(**plan, seed=0).state_dict() if isinstance(plan, dict) else {}
    except TypeError as error:
        raise InputError(f"its architecture {plan!r} cannot be built ({error})") from error
    shapes = [{name: tuple(v.shape) for name, v in state.items()} for state in (whole, answer.state_dict())]
    if shapes[0] != shapes[1]:
        raise InputError("its layers are not those of its architecture, so no weights file could rebuild it")
