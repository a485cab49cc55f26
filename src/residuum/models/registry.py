"""Build networks by name."""

from collections.abc import Sequence
from typing import Any

import torch

from residuum.core import components
from residuum.core.errors import InputError, unknown_name
from residuum.core.files import machine_memory
from residuum.core.registry import Registry
from residuum.core.seeds import generator
from residuum.models.layers import Classifier, Normalize, give_unit_head, initialize

MODELS: Registry[type[Classifier]] = components.MODELS
HEADS = ("linear", "unit")


def build_model(
    name: str,
    shape: Sequence[int],
    classes: int,
    *,
    width: int | None = None,
    mean: Sequence[float] = (0.5,),
    std: Sequence[float] = (0.5,),
    head: str = "linear",
    seed: int,
) -> Classifier:
    """Return a freshly initialized model for inputs of `shape` in [0, 1]; weights depend on `seed` only.

    `width` scales the layers (default: see `MODELS`; `logistic` has none). `mean` and `std`, one per channel or one for
    all, are the constants of the first layer, `normalize`. `head="unit"` scales the features to length one and leaves
    the bias out, as certified removal does. `model.architecture` records all of it. The model is in eval mode.

    >>> model = build_model("resnet18", (3, 32, 32), 10, seed=131)
    >>> sum(p.numel() for p in model.parameters())
    11173962
    """
    name = MODELS.named(name)
    network: Any = MODELS.find(name)  # networks take (shape, classes, width, normalize), as this package says
    if head not in HEADS:
        raise unknown_name("head", head, HEADS)
    shape, width = tuple(shape), network.default_width if width is None else width
    _refuse_bad_sizes(name, shape, classes, width, mean, std)
    with torch.device("meta"):  # nothing is drawn from the global generator
        model: Classifier = network(shape, classes, width, Normalize(mean, std))
        model.architecture = {}
        if head == "unit":
            give_unit_head(model)
    # weights, gradients and momentum must fit in memory
    needed = 3 * sum(value.numel() * value.element_size() for value in model.state_dict().values())
    if needed > machine_memory():
        sizes = f"{needed / 2**30:.0f} GiB to train, this machine has {machine_memory() / 2**30:.0f}"
        raise InputError(f"{name} of width {width} needs {sizes}; lower the width")
    # as to_empty, which takes half a second to load sympy
    memory = {key: torch.empty(value.shape, dtype=value.dtype) for key, value in model.state_dict().items()}
    model.load_state_dict(memory, assign=True)
    initialize(model, generator(seed))
    model.architecture |= {"name": name, "shape": list(map(int, shape)), "classes": int(classes), "width": int(width)}
    model.architecture |= {"mean": list(map(float, mean)), "std": list(map(float, std))}
    return model.eval()  # the training loop switches modes itself


def _refuse_bad_sizes(
    name: str, shape: tuple[int, ...], classes: int, width: int, mean: Sequence[float], std: Sequence[float]
) -> None:
    if MODELS[name].images and len(shape) != 3:
        flat = ", ".join(sorted(key for key, network in MODELS.items() if not network.images))
        raise InputError(f"{name} needs images (channels, height, width), got inputs of shape {shape}; take {flat}")
    if not shape or min(shape) < 1:
        raise InputError(f"the shape of an input must be positive sizes, got {shape}")
    if classes < 2:
        raise InputError(f"a classifier needs at least 2 classes, got {classes}")
    if width < 1:
        raise InputError(f"width must be 1 or more, got {width}")
    for what, values in (("mean", mean), ("std", std)):
        if len(values) not in {1, shape[0]}:
            raise InputError(f"{what} must have 1 value or one per channel ({shape[0]}), got {len(values)}")
    if min(std) <= 0:
        raise InputError(f"std must be positive, got {min(std)}")
