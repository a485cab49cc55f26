"""The verdict on each row of a record."""

from collections.abc import Iterator, Sequence

from residuum.core.roles import Role
from residuum.judging.findings import Comparison, compare, floor_of_r
from residuum.judging.gates import TEST_POINTS, gates
from residuum.judging.rule import FEWEST_RETRAINED, RULE_VERSION
from residuum.record import Finding, Gate, Quantity, Results, Row, RowJudgment, Verdict

CANNOT_SEE = (
    "it was trained on the forgotten samples, and this audit does not tell it from re-training: too few samples or "
    "re-trained models, or samples that anybody recognizes"
)
UNLEARN_POINTS = 10.0  # above the reference's unlearn accuracy
QUANTITIES: tuple[Quantity, ...] = ("r", "G", "M")


def judged_record(record: Results) -> Results:
    """Return the record with gates, findings, verdicts and noise floors, and the version of the rule they follow.

    This is done once, when a record is assembled; readers take everything from it.
    """
    judgments = {label: judge(record, label) for label in record.methods}
    originals = [judgments[label].verdict for label in record.rows_of(Role.ORIGINAL)]
    over_forgotten = any(verdict in (Verdict.OVER_FORGOTTEN, Verdict.MIXED) for verdict in originals)
    conditions = gates(record, over_forgotten)
    for label, judgment in judgments.items():
        verdict = gated(record, conditions, judgment.verdict) if record.methods[label].judged else None
        judgments[label] = judgment.model_copy(update={"verdict": verdict})
    update = {"rule_version": RULE_VERSION, "gates": conditions, "judgments": judgments}
    judged = record.model_copy(update=update)
    floors = {name: floor for name in record.perturbations if (floor := floor_of_r(judged, name))}
    return judged.model_copy(update={"noise_floor": floors})


def gated(record: Results, conditions: Sequence[Gate], verdict: Verdict | None) -> Verdict | None:
    """Return the verdict, or that the reference is not comparable: this comes first, unless the run accepted it."""
    settings = record.scenario.settings
    failed = any(gate.passed is False for gate in conditions)
    refused = failed and (settings.stand_ins or not settings.accept_reference)
    return Verdict.NOT_COMPARABLE if refused else verdict


def judge(record: Results, label: str) -> RowJudgment:
    """Return the verdict on one row over all perturbations of the run, whether or not its reference is comparable.

    Each perturbation is judged alone, with its share of the error; evidence from one stands when another is
    inconclusive.
    """
    row = record.methods[label]
    original = row.role is Role.ORIGINAL
    losses = [] if original else list(utility_losses(record, row))  # the original has not unlearned anything
    compared = {
        name: compare(record, row, name, must_detect=must_detect(record, row, name)) for name in record.perturbations
    }
    parts = {name: _verdict(comparison, losses) for name, comparison in compared.items()}
    verdict = _overall(list(parts.values()))
    blind = original and verdict is Verdict.NONE_FOUND  # it knows the samples: an audit that sees nothing is blind
    verdict = Verdict.INCONCLUSIVE if blind else verdict
    complete = {name: comparison for name, comparison in compared.items() if comparison}
    agreeing = [name for name in complete if parts[name] is verdict]
    telling = min(agreeing or complete, key=lambda name: complete[name].judgment.p_value, default=None)
    doubts = list(dict.fromkeys(_doubt(c) for name, c in compared.items() if parts[name] is Verdict.INCONCLUSIVE))
    if blind:
        doubts += [CANNOT_SEE, *_recognized(record, row)]
    return RowJudgment(
        verdict=verdict,
        perturbation=telling,
        by_perturbation=parts,
        reasons=losses,
        doubts=doubts,
        findings={name: findings(record, row, name) for name in complete},
    )


def findings(record: Results, row: Row, perturbation: str) -> dict[Quantity, Finding]:
    """Return what the rule says of r, G and M under one perturbation, whether or not the original could be seen."""
    compared = {quantity: compare(record, row, perturbation, quantity) for quantity in QUANTITIES}
    return {quantity: comparison.finding() for quantity, comparison in compared.items() if comparison}


def _recognized(record: Results, row: Row) -> Iterator[str]:
    """Yield how often original and reference are right on the forgotten samples themselves, where that differs."""
    reference = record.reference.summary.unlearn_accuracy if record.reference else None
    if row.summary.unlearn_accuracy and reference and row.summary.unlearn_accuracy.mean != reference.mean:
        mine, theirs = (100 - spread.mean for spread in (row.summary.unlearn_accuracy, reference))
        yield f"on the samples as they are, it is right on {mine:.0f} % and re-train on {theirs:.0f} %"


def must_detect(record: Results, row: Row, perturbation: str) -> float | None:
    """Return the original's shift: "none found" by an audit that could not have seen the original says nothing.

    None where the original is plain at one radius alone: the audit sees it, whatever the other radii average it to.
    """
    if record.original is None or row.role is Role.ORIGINAL:
        return None
    comparison = compare(record, record.original, perturbation)
    if comparison is None or comparison.judgment.retrained < FEWEST_RETRAINED or comparison.plain_at_a_radius:
        return None
    return max(comparison.shift, 0.0)


def _verdict(comparison: Comparison | None, losses: Sequence[str]) -> Verdict:
    verdict = Verdict.INCONCLUSIVE if comparison is None else comparison.judgment.verdict
    if not losses or verdict in (Verdict.OVER_FORGOTTEN, Verdict.MIXED, Verdict.INCONCLUSIVE):
        return verdict
    return Verdict.MIXED if verdict is Verdict.FOUND else Verdict.OVER_FORGOTTEN


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    found, over = (
        any(verdict in (plain, Verdict.MIXED) for verdict in verdicts)
        for plain in (Verdict.FOUND, Verdict.OVER_FORGOTTEN)
    )
    if found and over:
        return Verdict.MIXED
    if found or over:
        return Verdict.FOUND if found else Verdict.OVER_FORGOTTEN
    inconclusive = Verdict.INCONCLUSIVE in verdicts or not verdicts
    return Verdict.INCONCLUSIVE if inconclusive else Verdict.NONE_FOUND


def _doubt(comparison: Comparison | None) -> str:
    """Return why nothing can be concluded, and what would help."""
    if comparison is None:
        return "no second re-trained model (control) was audited at a radius above 0; give --set controls=2"
    j = comparison.judgment
    many = f"{j.retrained} re-trained model{'' if j.retrained == 1 else 's'} of this kind"
    ways = [f"{n} more {noun}" for n, noun in ((j.more_controls, "controls a seed"), (j.more_seeds, "seeds")) if n]
    help_ = f"; {' or '.join(ways)} would do" if ways else "; not even 50 more controls or seeds would do"
    if j.retrained < FEWEST_RETRAINED:
        return f"{comparison.perturbation}: {many} show no spread to judge by{help_}"
    return f"{comparison.perturbation}: {many} could not have told even the original from re-training{help_}"


def utility_losses(record: Results, row: Row) -> Iterator[str]:
    """Yield where the row is further from the reference than a useful, not over-forgotten model may be."""
    if record.reference is None:
        return
    mine, reference = row.summary, record.reference.summary
    if mine.unlearn_accuracy and reference.unlearn_accuracy:
        excess = mine.unlearn_accuracy.mean - reference.unlearn_accuracy.mean
        if excess > UNLEARN_POINTS:
            yield f"unlearn accuracy is {excess:.1f} points above re-train's (limit {UNLEARN_POINTS:g})"
    if mine.test_accuracy and reference.test_accuracy:
        loss = reference.test_accuracy.mean - mine.test_accuracy.mean
        if loss > TEST_POINTS:
            yield f"test accuracy is {loss:.1f} points below re-train's (limit {TEST_POINTS:g})"
