"""Tug-of-war: one number for how near a model's accuracies are to re-train's."""

from collections.abc import Mapping
from math import prod

PARTS = {"tow": "unlearn_accuracy", "tow_mia": "mia_accuracy"}  # what stands for forgetting in each


def tug_of_war(model: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """Return (1 - |dA_f|) (1 - |dA_r|) (1 - |dA_t|), and with the membership attack's rate in the place of A_f.

    d are differences from re-train of fractions (the metrics are per cent); 1 is re-train itself, and the value of
    another re-trained model is the most that can be asked for.

    Reference: Zhao et al., "What makes unlearning hard and what to do about it", 2024.

    >>> exact = {"retain_accuracy": 100, "test_accuracy": 90, "unlearn_accuracy": 10, "mia_accuracy": 20}
    >>> tug_of_war(exact | {"unlearn_accuracy": 60}, exact)
    {'tow': 0.5, 'tow_mia': 1.0}
    """

    def product(*names: str) -> float:
        return prod(1 - abs(model[name] - reference[name]) / 100 for name in names)

    return {name: product(part, "retain_accuracy", "test_accuracy") for name, part in PARTS.items()}
