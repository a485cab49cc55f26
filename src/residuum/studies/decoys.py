"""The conclusion of a decoy audit, from tests of its scores."""

from __future__ import annotations

import numpy as np

from residuum.auditing.decoys import permutation_test
from residuum.auditing.statistics import SIGNIFICANCE
from residuum.record.decoys import DecoyAudit, DecoyConclusion


def judged_decoys(audit: DecoyAudit) -> DecoyAudit:
    """Return the audit with the tests of its scores and its conclusion.

    Where p is above 5 %, the audit is conclusive only if the original's difference is large enough to be found.
    """
    if not audit.exchangeability.passed:
        nothing = dict.fromkeys(("p", "difference", "detectable", "original_p", "original_difference"))
        return audit.model_copy(update={"conclusion": DecoyConclusion.REFUSED, **nothing})
    side = np.array(audit.scores.decoy)
    _, first, codes = np.unique(audit.scores.labels, return_index=True, return_inverse=True)
    labels = first.argsort().argsort()[codes]  # in the order of appearance, so that other numbers give the same p
    how = {"permutations": audit.permutations, "seed": audit.seed}
    test = permutation_test(np.array(audit.scores.unlearned), side, labels, **how)
    measured = {"p": test.p, "difference": test.difference, "detectable": test.detectable(SIGNIFICANCE)}
    visible = False
    if audit.scores.original is not None:
        original = permutation_test(np.array(audit.scores.original), side, labels, **how)
        measured |= {"original_p": original.p, "original_difference": original.difference}
        visible = original.p <= SIGNIFICANCE and original.difference >= measured["detectable"]
    conclusion = DecoyConclusion.NOT_DETECTED if visible else DecoyConclusion.INCONCLUSIVE
    conclusion = DecoyConclusion.FOUND if test.p <= SIGNIFICANCE else conclusion
    return audit.model_copy(update={"conclusion": conclusion, **measured})
