"""The table for a paper: its numbers are those of results.json, and LaTeX takes it."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess

import pytest

from residuum.reporting.exports import csv_table, latex_table, latex_text
from residuum.reporting.glossary import METRICS
from residuum.reporting.summary import summary_of

METRIC_NAMES = [column.key for column in METRICS]


def test_csv_has_every_digit_of_the_record(make_run):
    run = make_run()
    lines = {line["model"]: line for line in csv.DictReader(io.StringIO(csv_table([run])))}
    assert list(lines) == list(run.rows)
    reference = run.rows["retrain"].summary
    for label, row in run.rows.items():
        for name in METRIC_NAMES:
            mine, wanted = row.summary.metric(name), reference.metric(name)
            assert float(lines[label][name]) == mine.mean
            assert float(lines[label][f"{name}_std"]) == mine.std
            assert float(lines[label][f"{name}_gap"]) == abs(mine.mean - wanted.mean)
        assert float(lines[label]["average_gap"]) == row.summary.average_gap
    assert lines["original"]["relearn_epochs"] == ""
    assert float(lines["gd"]["relearn_epochs"]) == 3
    assert float(lines["gd"]["cost"]) == 25
    assert lines["gd"]["verdict"] == "residual knowledge found"
    assert lines["retrain"]["verdict"] == ""


def test_latex_numbers_equal_the_record(make_run):
    run = make_run()
    text = latex_table([run])
    reference = run.rows["retrain"].summary
    for label, row in run.rows.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{label} &"))
        cells = re.findall(r"\$([\d.]+)_\{\\pm ([\d.]+)\}\$ \((?:\\textbf\{)?([\d.]+)", line)
        wanted = [row.summary.metric(name) for name in METRIC_NAMES]
        gaps = [abs(value.mean - reference.metric(name).mean) for name, value in zip(METRIC_NAMES, wanted, strict=True)]
        expected = [(f"{v.mean:.2f}", f"{v.std:.2f}", f"{g:.2f}") for v, g in zip(wanted, gaps, strict=True)]
        assert cells == expected


def test_a_time_beyond_the_cap_is_censored_everywhere(make_run, change):
    def censored(record):
        record["methods"]["gd"]["summary"]["relearn_epochs"] = {"median": None, "censored": 3, "n": 3}

    run = change(make_run(), censored)
    gd = next(row for row in summary_of(run).rows if row.label == "gd")
    assert gd.cells["relearn_epochs"].text == "> cap"
    assert gd.cells["relearn_epochs"].value == float("inf")
    line = next(line for line in csv.DictReader(io.StringIO(csv_table([run]))) if line["model"] == "gd")
    assert line["relearn_epochs"] == "inf"


def test_only_methods_can_be_best_and_a_shared_best_marks_none(make_run):
    rows = {row.label: row for row in summary_of(make_run()).rows}
    assert not any(cell.best for label in ("original", "retrain", "control") for cell in rows[label].cells.values())
    assert not any(rows[label].cells["retain_accuracy"].best for label in rows)


def test_names_are_escaped_for_latex():
    assert latex_text(r"a_b&c%d$e#f{g}~^\<>") == (
        r"a\_b\&c\%d\$e\#f\{g\}\textasciitilde{}\textasciicircum{}\textbackslash{}\textless{}\textgreater{}"
    )
    assert latex_text("naïve") == "naU+00EFve"


@pytest.mark.parametrize("several", [False, True])
def test_the_table_compiles(make_run, tmp_path, several):
    engine = shutil.which("pdflatex") or shutil.which("tectonic")
    if engine is None:
        pytest.skip("no LaTeX engine found: apt-get install texlive-latex-base")
    runs = [make_run(name="a_b & <c>"), make_run(name="x")][: 1 + several]
    (tmp_path / "table.tex").write_text(latex_table(runs))
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table.tex}"
    (tmp_path / "doc.tex").write_text(document + r"\end{document}")
    flags = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in engine else []
    subprocess.run([engine, *flags, "doc.tex"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "doc.pdf").stat().st_size > 0


@pytest.mark.parametrize(("value", "shown"), [(0.0, "seen"), (100.0, "unseen")])
def test_an_attack_that_gives_one_answer_has_no_number(make_run, change, value, shown):
    def one_answer(record):
        for seed in record["methods"]["gd"]["per_seed"].values():
            seed["metrics"]["mia_accuracy"] = value

    run = change(make_run(), one_answer)
    cell = next(row for row in summary_of(run).rows if row.label == "gd").cells["mia_accuracy"]
    assert (cell.value, cell.text, cell.note) == (None, "–", f"attack calls every sample {shown}")
    line = next(line for line in csv.DictReader(io.StringIO(csv_table([run]))) if line["model"] == "gd")
    assert line["mia_accuracy"] == line["mia_accuracy_gap"] == ""
    assert run.rows["gd"].per_seed["1"].metrics.mia_accuracy == value
    some = change(run, lambda record: record["methods"]["gd"]["per_seed"]["1"]["metrics"].update(mia_accuracy=50.0))
    assert next(row for row in summary_of(some).rows if row.label == "gd").cells["mia_accuracy"].value is not None


def test_a_forgotten_class_called_unseen_is_a_number(make_run, change):
    def unseen(record):
        for seed in record["methods"]["gd"]["per_seed"].values():
            seed["metrics"]["mia_accuracy"] = 100.0

    run = change(make_run(form="class"), unseen)
    assert next(row for row in summary_of(run).rows if row.label == "gd").cells["mia_accuracy"].value is not None
