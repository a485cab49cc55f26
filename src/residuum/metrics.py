"""What the literature measures on an unlearned model: accuracies, membership inference, re-learn time, gap.

Accuracies are in per cent; the table has the mean, the standard deviation, and the gap to the retrained model.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.core.errors import DivergedError, warn
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed
from residuum.models import check_model, forward, mean_loss, private_copy
from residuum.training import STRICT, Epochs, Hooks, NonNegative, Recipe, TrainingPhase, cross_entropy, fit

PARTS = ("retain", "forget", "test", "forgotten_test")
GAP_METRICS = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")
METRICS = (*GAP_METRICS, "mia_entropy_accuracy")
PartLogits = Mapping[str, Tensor]  # of everything that is measured, (n, classes) each
Metrics = Mapping[str, Any]
Feature = Literal["true_prob", "entropy"]
Array = npt.NDArray[np.float64]
MOST_TRAINED = 10_000  # samples that the attacker is fitted on: an SVC takes time quadratic in them
# What the attacker learns as seen, what as unseen, and what it is queried with.
ATTACK_PARTS = {"sample": ("retain", "test", "forget"), "class": ("retain", "forget", "forgotten_test")}


def logits_of_parts(model: nn.Module, splits: Splits) -> PartLogits:
    """Return the logits of everything that is measured, by part; parts without samples are left out."""
    parts = {name: getattr(splits, name) for name in PARTS}
    return {name: forward(model, part) for name, part in parts.items() if len(part)}


def accuracy(model: nn.Module, samples: Samples) -> float:
    """Return 100 * Pr[argmax h(x) = y], in eval mode, over all outputs including a forgotten class.

    >>> import torch
    >>> points = Samples(torch.tensor([[0.2, 0.7], [0.9, 0.1]]), torch.tensor([1, 1]), ("a", "b"))
    >>> accuracy(nn.Identity(), points)
    50.0
    """
    return share_right(forward(model, samples), samples)


def share_right(logits: Tensor, samples: Samples) -> float:
    """Return 100 * the share of samples whose largest logit is that of their label."""
    return 100.0 * logits.argmax(1).eq(samples.y).double().mean().item()


def accuracies(logits: PartLogits, splits: Splits) -> dict[str, float]:
    """Return retain and test accuracy, and unlearn accuracy = 100 - forget accuracy.

    In class form the test set has no images of the forgotten class: a model that never predicts it is not punished.
    """
    return {
        "retain_accuracy": share_right(logits["retain"], splits.retain),
        "unlearn_accuracy": 100.0 - share_right(logits["forget"], splits.forget),
        "test_accuracy": share_right(logits["test"], splits.test),
    }


def margins(logits: PartLogits, splits: Splits) -> dict[str, float]:
    """Return the mean margin of forgotten samples, and how it compares with held-out samples of the same classes.

    The margin is the logit of the label minus the largest other one. `margin_gap` is the difference of the mean
    margins, held-out samples in the class mix of the forgotten ones. `heldout_auc` = sum_c U_c / sum_c n_c m_c is the
    chance that of two samples of one class the forgotten one has the larger margin (Mann-Whitney, by class), and
    `heldout_auc_error` = sqrt(sum_c n_c m_c (n_c + m_c + 1) / 12) / sum_c n_c m_c its standard deviation if both are
    alike. Without held-out samples of the forgotten classes, only the margin is there.
    """
    part = "forgotten_test" if splits.form == "class" else "test"
    forgotten, labels = _margins(logits["forget"], splits.forget.y), splits.forget.y.numpy()
    measures = {"forget_margin": float(forgotten.mean())}
    if part not in logits:
        return measures
    heldout, heldout_labels = _margins(logits[part], splits.heldout.y), splits.heldout.y.numpy()
    wins = pairs = variance = gap = counted = 0.0
    for label in np.unique(labels):
        of_class, heldout_of_class = forgotten[labels == label], np.sort(heldout[heldout_labels == label])
        n, m = len(of_class), len(heldout_of_class)
        if m:
            below, at_most = (np.searchsorted(heldout_of_class, of_class, side).sum() for side in ("left", "right"))
            wins, pairs = wins + (below + at_most) / 2, pairs + n * m
            variance += n * m * (n + m + 1) / 12
            gap, counted = gap + n * (of_class.mean() - heldout_of_class.mean()), counted + n
    if not pairs:
        return measures
    auc = {"heldout_auc": float(wins / pairs), "heldout_auc_error": float(variance**0.5 / pairs)}
    return measures | {"margin_gap": float(gap / counted)} | auc


def _margins(logits: Tensor, labels: Tensor) -> Array:
    """Return the logit of the label minus the largest other one, (n,); with one output, the logit."""
    of_label = logits.double().gather(1, labels[:, None])
    others = logits.double().scatter(1, labels[:, None], -torch.inf).amax(1, keepdim=True)
    values: Array = (of_label - others.nan_to_num(neginf=0.0))[:, 0].numpy()
    return values


def mean_std(values: Sequence[float]) -> dict[str, float]:
    """Return mean and population standard deviation (ddof 0, as the literature prints it)."""
    return {"mean": statistics.fmean(values), "std": statistics.pstdev(values), "n": len(values)}


def average_gap(metrics: Metrics, reference: Metrics) -> float:
    """Return mean(|RA - RA*|, |UA - UA*|, |TA - TA*|, |MIA - MIA*|), * = the retrained model."""
    return statistics.fmean(abs(metrics[name] - reference[name]) for name in GAP_METRICS)


def relearn_summary(times: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the median re-learn time with its number of censored seeds; None where it is not defined.

    The median is null when it falls among the censored seeds: it is only known to exceed the cap.
    """
    measured = [time for time in times if time is not None]
    if len(measured) < len(times):
        return None
    median = statistics.median(float("inf") if time["censored"] else float(time["value"]) for time in measured)
    censored = sum(time["censored"] for time in measured)
    return {"median": None if median == float("inf") else median, "censored": censored, "n": len(measured)}


def summarize(per_seed: Mapping[str, Metrics], reference: Mapping[str, Metrics]) -> dict[str, Any]:
    """Return the summary of one row over its seeds, with both forms of the average gap to the reference.

    `average_gap` compares the seed means, as the literature does; `average_gap_per_seed` averages the gaps of
    the seeds, so that errors of opposite sign do not cancel.
    """
    summary: dict[str, Any] = {name: mean_std([m[name] for m in per_seed.values()]) for name in METRICS}
    means = {name: summary[name]["mean"] for name in GAP_METRICS}
    reference_means = {name: statistics.fmean(m[name] for m in reference.values()) for name in GAP_METRICS}
    summary["relearn_epochs"] = relearn_summary([m["relearn_epochs"] for m in per_seed.values()])
    summary["average_gap"] = average_gap(means, reference_means)
    gaps = [average_gap(metrics, reference[seed]) for seed, metrics in per_seed.items()]
    summary["average_gap_per_seed"] = statistics.fmean(gaps)
    return summary


def membership_accuracy(logits: PartLogits, splits: Splits, *, feature: Feature = "true_prob", seed: int = 0) -> float:
    """Return the attack's *failure* rate: 100 * share of queried samples that it calls unseen.

    The attacker is SVC(C=3, gamma="auto", kernel="rbf") on one feature of the softmax: the probability of the
    true label, or the entropy. Sample form: trained on retain = seen, test = unseen, queried with the forget set.
    Class form: trained on retain = seen, forget = unseen, queried with held-out images of the forgotten class.
    The goal is closeness to the retrained model, not a high value. With more than 10,000 samples the attacker is
    fitted on that many, drawn by `seed` with both kinds in proportion, and a warning says so.

    Reference: Golatkar, Achille, Soatto, CVPR 2020 (entropy; there the complement is reported).

    >>> from residuum import build_model, load_dataset, make_splits
    >>> from residuum.metrics import logits_of_parts
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=1 / 3, test_size=60)
    >>> 0 <= membership_accuracy(logits_of_parts(build_model("mlp", (4,), 3, seed=0), splits), splits) <= 100
    True
    """
    features = (softmax_feature(logits[part], getattr(splits, part).y, feature) for part in ATTACK_PARTS[splits.form])
    return attack_failure(*features, seed=seed)


def softmax_feature(logits: Tensor, labels: Tensor, feature: Feature) -> Array:
    """Return one number per sample, shape (n,): p(y|x), or the entropy -sum_c p_c log p_c."""
    p, log_p = logits.double().softmax(1), logits.double().log_softmax(1)
    values: Array = (p.gather(1, labels[:, None])[:, 0] if feature == "true_prob" else -(p * log_p).sum(1)).numpy()
    return values


def attack_failure(seen: Array, unseen: Array, queried: Array, *, seed: int = 0) -> float:
    """Fit the attacker on features of seen and unseen samples; return 100 * share of `queried` called unseen."""
    from sklearn.svm import SVC

    total = len(seen) + len(unseen)
    if total > MOST_TRAINED:
        warn(f"the membership attack is fitted on {MOST_TRAINED:,} of {total:,} samples, chosen by seed")
        rng, size_seen = (
            np.random.default_rng(seed),
            min(max(1, round(MOST_TRAINED * len(seen) / total)), MOST_TRAINED - 1),
        )
        seen, unseen = (
            values if len(values) <= size else rng.choice(values, size, replace=False)
            for values, size in ((seen, size_seen), (unseen, MOST_TRAINED - size_seen))
        )
    attacker = SVC(C=3, gamma="auto", kernel="rbf")
    attacker.fit(np.concatenate([seen, unseen])[:, None], np.repeat([1, 0], [len(seen), len(unseen)]))
    called_unseen = attacker.predict(queried[:, None]) == 0
    if called_unseen.all() or not called_unseen.any():
        verdict = "unseen" if called_unseen.all() else "seen"
        warn(f"the membership attack calls every sample {verdict}")
    return 100.0 * float(called_unseen.mean())


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Relearning(Recipe):
    """How to re-learn: SGD on the forget set (or the full training set) with frozen batch-norm statistics.

    The model counts as relearned once L(m_t, S_f) <= (1 + tolerance) * L(original, S_f); `epochs` is the cap.
    """

    epochs: Epochs = 30
    bn_mode: Literal["train", "eval"] = "eval"
    tolerance: NonNegative = 0.05
    data: Literal["forget", "full"] = "forget"


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


def evaluate(
    model: nn.Module,
    splits: Splits,
    *,
    original_loss: float | None = None,
    relearning: Relearning | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return all metrics of one model, accuracies in per cent; the model stays as it is.

    Re-learn time needs `original_loss` = L(original, S_f), see `mean_loss`; without it the value is None.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=1 / 3, test_size=60)
    >>> sorted(evaluate(build_model("mlp", (4,), 3, seed=0), splits))[:3]
    ['forget_margin', 'heldout_auc', 'heldout_auc_error']
    """
    check_model(model, splits.test, splits.classes)
    logits, attack_seed = logits_of_parts(model, splits), child_seed(seed, "membership")
    return {
        **accuracies(logits, splits),
        **margins(logits, splits),
        "mia_accuracy": membership_accuracy(logits, splits, seed=attack_seed),
        "mia_entropy_accuracy": membership_accuracy(logits, splits, feature="entropy", seed=attack_seed),
        "relearn_epochs": None
        if original_loss is None
        else relearn_time(model, original_loss, splits, relearning, seed=seed),
    }
