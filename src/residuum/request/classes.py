"""Classes of a request's parts: their names and numbers are those of the training data, or of the model's outputs."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from residuum.data.sources import Source
from residuum.models import forward
from residuum.types import InputError, Samples, Splits


def class_names_of(given: Sequence[str] | None, source: Source) -> tuple[str, ...] | None:
    """Return the names of the classes, as given or as the data have them; None where classes are numbers."""
    names = tuple(map(str, given)) if given is not None else source.class_names
    most = int(source.samples.y.max())
    if names is not None and most >= len(names):
        raise InputError(f"data: expected labels 0..{len(names) - 1} for {len(names)} class names, got {most}")
    return names


def as_many_names(model: nn.Module, splits: Splits) -> tuple[str, ...]:
    """Return a number for each output of the model, where no class has a name."""
    try:
        outputs = forward(model, splits.retain.subset([0]))
    except Exception:  # check_model says it in one line
        return splits.class_names
    many = int(outputs.shape[1]) if outputs.ndim == 2 else 0
    return tuple(map(str, range(many))) if many > splits.classes else splits.class_names


def renumbered(found: Source, names: Sequence[str], what: str) -> Samples:
    """Return samples whose classes have the same names in another order, or are fewer."""
    position = {name: k for k, name in enumerate(names)}
    own = found.class_names or ()
    if (unknown := next((name for name in own if name not in position), None)) is not None:
        raise InputError(f"{what}: class {unknown!r} is not among those of the training data: {', '.join(names)}")
    labels = torch.tensor([position[name] for name in own])[found.samples.y]
    return prefixed(replace(found.samples, y=labels), f"{what}/")


def prefixed(samples: Samples, prefix: str) -> Samples:
    """Return the samples under ids that begin with the prefix."""
    return replace(samples, ids=tuple(prefix + name for name in samples.ids))
