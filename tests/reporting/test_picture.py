"""The first screen: order, axis, notes, and what it says where something is missing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from residuum.record import Place, Verdict
from residuum.reporting.answer import answer_of, next_step
from residuum.reporting.page import page_text
from residuum.reporting.plots import Axis, column_at, curve_plots, measures_with_values, notes, picture_of
from residuum.reporting.terminal import verdict_table


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


def test_methods_stand_by_verdict_then_by_value_between_original_and_retrained(demo_run):
    picture = picture_of(demo_run)
    assert list(picture.groups) == [verdict for verdict in Verdict if verdict in picture.groups]
    assert len(picture.groups) > 1
    for verdict, rows in picture.groups.items():
        assert {demo_run.verdicts[row.label].verdict for row in rows} == {verdict}
        values = [row.column.value for row in rows]
        assert values == sorted(values, reverse=True)
    assert [row.label for row in picture.originals] == ["original"]
    labels = {row.label for rows in picture.groups.values() for row in rows}
    assert labels | {"original"} == set(demo_run.verdicts)
    seeds = 3 if picture.place.column == 0 else 1  # the record has the values of seeds for levels only
    assert len(picture.references.dots) == 2 * seeds


def test_all_rows_share_one_axis_and_one_floor(demo_run):
    picture = picture_of(demo_run)
    for label in demo_run.verdicts:
        column = column_at(demo_run, label, picture.place)
        assert column.floor == picture.floor
        assert picture.axis.low < column.value < picture.axis.high
    assert picture.axis.place(picture.axis.low) == 0
    assert picture.axis.place(9.0) == 100


def test_the_axis_shows_as_many_verdicts_as_any_column(demo_run):
    """Found: outside the noise floor; not found: inside."""
    sides = {Verdict.FOUND: "above", Verdict.OVER_FORGOTTEN: "below"}

    def agreeing(place):
        columns = {label: column_at(demo_run, label, place) for label in demo_run.verdicts}
        return sum(column.side == sides.get(demo_run.verdicts[label].verdict) for label, column in columns.items())

    places = [Place(perturbation=p, column=k) for p in demo_run.perturbations for k in range(4)]
    assert agreeing(picture_of(demo_run).place) == max(map(agreeing, places))


@pytest.mark.parametrize(("low", "high"), [(0.88, 1.32), (-0.031, 0.4), (0.0, 12.0), (0.999, 1.001)])
def test_ticks_are_few_round_and_inside(low, high):
    ticks = Axis(low, high).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)


def test_memory_is_shown_where_held_out_samples_were_audited(make_run, change):
    text = page_text([change(make_run(), with_heldout)])
    assert "Memory M" in text
    assert "memory cannot tell" not in text
    assert "Memory M" not in page_text([make_run()])


def test_a_model_that_was_left_as_it_was_is_named_in_its_row(make_run, change):
    run = change(make_run(), unchanged("1", "3"))
    found = {row.label: row.notes for rows in picture_of(run).groups.values() for row in rows}
    assert found == {"gd": ["seeds 1, 3: unchanged, the model is the original"], "rurk": []}
    cells = list(verdict_table(run).columns[1].cells)
    assert "Note: seeds 1, 3: unchanged" in str(cells[1])
    assert page_text([run]).count("seeds 1, 3: unchanged") == 2


def test_a_verdict_that_the_axis_does_not_show_says_what_it_rests_on(make_run):
    run = make_run()
    assert list(notes(run, "gd", picture_of(run).place)) == []
    assert list(notes(run, "gd", Place(perturbation="fgsm"))) == ["outside by gaussian, all radii"]


def test_without_a_control_there_is_no_picture_but_the_verdicts_stand(make_run, change):
    run = change(make_run(), lambda record: record["methods"].pop("control"))
    assert picture_of(run).place is None
    assert page_text([run]).count("inconclusive") >= 2


def test_curves_are_drawn_at_the_numbers_that_are_judged(make_run):
    run = make_run()
    (measure, *others) = measures_with_values(run)
    assert measure.key == "pooled"
    assert {"disagreement", "prevalence"} <= {other.key for other in others}
    (plot,) = curve_plots(run, measure)
    drawn = {line.label: line.points for line in plot.lines}
    assert set(drawn) == {"original", "control", "gd", "rurk"}
    (upper, high), (lower, low) = ((y, float(text)) for y, text in (plot.y_ticks[-1], plot.y_ticks[0]))
    finding = run.verdicts["gd"].finding_of("gaussian")
    for (_, y), column in zip(drawn["gd"], finding.columns[1:], strict=True):
        assert low + (lower - y) / (lower - upper) * (high - low) == pytest.approx(column.value, abs=0.003)


def test_names_at_the_ends_of_curves_do_not_cover_each_other(demo_run):
    for plot in curve_plots(demo_run, measures_with_values(demo_run)[0]):
        tags = sorted(line.tag for line in plot.lines)
        assert all(below - above >= 12 for above, below in pairwise(tags))
        assert 0 < tags[0] <= tags[-1] <= 280


@pytest.mark.parametrize(
    ("rows", "words", "step"),
    [
        ({"gd": {}}, "Not convincingly forgotten.", "--methods soft_reset"),
        ({"rurk": {}}, "Forgetting looks complete, within the limits of this audit.", "residuum pack runs/digits"),
        ({"rurk": {"test": 80.0}}, "Nothing was detected, but accuracy was lost.", "--methods soft_reset"),
        ({"rurk": {"right": 0.3}}, "Over-corrected.", "--methods soft_reset"),
        ({"gd": {}, "rurk": {}}, "1 of 2 methods could pass for retrained models.", "residuum pack"),
    ],
)
def test_the_answer_is_one_sentence_and_the_next_step_a_command(make_run, change, rows, words, step):
    trained = {label: row for label, row in make_run.rows.items() if label in ("original", "retrain", "control")}
    methods = {label: replace(make_run.rows[label], **changes) for label, changes in rows.items()}
    run = change(make_run(rows=trained | methods), with_heldout)
    assert answer_of(run).headline == words
    assert step in next_step(run).command
    assert len(answer_of(run).chips) == 4


def test_the_next_step_is_in_the_words_of_the_interface_that_was_used(make_run, change):
    def asked_by(interface):
        run = change(make_run(), lambda record: record["scenario"].update(interface=interface))
        return next_step(run).command

    assert asked_by("scenario").startswith("residuum pack runs/")
    assert asked_by("file") == "residuum pack runs/deletion"
    assert asked_by("python").startswith("from residuum.pack import pack")
