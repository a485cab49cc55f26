"""Classifiers that take pixels in [0, 1] and return logits, and what can be asked of any `nn.Module`."""

from residuum.models.inference import are_probabilities as are_probabilities
from residuum.models.inference import check_model as check_model
from residuum.models.inference import device_of as device_of
from residuum.models.inference import evaluating as evaluating
from residuum.models.inference import forward as forward
from residuum.models.inference import head_features as head_features
from residuum.models.inference import head_of as head_of
from residuum.models.inference import module_flags as module_flags
from residuum.models.layers import give_unit_head as give_unit_head
from residuum.models.registry import MODELS as MODELS
from residuum.models.registry import build_model as build_model
from residuum.models.weights import Manifest as Manifest
from residuum.models.weights import init_from as init_from
from residuum.models.weights import load_weights as load_weights
from residuum.models.weights import read_manifest as read_manifest
from residuum.models.weights import read_metadata as read_metadata
from residuum.models.weights import save_weights as save_weights
