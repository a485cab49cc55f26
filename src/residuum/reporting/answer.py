"""The first screen of the page: the answer, the chips, and what to do next, all read from the record's judgments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from residuum.core.errors import plural
from residuum.core.roles import Role
from residuum.judging.rule import FALSE_ALARMS
from residuum.record import Chips, ConfidenceChip, MemoryChip, UtilityChip, Verdict
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.glossary import ANSWERS, NEXT, PAGE

BAD = ("found", "lost", "more than expected", "less than expected", "cannot tell")  # states that are counted


@dataclass(frozen=True)
class Chip:
    """One of the four facts next to the answer."""

    title: str
    state: str
    tone: str
    text: str
    explained: str = ""  # what retrained models show


@dataclass(frozen=True)
class Answer:
    """What the first screen says."""

    headline: str
    sentence: str
    tone: str
    chips: list[Chip]


def answer_of(run: Run) -> Answer:
    """Return the answer: of the one unlearned model, or of all methods together."""
    labels = judged_methods(run)
    if len(labels) > 1:
        return _of_several(run, labels)
    label = next(iter([*labels, *run.record.rows_of(Role.ORIGINAL)]), None)
    judgment = run.verdicts.get(label or "")
    if label is None or judgment is None or judgment.verdict is None:
        return Answer(PAGE["nothing"], "", "unclear", [])
    if not labels:
        sentence = _of_samples(run, ANSWERS[judgment.verdict.name].sentence)
        return Answer(PAGE["no_method"], sentence, wording.TONES[judgment.verdict], [])
    chips = chips_at(run, label)
    lost = chips.utility.state == "lost" and judgment.verdict is Verdict.NOT_DETECTED
    words = ANSWERS["LOST" if lost else judgment.verdict.name]
    parts = [_of_samples(run, words.sentence)]
    if judgment.verdict in (Verdict.FOUND, Verdict.MIXED) and chips.memory.state == "not found":
        parts.append(PAGE["not_memory"])
    if judgment.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE):
        parts.append(wording.verdict_sentence(run, judgment))
    tone = "over" if lost else wording.TONES[judgment.verdict]
    return Answer(words.headline, " ".join(parts), tone, [*_chips(run, label)])


def judged_methods(run: Run) -> list[str]:
    """Return the methods that have a verdict."""
    return [label for label in run.record.rows_of(Role.METHOD) if label in run.verdicts]


def chips_at(run: Run, label: str) -> Chips:
    """Return the chips of a row; where the record has none, these cannot tell."""
    judgment = run.verdicts.get(label)
    nothing = ConfidenceChip(retrained=0, smallest=None, form="class" if run.form == "class" else "sample")
    unknown = Chips(
        memory=MemoryChip(state="cannot tell"), utility=UtilityChip(state="cannot tell"), confidence=nothing
    )
    return (judgment.chips if judgment else None) or unknown


def _of_samples(run: Run, sentence: str) -> str:
    number = next((audit.samples for *_, audit in run.record.each_audit()), 0)
    samples = plural(number, "deleted sample") if number else "deleted samples"
    return sentence.format(samples=samples)


def _of_several(run: Run, labels: list[str]) -> Answer:
    verdicts = [run.verdicts[label].verdict for label in labels]
    passed, total = verdicts.count(Verdict.NOT_DETECTED), len(labels)
    judged = total - verdicts.count(Verdict.INCONCLUSIVE) - verdicts.count(Verdict.NOT_COMPARABLE)
    name = "none_judged" if not judged else "none_passed" if not passed else "all" if passed == total else "passed"
    tone = "none" if passed else "unclear" if not judged else "found"
    *counted, confidence = zip(*(_chips(run, label) for label in labels), strict=True)
    chips = [*(_counted(of_rows) for of_rows in counted), confidence[0]]
    return Answer(PAGE[name].format(passed=passed, total=total), wording.recommendation(run), tone, chips)


def _counted(chips: Sequence[Chip]) -> Chip:
    """Return in how many methods something is wrong, or that it is right in all, and what retrained models show."""
    states = ["lost" if chip.state.endswith("lost") else chip.state for chip in chips]
    bad = next((state for state in BAD if state in states), None)
    if bad:
        state, tone = f"{bad} in {states.count(bad)} of {len(states)}", chips[states.index(bad)].tone
    else:
        state, tone = f"{states[0]} in {'any' if states[0] == 'not found' else 'all'}", "none"
    return Chip(chips[0].title, state, tone, next((chip.explained for chip in chips if chip.explained), ""))


def _chips(run: Run, label: str) -> Iterator[Chip]:
    """Yield memory, knowledge of the class, accuracy and confidence of a row."""
    judgment = run.verdicts[label]
    memory, knowledge, chips = judgment.memory, judgment.class_knowledge, chips_at(run, label)
    amount = partial(wording.amount, form=run.form)
    explained = _explained([amount(end) for end in memory.floor()]) if memory and memory.has_floor else ""
    text = {
        "found": PAGE["memory_found"].format(value=amount(chips.memory.value or 0.0), explained=explained),
        "not found": PAGE["memory_not_found"].format(smallest=amount(chips.memory.smallest or 0.0)),
        "cannot tell": next((c.sentence for c in wording.chips(judgment) if c.label.startswith("memory")), ""),
    }[chips.memory.state]
    yield Chip(PAGE["memory"], chips.memory.state, wording.CHIP_TONES[chips.memory.state], text, explained)
    if knowledge is None or not knowledge.has_floor:
        yield Chip(PAGE["class"], "cannot tell", "unclear", PAGE["class_cannot_tell"])
    else:
        explained = _explained([amount(end) for end in knowledge.floor()])
        state = f"{'more than' if knowledge.above else 'less than' if knowledge.below else 'as'} expected"
        text = PAGE["class_text"].format(value=amount(knowledge.value()), explained=explained)
        tone = "none" if state == "as expected" else "unclear"
        yield Chip(PAGE["class"], state, tone, text, explained)
    utility, explained = chips.utility, _explained(_accuracies(run))
    accuracy = run.rows[label].summary.test_accuracy
    text = PAGE["accuracy_text"].format(value=f"{accuracy.mean:.1f}", explained=explained) if accuracy else ""
    state = f"{utility.points or 0.0:.1f} points lost" if utility.state == "lost" else utility.state
    yield Chip(PAGE["accuracy"], state, wording.CHIP_TONES[utility.state], text, explained)
    smallest, models = chips.confidence.smallest, plural(chips.confidence.retrained, "retrained model")
    if smallest is None:
        yield Chip(PAGE["confidence"], models, "unclear", PAGE["not_noticed"])
    else:
        excess = f"{100 * smallest:.1f} points" if run.form == "class" else f"{100 * (smallest - 1):.2g}\u00a0%"
        yield Chip(PAGE["confidence"], models, "plain", PAGE["noticed"].format(excess=excess))


def _explained(ends: list[str]) -> str:
    return PAGE["explained"].format(low=ends[0], high=ends[1]) if ends else ""


def _accuracies(run: Run) -> list[str]:
    """Return the lowest and the highest test accuracy of retrained models, of any seed."""
    retrained = [row for row in run.rows.values() if row.role.retrained]
    values = [r.metrics.test_accuracy for row in retrained for r in row.per_seed.values() if r.metrics]
    return [f"{min(values):.1f}", f"{max(values):.1f}\u00a0%"] if values else []


@dataclass(frozen=True)
class Step:
    """What to do next, and the command that does it; empty where no command does."""

    text: str
    command: str


def next_step(run: Run) -> Step:
    """Return what to do next: for the one model, or where there are several methods, for the best verdict."""
    labels = [label for label in judged_methods(run) if run.verdicts[label].verdict]
    if not labels:
        return Step(PAGE["unlearn_first"], "")
    order = list(Verdict)
    verdict, label = max(
        ((v, label) for label in labels if (v := run.verdicts[label].verdict)), key=lambda pair: order.index(pair[0])
    )
    if len(labels) == 1 and chips_at(run, label).utility.state == "lost" and verdict is Verdict.NOT_DETECTED:
        verdict = Verdict.OVER_FORGOTTEN
    words = NEXT[(Verdict.FOUND if verdict is Verdict.MIXED else verdict).name]
    facts = {
        "name": run.record.scenario.name,
        "controls": 2 * max(2, len(run.record.controls)),
        "method": _other_method(run, label, verdict),
    }
    return Step(words["text"], words[run.record.scenario.interface].format(**facts))


def _other_method(run: Run, label: str, verdict: Verdict) -> str:
    """Return which method to try instead: soft reset, and if it was that, with less or more of the original."""
    row = run.rows[label]
    keep = row.settings.get("keep")
    if row.method != "soft_reset" or not isinstance(keep, int | float):
        return "soft_reset"
    return f"soft_reset:keep={min(1.0, keep + 0.3) if verdict is Verdict.OVER_FORGOTTEN else keep / 2:g}"


def limits(run: Run) -> list[str]:
    """Return what the page shows and what it does not show."""
    retrained = max((chips_at(run, label).confidence.retrained for label in run.verdicts), default=0)
    models = plural(retrained, "retrained model")
    return [PAGE["shows"].format(models=models, false_alarms=f"{100 * FALSE_ALARMS:.0f}"), PAGE["shows_not"]]


@dataclass(frozen=True)
class Origin:
    """A part of the line of provenance; with an address it is a link, and `whole` is its text in full."""

    text: str
    address: str = ""
    whole: str = ""


def origins(run: Run) -> Iterator[Origin]:
    """Yield where the page comes from: request, date, weights before and after, warnings."""
    record = run.record
    yield Origin(f"Request: {wording.forgotten(run)}")
    if record.created:
        yield Origin(record.created[:10], whole=record.created)
    methods = judged_methods(run)
    if len(methods) == 1:
        for name, label in (("before", next(iter(record.rows_of(Role.ORIGINAL)), "")), ("after", methods[0])):
            paths = [f"models/{seed}/{label}.safetensors" for seed in run.seeds]
            for digest in [record.files[path] for path in paths if path in record.files][:1]:
                yield Origin(f"weights {name}: {digest[:12]}", whole=f"SHA-256 {digest}")
    if record.warnings:
        yield Origin(plural(len(record.warnings), "warning"), "#warnings")
