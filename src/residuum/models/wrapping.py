"""A network of the user's own: inputs as she has them, logits out, her own names and weights inside.

What stands before and after the network are hooks on a copy of it, so that its class, the names of its layers and the
keys of its weights stay hers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, unknown_name
from residuum.core.inputs import UNIT, Bounds, InputSpace, space_of
from residuum.models.inference import private_copy
from residuum.models.unlearned import read_note
from residuum.models.weights import load_state

Model = TypeVar("Model", bound=nn.Module)
Logits = Callable[[Any], Tensor] | str | None


def wrap(
    module: Model,
    weights: Path | str | None = None,
    *,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    logits: Logits = None,
    batch: Sequence[str] | None = None,
    tokens: bool = False,
    bounds: Bounds = UNIT,
    scale: Any = None,  # noqa: ANN401 (a number, or an array of one for each feature)
    categorical: Sequence[int] = (),
    at: str | None = None,
    fresh: Callable[[], nn.Module] | None = None,
) -> Model:
    """Return a copy of your network that takes inputs as your data have them and returns logits (n, classes).

    Args:
        module: Your network; it stays as it is. Layers and weights keep their names.
        weights: A state dict to load, .safetensors or .pt; the latter is read without running anything it contains.
        mean: With `std`, the normalization your network expects, (x - mean) / std, one constant for each channel or
            feature or one for all: inputs are then given as they were *before* it, images in [0, 1].
        std: See `mean`.
        logits: How to take the logits from what the network returns: a function, or the name of an attribute or key.
            Without it a tensor is taken as it is, else what is called `logits`, else the first of a tuple.
        batch: Names of the keyword arguments, such as ("input_ids", "attention_mask"), that inputs (n, parts, length)
            are unpacked to, as integers.
        tokens: Inputs (n, length) are token ids, given to the network as integers.
        bounds: Lowest and highest value of the data, numbers or one for each feature; None for data without any, such
            as standardized features. Token ids have none.
        scale: Unit of the radius of all noise, one number or one for each feature.
        categorical: Positions of features that noise leaves alone.
        at: The layer whose output noise moves where inputs are token ids; default: the first nn.Embedding.
        fresh: Returns a new network with new weights; needed to retrain networks whose layers cannot reset themselves.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> model = wrap(net, mean=0.5, std=0.25)
    >>> torch.equal(model(torch.ones(1, 1, 2, 2)), net(torch.full((1, 1, 2, 2), 2.0)))
    True
    >>> list(model.state_dict()) == list(net.state_dict())
    True
    """
    if not isinstance(module, nn.Module):
        raise no_network(module, "to wrap")
    model = private_copy(module).eval()
    names = tuple(batch or ())
    integers = tokens or bool(names)
    layer = _embedding_of(model, at) if integers else at
    try:
        space = InputSpace(
            bounds=None if integers else bounds,
            scale=scale,
            fixed=tuple(categorical),
            names=names,
            tokens=integers,
            at=layer,
            unit="raw" if layer is None else "std",
        )
    except InputError as error:
        raise InputError(f"wrap: {error}") from None
    if weights is not None:
        load_state(model, weights)
        read_note(model, weights)
    adapter = Adapter(*_constants(mean, std), names, integers, logits)
    model.register_forward_pre_hook(adapter.before, with_kwargs=True)
    model.register_forward_hook(adapter.after)
    model.input_space, model.adapter, model.fresh_network = space, adapter, fresh  # type: ignore[assignment]
    return model


def wrap_like(module: nn.Module, model: nn.Module) -> nn.Module:
    """Return a network with what stands before and after the wrapped `model`; one that is wrapped stays as it is."""
    if not isinstance(module, nn.Module):
        raise no_network(module, "from retrain")
    adapter = getattr(model, "adapter", None)
    if adapter is None or getattr(module, "adapter", None) is not None:
        return module
    other = private_copy(module).eval()
    other.register_forward_pre_hook(adapter.before, with_kwargs=True)
    other.register_forward_hook(adapter.after)
    other.input_space, other.adapter, other.fresh_network = space_of(model), adapter, None  # type: ignore[assignment]
    return other


def no_network(thing: object, what: str) -> InputError:
    """Return the error of something that is no network, with what to give instead."""
    got = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    if isinstance(thing, type) and issubclass(thing, nn.Module):
        hint = f"build it first: {got}()"
    elif hasattr(thing, "predict_proba"):
        forward = "torch.log(torch.from_numpy(m.predict_proba(x.numpy())).float())"
        hint = f"to audit a model m with predict_proba, give an nn.Module whose forward(x) returns {forward}"
    elif thing is None:
        hint = "the function must return its model"
    else:
        hint = "give a torch.nn.Module that returns logits"
    return InputError(f"expected a network (nn.Module) {what}, got {got}; {hint}")


class Adapter:
    """What stands before a network (normalization, unpacking) and after it (its logits)."""

    def __init__(
        self, mean: Tensor | None, std: Tensor | None, names: tuple[str, ...], integers: bool, logits: Logits
    ) -> None:
        self.mean, self.std, self.names, self.integers, self.logits = mean, std, names, integers, logits

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """Return the arguments that the network itself expects; calls by keyword are its own and stay."""
        if len(args) != 1 or not isinstance(args[0], Tensor):
            return args, kwargs
        x = args[0]
        if self.names:
            if x.ndim < 3 or x.shape[1] != len(self.names):
                wanted = f"(n, {len(self.names)}, ...), one part for each of {', '.join(self.names)}"
                raise InputError(f"expected inputs {wanted}, got shape {tuple(x.shape)}")
            return (), kwargs | {name: x[:, part].round().long() for part, name in enumerate(self.names)}
        if self.integers:
            return (x.round().long(),), kwargs
        if self.mean is None or self.std is None:
            return args, kwargs
        ones = [1] * (x.ndim - 2)
        mean, std = (value.to(x).view(1, -1, *ones) for value in (self.mean, self.std))
        return ((x - mean) / std,), kwargs

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor:  # noqa: ANN401 (whatever it returns)
        """Return the logits."""
        found = self.logits(output) if callable(self.logits) else logits_in(output, self.logits)
        if not isinstance(found, Tensor):
            kind = type(output).__name__
            raise InputError(
                f"expected logits from {type(module).__name__}, which returns {kind}; say where they are with logits="
            )
        return found


def logits_in(output: Any, name: str | None) -> Any:  # noqa: ANN401 (whatever a network returns)
    """Return the logits by name, or what is a tensor, called `logits`, or the first of a tuple."""
    if name is None and isinstance(output, Tensor):
        return output
    wanted = name or "logits"
    if isinstance(output, dict) and wanted in output:
        return output[wanted]
    if hasattr(output, wanted):
        return getattr(output, wanted)
    return output[0] if name is None and isinstance(output, tuple | list) and output else None


def _constants(mean: Any, std: Any) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401 (numbers)
    if (mean is None) != (std is None):
        raise InputError("expected mean and std together, got one of them")
    if mean is None:
        return None, None
    try:
        found = [torch.as_tensor(value, dtype=torch.float64).flatten() for value in (mean, std)]
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"expected numbers as mean and std, got {mean!r} and {std!r}") from None
    if not bool((found[1] > 0).all()) or not all(bool(value.isfinite().all()) for value in found):
        raise InputError(f"expected finite mean and std above 0, got {mean!r} and {std!r}")
    return found[0], found[1]


def _embedding_of(model: nn.Module, at: str | None) -> str:
    """Return the name of the layer where integers become numbers that noise can move."""
    layers = {name: layer for name, layer in model.named_modules() if name}
    if at is not None and at not in layers:
        raise unknown_name("layer", at, layers)
    found = [name for name, layer in layers.items() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    if at is None and not found:
        raise InputError(
            f"{type(model).__name__} has no nn.Embedding; say with at= which layer's output noise may move"
        )
    return at or found[0]
