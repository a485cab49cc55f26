"""The page as a text: complete, escaped, small, quick, the same every time, and without any address to fetch."""

from __future__ import annotations

import html
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from residuum.core.errors import InputError
from residuum.record import Curve, over_seeds
from residuum.record.run import load_runs
from residuum.reporting import write_report
from residuum.reporting.figures import COLORS, LINES, plot
from residuum.reporting.gallery import gallery_of
from residuum.reporting.page import page_text, script_json
from residuum.reporting.summary import summary_of


@pytest.fixture(scope="module")
def demo(demo_folder):
    return load_runs([demo_folder])[0]


@pytest.fixture(scope="module")
def text(demo):
    return page_text([demo], [gallery_of(demo, None)])


def test_the_page_fetches_nothing(text):
    assert set(re.findall(r"https?://[^\"'\s<>]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:)", text)
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text.replace("url(#${", ""))


def test_names_are_text_everywhere(text):
    assert "<script>alert(1)" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert "<" not in data
    assert '<img src=x onerror="alert(1)">' in json.loads(data)[0][0][0]["right"]


def test_json_in_a_script_cannot_end_it():
    hostile = {"a": "</script><!--", "b": "\u2028\u2029&", "c": [1.5, None]}
    text = script_json(hostile)
    assert json.loads(text) == hostile
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_page_is_the_same_every_time_small_and_quick(demo, text):
    start = time.perf_counter()
    assert page_text([demo], [gallery_of(demo, None)]) == text
    assert time.perf_counter() - start < 5
    assert len(text.encode()) < 3_000_000


def test_everything_needed_to_recompute_is_there(demo, text):
    import hashlib

    assert hashlib.sha256((demo.folder / "results.json").read_bytes()).hexdigest() in text
    for words in ("gd: a warning", "check1", "What this page does not prove", "0.1.0", "How a verdict is reached"):
        assert words in text


def test_reports_never_read_weights(make_run, monkeypatch):
    folder, opened = make_run(gallery=True).folder, []
    (folder / "models").mkdir()
    (folder / "models" / "gd.safetensors").write_bytes(b"not weights")
    real = Path.open

    def spy(self, *arguments, **options):
        opened.append(self.suffix)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", spy)
    write_report(folder)
    assert ".json" in opened
    assert ".safetensors" not in opened


def test_a_report_has_all_files_and_leaves_the_run_alone(make_run, tmp_path):
    run = make_run(gallery=True)
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    files = write_report(run.folder)
    names = {path.relative_to(run.folder).as_posix() for path in files}
    assert {"report.html", "table.tex", "table.csv"} <= names
    assert all(path.stat().st_size > 0 for path in files)
    assert {path: path.read_bytes() for path in before} == before
    again = {path.name: path.read_bytes() for path in files}
    assert {path.name: path.read_bytes() for path in write_report(run.folder)} == again


def test_several_runs_are_compared_on_one_page(make_run):
    first, second = make_run(name="a"), make_run(name="b", form="class", reference=0.0)
    files = write_report([first.folder, second.folder])
    assert files[0] == first.folder.parent / "comparison" / "report.html"
    text = files[0].read_text()
    assert text.count("Run a") >= 2
    assert "2 runs compared" in text


def test_runs_without_control_or_metrics_still_make_a_page(make_run, change):
    def bare(record):
        del record["methods"]["control"]
        record["noise_floor"].clear()
        for row in record["methods"].values():
            row["summary"] = {}

    run = change(make_run(), bare)
    text = page_text([run], [gallery_of(run, None)])
    assert "no control (second retrained model)" in text


def test_curves_are_the_record_and_means_over_seeds(make_run):
    run = make_run()
    gd = next(row for row in summary_of(run).rows if row.label == "gd")
    curves = gd.seed_curves("gaussian", "pooled")
    assert curves[0].value == run.rows["gd"].audits("gaussian")[0].residual_knowledge.pooled
    mean = gd.curve("gaussian", "pooled")
    for k in range(3):
        assert mean.value[k] == pytest.approx(sum(c.value[k] for c in curves) / 3)
        assert mean.low[k] == min(c.low[k] for c in curves)
        assert mean.high[k] == max(c.high[k] for c in curves)
    assert over_seeds([Curve(value=[None])]).value == [None]


def test_plot_draws_the_rows_and_the_measure_that_are_asked_for(make_run):
    run = make_run()
    (axes,) = plot(run, methods=["gd"], measure="disagreement").axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert set(lines) == {"original", "control", "gd"}
    gd = next(row for row in summary_of(run).rows if row.label == "gd")
    assert list(lines["gd"]) == gd.curve("gaussian", "disagreement").value
    (axes,) = plot(run).axes
    assert {line.get_label() for line in axes.lines if len(line.get_xdata()) == 3} == {
        "original",
        "control",
        "gd",
        "rurk",
    }
    for wrong in ({"methods": ["rukr"]}, {"measure": "r"}, {"perturbation": "fgsm"}):
        with pytest.raises(InputError, match=next(iter(wrong))[:6]):
            plot(run, **wrong)


def test_a_long_name_leaves_room_for_the_plot(make_run, change, tmp_path):
    run = make_run()
    name = "rurk:" + "batch_size=64:" * 11
    long = change(run, lambda record: record["methods"].update({name: record["methods"].pop("gd")}))
    plot(long).savefig(tmp_path / "long.svg")  # a warning, which fails a test, if the plot has no room
    assert name not in (tmp_path / "long.svg").read_text()


@pytest.mark.long
def test_a_figure_of_many_rows_has_room_and_says_how_many_are_left_out(make_run):
    many = {f"method_{k}": replace(make_run.rows["gd"], unlearn=9.0 + k) for k in range(60)}
    run = make_run(rows=make_run.rows | many)
    (axes,) = plot(run).axes
    labels = {line.get_label() for line in axes.lines if not line.get_label().startswith("_")} - {"control"}
    assert len(labels) == 16
    assert axes.get_legend().get_title().get_text() == f"without {len(run.rows) - 18} rows"
    assert "method_59" not in labels


def test_a_plot_of_many_rows_starts_with_few(demo, make_run):
    shown = summary_of(demo).first_shown(4)
    assert len(shown) == 4
    assert shown[0] == "original"
    gaps = {label: demo.rows[label].summary.average_gap for label in demo.rows}
    hidden = set(demo.rows) - set(shown) - {"retrain", "control"}
    assert max(gaps[label] for label in shown[1:]) <= min(gaps[label] for label in hidden)
    few = make_run()
    assert summary_of(few).first_shown(4) == ["original", "control", "gd", "rurk"]


def test_no_two_methods_look_the_same(demo):
    (axes,) = plot(demo, methods=demo.record.rows_of("method")).axes
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_color() in COLORS]
    assert len(set(looks)) == len(looks) == min(len(demo.record.rows_of("method")), len(COLORS) * len(LINES))


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), ("{", "expected JSON"), ('{"schema": "other/1"}', "expected schema")],
)
def test_folders_that_hold_no_run_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(InputError, match=message):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_the_same_run_twice_is_refused(make_run):
    run = make_run()
    with pytest.raises(InputError, match="different runs"):
        write_report([run.folder, run.folder / "results.json"])
    with pytest.raises(InputError, match="at least one run"):
        write_report([])
