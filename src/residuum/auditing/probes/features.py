"""What the last layer's features still tell: a linear classifier that is trained on them anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from residuum.auditing.heldout import FEWEST_OF_CLASS
from residuum.auditing.probes.base import Evidence, Probe, Value
from residuum.auditing.statistics import Classes, Floats, rank
from residuum.core.errors import InputError
from residuum.core.samples import Splits
from residuum.models import head_features

FOLDS = 5
REGULARIZATION = 1.0  # C of scikit-learn's logistic regression, its default


@dataclass(frozen=True)
class Features(Probe):
    """AUC with which a linear classifier on a model's features tells a forgotten class from the others.

    The features are what enters the model's last linear layer. Samples are held out, so no model saw them: the probe
    asks what the model knows of the class, not of the forgotten samples. It is cross-fitted (`cross_fitted_scores`).
    Each of several forgotten classes is compared with the rest; the value is the mean of their AUCs in the mix of the
    forget set. A method that changes the head alone leaves the features of a forgotten class as they were.

    Reference: Alain and Bengio, "Understanding intermediate layers using linear classifier probes", 2016.
    """

    name: ClassVar[str] = "features"
    meaning: ClassVar[str] = "AUC: a linear classifier on the features tells held-out samples of a forgotten class"
    reads: ClassVar[Literal["models", "margins"]] = "models"
    stepwise: ClassVar[bool] = False

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the AUC of every model with its interval over held-out samples, and the AUC of each class."""
        parts = [part for part in (evidence.splits.test, evidence.splits.forgotten_test) if len(part)]
        labels = np.concatenate([part.y.numpy() for part in parts]) if parts else np.empty(0, np.int64)
        forgotten, sizes = np.unique(evidence.splits.forget.y.numpy(), return_counts=True)
        usable = [FEWEST_OF_CLASS <= int((labels == label).sum()) < len(labels) for label in forgotten]
        if not any(usable):
            note = f"expected at least {FEWEST_OF_CLASS} held-out samples of a forgotten class and others, got fewer"
            return dict.fromkeys(evidence.models, Value(None, note=note))
        mix = dict(zip(forgotten[usable].tolist(), (sizes[usable] / sizes[usable].sum()).tolist(), strict=True))
        values = {}
        for row, model in evidence.models.items():
            try:
                features = torch.cat([head_features(model, part) for part in parts]).double().numpy()
            except InputError as error:  # without a head there are no features before it
                values[row] = Value(None, note=str(error))
                continue
            areas, ends = [], []
            for label in mix:
                positive = labels == label
                scores = cross_fitted_scores(features, positive, seed=evidence.seed)
                inside, outside = (np.zeros(int(part.sum()), np.int64) for part in (positive, ~positive))
                ranking = rank(scores[positive], scores[~positive], Classes(inside, outside))
                areas.append(ranking.auc)
                ends.append(ranking.interval())
            weights = list(mix.values())
            low, high = np.array(weights) @ np.array(ends)  # too wide with several classes, never too narrow
            details = {"samples": len(labels), "features": features.shape[1], "areas": areas}
            values[row] = Value(float(np.dot(weights, areas)), float(low), float(high), details=details)
        return values

    def predictions(self, splits: Splits, radii: int) -> int:
        """Return the held-out samples, twice: fitting the classifier takes about as long as showing them."""
        return 2 * (len(splits.test) + len(splits.forgotten_test))


def cross_fitted_scores(features: Floats, positive: NDArray[np.bool_], *, seed: int) -> Floats:
    """Return the log-odds of "positive" by logistic regression, for each sample by a fit to the other folds, (n,).

    `features` (n, d) are standardized by the mean and deviation of the folds that are fitted; 5 folds are stratified.

    >>> rng = np.random.default_rng(0)
    >>> positive = np.arange(60) % 3 == 0
    >>> scores = cross_fitted_scores(rng.normal(size=(60, 2)) + 4 * positive[:, None], positive, seed=1)
    >>> bool(scores[positive].min() > scores[~positive].max())
    True
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scores = np.empty(len(features))
    cuts = StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    for fitted, left_out in cuts.split(features, positive):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=REGULARIZATION, max_iter=1000))
        classifier.fit(features[fitted], positive[fitted])
        scores[left_out] = classifier.decision_function(features[left_out])
    return scores
