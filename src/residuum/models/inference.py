"""Logits of any `nn.Module` without changing it, and a check of a model before it is measured."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from math import prod
from typing import TypeVar

import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, first_line, warn
from residuum.core.samples import Samples

Model = TypeVar("Model", bound=nn.Module)
PROBE = 16  # samples that are tried


@contextmanager
def module_flags(model: nn.Module) -> Iterator[None]:
    """Restore the train or eval flag of every submodule on exit, also after an error."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode and restore every flag on exit."""
    with module_flags(model):
        model.eval()
        yield


def rows_at_once(shape: tuple[int, ...]) -> int:
    """Return how many inputs of this shape fit in one forward pass: 512, fewer for large images.

    >>> rows_at_once((3, 32, 32)), rows_at_once((3, 224, 224))
    (512, 16)
    """
    return max(16, min(512, 2**21 // max(prod(shape), 1)))


def device_of(model: nn.Module) -> torch.device:
    """Return where the model's first parameter or buffer is; that is where its inputs must be."""
    return next((value.device for value in chain(model.parameters(), model.buffers())), torch.device("cpu"))


def private_copy(model: Model) -> Model:
    """Return a deep copy of a model; tensors that a forward pass left on its modules lose their gradient history.

    >>> layer = nn.Linear(2, 1)
    >>> layer.last = layer(torch.ones(1, 2))
    >>> private_copy(layer).last.requires_grad
    False
    """
    left = (value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor))
    clones = {id(value): value.detach().clone() for value in left if not value.is_leaf}
    try:
        return copy.deepcopy(model, clones)
    except (RuntimeError, TypeError) as error:
        text = f"expected a network that can be copied, got {type(model).__name__} ({first_line(error)})"
        raise InputError(f"{text}; let its forward pass keep no lists or dictionaries of tensors on self") from error


def forward(model: nn.Module, samples: Samples, *, batch_size: int | None = None) -> Tensor:
    """Return the logits (n, classes) of all samples, on the CPU, in eval mode and without gradients.

    >>> samples = Samples(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), ("a",))
    >>> forward(nn.Identity(), samples)
    tensor([[1., 0.]])
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, got {batch_size}")
    batches, device = samples.batches(batch_size or rows_at_once(samples.shape)), device_of(model)
    with evaluating(model), torch.no_grad():
        return torch.cat([model(x.to(device)).cpu() for x, _, _ in batches])


def mean_loss(model: nn.Module, samples: Samples) -> float:
    """Return L(w, S): the mean cross-entropy in eval mode without augmentation."""
    return nn.functional.cross_entropy(forward(model, samples).double(), samples.y).item()


def head_of(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return name and module of the last linear layer in order of definition."""
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise InputError(f"{type(model).__name__} has no nn.Linear layer, so its head is not known")
    return linear[-1]


def head_features(model: nn.Module, samples: Samples) -> Tensor:
    """Return what enters the last linear layer, shape (n, d), in eval mode; its output must be the model's."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = head_of(model)[1].register_forward_hook(lambda _, x, output: seen.append((x[0].cpu(), output.cpu())))
    try:
        logits = forward(model, samples)
    finally:
        hook.remove()
    if not seen or seen[0][0].ndim != 2 or not torch.equal(torch.cat([output for _, output in seen]), logits):
        text = "expected the model's last nn.Linear to take features (n, d) once and to return the logits"
        raise InputError(f"{text}; something follows it or it is used otherwise, so it is not a head")
    return torch.cat([features for features, _ in seen])


def check_model(model: nn.Module, samples: Samples, classes: int) -> None:
    """Raise an InputError if the model cannot be used, and warn if it returns probabilities.

    Usable: takes inputs of the samples' shape and returns finite logits (n, classes). The model is not changed.

    >>> samples = Samples(torch.rand(3, 4), torch.tensor([0, 1, 1]), ("a", "b", "c"))
    >>> check_model(nn.Linear(4, 3), samples, classes=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    residuum.core.errors.InputError: the model returns 3 outputs per sample, but there are 2 classes; ...
    """
    probe = samples.subset(range(min(PROBE, len(samples))))
    try:
        outputs = forward(model, probe)
    except InputError:  # it says what to do
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        others = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
        hint = f"; its weights are {others.pop()} and inputs are float32: give model.float()" if others else ""
        raise InputError(f"the model cannot take inputs of shape {probe.shape} ({first_line(error)}){hint}") from error
    count, shape = len(probe), tuple(outputs.shape)
    if len(outputs) == count and classes == 2 and shape in ((count,), (count, 1)):
        two = "torch.stack([0 * z.flatten(), z.flatten()], 1)"
        raise InputError(f"the model returns one logit z for 2 classes; make it two: wrap(..., logits=lambda z: {two})")
    if outputs.ndim != 2 or len(outputs) != count:
        fault = f"the model must return logits ({count}, {classes}) for {count} samples, got {shape}"
        raise InputError(f"{fault}; if its output holds them elsewhere, say where with wrap(..., logits=)")
    if shape[1] != classes:
        fault = f"the model returns {shape[1]} outputs per sample, but there are {classes} classes"
        raise InputError(f"{fault}; build it with {classes} outputs")
    wrong = ~outputs.isfinite().all(1)
    if bool(wrong.any()):
        first = probe.ids[int(wrong.to(torch.uint8).argmax())]
        raise InputError(f"the model returns NaN or infinite logits for {first!r}; its weights or training are broken")
    if are_probabilities(outputs):
        fault = "the model returns probabilities (non-negative, sum 1)"
        warn(f"{fault}; losses and margins need logits: remove its softmax")


def are_probabilities(outputs: Tensor) -> bool:
    """Return whether every row is non-negative and sums to 1."""
    sums = outputs.double().sum(1)
    return bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-4)
