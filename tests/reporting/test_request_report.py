"""The page, table and CSV over a sequence of requests, from records made by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from residuum.core.errors import InputError
from residuum.record import Results
from residuum.record.run import Run
from residuum.reporting import write_report
from residuum.reporting.request_report import figures, index_text, requests_csv, requests_tables

HOSTILE = "<script>alert(1)"


def values(ratio, difference):
    def interval(value, key):
        ends = [None if value is None else round(value + step, 3) for step in (-0.1, 0.1)]
        return {key: [1.0, value], "low": [1.0, ends[0]], "high": [1.0, ends[1]]}

    return {"residual_knowledge": interval(ratio, "pooled"), "difference": interval(difference, "value")}


def row(method, so_far, first):
    shared = {"taus": [0.0, 0.2], "draws": [1, 5], "first_request": values(*first)}
    audit = shared | values(*so_far)
    other = shared | values(so_far[0] and so_far[0] + 0.2, 0.1)
    metrics = {"retain_accuracy": 99.0, "unlearn_accuracy": 8.0, "test_accuracy": 95.0, "mia_accuracy": 30.0}
    return {
        "role": "reference" if method == "retrain" else "method",
        "method": method,
        "summary": {name: {"mean": mean} for name, mean in metrics.items()} | {"average_gap": 1.0},
        "per_seed": {"1": {"audits": {"gaussian": audit}}, "2": {"audits": {"gaussian": other}}},
    }


def request(number, form, so_far, first):
    asked = [{"forget_class": 8}, {"forget_ids": ["a"]}][:number]
    rows = {"retrain": "retrain", "=sum(A1)": "gd", HOSTILE: "ga"}
    content = {
        "schema": Results.SCHEMA,
        "scenario": {
            "name": "made",
            "form": form,
            "class_names": [str(k) for k in range(10)],
            "sizes": {"forget": 5 * number},
            "settings": {"earlier": asked[:-1], "forget": asked[-1]},
        },
        "seeds": [1, 2],
        "noise_floor": {"gaussian": {"taus": [0.0, 0.2], "low": [1.0, 0.9], "high": [1.0, 1.1], "pairs": 2}},
        "methods": {label: row(method, so_far, first) for label, method in rows.items()},
        "sequence": {"number": number, "of": 2},
    }
    return Run(Path(f"request-{number}"), "made", Results.model_validate(content))


@pytest.fixture
def runs():
    return [request(1, "class", (None, 0.3), (None, 0.3)), request(2, "sample", (1.5, 0.2), (None, 0.25))]


def test_class_form_shows_differences_and_sample_form_ratios(runs):
    first, second = (figures(run.record, "=sum(A1)")[0] for run in runs)
    assert first["so_far"] == "+20.0 [+0.0, +40.0]"
    assert first["floor"] == ""
    assert second["so_far"] == "1.60 [1.40, 1.80]"
    assert second["floor"] == "0.90 to 1.10"
    assert second["first_request"] == "+25.0 [+15.0, +35.0]"  # re-train never knew that class
    assert second["radius"] == "0.2"


def test_the_csv_has_a_line_per_request_and_row_and_no_formula(runs):
    lines = list(csv.DictReader(io.StringIO(requests_csv(runs))))
    assert [(line["number"], line["samples_so_far"], line["model"]) for line in lines] == [
        (number, size, label)
        for number, size in (("1", "5"), ("2", "10"))
        for label in ("retrain", "'=sum(A1)", HOSTILE)
    ]
    assert {line["test_accuracy"] for line in lines} == {"95.0"}


def test_the_table_follows_each_row_over_the_requests(make_run):
    run = make_run()
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*requests_tables([run, run], 200))
    text = console.export_text()
    assert f"{run.name}: 2 requests" in text
    for label, judgment in run.verdicts.items():
        line = next(line for line in text.splitlines() if f" {label} " in line)
        assert line.count(str(judgment.verdict)) == 2


def test_many_requests_come_in_tables_that_can_be_read(make_run):
    run = make_run()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*requests_tables([run] * 11, 80))
    text = console.export_text()
    assert [f"Request {number} " in text for number in range(1, 12)] == [True] * 11
    assert text.count(f"{run.name}, continued") == 2
    assert text.count(f"{run.name}: 11 requests") == 1


def test_the_page_escapes_names_and_runs_no_script(runs):
    page = index_text(runs)
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "all of class 8" in page
    assert "a list of 1 id" in page


def test_a_run_of_a_sequence_that_cannot_be_read_gets_one_clear_line(runs, tmp_path):
    (tmp_path / "request-1").mkdir()
    content = runs[0].record.as_dict() | {"schema": "residuum.results/0"}
    (tmp_path / "request-1" / "results.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"request-1/results.json: expected schema .*, got 'residuum.results/0'"):
        write_report(tmp_path)
    (tmp_path / "request-1" / "results.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*results.json"):
        write_report(tmp_path)
