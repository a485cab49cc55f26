"""Try a model on a few samples before anything is measured with it."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from residuum.models.inference import forward
from residuum.types import InputError, ResiduumWarning, Samples

PROBE = 16  # samples that are tried


def check_model(model: nn.Module, samples: Samples, classes: int) -> None:
    """Raise an InputError if the model cannot be used, and warn if it returns probabilities.

    Usable: takes inputs of the samples' shape and returns finite logits (n, classes). The model is not changed.

    >>> samples = Samples(torch.rand(3, 4), torch.tensor([0, 1, 1]), ("a", "b", "c"))
    >>> check_model(nn.Linear(4, 3), samples, classes=2)
    Traceback (most recent call last):
        ...
    residuum.errors.InputError: the model returns 3 outputs per sample, but there are 2 classes; build it with 2 outputs
    """
    probe = samples.subset(range(min(PROBE, len(samples))))
    outputs = _outputs(model, probe)
    _refuse_bad_outputs(outputs, probe, classes)
    if _are_probabilities(outputs):
        warnings.warn(
            "the model returns probabilities (non-negative, sum 1); losses and margins need logits: remove its softmax",
            ResiduumWarning,
            stacklevel=2,
        )


def _outputs(model: nn.Module, probe: Samples) -> Tensor:
    try:
        return forward(model, probe)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the model cannot take inputs of shape {probe.shape} ({reason})") from error


def _refuse_bad_outputs(outputs: Tensor, probe: Samples, classes: int) -> None:
    count = len(probe)
    if outputs.ndim != 2 or len(outputs) != count:
        raise InputError(
            f"the model must return logits ({count}, {classes}) for {count} samples, got {tuple(outputs.shape)}"
        )
    if outputs.shape[1] != classes:
        raise InputError(
            f"the model returns {outputs.shape[1]} outputs per sample, but there are {classes} classes; "
            f"build it with {classes} outputs"
        )
    wrong = ~outputs.isfinite().all(1)
    if bool(wrong.any()):
        first = probe.ids[int(wrong.to(torch.uint8).argmax())]
        raise InputError(f"the model returns NaN or infinite logits for {first!r}; its weights or training are broken")


def _are_probabilities(outputs: Tensor) -> bool:
    sums = outputs.double().sum(1)
    return bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-4)
