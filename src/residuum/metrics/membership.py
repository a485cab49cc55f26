"""Membership inference: can a simple attacker tell that the forgotten samples were trained on?"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from residuum.core.errors import warn
from residuum.core.samples import Splits
from residuum.metrics.accuracy import logits_of_parts

Feature = Literal["true_prob", "entropy"]
Array = npt.NDArray[np.float64]
# What the attacker knows as seen, what as unseen, and what it is asked about.
MOST_TRAINED = 10_000  # samples that the attacker is fitted on: an SVC takes time quadratic in them
ATTACK_PARTS = {"sample": ("retain", "test", "forget"), "class": ("retain", "forget", "forgotten_test")}


def membership_accuracy(
    model: nn.Module,
    splits: Splits,
    *,
    feature: Feature = "true_prob",
    balance: bool = False,
    max_train: int | None = MOST_TRAINED,
    seed: int = 0,
    logits: Mapping[str, Tensor] | None = None,
) -> float:
    """Return the attack's *failure* rate: 100 * share of queried samples that it calls unseen.

    The attacker is SVC(C=3, gamma="auto", kernel="rbf") on one feature of the softmax: the probability of the
    true label, or the entropy. Sample form: trained on retain = seen, test = unseen, asked about the forget set.
    Class form: trained on retain = seen, forget = unseen, asked about held-out images of the forgotten class.
    The goal is closeness to the retrained model, not a high value. With more than `max_train` samples the attacker is
    fitted on that many, drawn by `seed` with both kinds in proportion, and the default warns of it; None takes all.
    `logits` are those of `logits_of_parts`, where they are known already.

    Reference: Golatkar, Achille, Soatto, CVPR 2020 (entropy; there the complement is reported).

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=1 / 3, test_size=60)
    >>> 0 <= membership_accuracy(build_model("mlp", (4,), 3, seed=0), splits) <= 100
    True
    """
    part_logits = logits_of_parts(model, splits) if logits is None else logits
    parts = ATTACK_PARTS[splits.form]
    features = [softmax_feature(part_logits[part], getattr(splits, part).y, feature) for part in parts]
    return attack_failure(*features, balance=balance, max_train=max_train, seed=seed)


def softmax_feature(logits: Tensor, labels: Tensor, feature: Feature) -> Array:
    """Return one number per sample, shape (n,): p(y|x), or the entropy -sum_c p_c log p_c."""
    p, log_p = logits.double().softmax(1), logits.double().log_softmax(1)
    values: Array = (p.gather(1, labels[:, None])[:, 0] if feature == "true_prob" else -(p * log_p).sum(1)).numpy()
    return values


def attack_failure(
    seen: Array,
    unseen: Array,
    asked: Array,
    *,
    balance: bool = False,
    max_train: int | None = MOST_TRAINED,
    seed: int = 0,
) -> float:
    """Fit the attacker on features of seen and unseen samples; return 100 * share of `asked` called unseen."""
    from sklearn.svm import SVC

    rng = np.random.default_rng(seed)
    if balance:
        fewest = min(len(seen), len(unseen))
        seen, unseen = _at_most(seen, fewest, rng), _at_most(unseen, fewest, rng)
    if max_train is not None and len(seen) + len(unseen) > max_train:
        total = len(seen) + len(unseen)
        if max_train == MOST_TRAINED:  # unless the caller asked for fewer
            warn(f"the membership attack is fitted on {max_train:,} of {total:,} samples, chosen by seed")
        fewer = min(max(1, round(max_train * len(seen) / total)), max_train - 1)
        seen, unseen = _at_most(seen, fewer, rng), _at_most(unseen, max_train - fewer, rng)
    attacker = SVC(C=3, gamma="auto", kernel="rbf")
    attacker.fit(np.concatenate([seen, unseen])[:, None], np.repeat([1, 0], [len(seen), len(unseen)]))
    called_unseen = attacker.predict(asked[:, None]) == 0
    if called_unseen.all() or not called_unseen.any():
        verdict = "unseen" if called_unseen.all() else "seen"
        warn(f"the membership attack calls every sample {verdict}")
    return 100.0 * float(called_unseen.mean())


def _at_most(values: Array, size: int, rng: np.random.Generator) -> Array:
    return values if len(values) <= size else rng.choice(values, size, replace=False)
