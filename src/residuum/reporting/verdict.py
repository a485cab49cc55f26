"""The verdict on one row of a run: a pure function of the record and of the thresholds below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from residuum.record import Results, Row, VerdictRecord
from residuum.reporting.evidence import Finding, find
from residuum.reporting.gates import TEST_POINTS, Gate, gates
from residuum.reporting.level_rule import FEWEST_RETRAINED
from residuum.reporting.run import Run

NOT_COMPARABLE = "reference not comparable"
FOUND = "residual knowledge found"
MIXED = "mixed"
OVER = "over-forgotten"
INCONCLUSIVE = "inconclusive"
NONE_FOUND = "no residual knowledge found at this precision"
WORDS = (NOT_COMPARABLE, FOUND, MIXED, OVER, INCONCLUSIVE, NONE_FOUND)  # as they are sorted on the page

CANNOT_SEE = (
    "it was trained on the forgotten samples, and this audit does not tell it from re-training; with so few samples, "
    "or samples that anybody recognises, nothing was there to find"
)
UNLEARN_POINTS = 10.0  # above re-train
_RULE = {"found": FOUND, "over": OVER, "mixed": MIXED, "none": NONE_FOUND, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True)
class Verdict:
    """The word, the finding it rests on, what held-out samples add to it, and why.

    `memory` (M) and `class_knowledge` (G) qualify a finding: they never make one.
    """

    word: str
    finding: Finding | None = None
    memory: Finding | None = None
    class_knowledge: Finding | None = None
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()
    failed_gates: tuple[Gate, ...] = ()


def judge(run: Run, label: str) -> Verdict:
    """Return the verdict on one row over all perturbations of the run.

    Each perturbation is judged alone, with its share of the error; evidence from one stands when another is
    inconclusive. A reference that is not comparable comes before any other word, unless the run accepted it.
    """
    judged = _judged(run, label)
    failed = tuple(gate for gate in run.gates if not gate.passed)
    settings = run.record.scenario.settings
    refused = failed and (settings.stand_ins or not settings.accept_reference)
    return replace(judged, word=NOT_COMPARABLE if refused else judged.word, failed_gates=failed)


def with_verdicts(record: Results) -> Results:
    """Return the record with what it says of every judged row, for readers that compute nothing."""
    run = Run(Path(), record.scenario.name, record)
    verdicts = {label: _stored(judge(run, label)) for label, row in record.methods.items() if row.judged}
    return record.model_copy(update={"verdicts": verdicts})


def _stored(verdict: Verdict) -> VerdictRecord:
    finding = verdict.finding
    if finding is None or finding.judgement.retrained < FEWEST_RETRAINED:
        return VerdictRecord(word=verdict.word)
    return VerdictRecord(
        word=verdict.word,
        perturbation=finding.perturbation,
        level=(finding.value(), *finding.interval()),
        explained=finding.bar(),
        smallest=finding.smallest,
        p_value=finding.judgement.p_value,
    )


def run_gates(run: Run) -> list[Gate]:
    """Return the gates of comparability of a run."""
    originals = [_judged(run, label).word for label in run.record.rows_of("original")]
    return gates(run, original_over_forgotten=any(word in (OVER, MIXED) for word in originals))


def _judged(run: Run, label: str) -> Verdict:
    row, losses = run.rows[label], tuple(utility_losses(run, run.rows[label]))
    found = {name: find(run, row, name, must_detect=must_detect(run, row, name)) for name in run.perturbations}
    parts = {name: _word(finding, losses) for name, finding in found.items()}
    word = _overall_word(list(parts.values()))
    unseen = (
        row.kind == "original" and word == NONE_FOUND
    )  # it knows the samples, so an audit that sees nothing is blind
    word = INCONCLUSIVE if unseen else word
    agreeing = [finding for name, finding in found.items() if finding and parts[name] == word]
    telling = _telling(agreeing or [finding for finding in found.values() if finding])
    memory, knowledge = (telling and find(run, row, telling.perturbation, quantity) for quantity in ("M", "G"))
    doubts = tuple(dict.fromkeys(_doubt(f) for name, f in found.items() if parts[name] == INCONCLUSIVE))
    doubts += (CANNOT_SEE,) if unseen else ()
    return Verdict(word, telling, memory, knowledge, losses, doubts, tuple(parts.items()))


def must_detect(run: Run, row: Row, perturbation: str) -> float | None:
    """Return the original's shift: "none found" by an audit that could not have seen the original says nothing."""
    original = next(iter(run.record.rows_of("original")), None)
    if original is None or row.kind == "original":
        return None
    finding = find(run, run.rows[original], perturbation)
    return None if finding is None or finding.judgement.retrained < FEWEST_RETRAINED else max(finding.shift, 0.0)


def _word(finding: Finding | None, losses: Sequence[str]) -> str:
    word = INCONCLUSIVE if finding is None else _RULE[finding.judgement.word]
    if not losses or word in (OVER, MIXED, INCONCLUSIVE):
        return word
    return MIXED if word == FOUND else OVER


def _overall_word(words: Sequence[str]) -> str:
    found, over = (any(word in (plain, MIXED) for word in words) for plain in (FOUND, OVER))
    if found and over:
        return MIXED
    if found or over:
        return FOUND if found else OVER
    return INCONCLUSIVE if INCONCLUSIVE in words or not words else NONE_FOUND


def _telling(findings: Sequence[Finding]) -> Finding | None:
    return min(findings, key=lambda finding: finding.judgement.p_value, default=None)


def _doubt(finding: Finding | None) -> str:
    """Return why nothing can be concluded, and what would help."""
    if finding is None:
        return "no second re-trained model (control) was audited at a radius above 0; give --set controls=2"
    j = finding.judgement
    many = f"{j.retrained} re-trained model{'' if j.retrained == 1 else 's'} of this kind"
    ways = [f"{n} more {noun}" for n, noun in ((j.more_controls, "controls a seed"), (j.more_seeds, "seeds")) if n]
    help_ = f"; {' or '.join(ways)} would do" if ways else "; not even 50 more controls or seeds would do"
    if j.retrained < FEWEST_RETRAINED:
        return f"{finding.perturbation}: {many} show no spread to judge by{help_}"
    return f"{finding.perturbation}: {many} could not have told even the original from re-training{help_}"


def utility_losses(run: Run, row: Row) -> Iterator[str]:
    """Yield where the row is further from re-train than a useful, not over-forgotten model may be."""
    if "retrain" not in run.rows:
        return
    mine, reference = row.summary, run.rows["retrain"].summary
    if mine.unlearn_accuracy and reference.unlearn_accuracy:
        excess = mine.unlearn_accuracy.mean - reference.unlearn_accuracy.mean
        if excess > UNLEARN_POINTS:
            yield f"unlearn accuracy is {excess:.1f} points above re-train's (limit {UNLEARN_POINTS:g})"
    if mine.test_accuracy and reference.test_accuracy:
        loss = reference.test_accuracy.mean - mine.test_accuracy.mean
        if loss > TEST_POINTS:
            yield f"test accuracy is {loss:.1f} points below re-train's (limit {TEST_POINTS:g})"
