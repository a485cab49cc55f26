"""The statement of a deletion: one printable page for the person who answers the request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from residuum.core.errors import plural
from residuum.core.files import write_whole
from residuum.judging.rule import FALSE_ALARMS, POWER
from residuum.judging.sentences import sentence
from residuum.record import RowJudgment, Verdict
from residuum.record.folder import STATEMENT
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.page import TEMPLATES, policy, rendered
from residuum.reporting.wording import amount

NO_CONCLUSION = (Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE)


@dataclass(frozen=True)
class Deletion:
    """The facts of a deletion request that no record of a run has.

    Args:
        row: The row of the run that was unlearned for it.
        weights: SHA-256 by the names of the weights files, those before unlearning first.
        number: Number of the request.
        received: Day on which it was received.
        answered_by: Who carried it out.
        checked_by: Who may check it; default: everyone who has the evidence.
        evidence: Name of the evidence pack in the same folder, where there is one.
        seal: The seal of the pack.
    """

    row: str
    weights: dict[str, str]
    number: str | None = None
    received: date | None = None
    answered_by: str | None = None
    checked_by: str | None = None
    evidence: str | None = None
    seal: str | None = None


def write_statement(run: Run, deletion: Deletion) -> Path:
    """Write statement.html into the folder of a run; return where it is."""
    path = run.folder / STATEMENT
    write_whole(path, statement_text(run, deletion))
    return path


def statement_text(run: Run, deletion: Deletion) -> str:
    """Return the page: the same run and facts give the same text."""
    style = (TEMPLATES / "statement.css").read_text(encoding="utf-8")
    row, reference = run.rows[deletion.row], run.record.reference
    accuracies = {
        title: [f"{spread.mean:.1f} %" if spread else "–" for spread in spreads]
        for title, name in {"retained": "retain_accuracy", "held-out": "test_accuracy"}.items()
        if (spreads := [one.summary.metric(name) for one in (run.rows["original"], row, reference) if one])
    }
    return rendered(
        "statement.html.j2",
        run=run,
        deletion=deletion,
        day=datetime.fromisoformat(run.record.created).date(),
        sentences={"Asked": _asked(run, deletion), "Done": _done(run, deletion), "Found": _found(run, deletion.row)},
        verdict=run.verdicts[deletion.row].verdict,
        accuracies=accuracies,
        style=style,
        policy=policy("", style),
    )


def _asked(run: Run, deletion: Deletion) -> str:
    sizes = run.record.scenario.sizes
    forgotten, total = sizes["forget"], sizes["forget"] + sizes["retain"]
    when = f" on {deletion.received}" if deletion.received else ""
    number = f" (number {deletion.number})" if deletion.number else ""
    share = f"{forgotten:,} of the {plural(total, 'training sample')} of a model"
    return f"A request{number} asked{when} to delete {share} and what the model has learned from them."


def _done(run: Run, deletion: Deletion) -> str:
    retrained = sum(row.role.retrained for row in run.rows.values())
    models = f"{plural(retrained, 'model')} that {'were' if retrained > 1 else 'was'} trained without these samples"
    way = run.rows[deletion.row].method
    by = f" by {deletion.answered_by}" if deletion.answered_by else ""
    return f"New weights were made{by} with machine unlearning ({way}) and compared with {models}."


def _found(run: Run, label: str) -> str:
    """Say what the audit concluded of a row, and how sure that is."""
    judgment = run.verdicts[label]
    verdict = judgment.verdict
    if verdict is None or verdict in NO_CONCLUSION:
        gates = [gate.text for gate in run.record.gates if gate.passed is False]
        reasons = gates if verdict is Verdict.NOT_COMPARABLE else judgment.doubts
        return sentence("stated no conclusion", reasons="; ".join(reasons))
    if verdict is Verdict.NOT_DETECTED:
        text = sentence("stated not detected", smallest=_smallest(judgment), power=100 * POWER)
    else:
        text = sentence("stated found", verdict=verdict.sentence.rstrip("."), errors=100 * FALSE_ALARMS)
    return " ".join([text, *wording.lost(judgment)])


def _smallest(judgment: RowJudgment) -> str:
    """Return the smallest effect that the audit would have detected."""
    finding, smallest = judgment.finding, judgment.smallest
    if finding is None or smallest is None:
        return "a large difference only"
    if finding.form == "class":
        return f"a difference of {amount(smallest, 'class')} percentage points"
    if judgment.rests_on and judgment.rests_on.quantity == "M":
        return f"memory M of {amount(smallest, 'sample')}"
    return f"recognition that is {amount(smallest, 'sample')} times theirs"
