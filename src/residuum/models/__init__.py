"""Classifiers that take pixels in [0, 1] and return logits, and what can be asked of any `nn.Module`."""

from residuum.models.heads import give_unit_head, head_features
from residuum.models.inference import (
    are_probabilities,
    check_model,
    device_of,
    evaluating,
    forward,
    head_of,
    module_flags,
)
from residuum.models.registry import MODELS, build_model
from residuum.models.weights import Manifest, init_from, load_weights, read_manifest, read_metadata, save_weights

__all__ = [
    "MODELS",
    "Manifest",
    "are_probabilities",
    "build_model",
    "check_model",
    "device_of",
    "evaluating",
    "forward",
    "give_unit_head",
    "head_features",
    "head_of",
    "init_from",
    "load_weights",
    "module_flags",
    "read_manifest",
    "read_metadata",
    "save_weights",
]
