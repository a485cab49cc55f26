"""Re-learn time: how many epochs until the unlearned model knows the forget set again."""

from typing import Any, Literal

from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn import functional as F

from residuum.core.errors import DivergedError, warn
from residuum.core.samples import Samples, Splits
from residuum.models import forward, private_copy
from residuum.training import STRICT, Epochs, Hooks, NonNegative, Recipe, TrainingPhase, cross_entropy, fit


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Relearning(Recipe):
    """How to re-learn: SGD on the forget set (or the full training set) with frozen batch-norm statistics.

    The model counts as relearned once L(m_t, S_f) <= (1 + tolerance) * L(original, S_f); `epochs` is the cap.
    """

    epochs: Epochs = 30
    bn_mode: Literal["train", "eval"] = "eval"
    tolerance: NonNegative = 0.05
    data: Literal["forget", "full"] = "forget"


def mean_loss(model: nn.Module, samples: Samples) -> float:
    """Return L(w, S): the mean cross-entropy in eval mode without augmentation."""
    return F.cross_entropy(forward(model, samples).double(), samples.y).item()


def relearn_time(
    model: nn.Module, original_loss: float, splits: Splits, recipe: Relearning | None = None, *, seed: int
) -> dict[str, Any]:
    """Return the smallest number of epochs t >= 0 with L(m_t, S_f) <= (1 + tolerance) * `original_loss`.

    The entry of results.json: `value` (None when the cap was reached first), `censored` and `threshold`. The model
    itself stays as it is. A time beyond the cap is censored, never averaged; so is one whose training diverges.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=0.1, test_size=30)
    >>> model = build_model("mlp", (4,), 3, seed=0)
    >>> relearn_time(model, mean_loss(model, splits.forget), splits, seed=1)["value"]
    0
    """
    recipe = recipe or Relearning()
    learner, threshold = private_copy(model), (1 + recipe.tolerance) * original_loss
    data = splits.forget if recipe.data == "forget" else splits.train
    losses: list[float] = []

    def relearned(epoch: int) -> bool:
        losses.append(mean_loss(learner, splits.forget))
        return losses[-1] <= threshold

    if not relearned(-1):
        phases = [TrainingPhase(cross_entropy, "data")]
        try:
            fit(learner, {"data": data}, recipe, phases, seed=seed, hooks=Hooks(stop_after_epoch=relearned))
        except DivergedError as error:  # a model that was destroyed cannot always be trained again
            warn(f"re-learning ended early and counts as beyond the cap: {error}")
    value = len(losses) - 1 if losses[-1] <= threshold else None
    return {"value": value, "censored": value is None, "threshold": threshold}
