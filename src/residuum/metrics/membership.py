"""Membership inference: can a simple attacker tell that the forgotten samples were trained on?"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from residuum.core.errors import warn
from residuum.core.samples import Splits
from residuum.metrics.accuracy import PartLogits

Feature = Literal["true_prob", "entropy"]
Array = npt.NDArray[np.float64]
MOST_TRAINED = 10_000  # samples that the attacker is fitted on: an SVC takes time quadratic in them
# What the attacker knows as seen, what as unseen, and what it is asked about.
ATTACK_PARTS = {"sample": ("retain", "test", "forget"), "class": ("retain", "forget", "forgotten_test")}


def membership_accuracy(logits: PartLogits, splits: Splits, *, feature: Feature = "true_prob", seed: int = 0) -> float:
    """Return the attack's *failure* rate: 100 * share of queried samples that it calls unseen.

    The attacker is SVC(C=3, gamma="auto", kernel="rbf") on one feature of the softmax: the probability of the
    true label, or the entropy. Sample form: trained on retain = seen, test = unseen, asked about the forget set.
    Class form: trained on retain = seen, forget = unseen, asked about held-out images of the forgotten class.
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


def attack_failure(seen: Array, unseen: Array, asked: Array, *, seed: int = 0) -> float:
    """Fit the attacker on features of seen and unseen samples; return 100 * share of `asked` called unseen."""
    from sklearn.svm import SVC

    total = len(seen) + len(unseen)
    if total > MOST_TRAINED:
        warn(f"the membership attack is fitted on {MOST_TRAINED:,} of {total:,} samples, chosen by seed")
        rng, many = np.random.default_rng(seed), min(max(1, round(MOST_TRAINED * len(seen) / total)), MOST_TRAINED - 1)
        seen, unseen = (
            values if len(values) <= size else rng.choice(values, size, replace=False)
            for values, size in ((seen, many), (unseen, MOST_TRAINED - many))
        )
    attacker = SVC(C=3, gamma="auto", kernel="rbf")
    attacker.fit(np.concatenate([seen, unseen])[:, None], np.repeat([1, 0], [len(seen), len(unseen)]))
    called_unseen = attacker.predict(asked[:, None]) == 0
    if called_unseen.all() or not called_unseen.any():
        verdict = "unseen" if called_unseen.all() else "seen"
        warn(f"the membership attack calls every sample {verdict}")
    return 100.0 * float(called_unseen.mean())
