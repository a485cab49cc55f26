"""The verdict on each row of a record."""

from collections.abc import Iterator, Sequence

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.judging.findings import Comparison, compare, floor_of_r
from residuum.judging.gates import TEST_POINTS, gates
from residuum.judging.rule import FEWEST_RETRAINED, RULE_VERSION, verdict_of
from residuum.record import Quantity, Results, Row, RowJudgment, Verdict

CANNOT_SEE = (
    "it was trained on the forgotten samples, and this audit does not tell it from a retrained model: there are too "
    "few samples or retrained models, or every model recognizes these samples"
)
UNLEARN_POINTS = 10.0  # above the reference's unlearn accuracy
QUANTITIES: tuple[Quantity, ...] = ("r", "G", "M")


def judged_record(record: Results) -> Results:
    """Return the record with gates, findings, verdicts and noise floors, and the version of the rule they follow.

    A record is judged once, when it is assembled; readers do not judge again.
    """
    judgments = {label: judge(record, label) for label in record.methods}
    originals = [judgments[label].verdict for label in record.rows_of(Role.ORIGINAL)]
    over_forgotten = any(verdict in (Verdict.OVER_FORGOTTEN, Verdict.MIXED) for verdict in originals)
    conditions, settings = gates(record, over_forgotten), record.scenario.settings
    failed = any(gate.passed is False for gate in conditions)
    refused = failed and (settings.surrogates or not settings.accept_reference)
    for label, judgment in judgments.items():
        verdict = Verdict.NOT_COMPARABLE if refused else judgment.verdict
        judgments[label] = judgment.model_copy(update={"verdict": verdict if record.methods[label].judged else None})
    update = {"rule_version": RULE_VERSION, "gates": conditions, "judgments": judgments}
    judged = record.model_copy(update=update)
    floors = {name: floor for name in record.perturbations if (floor := floor_of_r(judged, name))}
    return judged.model_copy(update={"noise_floor": floors})


def judge(record: Results, label: str) -> RowJudgment:
    """Return the verdict on one row over all perturbations of the run, whether or not its reference is comparable.

    Every perturbation is judged alone, with its share of the error. Evidence under one of them stands even if another
    is inconclusive.
    """
    row = record.methods[label]
    original = row.role is Role.ORIGINAL
    losses = [] if original else list(_utility_losses(record, row))  # the original has not unlearned anything
    compared = {
        name: compare(record, row, name, must_detect=must_detect(record, row, name)) for name in record.perturbations
    }
    parts = {name: _verdict(comparison, losses) for name, comparison in compared.items()}
    verdict = _overall(list(parts.values()))
    blind = original and verdict is Verdict.NONE_FOUND  # the audit misses samples that the original does know
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
        findings={
            name: {
                quantity: comparison.finding()
                for quantity in QUANTITIES
                if (comparison := compare(record, row, name, quantity))
            }
            for name in complete
        },
    )


def _recognized(record: Results, row: Row) -> Iterator[str]:
    """Yield how often original and reference are right on the forgotten samples themselves, where that differs."""
    reference = record.reference.summary.unlearn_accuracy if record.reference else None
    if row.summary.unlearn_accuracy and reference and row.summary.unlearn_accuracy.mean != reference.mean:
        mine, theirs = (100 - spread.mean for spread in (row.summary.unlearn_accuracy, reference))
        yield f"on the unperturbed samples, it is right on {mine:.0f} % and the retrained model on {theirs:.0f} %"


def must_detect(record: Results, row: Row, perturbation: str) -> float | None:
    """Return the original's shift: "none found" says nothing if the audit could not have detected the original.

    None if one radius alone shows the original plainly: then the audit detects it, whatever the level is.
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
    residual, over_forgotten = (
        any(verdict in (plain, Verdict.MIXED) for verdict in verdicts)
        for plain in (Verdict.FOUND, Verdict.OVER_FORGOTTEN)
    )
    if not residual and not over_forgotten and (not verdicts or Verdict.INCONCLUSIVE in verdicts):
        return Verdict.INCONCLUSIVE
    return verdict_of(residual, over_forgotten)


def _doubt(comparison: Comparison | None) -> str:
    """Return why nothing can be concluded, and what would help."""
    if comparison is None:
        return "no control (second retrained model) was audited at a radius above 0; give --set controls=2"
    j = comparison.judgment
    models = plural(j.retrained, "retrained model")
    ways = [f"{n} more {noun}" for n, noun in ((j.more_controls, "controls per seed"), (j.more_seeds, "seeds")) if n]
    advice = f"; {' or '.join(ways)} would do" if ways else "; not even 50 more controls or seeds would do"
    if j.retrained < FEWEST_RETRAINED:
        return f"{comparison.perturbation}: with {models} there is no spread to judge by{advice}"
    return f"{comparison.perturbation}: {models} cannot tell even the original from a retrained model{advice}"


def _utility_losses(record: Results, row: Row) -> Iterator[str]:
    """Yield where the row lies further from the reference than a useful model that is not over-forgotten would."""
    if record.reference is None:
        return
    mine, reference = row.summary, record.reference.summary
    if mine.unlearn_accuracy and reference.unlearn_accuracy:
        excess = mine.unlearn_accuracy.mean - reference.unlearn_accuracy.mean
        if excess > UNLEARN_POINTS:
            yield f"unlearn accuracy is {excess:.1f} points above the retrained model's (limit {UNLEARN_POINTS:g})"
    if mine.test_accuracy and reference.test_accuracy:
        loss = reference.test_accuracy.mean - mine.test_accuracy.mean
        if loss > TEST_POINTS:
            yield f"test accuracy is {loss:.1f} points below the retrained model's (limit {TEST_POINTS:g})"
