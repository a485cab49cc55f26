"""What the literature measures on an unlearned model: accuracies, membership inference, re-learn time, gap."""

from typing import Any

from torch import nn

from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.metrics.accuracy import accuracies, accuracy, average_gap, logits_of_parts, mean_std, summarize
from residuum.metrics.membership import attack_failure, membership_accuracy
from residuum.metrics.relearn import Relearning, mean_loss, relearn_time
from residuum.models import check_model


def evaluate(
    model: nn.Module,
    splits: Splits,
    *,
    original_loss: float | None = None,
    relearning: Relearning | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return all metrics of one model, in per cent; the model stays as it is.

    Re-learn time needs `original_loss` = L(original, S_f), see `mean_loss`; without it the value is None.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=1 / 3, test_size=60)
    >>> sorted(evaluate(build_model("mlp", (4,), 3, seed=0), splits))[:2]
    ['mia_accuracy', 'mia_entropy_accuracy']
    """
    check_model(model, splits.test, splits.classes)
    logits, attack_seed = logits_of_parts(model, splits), child_seed(seed, "membership")
    return {
        **accuracies(logits, splits),
        "mia_accuracy": membership_accuracy(logits, splits, seed=attack_seed),
        "mia_entropy_accuracy": membership_accuracy(logits, splits, feature="entropy", seed=attack_seed),
        "relearn_epochs": None
        if original_loss is None
        else relearn_time(model, original_loss, splits, relearning, seed=seed),
    }
