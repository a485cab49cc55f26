"""Three different results give three different stories."""

from __future__ import annotations

import copy
import io

import pytest
from rich.console import Console

from residuum.reporting.sentences import radii_above_floor, sentences
from residuum.reporting.tables import metrics_table, prevalence_table, relearn_text, residual_cells, residual_table

TAUS = [0.0, 0.1, 0.2]


def audit(pooled, width=0.02):
    def shift(by):
        return [None if r is None else r + by for r in pooled]

    knowledge = {"pooled": pooled, "low": shift(-width), "high": shift(width)}
    difference = [0.9 if r is None else r - 1 for r in pooled]
    significant = [None, 0.25, 0.5]
    return {"residual_knowledge": knowledge, "difference": {"value": difference}, "prevalence_significant": significant}


def row(method, pooled, test=95.0, passes=100):
    summary = {
        name: {"mean": value, "std": 1.0, "n": 2}
        for name, value in (
            ("retain_accuracy", 99.0),
            ("unlearn_accuracy", 8.0),
            ("test_accuracy", test),
            ("mia_accuracy", 30.0),
        )
    }
    summary |= {"relearn_epochs": {"median": 3.0, "censored": 0, "n": 2}, "average_gap": 1.5}
    seeds = {seed: {"audits": {"gaussian": audit(pooled)}, "passes": passes} for seed in ("1", "2")}
    return {"method": method, "summary": summary, "per_seed": seeds}


@pytest.fixture
def record():
    """The original remembers, GD too, RURK does not."""
    return {
        "scenario": {"name": "digits", "form": "sample"},
        "seeds": [1, 2],
        "warnings": [],
        "noise_floor": {"gaussian": {"taus": TAUS, "low": [0.97] * 3, "high": [1.03] * 3, "pairs": 2}},
        "methods": {
            "original": row("original", [1.1, 1.2, 1.4]),
            "retrain": row("retrain", [1.0, 1.0, 1.0]),
            "control": row("control", [1.0, 1.01, 0.99]),
            "gd": row("gd", [1.1, 1.2, 1.3], passes=25),
            "rurk": row("rurk", [1.0, 1.01, 0.98]),
        },
    }


def test_residual_knowledge_found_and_mended(record):
    first, second, third = sentences(record, "gaussian")
    assert "radius 0.2 the original recognises perturbed forgotten samples 1.40 times as often as re-train" in first
    assert "between 0.97 and 1.03, so this is more than two re-trained models differ" in first
    assert "rurk comes nearest to it: its largest distance from re-train is 0.02, nearer" in second
    assert third == "Still above the noise floor in most seeds at some radius: gd."


def test_nothing_found_is_not_called_proof(record):
    for label in ("original", "gd"):
        record["methods"][label] = row(label, [1.0, 1.01, 1.02])
    first, _, third = sentences(record, "gaussian")
    assert "within what chance explains" in first
    assert "absence of evidence" in third
    assert "not proof of deletion" in third


def test_useless_models_do_not_win(record):
    for label in ("gd", "rurk"):
        record["methods"][label] = row(label, [0.2, 0.2, 0.2], test=50.0)
    _, second, _ = sentences(record, "gaussian")
    assert second == "No method kept its test accuracy within 3 points of re-train's."


def test_a_forgotten_class_is_told_by_differences(record):
    record["scenario"]["form"] = "class"
    for label in record["methods"]:
        method = record["methods"][label]["method"]
        record["methods"][label] = row(method, [None, None, None])
    floor = record["noise_floor"]["gaussian"]
    floor["low"] = floor["high"] = [None] * 3
    first, _, third = sentences(record, "gaussian")
    assert "the ratio has no meaning" in first
    assert "90 %" in first
    assert "absence of evidence" in third


def test_one_seed_of_two_is_not_most(record):
    lone = copy.deepcopy(record)
    lone["methods"]["gd"]["per_seed"]["2"]["audits"]["gaussian"] = audit([1.0, 1.0, 1.0])
    assert radii_above_floor(record, "gd", "gaussian") == [0.1, 0.2]
    assert radii_above_floor(lone, "gd", "gaussian") == []


def shown(table):
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_tables_show_mean_deviation_gap_cost_and_floor(record):
    text = shown(metrics_table(record))
    assert "95.00 ± 1.00 (0.00)" in text
    assert "25.0 %" in text
    text = shown(residual_table(record, "gaussian"))
    assert "1.40 [1.38, 1.42]" in text
    assert "noise floor" in text
    assert "[0.97, 1.03]" in text


def test_prevalence_is_shown_in_per_cent_and_left_out_where_chance_plays_no_part(record):
    lines = shown(prevalence_table(record, "gaussian")).splitlines()
    row = next(line for line in lines if "control" in line and "│" in line)
    assert [cell.strip() for cell in row.split("│")[2:5]] == ["–", "25.0", "50.0"]


def test_cells_span_the_seeds_and_leave_gaps_where_there_is_no_ratio(record):
    record["methods"]["gd"]["per_seed"]["2"]["audits"]["gaussian"] = audit([None, 1.4, 1.5])
    assert residual_cells(record["methods"]["gd"], "gaussian") == ["–", "1.30 [1.18, 1.42]", "1.40 [1.28, 1.52]"]


def test_relearn_times_show_censoring():
    assert relearn_text(None) == "–"
    assert relearn_text({"median": 2.0, "censored": 0, "n": 3}) == "2"
    assert relearn_text({"median": 2.0, "censored": 1, "n": 3}) == "2 (1/3 > cap)"
