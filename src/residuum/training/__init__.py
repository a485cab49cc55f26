"""The one training loop: the original, retrained models and every gradient method go through `fit`."""

from residuum.training.loop import (
    NO_HOOKS,
    STRICT,
    Epochs,
    Fraction,
    Hooks,
    Loss,
    NonNegative,
    PlainSGD,
    Positive,
    Progress,
    Recipe,
    TrainingPhase,
    counting_passes,
    cross_entropy,
    fit,
    generators_kept,
    train,
)
from residuum.training.minibatches import Augmentation, Batch
