"""The verdict as a table of cases, its words, and the gates of comparability, each fired alone on a doctored record."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from residuum.core.roles import Role, trained_roles
from residuum.judging import judge, judged_record
from residuum.judging.findings import noise_floor
from residuum.judging.sentences import CLAUSES, NONE_RECOMMENDED, SENTENCES
from residuum.record import Results, Verdict
from residuum.record.run import Run
from residuum.reporting.exports import csv_table, latex_table
from residuum.reporting.page import page_text
from residuum.reporting.plots import picture_of
from residuum.reporting.terminal import verdict_table
from residuum.reporting.wording import (
    chips,
    differs,
    figure_words,
    headline,
    not_judged,
    not_proved,
    nothing_to_forget,
    recommendation,
    verdict_badge,
    verdict_sentence,
)

FOUND, OVER, MIXED = Verdict.FOUND, Verdict.OVER_FORGOTTEN, Verdict.MIXED
NOT_DETECTED, INCONCLUSIVE, NOT_COMPARABLE = Verdict.NOT_DETECTED, Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE

SOURCE = Path(__file__).parents[2] / "src" / "residuum"
TAUS = [0.0, 0.1, 0.2]
SAMPLES = 100
SPREAD = (0.01, -0.01, 0.0)  # how references and controls of three seeds differ


def curve(values):
    return {"value": values, "low": values, "high": values}


NOT_CRAFTED, REFERENCE = {"crafted_on": None}, {"crafted_on": "reference", "target": "true"}
TRUE, UNTARGETED = ({"crafted_on": "unlearned", "target": target} for target in ("true", "untargeted"))


def audit(own, reference, heldout=None, crafted=NOT_CRAFTED):
    """An audit with these shares right; two are those at radii above 0. Held-out samples have (own, reference)."""
    own, reference = ([p] * 3 if np.isscalar(p) else [*p[: 3 - len(p)], *p] for p in (own, reference))
    ratios = [None if b == 0 else a / b for a, b in zip(own, reference, strict=True)]
    aside = {"samples": SAMPLES, "rate": [heldout[0]] * 3, "reference_rate": [heldout[1]] * 3} if heldout else None
    return {
        "taus": TAUS,
        "draws": [1, 100, 100],
        "samples": SAMPLES,
        "settings": {"confidence": 0.95, "enumerated": False, **crafted},
        "residual_knowledge": {"pooled": ratios, "low": ratios, "high": ratios},
        "difference": curve([a - b for a, b in zip(own, reference, strict=True)]),
        "unlearn_accuracy": curve([1 - a for a in own]),
        **({"heldout": aside} if aside else {}),
    }


def metrics(test=95.0, unlearn=8.0, retain=99.0):
    return {"retain_accuracy": retain, "unlearn_accuracy": unlearn, "test_accuracy": test, "mia_accuracy": 30.0}


def row(method, audits, **measured):
    found = metrics(**measured)
    seeds = {str(s): {"audits": {"gaussian": a}, "metrics": found, "passes": 10} for s, a in enumerate(audits)}
    summary = {name: {"mean": value, "std": 0.0, "n": len(audits)} for name, value in found.items()}
    role = trained_roles(9).get(method, Role.METHOD)
    return {"role": role, "method": method, "settings": {"epochs": 40}, "summary": summary, "per_seed": seeds}


def run_of(
    own=0.8,
    *,
    seeds=3,
    controls=1,
    base=0.8,
    original=0.95,
    form="sample",
    crafted=NOT_CRAFTED,
    heldout=None,
    seen=None,
    memory=True,
    fit=99.0,
    **more,
):
    """A run whose row `m` is right with these shares where re-trained models are right with about `base`."""
    references = [base + SPREAD[s % 3] for s in range(seeds)]
    made, aside = {}, (base, base) if memory else None
    for k in range(controls):
        audits = [audit(base + SPREAD[(s + k + 1) % 3], references[s], aside, crafted) for s in range(seeds)]
        made["control" if k == 0 else f"control_{k + 1}"] = row(f"control_{k + 1}" if k else "control", audits)
    mine = [audit(own, reference, heldout, crafted) for reference in references]
    rows = {
        "original": row("original", [audit(original, r, seen, crafted) for r in references], unlearn=0.0, retain=fit),
        "retrain": row("retrain", [audit(r, r, aside, crafted) for r in references]),
        **made,
        "m": row("gd", mine, **more),
    }
    sizes = {"retain": 800, "forget": SAMPLES, "validation": 400, "test": 400}
    scenario = {"name": "x", "form": form, "sizes": sizes, "settings": {"audit": {"perturbations": ["gaussian"]}}}
    record = {"schema": Results.SCHEMA, "scenario": scenario, "seeds": list(range(seeds)), "methods": rows}
    return judged(record)


def judged(record):
    """The run of a record's values, judged."""
    return Run(Path("."), "x", judged_record(Results.model_validate(record)))


CASES = {
    "like re-train": (lambda: run_of(0.8), NOT_DETECTED),
    "within what re-training explains": (lambda: run_of(0.81), NOT_DETECTED),
    "remembers": (lambda: run_of(0.95), FOUND),
    "at one radius only, which may be another training": (lambda: run_of([0.8, 0.97]), NOT_DETECTED),
    "at one radius only, without held-out samples": (lambda: run_of([0.8, 0.97], memory=False), FOUND),
    "perturbed samples only, which may be another training": (lambda: run_of([0.8, 0.97, 0.97]), NOT_DETECTED),
    "class: perturbed samples only": (lambda: run_of([0.01, 0.4, 0.4], base=0.01, form="class"), FOUND),
    "never right": (lambda: run_of(0.0), OVER),
    "less often": (lambda: run_of(0.65), OVER),
    "above and below": (lambda: run_of([0.97, 0.6, 0.6]), MIXED),
    "below, and above where that is no evidence": (lambda: run_of([0.6, 1.0]), OVER),
    "right more often on the samples themselves": (lambda: run_of([0.97, 0.8, 0.8]), FOUND),
    "right less often on the samples themselves": (lambda: run_of([0.6, 0.8, 0.8]), OVER),
    "M alone": (lambda: run_of(0.8, heldout=(0.6, 0.8)), FOUND),
    "M under an untargeted attack": (lambda: run_of(0.8, heldout=(0.6, 0.8), crafted=UNTARGETED), NOT_DETECTED),
    "M under an attack towards the label": (lambda: run_of(0.8, heldout=(0.6, 0.8), crafted=TRUE), FOUND),
    "attacked samples alone": (lambda: run_of([0.8, 0.97, 0.97], crafted=UNTARGETED), NOT_DETECTED),
    "attacked samples alone, without held-out samples": (
        lambda: run_of([0.8, 0.97, 0.97], memory=False, crafted=UNTARGETED),
        NOT_DETECTED,
    ),
    "less often under an untargeted attack": (lambda: run_of([0.8, 0.6, 0.6], crafted=UNTARGETED), OVER),
    "M below counts for nothing": (lambda: run_of(0.8, heldout=(1.0, 0.8)), NOT_DETECTED),
    "lost test accuracy is no verdict": (lambda: run_of(0.8, test=80.0), NOT_DETECTED),
    "remembers and lost utility": (lambda: run_of(0.95, test=80.0), FOUND),
    "one seed, one control": (lambda: run_of(0.95, seeds=1), INCONCLUSIVE),
    "one seed, four controls": (lambda: run_of(0.95, seeds=1, controls=4), FOUND),
    "no control": (lambda: run_of(0.95, controls=0), INCONCLUSIVE),
    "attacked, one seed, one control": (lambda: run_of(0.95, seeds=1, crafted=TRUE), INCONCLUSIVE),
    "attacked, one seed, four controls": (lambda: run_of(0.95, seeds=1, controls=4, crafted=TRUE), FOUND),
    "attacked, three seeds": (lambda: run_of(0.95, crafted=TRUE), FOUND),
    "re-train attacked, two controls, but three at radius 0": (
        lambda: run_of(1, seeds=1, controls=2, crafted=REFERENCE),
        FOUND,
    ),
    "re-train attacked, one control": (lambda: run_of(1, seeds=1, crafted=REFERENCE), INCONCLUSIVE),
    "re-train attacked, three seeds": (lambda: run_of(0.95, crafted=REFERENCE), FOUND),
    "the original could not have been seen": (lambda: run_of(0.8, original=0.81), INCONCLUSIVE),
    "the original is plain at one radius only": (lambda: run_of(0.8, original=[0.86, 0.776]), NOT_DETECTED),
    "every radius blind: all are always right": (lambda: run_of(1.0, base=0.99, original=1.0), INCONCLUSIVE),
    "every radius blind: the original knows less": (lambda: run_of(0.8, original=0.79), INCONCLUSIVE),
    "class: remembers": (lambda: run_of(0.4, base=0.01, form="class"), FOUND),
    "class: like re-train": (lambda: run_of(0.01, base=0.01, original=0.9, form="class"), NOT_DETECTED),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict(case):
    run, word = CASES[case][0](), CASES[case][1]
    before = run.record.as_dict()
    verdict = run.verdicts["m"]
    assert verdict.verdict is word
    assert judged_record(run.record).as_dict() == before
    sentence = verdict_sentence(run, verdict)
    assert "forgotten samples" in sentence or sentence.startswith("Nothing can")
    assert "deleted" not in sentence


def test_the_judged_figure_and_its_bar_follow_from_the_shares_right():
    run = run_of(0.95)
    finding = run.record.finding("m", "gaussian")
    references = np.mean([np.arcsin(np.sqrt(0.8 + s)) for s in SPREAD])  # the row has one angle with every seed
    assert finding.value() == pytest.approx((0.95 + 1 / 200) / (np.sin(references) ** 2 + 1 / 200))
    assert finding.seeds == pytest.approx([0.9550 / 0.805] * 3, rel=0.02)
    assert finding.retrained == 6
    low, high = finding.floor()
    assert low < 1 < high < finding.value()
    floor = noise_floor(run.record, "gaussian", "pooled")
    assert (floor.low[1], floor.high[1]) == pytest.approx(finding.floor(2))  # after the level and radius 0
    assert (floor.low[0], floor.high[0]) == pytest.approx(finding.floor(1))
    assert figure_words(finding)[1] == f"{low:.2f} to {high:.2f}"


def shown_instead(run, label, own, reference, crafted):
    """The run with other shares right of one row."""
    record = run.record.as_dict()
    for spread, seed in zip(SPREAD, record["methods"][label]["per_seed"].values(), strict=True):
        seed["audits"]["gaussian"] = audit(own + spread, reference, None, crafted)
    return judged(record)


def test_models_that_are_attacked_themselves_are_compared_with_a_reference_that_is_too():
    """Re-trained models are right on 0.4 of inputs crafted on themselves: 0.4 is like re-train although r is 0.5."""
    run = run_of(0.4, crafted=TRUE)
    assert run.verdicts["m"].verdict == OVER
    alike = shown_instead(shown_instead(run, "control", 0.4, 0.8, TRUE), "retrain", 0.4, 0.4, TRUE)
    verdict = alike.verdicts["m"]
    assert verdict.verdict == NOT_DETECTED
    assert verdict.finding.value() == pytest.approx(1, abs=0.001)
    assert verdict.finding.retrained == 6
    assert verdict.finding.neutral == 1
    over = run_of([0.8, 0.4, 0.4], crafted=TRUE)
    assert "each on forgotten samples perturbed to attack itself" in verdict_sentence(over, over.verdicts["m"])
    assert run_of(0.97, crafted=TRUE).verdicts["m"].verdict == FOUND
    assert ["attack itself" in picture_of(each).title for each in (alike, run_of(0.8))] == [True, False]


def test_where_the_reference_is_attacked_neutral_is_what_controls_show():
    run = run_of(0.97, base=0.4, crafted=REFERENCE)
    assert run.verdicts["m"].verdict == FOUND
    alike = shown_instead(run, "control", 0.97, 0.4, REFERENCE)
    finding = alike.record.finding("m", "gaussian")
    assert not finding.columns[0].side
    assert [column.retrained for column in finding.columns] == [3, 6, 3, 3]  # nothing is crafted at radius 0
    assert finding.floor()[0] > 1.9
    assert finding.neutral == pytest.approx(finding.value(), rel=0.01)


def test_the_floor_of_r_under_attack_is_what_controls_show():
    """The bar judges shares of models attacked themselves; r is of one model's inputs and has another range."""
    run = shown_instead(run_of(0.4, crafted=TRUE), "control", 0.4, 0.8, TRUE)
    floor = noise_floor(run.record, "gaussian", "pooled")
    assert (floor.low[1], floor.high[1]) == pytest.approx((0.39 / 0.8, 0.41 / 0.8))


def test_an_inconclusive_verdict_says_what_would_help():
    verdict = run_of(0.95, seeds=1).verdicts["m"]
    assert "1 more controls per seed or 1 more seeds would do" in verdict.doubts[0]
    assert "give --set controls=2" in run_of(0.95, controls=0).verdicts["m"].doubts[0]


def test_memory_and_class_knowledge_are_told_apart():
    class_only = run_of(0.95, heldout=(0.95, 0.8))
    assert class_only.verdicts["m"].verdict == FOUND
    text = verdict_sentence(class_only, class_only.verdicts["m"])
    assert "it knows their class better than retrained models do" in text
    assert "a difference of training, not of these samples" in text
    assert class_only.verdicts["m"].chips.memory.state == "not found"
    assert class_only.verdicts["m"].chips.memory.smallest > 1
    memory = run_of(0.95, heldout=(0.8, 0.8))
    assert "remembers these very samples" in verdict_sentence(memory, memory.verdicts["m"])
    assert memory.verdicts["m"].chips.memory.state == "found"


def test_memory_is_judged_on_the_forgotten_samples_that_held_out_ones_stand_for():
    """Where classes are left out, M compares shares of the classes that stay; r and the verdict are of all of them."""
    run = run_of(0.95, heldout=(0.8, 0.8))
    record = run.record.as_dict()
    for label in ("m", "retrain", "control"):
        for seed in record["methods"][label]["per_seed"].values():
            kept = {"samples": 60, "rate": [0.7] * 3, "reference_rate": [0.7] * 3}
            seed["audits"]["gaussian"]["heldout"] |= {"left_out": ["b"], "forgotten": kept}
    partial = judged(record)
    assert run.record.finding("m", "gaussian", "M").value() == pytest.approx(0.95 / 0.8, rel=0.01)
    assert partial.record.finding("m", "gaussian", "M").value() == pytest.approx(1, abs=1e-12)
    assert partial.record.finding("m", "gaussian").value() == run.record.finding("m", "gaussian").value()
    assert run.verdicts["m"].memory.above
    assert not partial.verdicts["m"].memory.above


GATES = {
    "recipe": lambda record: record["methods"]["retrain"]["settings"].update(epochs=10),
    "retain fit": lambda record: measured(record, "retrain", retain_accuracy=90.0),
    "utility": lambda record: [measured(record, name, test_accuracy=85.0) for name in ("retrain", "control")],
    "controls": lambda record: measured(record, "control", test_accuracy=85.0),
    "original": lambda record: shares(record, "original", 0.4),
    "seen": lambda record: audited(record, "retrain")["settings"].update(seen={"pre-training": 12}),
    "leak": lambda record: [margins_of(record, label, auc) for label, auc in LEAKING.items()],
    "seeds": lambda record: [seeded(record, label, "0") for label in ("retrain", "control")],
}


def audited(record, label, seed="0"):
    return record["methods"][label]["per_seed"][seed]["audits"]["gaussian"]


LEAKING = {"original": 0.8, "retrain": 0.79, "control": 0.52, "m": 0.6}


def margins_of(record, label, auc, error=0.05):
    measured(record, label, heldout_auc=auc, heldout_auc_error=error)


def seeded(record, label, weights):
    for seed, result in record["methods"][label]["per_seed"].items():
        result["weights"] = f"{weights}-{seed}"


def measured(record, label, **values):
    for seed in record["methods"][label]["per_seed"].values():
        seed["metrics"].update(values)


def shares(record, label, own):
    for seed in record["methods"][label]["per_seed"].values():
        reference = 1 - seed["audits"]["gaussian"]["unlearn_accuracy"]["value"][0]
        reference -= seed["audits"]["gaussian"]["difference"]["value"][0]
        seed["audits"]["gaussian"] = audit(own, reference)


def test_an_original_that_is_worse_on_test_samples_is_not_over_forgotten():
    """Re-train without a whole class has fewer classes to confuse: its test accuracy is the higher one."""
    run = run_of(0.95)
    record = copy.deepcopy(run.record.as_dict())
    measured(record, "original", test_accuracy=85.0)
    record["methods"]["original"]["summary"]["test_accuracy"]["mean"] = 85.0
    worse = judged(record)
    assert all(gate.passed for gate in worse.record.gates)
    assert worse.verdicts["original"].verdict == run.verdicts["original"].verdict == FOUND


@pytest.mark.parametrize("name", GATES)
def test_each_gate_fires_alone_on_a_doctored_record(name):
    run = run_of(0.95)
    assert all(gate.passed for gate in run.record.gates)
    record = copy.deepcopy(run.record.as_dict())
    GATES[name](record)
    doctored = judged(record)
    assert [gate.name for gate in doctored.record.gates if not gate.passed] == [name]
    verdict = doctored.verdicts["m"]
    assert verdict.verdict == NOT_COMPARABLE
    assert verdict_sentence(doctored, verdict).startswith(
        f"No verdict: {next(g.text for g in doctored.record.gates if not g.passed)}"
    )
    record["scenario"]["settings"]["accept_reference"] = True
    accepted = judged(record)
    assert accepted.verdicts["m"].verdict == FOUND
    assert verdict_sentence(accepted, accepted.verdicts["m"]).startswith("Conditional on")


@pytest.mark.parametrize(
    ("aucs", "leaks"),
    [
        ((0.8, 0.78, 0.8), True),  # trained on everything
        ((0.8, 0.78, 0.5), True),  # one of the two alone
        ((0.8, 0.62, 0.6), False),  # chance: 2.4 standard errors
        ((0.95, 0.7, 0.7), False),  # easier samples, of which the original knows far more
        ((0.8, 0.2, 0.2), False),  # harder ones
    ],
)
def test_a_retrained_model_that_knows_forgotten_samples_as_the_original_does_saw_them(aucs, leaks):
    record = run_of(0.95).record.as_dict()
    for label, auc in zip(("original", "retrain", "control"), aucs, strict=True):
        margins_of(record, label, auc)
    gates = [gate for gate in judged(record).record.gates if gate.name == "leak"]
    assert len(gates) == 2
    assert any(gate.passed is False for gate in gates) == leaks


@pytest.mark.parametrize(("auc", "fair"), [(0.5, True), (0.68, True), (0.73, False), (0.25, False)])
def test_memory_is_judged_only_where_held_out_samples_are_as_hard_as_forgotten_ones(auc, fair):
    """An interval of 0.1 on each side that does not reach 0.6 is no chance."""
    record = run_of(0.8, heldout=(0.6, 0.8)).record.as_dict()
    margins_of(record, "original", 0.99)
    for label in ("retrain", "control"):
        margins_of(record, label, auc)
    run = judged(record)
    assert run.record.difficulty.fair == fair
    assert (run.record.difficulty.low, run.record.difficulty.high) == pytest.approx((auc - 0.098, auc + 0.098))
    judgment = run.verdicts["m"]
    assert judgment.verdict is (FOUND if fair else NOT_DETECTED)
    assert judgment.chips.memory.state == ("found" if fair else "cannot tell")
    words = chips(judgment)[0].sentence
    assert fair or ("held-out samples are " + ("harder" if auc > 0.5 else "easier")) in words
    assert judgment.finding_of("gaussian", "M").value() > 1.2  # shown, not judged
    level = judgment.finding.columns[0]
    assert level.share == pytest.approx(0.2)
    assert (level.smallest is None) == fair  # where M is judged, the level counts downwards only


def test_with_much_less_data_a_retrained_model_may_be_worse():
    for forgotten, refused in ((200, True), (201, False)):
        record = run_of(0.95).record.as_dict()
        record["scenario"]["sizes"] |= {"forget": forgotten, "retain": 1000 - forgotten}
        for label in ("retrain", "control"):
            measured(record, label, test_accuracy=60.0)
        assert (judged(record).verdicts["m"].verdict is NOT_COMPARABLE) == refused
        measured(record, "control", test_accuracy=40.0)  # one of two failed
        assert judged(record).verdicts["m"].verdict is NOT_COMPARABLE


def test_an_accuracy_gap_that_retrained_models_have_among_themselves_refuses_nothing():
    """A retrained model may lose 8 points by chance, so a mean of 10 is no sign of another training."""
    record = run_of(0.95, controls=3).record.as_dict()
    for label, accuracy in zip(("retrain", "control", "control_2", "control_3"), (85, 84.5, 84, 86), strict=True):
        measured(record, label, test_accuracy=accuracy)
    assert "utility" in [gate.name for gate in judged(record).record.gates if gate.passed is False]
    for label, spread in zip(("retrain", "control", "control_2", "control_3"), (0, 1, -1, 0), strict=True):
        for k, seed in enumerate(record["methods"][label]["per_seed"].values()):
            seed["metrics"]["test_accuracy"] = 85 + 8 * (k - 1) + spread
    assert "utility" not in [gate.name for gate in judged(record).record.gates if gate.passed is False]


def right_of(right, samples, names, original=None, **heldout):
    """One seed: these numbers right at radius 0 and above it, of so many samples; the first is the original's."""
    record = run_of(0.8, seeds=1, controls=len(names) - 2).record.as_dict()
    record["scenario"]["sizes"] |= {"forget": samples, "retain": 1500 - samples}
    del record["methods"]["m"]
    for label, number in zip(names, right, strict=True):
        for seed in record["methods"][label]["per_seed"].values():
            seed["audits"]["gaussian"] = audit(number / samples, right[1] / samples) | {"samples": samples}
    return judged(record)


ROWS_OF_ONE_SEED = ("original", "retrain", "control", "control_2", "control_3")


def test_twelve_samples_of_which_retrained_models_know_half_are_found_in_the_original():
    run = right_of((12, 6, 7, 6, 5), 12, ROWS_OF_ONE_SEED)
    assert run.verdicts["original"].verdict is FOUND
    assert nothing_to_forget(run) == ""


def test_one_sample_gets_an_honest_sentence():
    run = right_of((1, 0, 0, 0, 0), 1, ROWS_OF_ONE_SEED)
    judgment = run.verdicts["original"]
    assert judgment.verdict is INCONCLUSIVE
    words = verdict_sentence(run, judgment)
    assert "on the unperturbed samples, it is right on 100 % and the retrained model on 92 %" in words
    assert "1 forgotten sample" in words
    assert "every model recognizes" not in words
    assert "seeds would do" not in words
    assert nothing_to_forget(run) == ""


def test_verdicts_on_drawn_counts(make_run):
    run = make_run()
    words = {label: judge(run.record, label).verdict for label in run.rows}
    assert words["original"] == words["gd"] == FOUND
    assert words["rurk"] == words["retrain"] == NOT_DETECTED
    assert headline(run).startswith("Of 2 methods: residual knowledge")
    assert recommendation(run).endswith("give held-out samples of the same classes, and at least two controls.")


def test_every_threshold_stands_on_the_page(make_run):
    text = page_text([make_run()])
    shares = "70 % for radius 0, 20 % for all radii above 0 together, 10 % for the single radii."
    for words in ("5 % over all perturbations", shares, "at least 3", "at most 3 points", "reference not comparable"):
        assert words in text


def test_the_page_doubts_an_audit_that_cannot_tell_the_original():
    texts = list(not_proved(run_of(0.8, original=0.8)))
    assert "absence of evidence" in texts[0]
    assert "6 retrained models" in texts[1]
    assert "can detect residual knowledge at all" in texts[-1]
    assert not any("at all" in text for text in not_proved(run_of(0.95)))


def retrained_themselves(run, label):
    """The run in which a row shows what the control shows: the rule sees no difference at all."""
    record = run.record.as_dict()
    for mine, other in zip(*(record["methods"][one]["per_seed"].values() for one in (label, "control")), strict=True):
        mine["audits"] = copy.deepcopy(other["audits"])
    return judged(record)


@pytest.mark.parametrize(
    ("run", "nothing"),
    [
        (run_of(original=0.8), True),
        (retrained_themselves(run_of(0.8), "original"), True),
        (run_of(original=0.95), False),
        (run_of(original=0.95, seen=(0.98, 0.8)), False),  # it knows the class
        (run_of(original=0.95, fit=62.0), False),  # however badly it fits
        (run_of(original=0.8, own=0.97), False),  # never beside a finding
        (run_of(original=0.82), False),  # no evidence, and yet a difference
        (run_of(original=0.8, seeds=1), False),  # two retrained models tell nothing
    ],
)
def test_nothing_to_forget_is_said_only_where_the_original_differs_in_no_column(run, nothing):
    text = nothing_to_forget(run)
    assert text.startswith("There may be nothing to forget") == nothing
    assert text in str(verdict_table(run).caption)
    assert bool(text) == nothing


def test_an_original_that_remembers_is_never_said_to_have_nothing_to_forget():
    run = run_of(original=0.95, seen=(0.8, 0.8), fit=96.0)
    assert "It remembers these very samples" in verdict_sentence(run, run.verdicts["original"])
    assert nothing_to_forget(run) == ""
    assert "nothing to forget" not in str(verdict_table(run).caption)


def test_an_audit_that_sees_nothing_does_not_say_that_nothing_was_there():
    run = run_of(0.8, original=0.81)
    assert run.verdicts["original"].verdict == INCONCLUSIVE
    sentence = verdict_sentence(run, run.verdicts["original"])
    assert "nothing was there to find" not in sentence
    assert "on the unperturbed samples, it is right on 100 % and the retrained model on 92 %" in sentence


def test_a_row_is_recommended_only_if_nothing_speaks_against_it():
    plain = run_of(0.8, heldout=(0.8, 0.8))
    assert recommendation(plain).startswith("Recommended: m.")

    def warned(*labels):
        record = copy.deepcopy(plain.record.as_dict())
        for label in labels:
            record["methods"][label]["per_seed"]["1"]["warnings"] = ["the certificate says next to nothing"]
        return judged(record)

    assert "read them before you use it" in recommendation(warned("m"))
    assert recommendation(warned("m", "retrain")).startswith("Recommended: m.")  # that is not about the method
    against = {
        "no method of this run": run_of(0.95, heldout=(0.95, 0.8)),  # found
        "memory could not be measured": run_of(0.8),
        "test accuracy was lost": run_of(0.8, heldout=(0.8, 0.8), test=80.0),
        "lost too much": run_of(0.6, heldout=(0.8, 0.8)),
        "residual knowledge was found": run_of(0.8, heldout=(0.6, 0.8)),  # M alone
        "add retrained models": run_of(0.8, heldout=(0.8, 0.8), seeds=1),
        "not comparable": run_of(0.8, heldout=(0.8, 0.8), original=0.4),
    }
    for reason, run in against.items():
        text = recommendation(run)
        assert text.startswith("No method of this run can be recommended. ")
        assert reason in text.lower(), text


def test_lost_utility_is_measured_against_what_retrained_models_differ_by():
    """Retrained models have 95 %, and half of 400 test samples' one is 0.125 points."""
    kept = run_of(0.8, test=94.8).verdicts["m"].chips.utility
    assert (kept.state, kept.points) == ("kept", pytest.approx(0.2))
    run = run_of(0.8, test=94.5)
    lost = run.verdicts["m"].chips.utility
    assert (lost.state, lost.points) == ("lost", pytest.approx(0.5))
    assert verdict_sentence(run, run.verdicts["m"]).startswith("Its test accuracy is 0.5 points below the retrained")
    assert chips(run.verdicts["m"])[0].label == "utility: lost by 0.5 points"
    record = run_of(0.8, test=91.0).record.as_dict()
    for k, seed in enumerate(record["methods"]["control"]["per_seed"].values()):
        seed["metrics"]["test_accuracy"] = 91.0 + k  # a control may lose as much
    assert judged(record).verdicts["m"].chips.utility.state == "kept"
    assert run_of(0.8, seeds=1).verdicts["m"].chips.utility.state == "cannot tell"


@pytest.mark.parametrize("run", [run_of(0.95, test=80.0), run_of(0.4, test=80.0), run_of(0.8, original=0.4, test=80.0)])
def test_lost_utility_is_said_first_whatever_the_verdict_is(run):
    text = verdict_sentence(run, run.verdicts["m"])
    assert text.startswith("Its test accuracy is 15.0 points below the retrained models'.")
    assert run.verdicts["m"].chips.utility.state == "lost"
    assert len({run.verdicts["m"].verdict, FOUND, OVER, NOT_COMPARABLE}) == 3


def test_the_badge_says_what_would_have_been_noticed():
    run = run_of(0.8)
    judgment = run.verdicts["m"]
    confidence = judgment.chips.confidence
    assert confidence.retrained == 6
    assert (confidence.quantity, confidence.smallest) == ("r", judgment.finding.columns[1].smallest)
    without = run_of(0.8, memory=False).verdicts["m"]
    assert without.chips.confidence.smallest == min(without.finding.columns[k].smallest for k in (0, 1))
    assert verdict_badge(judgment) == f"not detected (above {confidence.smallest:.2f})"
    assert verdict_badge(run_of(0.95).verdicts["m"]) == "residual knowledge found"
    assert f"r of {confidence.smallest:.2f} in four of five runs" in chips(judgment)[-1].sentence
    by_class = run_of(0.01, base=0.01, original=0.9, form="class").verdicts["m"]
    assert verdict_badge(by_class) == f"not detected (above {100 * by_class.chips.confidence.smallest:+.1f} points)"


def test_where_r_can_show_no_excess_the_badge_says_which_m_would_have_been_noticed():
    judgment = run_of(0.99, base=0.99, original=1.0, heldout=(0.99, 0.99), seen=(0.5, 0.99)).verdicts["m"]
    assert (judgment.verdict, judgment.rests_on.quantity) == (NOT_DETECTED, "M")
    smallest = judgment.finding_of("gaussian", "M").columns[0].smallest
    assert (judgment.chips.confidence.quantity, judgment.chips.confidence.smallest) == ("M", smallest)
    assert verdict_badge(judgment) == f"not detected (M above {smallest:.2f})"
    assert f"M of {smallest:.2f} in four of five runs" in chips(judgment)[-1].sentence


def test_recognition_of_perturbed_samples_is_a_difference_where_memory_is_judged():
    run = run_of([0.8, 0.97, 0.97], heldout=(0.97, 0.8))
    judgment = run.verdicts["m"]
    assert judgment.verdict is NOT_DETECTED
    assert judgment.finding.columns[0].side == "above"
    assert "recognition" in judgment.differs
    assert "recognition of perturbed samples" in differs(judgment)
    assert "recognition" not in run_of(0.8).verdicts["m"].differs
    alone = run_of([0.8, 0.97, 0.97], memory=False)
    assert "recognition" not in alone.verdicts["m"].differs
    assert "This may be a difference of training" in verdict_sentence(alone, alone.verdicts["m"])
    plain = run_of(0.97, memory=False)
    assert "may be a difference of training" not in verdict_sentence(plain, plain.verdicts["m"])


def test_memory_cannot_be_told_without_held_out_samples_or_a_fair_reference():
    assert run_of(0.8).verdicts["m"].chips.memory.state == "cannot tell"
    assert run_of(0.8, heldout=(0.8, 0.8)).verdicts["m"].chips.memory.state == "not found"
    refused = run_of(0.8, heldout=(0.6, 0.8), original=0.4).verdicts["m"]
    assert (refused.verdict, refused.chips.memory.state) == (NOT_COMPARABLE, "cannot tell")
    assert "the reference is not comparable" in chips(refused)[0].sentence


def with_metric(run, name, values):
    """The run with a metric of each row: a mean, around which seeds differ as they do."""
    record = run.record.as_dict()
    for label, value in values.items():
        for spread, seed in zip(SPREAD, record["methods"][label]["per_seed"].values(), strict=True):
            seed["metrics"][name] = value + spread
    return judged(record)


@pytest.mark.parametrize("name", ["mia_accuracy", "forget_margin", "margin_gap", "heldout_auc", "test_accuracy"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_differs_in_what_retrained_models_do_not_show(name, sign):
    values = {"original": 60.0, "retrain": 60.0, "control": 60.0, "m": 60.0}
    alike = with_metric(run_of(0.8), name, values).verdicts["m"]
    assert alike.differs == []
    assert differs(alike) == ""
    assert next(one for one in alike.differences if one.measure == name).floor == pytest.approx((60, 60), abs=10)
    other = with_metric(run_of(0.8), name, values | {"m": 60.0 + 20 * sign}).verdicts["m"]
    assert other.differs == [name]
    assert other.verdict is NOT_DETECTED
    assert differs(other).startswith("Differs from retrained models in: ")
    assert "no evidence of memory" in differs(other)


def test_a_measure_that_was_not_taken_of_every_model_is_not_compared():
    run = with_metric(run_of(0.8), "forget_margin", {"m": 9.0, "retrain": 1.0})
    assert [one.measure for one in run.verdicts["m"].differences] == ["mia_accuracy", "test_accuracy"]


def test_every_sentence_of_the_table_is_said_somewhere():
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.name != "sentences.py")
    for name in (*CLAUSES, *SENTENCES):
        assert f'"{name}"' in source or f"'{name}'" in source or name.split()[0] in ("memory", "utility"), name
    for text in (*SENTENCES.values(), *NONE_RECOMMENDED.values()):
        assert text[0].isupper() or text.startswith("{subject}")
        assert text.endswith((".", "{power}"))
    for text in CLAUSES.values():  # they stand within a sentence
        assert not text[0].isupper()
        assert not text.endswith(".")


def two_perturbations(**shift):
    """The run with a second perturbation; rows that are not named show under it what they show under noise."""
    record = run_of(0.8).record.as_dict()
    record["scenario"]["settings"]["audit"]["perturbations"] = ["gaussian", "shift"]
    for label, row_record in record["methods"].items():
        for k, seed in enumerate(row_record["per_seed"].values()):
            own = shift.get(label)
            mine = seed["audits"]["gaussian"]
            at_0 = 1 - mine["unlearn_accuracy"]["value"][0]
            seed["audits"]["shift"] = mine if own is None else audit([at_0, own, own], 0.8 + SPREAD[k])
    return judged(record)


def test_a_blind_perturbation_is_named_and_blanks_nothing():
    run = two_perturbations(original=0.805)
    assert run.record.blind == ["shift"]
    assert run.verdicts["m"].verdict is NOT_DETECTED
    assert run.verdicts["original"].verdict is FOUND
    alone = run_of(0.8).verdicts["m"].finding
    assert [c.share for c in run.verdicts["m"].finding_of("gaussian").columns] == [c.share for c in alone.columns]
    assert [c.share for c in run.verdicts["m"].finding_of("shift").columns] == [0, 0.7, 0, 0]
    for text in (not_judged(run), str(verdict_table(run).caption)):
        assert "Not judged: shift. This perturbation does not tell even the original from a retrained model." in text


def test_perturbations_that_see_the_original_share_the_error():
    run = two_perturbations()
    assert run.record.blind == []
    shares = [c.share for c in run.verdicts["m"].finding_of("shift").columns]
    assert shares == pytest.approx([0.2 / 2, 0.7, 0.1 / 4, 0.1 / 4])


def test_where_the_original_is_seen_at_radius_0_alone_radius_0_has_the_whole_error():
    run = run_of([0.8, 0.8, 0.8], original=[0.95, 0.8, 0.8])
    assert run.record.blind == ["gaussian"]
    assert run.verdicts["m"].verdict is NOT_DETECTED
    assert [c.share for c in run.verdicts["m"].finding.columns] == [0, 1, 0, 0]
    assert run.verdicts["m"].column.tau == 0


def test_where_the_original_is_seen_nowhere_nothing_is_left_out():
    run = run_of(0.5, original=0.8)
    assert run.record.blind == []
    assert run.verdicts["m"].verdict is OVER
    assert run.verdicts["original"].verdict is INCONCLUSIVE


def test_an_excess_that_no_model_can_reach_is_not_called_detectable():
    """Retrained models are right on 98 to 100 %: always being right is no evidence, so the audit could find nothing."""
    run = run_of(0.99, base=0.99, original=1.0)
    assert [column.smallest for column in run.verdicts["m"].finding.columns] == [None] * 4
    assert run.verdicts["m"].verdict is INCONCLUSIVE


def test_a_model_that_is_never_right_remembers_nothing():
    """Half a forgotten sample is added to both rates: else a larger held-out set alone would be memory."""
    run = run_of(0.0, heldout=(0.0, 0.8))
    record = run.record.as_dict()
    for row_record in record["methods"].values():
        for seed in row_record["per_seed"].values():
            if seed["audits"]["gaussian"].get("heldout"):
                seed["audits"]["gaussian"]["heldout"]["samples"] = 4 * SAMPLES
    wreck = judged(record).verdicts["m"]
    assert wreck.verdict is OVER
    assert wreck.memory.value() == pytest.approx(1, abs=0.01)


def test_record_csv_latex_page_and_terminal_say_the_same(tmp_path):
    """Rows with every verdict and chip, read back from each place where they are told."""
    run = run_of(0.8, heldout=(0.8, 0.8), test=80.0)
    record = run.record.as_dict()
    for label, own, heldout in (("remembers", 0.95, (0.8, 0.8)), ("knows", 0.95, (0.95, 0.8)), ("over", 0.5, None)):
        audits = [audit(own, 0.8 + spread, heldout) for spread in SPREAD]
        record["methods"][label] = row("gd", audits)
    run = replace(judged(record), folder=tmp_path)
    (tmp_path / "results.json").write_text(run.record.text(), encoding="utf-8")
    table, text = verdict_table(run), page_text([run])
    said = dict(zip((str(cell) for cell in table.columns[0].cells), map(str, table.columns[1].cells), strict=True))
    lines = {line["model"]: line for line in csv.DictReader(io.StringIO(csv_table([run])))}
    latex = {line.split(" & ")[0]: line for line in latex_table([run]).splitlines() if " & " in line}
    written = json.loads(run.record.text())["judgments"]
    assert {judgment.verdict for judgment in run.verdicts.values()} == {FOUND, NOT_DETECTED, OVER}
    for label, judgment in run.verdicts.items():
        badge, memory, utility = verdict_badge(judgment), judgment.chips.memory.state, judgment.chips.utility.state
        assert written[label]["verdict"] == judgment.verdict.name
        assert written[label]["chips"]["memory"]["state"] == lines[label]["memory"] == memory
        assert written[label]["chips"]["utility"]["state"] == lines[label]["utility"] == utility
        assert written[label]["chips"]["confidence"]["retrained"] == int(lines[label]["retrained"]) == 6
        assert lines[label]["differs"].split() == judgment.differs
        assert lines[label]["verdict"] == str(judgment.verdict)
        assert float(lines[label]["smallest"]) == judgment.chips.confidence.smallest
        assert f" & {badge} & " in latex[label]
        for quantity in ("G", "M") if judgment.memory else ():
            value = run.record.finding(label, "gaussian", quantity).value()
            assert float(lines[label][quantity]) == value
            assert f"{value:.2f}" in latex[label]
        words = verdict_sentence(run, judgment)
        first, chip_line, *rest = said[label].splitlines()
        assert (first, rest[0]) == (badge, words)
        assert chip_line.split(" · ") == [chip.label for chip in chips(judgment)]
        for shown in (badge, words, differs(judgment), *(chip.label for chip in chips(judgment))):
            assert html.escape(shown, quote=False).replace("'", "&#39;") in text
    assert recommendation(run) in text
    assert recommendation(run) in str(table.caption)
