"""The example package: one short file, installed beside Residuum, is a method like any other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from residuum.cli import run_command
from residuum.testing import check_promises
from residuum.unlearning import METHODS

EXAMPLE = Path(__file__).parents[1] / "examples" / "random_labels"
QUICK = ["--set", "train.epochs=2", "--set", "relearn.epochs=1", "--draws", "2", "--seeds", "1", "--workers", "1"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Install the example into a folder of its own, without the network."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "package")
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, source], check=True)
    return target


@pytest.fixture
def installed(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    METHODS.__dict__.pop("data", None)
    yield
    METHODS.__dict__.pop("data", None)
    sys.modules.pop("residuum_random_labels", None)


def test_one_file_of_under_40_lines():
    files = [path for path in EXAMPLE.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"pyproject.toml", "residuum_random_labels.py"}
    assert len((EXAMPLE / "residuum_random_labels.py").read_text().splitlines()) < 40


def test_without_installation_it_is_unknown(capsys):
    assert run_command(["run", "digits", "--methods", "random_labels"]) == 2
    assert "unknown method 'random_labels'" in capsys.readouterr().err


@pytest.mark.usefixtures("installed")
def test_it_is_listed_after_ours(capsys):
    assert run_command(["list", "methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["methods"]
    assert list(listed)[-1] == "random_labels"
    assert listed["random_labels"]["about"].startswith("Random labels: minimize")


@pytest.mark.usefixtures("installed")
def test_it_is_chosen_run_recorded_and_printed(tmp_path, capsys):
    rows = "random_labels,strong=random_labels:weight=1:lr=0.05"
    arguments = ["run", "digits", "--methods", rows, "--out", str(tmp_path / "run"), "--store", str(tmp_path / "store")]
    assert run_command([*arguments, *QUICK, "--set", "random_labels.epochs=1"]) == 0
    table = capsys.readouterr().out
    assert "random_labels" in table
    assert "strong" in table
    record = json.loads((tmp_path / "run" / "results.json").read_text())["methods"]
    assert record["random_labels"]["method"] == record["strong"]["method"] == "random_labels"
    assert record["random_labels"]["settings"]["weight"] == 0.1
    assert record["random_labels"]["settings"]["epochs"] == 1
    assert record["strong"]["settings"]["weight"] == 1.0
    assert record["strong"]["per_seed"]["1"]["passes"] > 0
    assert record["strong"]["per_seed"]["1"]["metrics"]["retain_accuracy"] > 0


@pytest.mark.usefixtures("installed")
def test_it_keeps_all_promises():
    faults = check_promises(METHODS["random_labels"])
    assert {promise: fault for promise, fault in faults.items() if fault} == {}


@pytest.mark.usefixtures("installed")
def test_wrong_settings_are_refused_like_ours(capsys):
    assert run_command(["run", "digits", "--methods", "random_labels:weight=-1"]) == 2
    assert "weight" in capsys.readouterr().err
