"""Every benchmark can be loaded, and runs in its quickest form."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_can_be_loaded(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    assert runpy.run_path(str(FOLDER / name), run_name="loaded")["__doc__"]


QUICKEST = {
    "audit.py": ["--quick", "--threads", "1", "--widths", "1", "--only", "gaussian,fgsm,pgd,adaptive"],
    "certified.py": ["--data", "iris", "--out", "certified"],
    "calibration.py": ["pools", "--pools", "tiny", "--trials", "25", "--out", "calibration.json"],
    "decoys.py": ["measure", "--quick", "--data", "digits-random"],
    "images.py": ["--images", "8", "--readers", "2"],
    "ten_requests.py": ["--methods", "gd", "--seeds", "1001", "--store", "store"],
    "training.py": ["--quick", "--threads", "1", "--widths", "4"],
    "tune_digits.py": ["gd", "--grid", "lr=0.1", "--seeds", "1", "--store", "store"],
    "workers.py": ["--scenario", "tiny", "--repeats", "1"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all of them run."""
    return tmp_path_factory.mktemp("benchmarks")


@pytest.mark.long
@pytest.mark.parametrize("name", QUICKEST)
def test_a_benchmark_runs_in_its_quickest_form(name, folder):
    command = [sys.executable, str(FOLDER / name), *QUICKEST[name]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


def test_the_tables_of_the_guide_to_decoys_are_those_of_its_results(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    made = runpy.run_path(str(FOLDER / "decoys.py"), run_name="loaded")
    guides = FOLDER.parent / "docs" / "guides"
    text = (guides / "decoys.md").read_text(encoding="utf-8")
    lines = list(made["tables"](made["read_lines"](guides / "decoys.csv")))
    assert len(lines) > 35
    assert [line for line in lines if line not in text.splitlines()] == []


def test_of_retrained_models_at_most_five_per_cent_and_chance_are_called_out(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    made = runpy.run_path(str(FOLDER / "decoys.py"), run_name="loaded")
    lines = made["read_lines"](FOLDER.parent / "docs" / "guides" / "decoys.csv")
    trials = [line for line in lines if line[0] == "null" and line[2] == "all trials"]
    assert {line[1] for line in trials} == {"digits", "digits-random", "fashion-mnist"}
    for *_, number, count in trials:
        assert number >= 1000
        assert count <= 0.05 * number + 2 * (0.05 * 0.95 * number) ** 0.5
