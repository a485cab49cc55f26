"""The list of forgotten samples: its numbers are those of the counts, and nobody is named who did not want to be."""

from __future__ import annotations

import csv
from math import comb

import pytest

from residuum.core.counts import Counts
from residuum.reporting import write_report
from residuum.reporting.page import page_text
from residuum.reporting.samples import PRIVATE, SWITCHED_OFF, samples_of


def stored(run, label):
    names = ("ids", "draws", "method_right", "reference_right", "both_right")
    tables = [Counts.load(run.folder / audit.counts) for audit in run.rows[label].audits("gaussian")]
    return [{name: getattr(table, name) for name in names} for table in tables]


def chance(more, less):
    """Pr[Bin(more + less, 1/2) >= more], term by term."""
    return sum(comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less)


def test_the_file_has_the_counts_of_every_row_and_sample(make_run):
    run = make_run(samples=5, draws=20)
    write_report(run.folder)
    with (run.folder / "samples.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 5 * len(run.rows)
    for line in (line for line in lines if line["model"] in ("gd", "retrain")):
        tables = stored(run, line["model"])
        i = list(tables[0]["ids"]).index(line["id"])
        for key, name in {"right": "method_right", "retrain_right": "reference_right", "draws": "draws"}.items():
            assert int(line[key]) == sum(int(table[name][i, 1:].sum()) for table in tables)
        tests = [
            chance(*(int(table[f"{who}_right"][i, k] - table["both_right"][i, k]) for who in ("method", "reference")))
            for table in tables
            for k in (1, 2)
        ]
        assert float(line["sign_test_p"]) == pytest.approx(min(1, len(tests) * min(tests)), rel=1e-12)
    assert {line["class"] for line in lines} == {"0"}


def test_the_first_radius_is_the_smallest_of_the_seeds(make_run, change):
    def firsts(record):
        for seed, radius in {"1": None, "2": 0.2, "3": 0.1}.items():
            record["methods"]["gd"]["per_seed"][seed]["audits"]["gaussian"]["first_radius"] = {
                "train/eight/0000": radius, "train/eight/0001": None,
            }  # fmt: skip

    table = samples_of(change(make_run(samples=2, draws=20), firsts), None).tables[0]
    assert table.rows["gd"].first_radius == [0.1, None]


def test_an_attack_that_leaves_nothing_to_chance_has_no_test(make_run):
    table = samples_of(make_run(samples=3, draws=5, enumerated=True), None).tables[0]
    assert table.rows["gd"].p is None


def test_nobody_is_named_unless_data_are_public_or_it_is_asked_for(make_run):
    run = make_run(samples=3, draws=5, data="mine")
    assert "samples.csv" not in {path.name for path in write_report(run.folder)}
    page = (run.folder / "report.html").read_text()
    assert PRIVATE.split(":")[0] in page
    assert "train/eight/0000" not in page
    assert "samples.csv" in {path.name for path in write_report(run.folder, samples=True)}
    assert "train/eight/0000" in (run.folder / "report.html").read_text()
    write_report(run.folder, samples=False)
    assert not (run.folder / "samples.csv").exists()
    assert SWITCHED_OFF in (run.folder / "report.html").read_text()


def test_a_long_list_is_cut_on_the_page_and_says_so(make_run, monkeypatch):
    monkeypatch.setattr("residuum.reporting.samples.ON_PAGE", 2)
    run = make_run(samples=6, draws=20)
    found = samples_of(run, None)
    assert len(found.shown) == 2
    assert len(list(found.csv_lines())) == 6 * len(run.rows)
    text = page_text([run], [], samples=[found])
    assert text.count("<code>train/eight/") == 2
    assert "Of 6 samples the page lists the 2" in text
