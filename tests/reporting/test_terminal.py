"""What the terminal prints: the page's verdicts, the record's numbers, and tables that fit the width."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from residuum.record import RelearnSummary
from residuum.reporting.summary import relearn_text
from residuum.reporting.terminal import metrics_tables, run_tables, verdict_table


def printed(tables, width=200):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table)
    return console.file.getvalue()


def lines_of(text, label):
    return [line for line in text.splitlines() if re.match(rf"│ {label} +│", line)]


def test_verdicts_are_the_pages_in_the_same_words(make_run):
    run = make_run()
    text = printed([verdict_table(run)])
    for label, verdict in run.verdicts.items():
        assert verdict.verdict.label in lines_of(text, label)[0]
    assert "Of 2 methods: residual knowledge found in 1" in text


def test_metrics_show_mean_deviation_gap_and_cost(make_run):
    run = make_run()
    text, gd = printed(metrics_tables(run, 200)), run.rows["gd"].summary
    gap = abs(gd.test_accuracy.mean - run.rows["retrain"].summary.test_accuracy.mean)
    assert f"{gd.test_accuracy.mean:.2f} ± {gd.test_accuracy.std:.2f} ({gap:.2f})" in lines_of(text, "gd")[0]
    assert " 25.0 " in lines_of(text, "gd")[0]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_table_fits_and_shows_names_and_no_empty_column(demo_run, width):
    for table in run_tables(demo_run, width):
        text = printed([table], width)
        assert max(map(len, text.splitlines())) <= width
        shown = demo_run.verdicts if "verdicts" in text.splitlines()[0] else demo_run.rows
        for label in shown:
            assert label[:8] in text
        for line in text.splitlines():
            if line.startswith("│ method_0"):
                assert all(cell.strip() for cell in line.strip("│").split("│"))


def test_names_that_look_like_markup_are_printed_as_they_are(make_run):
    rows = {**make_run.rows, "[b] [red]": make_run.rows["gd"]}
    text = printed(run_tables(make_run(rows=rows), 120), 120)
    assert "[b] [red]" in text


def test_relearn_times_show_censoring():
    assert relearn_text(RelearnSummary(median=2.0, censored=0, n=3)) == "2"
    assert relearn_text(RelearnSummary(median=2.0, censored=1, n=3)) == "2 (1/3 > cap)"
    assert relearn_text(RelearnSummary(median=None, censored=3, n=3)) == "> cap"
