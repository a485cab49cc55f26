"""Check before anything is computed whether a model fits its data: accuracy, classes, normalization and modes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, plural
from residuum.core.inputs import space_of
from residuum.core.samples import Samples, Splits
from residuum.data.dataset import checked_class_names
from residuum.data.read import Source
from residuum.metrics import accuracy
from residuum.models import are_probabilities, evaluating, forward
from residuum.unlearning import Method

MOST = 2000  # samples that are looked at
GAIN = 10.0  # points of accuracy that another reading of the inputs must add to be worth a word
LOST = 1.0  # points of accuracy that unlearning may cost without further training or a warning
LOW = 50.0  # per cent right on training data below which a model does not look trained on them, for two classes or more


@dataclass(frozen=True)
class Check:
    """What a model does on the data, in per cent, and what does not fit, in sentences."""

    training_accuracy: float
    forget_accuracy: float
    held_out_accuracy: float | None
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing looks wrong."""
        return not self.problems

    def __str__(self) -> str:
        """Say all of it, one line each."""
        held = "none given" if self.held_out_accuracy is None else f"{self.held_out_accuracy:.1f} %"
        lines = [
            f"accuracy on training data {self.training_accuracy:.1f} %, on the samples to forget "
            f"{self.forget_accuracy:.1f} %, on held-out samples {held}"
        ]
        return "\n".join([*lines, *(f"does not fit: {text}" for text in self.problems)] + ["fits"] * self.fits)


def checked(model: nn.Module, splits: Splits) -> Check:
    """Return the check of a model on the splits of a request."""
    train, held_out = _first(splits.train), _first(splits.test) if len(splits.test) else None
    logits = forward(model, train)
    right = _share(logits, train)
    problems = []
    if training := [type(module).__name__ for module in model.modules() if module.training]:
        modules = plural(len(training), "module")
        problems.append(f"{modules} in training mode, the first a {training[0]}; it is used in eval mode")
    if are_probabilities(logits):
        problems.append(
            "it returns probabilities, and losses need logits: remove its softmax, or give wrap(..., logits=)"
        )
    problems += [*_order(logits, train, splits.class_names, right), *_normalization(model, train, right)]
    problems += _level(right, splits)
    held_share = None if held_out is None else _share(forward(model, held_out), held_out)
    if held_share is not None and held_share > right + GAIN:
        problems.append(
            f"it is right on held-out samples more often than on training data: {held_share:.1f} % against "
            f"{right:.1f} %"
        )
    return Check(right, _share(forward(model, splits.forget), splits.forget), held_share, tuple(problems))


def accuracies(model: nn.Module, splits: Splits) -> dict[str, float]:
    """Return accuracy in per cent on retained samples and, if any, on validation and held-out samples of their classes.

    Where a whole class is forgotten, its other samples do not count: a retrained model is wrong on them as well.
    """
    return {name: accuracy(model, part) for name, part in _compared(splits).items() if len(part)}


def _compared(splits: Splits) -> dict[str, Samples]:
    parts = {"validation": splits.validation, "held_out": splits.test}
    classes = torch.unique(splits.retain.y)
    alike = {name: part.subset(torch.isin(part.y, classes).nonzero().flatten().numpy()) for name, part in parts.items()}
    return {"retain": splits.retain} | alike


def lost_accuracy(before: Mapping[str, float], after: Mapping[str, float], splits: Splits) -> dict[str, float]:
    """Return the points of accuracy that were lost, by part, where they are more than one.

    On samples that no model was trained on they must be more than a standard error, too.
    """
    limits = {
        name: LOST if name == "retain" else max(LOST, math.sqrt(before[name] * (100 - before[name]) / len(part)))
        for name, part in _compared(splits).items()
        if name in before
    }
    return {name: before[name] - after[name] for name in before if before[name] - after[name] > limits[name]}


def loss_warning(
    method: Method, before: Mapping[str, float], after: Mapping[str, float], lost: Mapping[str, float], advice: str
) -> str:
    """Return the warning that unlearning cost more accuracy than it should, with what to try."""
    points = " and ".join(
        f"{points:.1f} points of {name.replace('_', '-')} accuracy ({before[name]:.1f} to {after[name]:.1f} %)"
        for name, points in lost.items()
    )
    return f"{method.name} lost {points}; try {advice}"


def _first(samples: Samples) -> Samples:
    """Return at most `MOST` samples, spread evenly over all."""
    rows = np.unique(np.linspace(0, len(samples) - 1, min(MOST, len(samples))).astype(int))
    return samples.subset(rows)


def _share(logits: Tensor, samples: Samples) -> float:
    return 100.0 * logits.argmax(1).eq(samples.y).double().mean().item()


def _level(accuracy: float, splits: Splits) -> Iterator[str]:
    chance = 100.0 / splits.classes
    if accuracy < max(LOW if splits.classes > 1 else 0, 1.5 * chance):
        yield (
            f"it is right on {accuracy:.1f} % of what it is said to have been trained on (chance: {chance:.1f} %): are "
            "these its weights, its training data, its normalization (mean, std) and its order of classes?"
        )


def _order(logits: Tensor, samples: Samples, names: tuple[str, ...], accuracy: float) -> Iterator[str]:
    """Yield the order of classes in which the model would be right much more often."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((logits.shape[1], logits.shape[1]))
    np.add.at(counts, (samples.y.numpy(), logits.argmax(1).numpy()), 1)
    rows, columns = linear_sum_assignment(-counts)
    best = 100.0 * counts[rows, columns].sum() / len(samples)
    if best > accuracy + GAIN and best > LOW:
        order = [names[int(row)] if row < len(names) else str(row) for row in np.argsort(columns)]
        yield (
            f"with its outputs in the order {', '.join(order)} it would be right on {best:.1f} % instead of "
            f"{accuracy:.1f} %: number the classes as in its training, or give class_names in its order"
        )


def _normalization(model: nn.Module, samples: Samples, accuracy: float) -> Iterator[str]:
    """Yield another scale of the inputs at which the model would be right much more often."""
    adapter, space = getattr(model, "adapter", None), space_of(model)
    if space.tokens:
        return
    x, _ = samples.batch(torch.arange(len(samples)))
    readings = {"multiplied by 255 (it may expect 0 to 255)": 255 * x}
    if adapter is None or adapter.mean is None:
        readings |= {"normalized to mean 0.5 and std 0.5": (x - 0.5) / 0.5}
        mean, std = x.mean(), x.std()
        readings |= {f"normalized by their own mean {mean:.3f} and std {std:.3f}": (x - mean) / std}
    else:
        ones = [1] * (x.ndim - 2)
        readings["without its mean and std (were they normalized before?)"] = x * adapter.std.to(x).view(
            1, -1, *ones
        ) + adapter.mean.to(x).view(1, -1, *ones)
    for words, inputs in readings.items():
        with evaluating(model), torch.no_grad():
            share = _share(torch.cat([model(part) for part in torch.split(inputs, 256)]), samples)
        if share > accuracy + GAIN:
            instead = f"it would be right on {share:.1f} % instead of {accuracy:.1f} %"
            yield f"with inputs {words} {instead}: give wrap(mean=, std=)"


def class_names_of(class_names: Sequence[str] | None, source: Source) -> tuple[str, ...] | None:
    """Return the names of the classes, as given or as the data have them; None where classes are numbers."""
    names = checked_class_names(class_names) if class_names is not None else source.class_names
    most = int(source.samples.y.max())
    if names is not None and most >= len(names):
        raise InputError(f"data: expected labels 0..{len(names) - 1} for {len(names)} class names, got {most}")
    return names


def as_many_names(model: nn.Module, splits: Splits) -> tuple[str, ...]:
    """Return a number for each output of the model, where no class has a name; refuse labels beyond the outputs."""
    try:
        outputs = forward(model, splits.retain.subset([0]))
    except Exception:  # check_model says it in one line
        return splits.class_names
    many = int(outputs.shape[1]) if outputs.ndim == 2 else 0
    if 1 < many < splits.classes:
        _refuse_labels_beyond(many, splits)
    return tuple(map(str, range(many))) if many > splits.classes else splits.class_names


def in_order(source: Source, class_names: Sequence[str] | None) -> Source:
    """Return the source with its classes numbered in the order of the names, where it has names of its own.

    Where all names are others, they rename the classes.
    """
    classes, names = source.class_names, tuple(class_names or ())
    if classes is None or names == classes or set(names).isdisjoint(classes):
        return source
    if source.items is not None:
        expected = f"expected the order of the data set, {', '.join(classes)}, because your training function gets its"
        raise InputError(
            f"class_names: {expected} labels, got {', '.join(names)}; leave class_names out, or number the data set's "
            "classes in this order"
        )
    return replace(source, samples=_numbered(source, checked_class_names(names), "class_names"), class_names=names)


def _refuse_labels_beyond(outputs: int, splits: Splits) -> None:
    """Refuse labels that do not begin at 0, and labels that other samples have than those trained on."""
    lowest, highest = int(splits.train.y.min()), int(splits.train.y.max())
    if lowest > 0 and highest - lowest < outputs:
        raise InputError(
            f"data: expected labels 0..{outputs - 1}, because the model returns {outputs} outputs, got {lowest}.."
            f"{highest}; number the classes from 0"
        )
    for name, part in {"held_out": splits.test, "validation": splits.validation}.items():
        if highest < outputs and len(part) and int(part.y.max()) >= outputs:
            raise InputError(
                f"{name}: expected labels 0..{outputs - 1}, because the model returns {outputs} outputs, got "
                f"{int(part.y.max())}; number its classes as those of the training data"
            )


def renumbered(source: Source, names: Sequence[str], what: str) -> Samples:
    """Return samples whose classes have the same names in another order, or are fewer."""
    return prefixed(_numbered(source, names, f"{what}: class", "those of the training data"), f"{what}/")


def _numbered(source: Source, names: Sequence[str], what: str, where: str = "them") -> Samples:
    """Return samples whose labels are the positions of their classes among the names."""
    position = {name: k for k, name in enumerate(names)}
    class_names = source.class_names or ()
    if (unknown := next((name for name in class_names if name not in position), None)) is not None:
        raise InputError(f"{what}: {unknown!r} is not among {where}: {', '.join(names)}")
    labels = torch.tensor([position[name] for name in class_names])[source.samples.y]
    return replace(source.samples, y=labels)


def prefixed(samples: Samples, prefix: str) -> Samples:
    """Return the samples under ids that begin with the prefix."""
    return replace(samples, ids=tuple(prefix + name for name in samples.ids))
