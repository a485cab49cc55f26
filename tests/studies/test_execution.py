"""One road from a study to its page, in Python as on the command line."""

from __future__ import annotations

import csv
import html
import re
import shlex
import time
from pathlib import Path

import pytest

from residuum import Run, Study, report, run
from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.reporting import to_frame
from residuum.studies import execution

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks" / "digits.md"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("execution")
    study = Study.create("tiny", methods="gd", seeds=[1], overrides={"train.epochs": 2})
    return run(study, store=folder / "store", out=folder / "out")


def test_a_run_is_what_its_folder_holds(done):
    again = Run.load(done.folder)
    assert again.record == done.record
    assert {label: verdict.verdict for label, verdict in again.verdicts.items()} == {
        label: verdict.verdict for label, verdict in done.verdicts.items()
    }


def test_the_stored_verdicts_are_those_judged_from_the_numbers(done):
    assert {label: stored.verdict for label, stored in done.record.verdicts.items()} == {
        label: verdict.verdict for label, verdict in Run.load(done.folder).verdicts.items()
    }


def test_a_run_and_its_folder_give_the_same_report(done, tmp_path):
    first, second = report(done, out=tmp_path / "a"), report(done.folder, out=tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert (tmp_path / "a" / "report.html") in first


def test_frames_hold_the_tables(done):
    table = to_frame(done)
    assert list(table["model"]) == ["original", "retrain", "control", "gd"]
    assert table.set_index("model")["test_accuracy"]["gd"] == done.rows["gd"].summary.test_accuracy.mean
    audits = to_frame(done, "audits")
    assert len(audits) == 4 * 3
    line = audits[(audits["model"] == "gd") & (audits["radius"] == 0.1)].iloc[0]
    assert line["pooled"] == done.rows["gd"].audits("gaussian")[0].residual_knowledge.pooled[1]
    with pytest.raises(InputError, match="expected a table of results, audits"):
        to_frame(done, "other")


def test_a_run_shows_its_verdicts_in_a_notebook(done):
    assert repr(done).startswith("Run('tiny', 4 rows, 1 seed, folder=")
    for verdict in done.verdicts.values():
        assert verdict.verdict.label in repr(done)
        assert verdict.verdict.label in done._repr_html_()


def documented_command():
    text = RESULTS.read_text(encoding="utf-8").replace("\\\n", " ")
    return shlex.split(re.search(r"^residuum (run .*)$", text, re.MULTILINE)[1])


@pytest.mark.parametrize("command", [["run", "tiny"], documented_command()], ids=["tiny", "documented"])
def test_terminal_page_csv_and_run_give_every_row_the_same_verdict(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command([*command, "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    folder = next((tmp_path / "runs").iterdir())
    verdicts = {label: verdict.verdict.label for label, verdict in Run.load(folder).verdicts.items()}
    table = printed.partition("verdicts")[2]
    page = (folder / "report.html").read_text(encoding="utf-8")
    section = page.partition('<table class="verdicts">')[2].partition("</table>")[0]
    shown = dict(re.findall(r'class="name">([^<]+)<.*?class="badge[^>]*>.*?</span> ([^<]+)</span>', section, re.DOTALL))
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        exported = {line["model"]: line["verdict"] for line in csv.DictReader(lines) if line["verdict"]}
    assert {html.unescape(label): word for label, word in shown.items()} == verdicts
    assert exported == verdicts
    for label, word in verdicts.items():
        assert re.search(rf"│ {re.escape(label)} +│ {re.escape(word)} +│", table)


def test_a_long_search_for_nearly_equal_samples_is_announced(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Study, "warnings", property(lambda study: [str(time.sleep(1.5))]))
    lines = execution.plan_lines(Study.create("tiny", methods="gd", seeds=[1]), store=tmp_path / "store")
    assert "warning: None" in lines
    assert "looking for samples that are nearly equal to others" in capsys.readouterr().err
