"""`residuum report` as a user meets it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from residuum.cli import make_app
from residuum.core.errors import InputError
from residuum.core.roles import Role, trained_roles
from residuum.judging import judged_record
from residuum.record import Results

METRICS = {f"{name}_accuracy": 90.0 for name in ("retain", "unlearn", "test", "mia")}


@pytest.fixture
def folder(tmp_path):
    audit = {
        "taus": [0.0, 0.1],
        "draws": [1, 100],
        "settings": {"confidence": 0.95},
        "residual_knowledge": {name: [1.0, 1.0] for name in ("pooled", "low", "high", "mean_of_ratios")},
        **{
            name: {end: [0.0, 0.0] for end in ("value", "low", "high")}
            for name in ("difference", "disagreement", "unlearn_accuracy", "prevalence")
        },
    }
    row = {"per_seed": {"1": {"audits": {"gaussian": audit}, "passes": 1, "metrics": METRICS}}}
    floor = {"taus": [0.0, 0.1], "low": [1.0, 0.9], "high": [1.0, 1.1], "pairs": 1}
    record = {
        "schema": "residuum.results/4",
        "scenario": {"name": "small", "form": "sample", "settings": {}},
        "seeds": [1],
        "noise_floor": {"gaussian": floor},
        "methods": {
            name: {"role": trained_roles(1).get(name, Role.METHOD), "method": name, "summary": {}, **row}
            for name in ("retrain", "control", "gd")
        },
    }
    (tmp_path / "results.json").write_text(judged_record(Results.model_validate(record)).text())
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(make_app(), ["report", *map(str, arguments)])


def test_it_prints_the_written_files(folder):
    result = call(folder, "--no-gallery")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == str(folder / "report.html")
    assert "made with --no-gallery" in (folder / "report.html").read_text()
    assert "not detected" in (folder / "report.html").read_text()


def test_json_and_out(folder, tmp_path):
    result = call(folder, "--json", "--out", tmp_path / "elsewhere")
    files = json.loads(result.output)
    assert files[0] == str(tmp_path / "elsewhere" / "report.html")
    assert not (folder / "report.html").exists()


def test_own_data_stay_private_unless_asked_for(folder):
    call(folder)
    assert "would contain the very samples" in (folder / "report.html").read_text()
    call(folder, "--gallery")
    assert "stored no gallery file" in (folder / "report.html").read_text()


def test_bad_input(folder, tmp_path):
    assert isinstance(call(tmp_path / "nowhere").exception, InputError)
    assert not (folder / "report.html").exists()
    (tmp_path / "taken").write_text("a file")
    assert "choose another folder" in str(call(folder, "--out", tmp_path / "taken" / "x").exception)
