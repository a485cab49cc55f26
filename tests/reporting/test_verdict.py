"""The verdict as a table of cases, and its widened intervals proved by the audit's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from residuum.auditing.counts import Counts
from residuum.auditing.measures import measure
from residuum.record import Results
from residuum.reporting.evidence import Point, difference_bounds, judged_confidence, noise_floor, ratio_bounds
from residuum.reporting.page import page_text
from residuum.reporting.run import Run
from residuum.reporting.verdict import FOUND, INCONCLUSIVE, MIXED, NONE_FOUND, OVER, judge
from residuum.reporting.wording import figure_words, headline, not_proved, verdict_sentence

TAUS = [0.0, 0.1, 0.2]


def audit(values, width=0.01, draws=100, enumerated=False, shift=0.0):
    """An audit with these pooled ratios (or None), the same at all radii above 0 if one is given."""
    values = [1.0, *(values if isinstance(values, list) else [values, values])]
    known = [None if r is None else (r - width, r, r + width) for r in values]
    knowledge = {name: [None if e is None else e[k] for e in known] for k, name in enumerate(("low", "pooled", "high"))}
    differences = [shift if r is None else r - 1 for r in values]
    return {
        "taus": TAUS,
        "draws": [1, draws, draws],
        "settings": {"confidence": 0.95, "enumerated": enumerated},
        "residual_knowledge": knowledge,
        "difference": {
            "value": differences,
            "low": [d - width for d in differences],
            "high": [d + width for d in differences],
        },
    }


def run_of(audits, *, test=95.0, unlearn=8.0, floors=(0.97, 1.03), form="sample", perturbation="gaussian"):
    """A run whose row `m` has one audit per seed; re-train has test accuracy 95 and unlearn accuracy 8."""

    def row(method, list_of_audits, test, unlearn):
        seeds = {str(s): {"audits": {perturbation: a}} for s, a in enumerate(list_of_audits)}
        summary = {"test_accuracy": {"mean": test}, "unlearn_accuracy": {"mean": unlearn}}
        return {"method": method, "per_seed": seeds, "summary": summary}

    same = [audit(1.0, width=0.0, shift=0.0)] * len(audits)
    undefined = [audit([None, None], width=0.005)] * len(audits)
    methods = {"retrain": row("retrain", same, 95.0, 8.0), "m": row("gd", audits, test, unlearn)}
    if floors:
        methods["control"] = row("control", undefined if form == "class" else same, 95.0, 8.0)
    low, high = floors or (None, None)
    noise = {perturbation: {"low": [1.0, low, low], "high": [1.0, high, high], "pairs": 3}}
    record = {
        "scenario": {"name": "x", "form": form, "settings": {"audit": {"perturbations": [perturbation]}}},
        "schema": "residuum.results/1",
        "seeds": list(range(len(audits))),
        "noise_floor": noise if floors else {},
        "methods": methods,
    }
    return Run(Path("."), "x", Results.model_validate(record))


CASES = {
    "identical to re-train": (lambda: run_of([audit(1.0, width=0.0)] * 3), NONE_FOUND),
    "within the noise floor": (lambda: run_of([audit(1.02)] * 3), NONE_FOUND),
    "original unchanged": (lambda: run_of([audit(1.3)] * 3, unlearn=0.0), FOUND),
    "at one radius only": (lambda: run_of([audit([1.0, 1.3])] * 3), FOUND),
    "in two of three seeds": (lambda: run_of([audit(1.3), audit(1.3), audit(1.0)]), FOUND),
    "in one of three seeds": (lambda: run_of([audit(1.3), audit(1.0), audit(1.0)]), NONE_FOUND),
    "two seeds at different radii": (lambda: run_of([audit([1.3, 1.0]), audit([1.0, 1.3]), audit(1.0)]), NONE_FOUND),
    "interval touches the floor": (lambda: run_of([audit(1.04, width=0.01)] * 3), NONE_FOUND),
    "above 1 but floor wider": (lambda: run_of([audit(1.3)] * 3, floors=(0.6, 1.5)), NONE_FOUND),
    "floor wholly below 1": (lambda: run_of([audit(1.005, width=0.001)] * 3, floors=(0.9, 0.95)), FOUND),
    "collapsed model": (lambda: run_of([audit(0.0, width=0.0)] * 3, test=20.0, unlearn=100.0), OVER),
    "less often than the floor": (lambda: run_of([audit(0.8)] * 3), OVER),
    "unlearn accuracy 10.1 points above": (lambda: run_of([audit(1.0)] * 3, unlearn=18.1), OVER),
    "unlearn accuracy 10 points above": (lambda: run_of([audit(1.0)] * 3, unlearn=18.0), NONE_FOUND),
    "test accuracy 3.1 points below": (lambda: run_of([audit(1.0)] * 3, test=91.9), OVER),
    "test accuracy 3 points below": (lambda: run_of([audit(1.0)] * 3, test=92.0), NONE_FOUND),
    "remembers and lost utility": (lambda: run_of([audit(1.3)] * 3, test=80.0), MIXED),
    "above and below": (lambda: run_of([audit([1.3, 0.7])] * 3), MIXED),
    "too few draws": (lambda: run_of([audit(1.3, draws=29)] * 3), INCONCLUSIVE),
    "just enough draws": (lambda: run_of([audit(1.3, draws=30)] * 3), FOUND),
    "enumerated attack has one draw": (lambda: run_of([audit(1.3, width=0.0, draws=1, enumerated=True)] * 3), FOUND),
    "too wide in one seed": (lambda: run_of([audit(1.3), audit(1.3), audit(1.3, width=0.051)]), INCONCLUSIVE),
    "just narrow enough": (lambda: run_of([audit(1.3, width=0.0499)] * 3), FOUND),
    "no control": (lambda: run_of([audit(1.3)] * 3, floors=None), INCONCLUSIVE),
    "no ratio exists": (lambda: run_of([audit([None, None])] * 3), INCONCLUSIVE),
    "class: remembers": (lambda: run_of([audit([None, None], shift=0.4)] * 3, form="class"), FOUND),
    "class: like re-train": (lambda: run_of([audit([None, None], width=0.001)] * 3, form="class"), NONE_FOUND),
    "class: no control": (
        lambda: run_of([audit([None, None], shift=0.4)] * 3, form="class", floors=None),
        INCONCLUSIVE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict(case):
    run, word = CASES[case][0](), CASES[case][1]
    before = run.record.as_dict()
    verdict = judge(run, "m")
    assert verdict.word == word
    assert run.record.as_dict() == before
    sentence = verdict_sentence(run, verdict)
    assert "forgotten samples" in sentence or sentence.startswith("Nothing can be concluded")
    assert "deleted" not in sentence


def test_intervals_are_judged_at_a_confidence_that_pays_for_the_number_of_radii():
    run = run_of([audit(1.3)] * 3)
    assert judged_confidence(run) == pytest.approx(1 - 0.05 / 2)
    close = run_of([audit(1.05, width=0.019)] * 3)  # at 95 % the low end is 1.031, above the floor's 1.03
    assert judge(close, "m").word == NONE_FOUND
    assert judge(close, "m").point.lows[0] < 1.03


def test_what_one_perturbation_finds_stands_when_another_is_too_imprecise():
    run = run_of([audit(1.3)] * 3)
    record = run.record.as_dict()
    for row in record["methods"].values():
        for seed in row["per_seed"].values():
            seed["audits"]["fgsm"] = audit(1.0, draws=3)
    record["noise_floor"]["fgsm"] = record["noise_floor"]["gaussian"]
    both = Run(run.folder, "x", Results.model_validate(record))
    verdict = judge(both, "m")
    assert verdict.parts == {"gaussian": FOUND, "fgsm": INCONCLUSIVE}
    assert verdict.word == FOUND
    assert verdict.point.perturbation == "gaussian"
    assert judged_confidence(both) == pytest.approx(1 - 0.05 / 4)


def test_verdicts_on_drawn_counts(make_run):
    run = make_run()
    words = {label: judge(run, label).word for label in run.rows}
    assert words["original"] == words["gd"] == FOUND
    assert words["rurk"] == words["retrain"] == NONE_FOUND
    assert headline(run).startswith("Of 2 methods: residual knowledge")


def random_counts(rng, n=20, draws=60):
    p_m, p_a = rng.random((2, n, 3))
    cells = np.array(
        [
            rng.multinomial(draws, [a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)])
            for a, b in zip(p_m.ravel(), p_a.ravel(), strict=True)
        ]
    ).reshape(n, 3, 4)
    both, only_m, only_a, _ = np.moveaxis(cells, 2, 0)
    return Counts.of([str(i) for i in range(n)], np.zeros(n), [0.1, 0.2, 0.3], draws=np.full((n, 3), draws),
                     method_right=both + only_m, reference_right=both + only_a, both_right=both,
                     same_prediction=both)  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_widened_intervals_equal_those_measured_at_the_other_confidence(seed):
    counts = random_counts(np.random.default_rng(seed))
    narrow, wide = (measure(counts, confidence=c, bootstrap_seed=1) for c in (0.95, 1 - 0.05 / 6))
    for k in range(3):
        r, low, high = (narrow["residual_knowledge"][name][k] for name in ("pooled", "low", "high"))
        assert ratio_bounds(r, (low, high), 0.95, 1 - 0.05 / 6) == pytest.approx(
            (wide["residual_knowledge"]["low"][k], wide["residual_knowledge"]["high"][k]), rel=1e-9
        )
        d, low, high = (narrow["difference"][name][k] for name in ("value", "low", "high"))
        assert difference_bounds(d, (low, high), 0.95, 1 - 0.05 / 6) == pytest.approx(
            (wide["difference"]["low"][k], wide["difference"]["high"][k]), rel=1e-9
        )


def test_a_model_that_is_never_right_keeps_an_interval_from_zero():
    nothing = np.zeros((4, 1), int)
    counts = Counts.of("abcd", np.zeros(4), [0.1], draws=nothing + 50, method_right=nothing,
                       reference_right=nothing + 30, both_right=nothing, same_prediction=nothing)  # fmt: skip
    narrow, wide = (measure(counts, confidence=c, bootstrap_seed=1)["residual_knowledge"] for c in (0.95, 0.99))
    found = ratio_bounds(0.0, (narrow["low"][0], narrow["high"][0]), 0.95, 0.99)
    assert found == pytest.approx((wide["low"][0], wide["high"][0]))


def test_the_floor_of_differences_is_the_union_of_both_ways(change):
    def edit(record):
        for value, row in enumerate(record["methods"]["control"]["per_seed"].values()):
            entry = {"value": [0.0] * 3, "low": [0.0, -0.03, 0.01], "high": [0.0, 0.05 if value else 0.01, 0.02]}
            row["audits"]["gaussian"]["difference"] = entry

    floor = noise_floor(change(run_of([audit(1.0)] * 2, form="class"), edit), "gaussian", "difference")
    assert (floor.low, floor.high) == ([-0.0, -0.05, -0.02], [0.0, 0.05, 0.02])


def test_every_threshold_stands_on_the_page(make_run):
    text = page_text([make_run()])
    for words in ("at least 30", "at most 0.05", "1 − 0.05 / number of radii", "2 of 3", "10 points", "3 points"):
        assert words in text


def test_words_of_a_figure():
    point = Point("gaussian", 0.1, (0.5, 0.6), (0.4, 0.5), (0.6, 0.7), (0.9, 1.1), 1.0)
    assert figure_words(point, "sample") == ("0.55 [0.40, 0.70]", "0.90 to 1.10", "high end below 0.90")
    point = Point("gaussian", 0.1, (0.2,), (0.1,), (0.3,), (-0.0001, 0.0001), 0.0)
    assert figure_words(point, "class") == ("+20.0 [+10.0, +30.0]", "+0.0 to +0.0", "low end above +0.0")


def test_the_page_doubts_an_audit_that_cannot_tell_the_original(change):
    def add_original(record):
        record["methods"]["original"] = record["methods"]["m"] | {"method": "original"}

    texts = list(not_proved(change(run_of([audit(1.0)] * 3), add_original)))
    assert "absence of evidence" in texts[0]
    assert "chance about 50 %" in texts[1]
    assert "can see residual knowledge at all" in texts[-1]
    remembering = change(run_of([audit(1.3)] * 3), add_original)
    assert not any("at all" in text for text in not_proved(remembering))
