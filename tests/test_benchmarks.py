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
