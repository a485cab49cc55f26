"""The verdict on each row of a record."""

from __future__ import annotations

from collections.abc import Iterator

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.judging.chips import chips_of, differences
from residuum.judging.findings import PARTS, Comparisons, comparisons_of, floor_of_r
from residuum.judging.gates import difficulty, gates
from residuum.judging.rule import FEWEST_RETRAINED, MOST_MORE, RULE_VERSION, verdict_of
from residuum.judging.sentences import sentence
from residuum.record import MemoryChip, Place, Results, Row, RowJudgment, Verdict

FEW_SAMPLES = 10  # with fewer, one sample more or less is a large part of a recognition rate


def judged_record(record: Results) -> Results:
    """Return the record with gates, findings, verdicts and noise floors, and the version of the rule they follow.

    A record is judged once, when it is assembled; readers do not judge again.
    """
    comparisons = comparisons_of(record)
    judgments = {label: judge(record, label, comparisons) for label in record.methods}
    originals = [judgments[label].verdict for label in record.rows_of(Role.ORIGINAL)]
    over_forgotten = any(verdict in (Verdict.OVER_FORGOTTEN, Verdict.MIXED) for verdict in originals)
    conditions, settings = gates(record, over_forgotten), record.scenario.settings
    failed = any(gate.passed is False for gate in conditions)
    refused = failed and (settings.surrogates or not settings.accept_reference)
    for label, judgment in judgments.items():
        if not judgment.chips:
            judgments[label] = judgment.model_copy(update={"verdict": None})
        elif refused:
            memory = MemoryChip(state="cannot tell", reason=sentence("no reference"))
            chips = judgment.chips.model_copy(update={"memory": memory})
            judgments[label] = judgment.model_copy(update={"verdict": Verdict.NOT_COMPARABLE, "chips": chips})
    update = {
        "rule_version": RULE_VERSION,
        "gates": conditions,
        "blind": list(comparisons.blind),
        "judgments": judgments,
    }
    update |= {"difficulty": compared} if (compared := difficulty(record)) else {}
    judged = record.model_copy(update=update)
    floors = {name: floor for name in record.perturbations if (floor := floor_of_r(judged, name))}
    return judged.model_copy(update={"noise_floor": floors})


def judge(record: Results, label: str, comparisons: Comparisons | None = None) -> RowJudgment:
    """Return the verdict on one row over all perturbations of the run, whether or not its reference is comparable.

    All rows of a record share its `comparisons`.
    """
    row, comparisons = record.methods[label], comparisons or comparisons_of(record)
    above: dict[Place, float] = {}  # p by column
    below: dict[Place, float] = {}
    p_value, complete, retrained = 1.0, False, 0
    for part in comparisons.judged:
        judgment = part.judge(row)
        if judgment is None:
            continue
        complete = complete or part.quantity == "r"
        retrained = max(retrained, int(part.columns.retrained.max()))
        p_value = min(p_value, float(judgment.p_values.min()))
        for k, p in enumerate(judgment.p_values):
            for flags, evidence in ((judgment.above, above), (judgment.below, below)):
                if flags[k]:
                    evidence[Place(perturbation=part.perturbation, quantity=part.quantity, column=k)] = float(p)
    verdict = verdict_of(bool(above), bool(below))
    doubts: list[str] = []
    if verdict is Verdict.NOT_DETECTED and not (complete and comparisons.detects_original):
        verdict = Verdict.INCONCLUSIVE
        doubts = list(_doubts(record, row, comparisons, retrained if complete else None))
    evidence = above or below
    rests_on = min(evidence, key=lambda place: evidence[place]) if evidence else comparisons.telling_column()
    judged = RowJudgment(
        verdict=verdict,
        rests_on=rests_on if complete else None,
        p_value=p_value if complete else None,
        doubts=doubts,
        findings={
            name: {
                quantity: finding
                for quantity in PARTS
                if (comparison := comparisons.of(name, quantity)) and (finding := comparison.finding(row))
            }
            for name in record.perturbations
            if complete
        },
    )
    if not row.judged:
        return judged
    chips = chips_of(record, row, judged, comparisons)
    return judged.model_copy(update={"chips": chips, "differences": differences(record, row)})


def _doubts(record: Results, row: Row, comparisons: Comparisons, retrained: int | None) -> Iterator[str]:
    """Yield why nothing can be concluded, and what would help."""
    if retrained is None:
        yield sentence("doubt no control")
        return
    models = plural(retrained, "retrained model")
    if retrained < FEWEST_RETRAINED:
        per_seed = max(int(part.columns.per_seed.max()) for part in comparisons.judged)
        controls = -(-FEWEST_RETRAINED // comparisons.judged[0].columns.seeds) - per_seed
        seeds = -(-FEWEST_RETRAINED // per_seed) - comparisons.judged[0].columns.seeds
        yield sentence("doubt no spread", models=models, advice=_advice(controls, seeds))
        return
    if record.original is None:
        yield sentence("doubt no original")
        return
    more_controls, more_seeds = comparisons.more_until_detected(MOST_MORE)
    advice = _advice(more_controls, more_seeds if len(record.seeds) > 1 or record.scenario.public_data else None)
    if row.role is Role.ORIGINAL:
        samples = next((audit.samples for name in record.perturbations for audit in row.audits(name)), 0)
        name = "doubt few samples" if samples < FEW_SAMPLES else "doubt original"
        yield sentence(name, samples=plural(samples, "forgotten sample"), advice=advice)
        yield from _recognized(record, row)
    else:
        yield sentence("doubt power", models=models, advice=advice)


def _advice(controls: int | None, seeds: int | None) -> str:
    ways = [f"{n} more {noun}" for n, noun in ((controls, "controls per seed"), (seeds, "seeds")) if n]
    return sentence("advice", ways=" or ".join(ways)) if ways else sentence("no advice", most=MOST_MORE)


def _recognized(record: Results, row: Row) -> Iterator[str]:
    """Yield how often original and reference are right on the unperturbed forgotten samples, where that differs."""
    reference = record.reference.summary.unlearn_accuracy if record.reference else None
    if row.summary.unlearn_accuracy and reference and row.summary.unlearn_accuracy.mean != reference.mean:
        mine, theirs = (100 - spread.mean for spread in (row.summary.unlearn_accuracy, reference))
        yield sentence("doubt recognized", original=mine, retrained=theirs)
