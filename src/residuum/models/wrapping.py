"""The user's network: it takes inputs as the user's data have them, and returns logits.

What stands before and after the network are hooks on a copy of it, so that its class, the names of its layers and the
keys of its weights do not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, unknown_name
from residuum.core.inputs import UNIT, Bounds, InputSpace, space_of
from residuum.models.inference import private_copy
from residuum.models.layers import normalized
from residuum.models.probabilities import Predict, Probabilities
from residuum.models.weights import load_state, read_note

Logits = Callable[[Any], Tensor] | str | None


def wrap(
    module: nn.Module | Predict,
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
) -> nn.Module:
    """Return a copy of your network that takes inputs as your data have them and returns logits (n, classes).

    Args:
        module: Your network; it stays as it is. Layers and weights keep their names. Or a fitted classifier with
            `predict_proba`, or a function from an array of inputs to probabilities (n, classes): these can be audited,
            by everything that needs neither gradients nor weights.
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
            Default: layers reset themselves, and a network of transformers is made again from its configuration.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> model = wrap(net, mean=0.5, std=0.25)
    >>> torch.equal(model(torch.ones(1, 1, 2, 2)), net(torch.full((1, 1, 2, 2), 2.0)))
    True
    >>> list(model.state_dict()) == list(net.state_dict())
    True
    >>> wrap(lambda x: [[0.25, 0.75]] * len(x))(torch.zeros(1, 4)).exp().tolist()
    [[0.25, 0.75]]
    """
    if not isinstance(module, nn.Module):
        if isinstance(module, type) or not (callable(module) or hasattr(module, "predict_proba")):
            raise no_network(module, "to wrap")
        module = Probabilities(module)
        options = {"weights": weights, "logits": logits, "batch": batch, "at": at, "fresh": fresh}
        if wrong := next((name for name, value in options.items() if value is not None), None):
            text = f"wrap: {wrong}= is for networks, and {module.title} gives probabilities only"
            raise InputError(f"{text}; leave it out")
    model = private_copy(module).eval()
    names = tuple(batch or ())
    integers = tokens or bool(names)
    layer = _embedding_of(model, at) if integers and not isinstance(model, Probabilities) else at
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
    return _adapted(
        model, Adapter(*_constants(mean, std), names, integers, logits), space, fresh or _configured(module)
    )


def _configured(module: nn.Module) -> Callable[[], nn.Module] | None:
    """Return what makes a network of transformers anew from its configuration; None for other networks."""
    config: Any = getattr(module, "config", None)
    if not hasattr(module, "base_model_prefix") or not hasattr(config, "to_json_string"):
        return None
    return partial(_from_configuration, type(module), type(config), config.to_json_string())


def _from_configuration(network: type[nn.Module], kind: Any, text: str) -> nn.Module:  # noqa: ANN401 (of transformers)
    return network(kind.from_dict(json.loads(text)))


def wrap_like(module: nn.Module, model: nn.Module) -> nn.Module:
    """Return a network with what stands before and after the wrapped `model`; one that is wrapped stays as it is.

    A classifier with `predict_proba` becomes a module that has a column for each class of the model.
    """
    if hasattr(module, "predict_proba") or (isinstance(model, Probabilities) and callable(module)):
        module = module if isinstance(module, nn.Module) else Probabilities(module, getattr(model, "classes", None))
    if not isinstance(module, nn.Module):
        raise no_network(module, "from retrain")
    adapter = getattr(model, "adapter", None)
    if adapter is None or getattr(module, "adapter", None) is not None:
        return module
    return _adapted(private_copy(module).eval(), adapter, space_of(model), None)


def _adapted(model: nn.Module, adapter: Adapter, space: InputSpace, fresh: Callable[[], nn.Module] | None) -> nn.Module:
    """Return the model itself, with what stands before and after it."""
    model.register_forward_pre_hook(adapter.before, with_kwargs=True)
    model.register_forward_hook(adapter.after)
    model.input_space, model.adapter, model.fresh_network = space, adapter, fresh  # type: ignore[assignment]
    return model


def no_network(thing: object, what: str) -> InputError:
    """Return the error for something that is not a network, which says what to give instead."""
    got = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    if isinstance(thing, type) and issubclass(thing, nn.Module):
        hint = f"build it first: {got}()"
    elif hasattr(thing, "predict_proba") and not isinstance(thing, type):
        hint = f"wrap it first: wrap({got.lower()})"
    elif isinstance(thing, type):
        hint = (
            f"fit it first: wrap({got}().fit(x, y))" if hasattr(thing, "predict_proba") else "give one of its objects"
        )
    elif thing is None:
        hint = "the function must return its model"
    else:
        hint = "give a torch.nn.Module that returns logits, or a classifier with predict_proba"
    return InputError(f"expected a network (nn.Module) {what}, got {got}; {hint}")


@dataclass(frozen=True, eq=False)
class Adapter:
    """What stands before a network (normalization, unpacking) and after it (its logits)."""

    mean: Tensor | None
    std: Tensor | None
    names: tuple[str, ...]
    integers: bool
    logits: Logits

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """Return the arguments that the network itself expects; calls by keyword are its own and stay."""
        if len(args) != 1 or not isinstance(args[0], Tensor):
            return args, kwargs
        x = args[0]
        if self.names:
            if x.ndim < 3 or x.shape[1] != len(self.names):
                shape = f"(n, {len(self.names)}, ...), one part for each of {', '.join(self.names)}"
                raise InputError(f"expected inputs {shape}, got shape {tuple(x.shape)}")
            return (), kwargs | {name: x[:, part].round().long() for part, name in enumerate(self.names)}
        if self.integers:
            return (x.round().long(),), kwargs
        if self.mean is None or self.std is None:
            return args, kwargs
        for constants in (self.mean, self.std):
            if len(constants) not in (1, x.shape[1]):
                fault = f"expected one number, or {x.shape[1]} for inputs of shape {tuple(x.shape[1:])}"
                raise InputError(
                    f"wrap(mean=, std=): {fault}, got {len(constants)}; give one for each channel or feature"
                )
        return (normalized(x, self.mean.to(x), self.std.to(x)),), kwargs

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor:  # noqa: ANN401 (whatever it returns)
        """Return the logits."""
        if callable(self.logits):
            logits: object = self.logits(output)
        elif self.logits is None and isinstance(output, Tensor):
            logits = output
        else:
            name = self.logits or "logits"
            logits = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
            if logits is None and self.logits is None and isinstance(output, tuple | list) and output:
                logits = output[0]
        if not isinstance(logits, Tensor):
            text = f"expected logits from {type(module).__name__}, which returns {type(output).__name__}"
            raise InputError(f"{text}; say where they are with logits=")
        return logits


def _constants(mean: Any, std: Any) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401 (numbers)
    if (mean is None) != (std is None):
        raise InputError("expected mean and std together, got one of them")
    if mean is None:
        return None, None
    try:
        means, deviations = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in (mean, std))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"expected numbers as mean and std, got {mean!r} and {std!r}") from None
    if not bool((deviations > 0).all() and deviations.isfinite().all() and means.isfinite().all()):
        raise InputError(f"expected finite mean and std above 0, got {mean!r} and {std!r}")
    return means, deviations


def _embedding_of(model: nn.Module, at: str | None) -> str:
    """Return the name of the layer where integers become numbers that noise can move."""
    layers = {name: layer for name, layer in model.named_modules() if name}
    if at is not None and at not in layers:
        raise unknown_name("layer", at, layers)
    embeddings = [name for name, layer in layers.items() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    if at is None and not embeddings:
        text = f"{type(model).__name__} has no nn.Embedding"
        raise InputError(f"{text}; say with at= which layer's output noise may move")
    return at or embeddings[0]
