"""Published values beside ours: agreement by Welch's test, and rows that contradict themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.reproduction.published import (
    AGREES,
    CANNOT_SAY,
    DIFFERS,
    METRICS,
    Published,
    Value,
    agreement,
    compare,
    load_published,
    row_doubt,
    zero_radius_doubt,
)

from residuum.record import Spread

PRINTED = Path(__file__).parents[1] / "data" / "published.json"


def spread(mean, std, n):
    return Spread(mean=mean, std=std, n=n)


def cell(mean, std=1.0, **more):
    return Value(mean=mean, std=std, **more)


def published(table="main", scenario="digits", **methods):
    tables = {table: {"caption": "a table", "results": {scenario: methods}}}
    return Published.model_validate({"tables": tables})


@pytest.mark.parametrize("gap", [0.5, 1.5, 2.5, 4.0, 10.0])
@pytest.mark.parametrize("spreads", [(1.0, 1.0), (0.3, 2.0)])
def test_agreement_is_welchs_test_at_five_per_cent(gap, spreads):
    from scipy.stats import ttest_ind_from_stats

    (a, b), unbiased = spreads, (3 / 2) ** 0.5
    p = ttest_ind_from_stats(90 + gap, a * unbiased, 3, 90, b * unbiased, 3, equal_var=False).pvalue
    assert agreement(spread(90 + gap, a, 3), spread(90, b, 3)) == (AGREES if p >= 0.05 else DIFFERS)


def test_agreement_without_spread():
    assert agreement(spread(90.0, 0.0, 1), spread(90.0, 1.0, 3)) == CANNOT_SAY
    assert agreement(spread(90.0, 0.0, 3), spread(90.004, 0.0, 3)) == AGREES
    assert agreement(spread(90.0, 0.0, 3), spread(90.1, None, 3)) == DIFFERS


def test_values_are_matched_by_scenario_form_method_and_metric(make_run):
    run = make_run()
    ours = run.rows["gd"].summary
    gd = {"retain_acc": cell(ours.retain_accuracy.mean), "test_acc": cell(20.0), "relearn_time": None}
    found = compare(run, published(GD=gd, Unknown=gd))
    assert [(entry.label, entry.metric, entry.mark) for entry in found] == [
        ("gd", "retain_accuracy", AGREES),
        ("gd", "test_accuracy", DIFFERS),
    ]
    assert found[0].ours == ours.retain_accuracy
    assert compare(run, published(scenario="cifar10", GD=gd)) == []
    assert compare(run, published(table="class_unlearning", GD=gd)) == []
    assert compare(run, published(table="vgg11_digits", GD=gd)) == []
    assert len(compare(make_run(form="class"), published(table="class_unlearning", GD=gd))) == 2


def test_values_at_radii_are_matched_by_radius(make_run):
    run = make_run()
    found = compare(run, published(table="disagreement_perturbed", GD={"0.1": cell(0.18, None), "0.7": cell(0.5)}))
    assert [(entry.metric, entry.theirs.std) for entry in found] == [("disagreement at 0.1", None)]
    assert found[0].ours.mean == pytest.approx(0.18, abs=0.02)
    found = compare(run, published(table="prevalence_percent", GD={"0.1": cell(95.0, 2.0)}))
    assert (found[0].theirs.mean, found[0].theirs.std) == (pytest.approx(0.95), pytest.approx(0.02))


def test_the_known_inconsistent_rows_are_found_from_the_printed_values():
    names = {ours: short for short, ours in METRICS.items()}
    doubted = set()
    for table, rows in json.loads(PRINTED.read_text())["tables"].items():
        values = {
            method: {names[k]: cell(v) for k, v in row.items() if k in names} | {"avg_gap": cell(row["average_gap"])}
            for method, row in rows.items()
        }
        doubted |= {(table, method) for method in values if row_doubt(values[method], values.get("Re-train"))}
    small = "sample_unlearning_small_cifar5_full/small_cifar5"
    assert doubted == {
        ("main_sample_unlearning/cifar10", "GA"),
        ("class_unlearning/cifar10", "SCRUB"),
        *((small, method) for method in ("GD", "GA", "NegGrad+", "EU-k", "CF-k", "SSD")),
    }


def test_a_wrong_single_gap_is_found():
    reference = {metric: cell(50.0) for metric in METRICS}
    row = {metric: cell(51.0, printed_gap=1.0) for metric in METRICS} | {"avg_gap": cell(1.0)}
    assert row_doubt(row, reference) == ""
    assert "test accuracy" in row_doubt(row | {"test_acc": cell(51.0, printed_gap=1.3)}, reference)
    assert row_doubt({"test_acc": cell(1.0)}, reference) == ""


def test_a_row_over_radii_must_fit_the_main_table_at_radius_0():
    main = published(RURK={"unlearn_acc": cell(5.67, 2.36)}, NTK={"unlearn_acc": cell(7.0, 0.0)})
    radii = published("unlearn_accuracy_perturbed", RURK={"0.0": cell(0.14, None)}, NTK={"0.0": cell(0.07, None)})
    both = Published(tables=main.tables | radii.tables)
    assert "14 %" in zero_radius_doubt(both, "unlearn_accuracy_perturbed", "digits", "RURK")
    assert zero_radius_doubt(both, "unlearn_accuracy_perturbed", "digits", "NTK") == ""


def test_the_tables_of_the_literature_are_read_as_printed():
    tables = load_published().tables
    rurk = tables["main_sample_unlearning"].results["small_cifar5"]["RURK"]
    assert {name: cell.mean for name, cell in rurk.items() if cell and name in METRICS} == {
        "retain_acc": 99.52,
        "unlearn_acc": 5.67,
        "test_acc": 93.83,
        "mia_acc": 33.33,
    }
    doubtful = [
        (name, scenario, method)
        for name, table in tables.items()
        for scenario, methods in table.results.items()
        for method, values in methods.items()
        if "average gap" in row_doubt(values, methods.get("Re-train"))
    ]
    assert ("main_sample_unlearning", "cifar10", "GA") in doubtful
    assert ("main_sample_unlearning", "small_cifar5", "RURK") not in doubtful
