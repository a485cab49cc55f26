"""Classifiers that take pixels in [0, 1] and return logits, and functions of any `nn.Module`."""

from residuum.models.inference import (
    are_probabilities,
    check_model,
    device_of,
    evaluating,
    forward,
    head_features,
    head_of,
    mean_loss,
    module_flags,
    private_copy,
)
from residuum.models.layers import Classifier, Normalize, give_unit_head
from residuum.models.networks import CNN, MLP, VGG11, Airbench, LogisticRegression, ResNet18, ResNet50
from residuum.models.registry import MODELS, build_model
from residuum.models.shifting import ShiftedAt, with_shift
from residuum.models.weights import (
    Manifest,
    init_from,
    load_state,
    load_weights,
    read_manifest,
    save_state,
    save_weights,
)
from residuum.models.wrapping import wrap, wrap_like
