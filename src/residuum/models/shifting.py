"""A model whose input is followed by a shift of one layer's output, so that whatever moves inputs can move a layer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, unknown_name
from residuum.core.inputs import InputSpace, Unit
from residuum.core.samples import DerivedInputs, Samples
from residuum.models.inference import device_of, evaluating, private_copy

PROBE = 256  # samples from which shape and spread of the layer's output are taken
_current = threading.local()  # the shift of the call that this thread is in: threads may ask one model at once


class ShiftedAt(nn.Module):
    """Takes flat inputs (n, d + m): d numbers of the input, then what is added to the m that the layer returns for it.

    Inside is a copy of the model, with a hook on that layer; `plain` gives it back without. With `unit="std"` a shift
    of one is a standard deviation of the layer's output on the samples.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> points = Samples(torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), ("a", "b", "c", "d"))
    >>> shifted = ShiftedAt(net, "0", points)
    >>> x = with_shift(points, shifted.size).batch(torch.arange(4))[0]
    >>> x.shape, torch.equal(shifted(x), net(points.x))
    (torch.Size([4, 5]), True)
    """

    def __init__(self, model: nn.Module, layer: str, samples: Samples, unit: Unit = "raw") -> None:
        super().__init__()
        self.model, self.layer, self.shape = private_copy(model), layer, samples.shape
        outputs = _outputs(self.model, layer, samples)
        self.inside, self.size = tuple(outputs.shape[1:]), prod(outputs.shape[1:])
        self.scale = float(outputs.double().std()) if unit == "std" else 1.0
        self.model.get_submodule(layer).register_forward_hook(_add_shift)
        self.input_space = InputSpace(None, fixed=tuple(range(prod(self.shape))))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of flat inputs with their shifts."""
        inputs, shift = torch.split(x, [prod(self.shape), self.size], dim=1)
        _current.shift = self.scale * shift.view(len(x), *self.inside)
        try:
            logits: Tensor = self.model(inputs.view(len(x), *self.shape))
        finally:
            _current.shift = None
        return logits

    def extra_repr(self) -> str:
        """Return what the weights do not tell."""
        return f"layer={self.layer}, scale={self.scale}"

    def plain(self) -> nn.Module:
        """Return the model inside, without the hook."""
        model = private_copy(self.model)
        hooks = model.get_submodule(self.layer)._forward_hooks
        for key in [key for key, hook in hooks.items() if hook is _add_shift]:
            del hooks[key]
        return model


def _add_shift(layer: nn.Module, inputs: Any, output: Any) -> Any:  # noqa: ANN401 (what layers take and return)
    shift = getattr(_current, "shift", None)
    if shift is None:
        return output
    return output + shift.to(output) if isinstance(output, Tensor) else (output[0] + shift.to(output[0]), *output[1:])


def _outputs(model: nn.Module, layer: str, samples: Samples) -> Tensor:
    """Return the layer's outputs for the first samples, (n, ...)."""
    layers = [name for name, _ in model.named_modules() if name]
    if layer not in layers:
        raise unknown_name("layer", layer, layers)
    returned: list[Any] = []
    handle = model.get_submodule(layer).register_forward_hook(lambda _, inputs, output: returned.append(output))
    x, _ = samples.batch(torch.arange(min(PROBE, len(samples))))
    try:
        with evaluating(model), torch.no_grad():
            model(x.to(device_of(model)))
    finally:
        handle.remove()
    outputs = [output[0] if isinstance(output, tuple) else output for output in returned]
    if len(outputs) != 1 or not isinstance(outputs[0], Tensor) or not outputs[0].is_floating_point():
        got = f"{len(outputs)} calls" if len(outputs) != 1 else type(outputs[0]).__name__
        raise InputError(f"expected layer {layer!r} to return one tensor of numbers for each batch, got {got}")
    if len(outputs[0]) != len(x):
        raise InputError(f"expected layer {layer!r} to return a row for each of {len(x)} inputs, got {len(outputs[0])}")
    return outputs[0].cpu()


def with_shift(samples: Samples, size: int) -> Samples:
    """Return the samples as flat inputs with a shift of zero behind each; they are computed on demand."""

    def reader(rows: Tensor) -> Callable[[], Tensor]:
        read = samples.read(rows)
        return lambda: torch.cat([read().flatten(1), torch.zeros(len(rows), size)], 1)

    return replace(samples, x=DerivedInputs(reader, (prod(samples.shape) + size,), torch.arange(len(samples))))
