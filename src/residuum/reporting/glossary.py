"""What is measured, under which title, in which unit, which direction is good, and what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of the results table: its key, title, short title, unit, which direction is good, and its meaning."""

    key: str
    title: str
    short: str
    unit: str
    direction: str
    meaning: str


METRICS = (
    Column(
        "retain_accuracy",
        "Retain accuracy",
        "Retain acc.",
        "%",
        "near re-train",
        "Share of the kept training samples that the model classifies correctly. A gap to re-train means lost utility.",
    ),
    Column(
        "unlearn_accuracy",
        "Unlearn accuracy",
        "Unlearn acc.",
        "%",
        "near re-train",
        "Share of the forgotten samples that the model gets wrong. Below re-train: still knows them; far above: "
        "over-forgotten, which gives them away too.",
    ),
    Column(
        "test_accuracy",
        "Test accuracy",
        "Test acc.",
        "%",
        "near re-train or higher",
        "Share of unseen test samples that the model classifies correctly.",
    ),
    Column(
        "mia_accuracy",
        "MIA accuracy",
        "MIA acc.",
        "%",
        "near re-train",
        "Share of the forgotten samples that a membership-inference attack calls unseen. Below re-train: the attack "
        "still recognises members.",
    ),
)
RELEARN = Column(
    "relearn_epochs",
    "Re-learn time",
    "Re-learn",
    "epochs",
    "near re-train",
    "Median number of epochs until the forgotten samples are learnt again; '> cap' where the cap came first "
    "(censored). Faster than re-train: traces are left.",
)
GAP = Column(
    "average_gap",
    "Average gap",
    "Avg. gap",
    "points",
    "lower is better",
    "Mean of the four absolute gaps to re-train (retain, unlearn, test, MIA), from the means over seeds.",
)
RESIDUAL = Column(
    "residual",
    "Residual knowledge",
    "Residual",
    "r",
    "near 1",
    "The ratio r farthest from 1 over the radii above 0 (class form: the difference farthest from 0), mean over seeds. "
    "Above 1: perturbed forgotten samples are recognised more often than by re-train.",
)
COST = Column(
    "cost",
    "Cost",
    "Cost",
    "% of re-training",
    "lower is better",
    "Forward-backward passes over single samples, relative to training re-train from scratch.",
)
COLUMNS = (*METRICS, RELEARN, GAP, RESIDUAL, COST)


@dataclass(frozen=True)
class Measure:
    """A quantity of the audit: its name in the record, and how it is read."""

    key: str
    title: str
    axis: str
    meaning: str
    neutral: float | None = None
    ratio: bool = False


MEASURES = (
    Measure(
        "pooled",
        "Residual knowledge (pooled)",
        "r, times as often right as re-train",
        "How many times as often the model is right on perturbed forgotten samples as re-train, all samples together. "
        "Above 1 it recognises them more often than a model that never saw them.",
        1.0,
        ratio=True,
    ),
    Measure(
        "mean_of_ratios",
        "Mean of ratios",
        "mean of r over samples",
        "The literature's form: the ratio of each sample, averaged over the samples on which re-train is ever right. "
        "One sample that re-train almost never gets right can move it far; it has no interval.",
        1.0,
        ratio=True,
    ),
    Measure(
        "difference",
        "Difference",
        "Pr[model right] − Pr[re-train right]",
        "How much more often the model is right than re-train, as a difference of shares; defined also where re-train "
        "is never right.",
        0.0,
    ),
    Measure(
        "disagreement",
        "Disagreement",
        "share of perturbed samples",
        "Share of perturbed forgotten samples on which the model and re-train predict different classes.",
    ),
    Measure(
        "unlearn_accuracy",
        "Unlearn accuracy, perturbed",
        "share wrong on perturbed samples",
        "Share of perturbed forgotten samples that the model gets wrong; read it against re-train's own curve.",
    ),
    Measure(
        "prevalence",
        "Prevalence",
        "share of forgotten samples",
        "Share of forgotten samples recognised more often than by re-train. It is above 0 between any two models: read "
        "it against the control's. The interval is over samples.",
    ),
)
AXES = {"gaussian": "standard deviation of the noise", "uniform_l2": "l2 radius"}
