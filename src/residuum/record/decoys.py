"""The decoy audit of an unlearned model: what was measured, what it comes to, and the sentence that says it."""

from __future__ import annotations

from residuum.core.errors import plural
from residuum.record.audits import Part
from residuum.record.verdicts import Conclusion


class DecoyConclusion(Conclusion):
    """What a decoy audit concludes; records store the name.

    >>> DecoyConclusion("FOUND").label
    'decoys recognized'
    """

    REFUSED = ("REFUSED", "refused", "training and held-out samples are not alike, so a difference would prove nothing")
    FOUND = ("FOUND", "decoys recognized", "the procedure leaves knowledge of the samples that it forgets")
    INCONCLUSIVE = ("INCONCLUSIVE", "cannot tell", "this audit might not have recognized even the original")
    NOT_DETECTED = ("NOT_DETECTED", "decoys not recognized", "nothing found at this precision; no proof of deletion")


class Exchangeability(Part):
    """Why decoys and held-out samples may be exchanged: a coin that was tossed before training, or a test of the data.

    `split_sha256` is the hash of the record that `residuum split` wrote. Without one, `p` and `auc` are those of a
    two-sample test of so many training and held-out samples.
    """

    passed: bool
    split_sha256: str | None = None
    p: float | None = None
    auc: float | None = None
    training: int | None = None
    held_out: int | None = None


class DecoyScores(Part):
    """Class, side and scores of each sample, by the unlearned model's score; anyone can repeat the test."""

    labels: list[int]
    decoy: list[bool]
    unlearned: list[float]
    original: list[float] | None = None


class DecoyAudit(Part):
    """What `Request.decoy_audit` found; `print` it for the conclusion in words.

    A sample's score is the model's probability of its true class. `difference` is how much higher decoys score than
    held-out samples of their class, `p` its exact one-sided p-value by permutation within classes, and `detectable` the
    difference that is found with a power of 80 %. The original's own difference says whether the audit could have found
    anything. None of them exists where the audit was refused.
    """

    conclusion: DecoyConclusion
    decoys: int
    held_out: int
    seed: int
    permutations: int
    exchangeability: Exchangeability
    scores: DecoyScores
    p: float | None = None
    difference: float | None = None
    detectable: float | None = None
    original_p: float | None = None
    original_difference: float | None = None
    passes: int = 0

    def __str__(self) -> str:
        """Return the conclusion with its reasons, and what it is about."""
        return f"{self.conclusion}: {self.reason} {self.scope}"

    @property
    def reason(self) -> str:
        """The sentences that the conclusion rests on."""
        gate = self.exchangeability
        if self.difference is None or self.p is None:
            return (
                "without any model, a classifier tells training samples from held-out samples of the same class "
                f"(AUC {gate.auc:.2f}, p = {gate.p:.2g}). Decoys and held-out samples may then differ in a model that "
                "saw neither. Hold samples out at random, with `residuum split --decoys` before training."
            )
        measured = (
            f"the model gives {plural(self.decoys, 'decoy')} their true class with a probability that is "
            f"{abs(self.difference):.3f} {'higher' if self.difference >= 0 else 'lower'} than for {self.held_out:,} "
            f"held-out samples, class by class (p = {self.p:.2g})"
        )
        if self.conclusion is DecoyConclusion.FOUND:
            return f"{measured}. After exact unlearning both would be treated alike."
        power = f"A difference of {self.detectable:.3f} would have been found in 80 % of cases"
        if self.original_difference is None:
            return f"{measured}. {power}; without the original nobody knows whether that is small enough."
        if self.conclusion is DecoyConclusion.INCONCLUSIVE:
            return f"{measured}. {power}, but that of the original is {self.original_difference:.3f}: take more decoys."
        return f"{measured}. {power}; that of the original is {self.original_difference:.3f}."

    @property
    def scope(self) -> str:
        """What the conclusion is about, and what it is not."""
        return (
            "This tests the procedure on training samples that were chosen at random and forgotten with the request, "
            "by the one model at hand. It says nothing of one person, and less than an audit against retrained models."
        )
