"""An audit at a layer: every model takes its input and a shift of that layer's output, and the shift is perturbed."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from torch import nn

from residuum.models.shifting import ShiftedAt, with_shift
from residuum.perturbations import Perturbation
from residuum.types import Samples


def at_layer(
    perturbation: Perturbation,
    models: Mapping[str, nn.Module],
    reference: nn.Module,
    samples: Samples,
    heldout: Samples | None,
    original: nn.Module | None,
    crafted_on: Any,  # noqa: ANN401 (a word or a model)
) -> dict[str, Any]:
    """Return the arguments of `audit` by which the perturbation acts at its layer; what was given stays as it is."""
    made: dict[int, ShiftedAt] = {}

    def shifted(model: nn.Module) -> ShiftedAt:
        if id(model) not in made:
            made[id(model)] = ShiftedAt(model, str(perturbation.at), samples, perturbation.unit)
        return made[id(model)]

    size = shifted(reference).size
    return {
        "perturbation": replace(perturbation, at=None, unit="raw", still=prod(samples.shape)),
        "models": {name: shifted(model) for name, model in models.items()},
        "reference": shifted(reference),
        "samples": with_shift(samples, size),
        "heldout": None if heldout is None else with_shift(heldout, size),
        "original": None if original is None else shifted(original),
        "crafted_on": shifted(crafted_on) if isinstance(crafted_on, nn.Module) else crafted_on,
    }
