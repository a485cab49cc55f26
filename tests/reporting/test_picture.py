"""The first screen: order, axis, notes, and what it says where something is missing."""

from __future__ import annotations

import pytest

from residuum.record import Verdict
from residuum.reporting.page import page_text
from residuum.reporting.plots import Axis, picture_of
from residuum.reporting.terminal import verdict_table
from residuum.reporting.wording import chips, row_notes


def unchanged(*seeds):
    def edit(record):
        for seed in seeds:
            record["methods"]["gd"]["per_seed"][seed]["unchanged"] = True

    return edit


def with_heldout(record):
    for row in record["methods"].values():
        for seed in row["per_seed"].values():
            audit = seed["audits"]["gaussian"]
            audit["heldout"] = {"samples": 50, "rate": [0.6, 0.62, 0.61], "reference_rate": [0.6, 0.6, 0.6]}


def test_rows_stand_in_the_order_of_verdicts_then_of_levels(demo_run):
    picture = picture_of(demo_run)
    keys = [
        (list(Verdict).index(row.verdict), -demo_run.record.finding(row.label, "gaussian").value())
        for row in picture.rows
    ]
    assert keys == sorted(keys)
    assert {row.label for row in picture.rows} == set(demo_run.verdicts)
    assert len({key[0] for key in keys}) > 1


def test_all_rows_share_one_axis_and_one_bar(demo_run):
    (column,) = picture_of(demo_run).columns
    assert {finding.floor() for finding in column.findings.values()} == {column.floor}
    for finding in column.findings.values():
        assert column.axis.low < finding.value() < column.axis.high
    assert column.axis.place(column.axis.low) == 0
    assert column.axis.place(9.0) == 100


@pytest.mark.parametrize(("low", "high"), [(0.88, 1.32), (-0.031, 0.4), (0.0, 12.0), (0.999, 1.001)])
def test_ticks_are_few_round_and_inside(low, high):
    ticks = Axis(low, high).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)


def test_memory_has_a_column_where_held_out_samples_were_audited(make_run, change):
    run = change(make_run(), with_heldout)
    r, memory = picture_of(run).columns
    assert (r.quantity, memory.quantity) == ("r", "M")
    assert memory.findings["gd"].value() == run.record.finding("gd", "gaussian", "M").value()
    text = page_text([run])
    assert "Memory, M" in text
    assert "Memory M" in text
    without = page_text([make_run()])
    assert "Memory, M" not in without
    assert "Memory M" not in without


def test_a_model_that_was_left_as_it_was_is_named_in_its_row(make_run, change):
    run = change(make_run(), unchanged("1", "3"))
    assert list(row_notes(run, "gd", "gaussian")) == ["seeds 1, 3: unchanged, the model is the original"]
    assert list(row_notes(run, "rurk", "gaussian")) == []
    every = change(make_run(), unchanged("1", "2", "3"))
    assert list(row_notes(every, "gd", "gaussian")) == ["unchanged, the model is the original"]
    cells = list(verdict_table(run).columns[1].cells)
    assert "Note: seeds 1, 3: unchanged" in str(cells[1])
    assert page_text([run]).count("seeds 1, 3: unchanged") == 2


def test_a_verdict_that_rests_on_something_else_says_so(make_run):
    run = make_run(rows={**make_run.rows, "bad": make_run.rows["rurk"].__class__(0.6, test=80.0)})
    assert list(row_notes(run, "bad", "gaussian")) == []
    assert chips(run.verdicts["bad"])[0].label == "utility: lost by 15.0 points"
    assert list(row_notes(run, "gd", "fgsm")) == ["rests on gaussian"]


def test_without_a_control_there_is_no_picture_but_the_verdicts_stand(make_run, change):
    run = change(make_run(), lambda record: record["methods"].pop("control"))
    assert picture_of(run).columns == []
    assert page_text([run]).count("inconclusive") >= 2


def test_one_seed_and_one_control_show_no_bar(make_run):
    run = make_run(seeds=(1,))
    (column,) = picture_of(run).columns
    assert column.floor is None
    assert "There are too few retrained models for a noise floor" in page_text([run])
