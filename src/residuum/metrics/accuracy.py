"""The literature's accuracies in per cent, and its table: mean, standard deviation, gap to the retrained model."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from residuum.core.samples import Samples, Splits
from residuum.models import forward

PARTS = ("retain", "forget", "test", "forgotten_test")
GAP_METRICS = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")
METRICS = (*GAP_METRICS, "mia_entropy_accuracy")
PartLogits = Mapping[str, Tensor]  # of everything that is measured, (n, classes) each
Metrics = Mapping[str, Any]


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
