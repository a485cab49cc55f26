"""The command line as a user meets it: exit codes, one line for bad input, nothing written."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from residuum.cli import run_command
from residuum.studies import Study

QUICK = [
    *("--seeds", "1", "--workers", "1", "--draws", "3", "--methods", "gd:epochs=1"),
    *("--set", "train.epochs=2", "--set", "data.train_size=100", "--set", "relearn.epochs=1"),
    *("--set", "audit.taus.gaussian=0,0.1"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_prints_tables_and_verdicts_and_writes_the_documented_files(folder, capsys):
    assert run_command(["run", "digits", *QUICK]) == 0
    out = capsys.readouterr()
    assert "mean ± std over 1 seed " in out.out
    assert "No verdict: the retrained model" in out.out  # two epochs are no training
    assert "[1/9] train original (seed 1)" in out.err
    record = json.loads((folder / "runs" / "digits" / "results.json").read_text())
    assert list(record["methods"]) == ["original", "retrain", "control", "gd:epochs=1"]
    assert (folder / "runs/digits/counts/1/retrain/gaussian.npz").is_file()
    assert (folder / "runs/digits/models/1/gd:epochs=1.safetensors").is_file()
    assert run_command(["run", "digits", *QUICK, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["methods"] == record["methods"]


def test_the_version_is_the_packages(capsys):
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("residuum 0.")


def test_a_grid_has_one_row_per_setting(folder, capsys):
    quick = [argument for argument in QUICK if argument not in ("--methods", "gd:epochs=1")]
    grid = ["--methods", "rurk", "--grid", "lambda=0.01,0.1", "--grid", "epochs=1"]
    assert run_command(["run", "digits", *grid, *quick]) == 0
    assert "rurk lambda 0.1 epochs 1" in capsys.readouterr().out
    run = folder / "runs" / "digits-rurk-grid"
    lines = csv.DictReader((run / "table.csv").read_text().splitlines())
    rows = [line["model"] for line in lines if line["method"] == "rurk"]
    assert rows == ["rurk lambda 0.01 epochs 1", "rurk lambda 0.1 epochs 1"]
    record = json.loads((run / "results.json").read_text())
    settings = record["methods"]["rurk lambda 0.1 epochs 1"]["settings"]
    assert (settings["lambda_f"], settings["lambda_a"]) == (0.1, 0.1)


def test_requests_are_carried_out_one_after_the_other(folder, capsys):
    tiny = ["run", "tiny", *QUICK[: QUICK.index("--set")], "--set", "train.epochs=2", "--set", "relearn.epochs=1"]
    asked = ["--requests", "tickets.txt", "--request", "fraction=0.05"]
    splits = Study.create("tiny").splits()
    (folder / "tickets.txt").write_text(f"class=8,fraction=0.5\n# the next one\nid={splits.retain.ids[0]}\n")
    assert run_command([*tiny, *asked]) == 0
    out = capsys.readouterr()
    assert "tiny: 3 requests" in out.out
    assert "train retrain (seed 1, request 3)" in out.err
    run = folder / "runs" / "tiny-requests"
    assert sorted(path.name for path in run.glob("[!.]*")) == [
        "index.html", "request-1", "request-2", "request-3", "requests.csv",
    ]  # fmt: skip
    page = (run / "index.html").read_text()
    for number, text in ((1, "half of class 8"), (2, "a list of 1 id"), (3, "5 % of all remaining training samples")):
        assert text in page
        assert f'href="request-{number}/report.html"' in page
        assert (run / f"request-{number}" / "report.html").is_file()
    assert "then a list of 1 id, then 5 % of all" in (run / "request-3" / "report.html").read_text()
    lines = list(csv.DictReader((run / "requests.csv").read_text().splitlines()))
    assert len(lines) == 3 * 4  # requests, rows
    assert [line["samples_so_far"] for line in lines[::4]] == ["10", "11", "20"]
    before = {path: path.read_bytes() for path in (run / "index.html", run / "requests.csv")}
    for path in before:
        path.unlink()
    (run / "request-2" / "report.html").unlink()
    assert run_command(["report", str(run)]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert (run / "request-2" / "report.html").is_file()
    assert run_command(["report", str(run), "--out", "elsewhere"]) == 0
    assert (folder / "elsewhere" / "request-3" / "report.html").is_file()
    capsys.readouterr()
    assert run_command([*tiny, *asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[2]["sequence"] == {"number": 3, "of": 3}


def test_list_names_everything(capsys):
    assert run_command(["list", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert set(names) == {"methods", "scenarios", "datasets", "models", "perturbations", "measures"}
    assert {"gd", "ngd", "ga", "neggrad", "rurk"} <= set(names["methods"])
    assert all(text for table in names.values() for text in table.values())
    assert len(set(names["models"].values())) == len(names["models"])
    assert names["methods"]["scrub"]["settings"]["decay_epochs"] == [3, 5, 9]
    assert run_command(["list", "methods"]) == 0
    out = capsys.readouterr().out
    assert "rurk" in out
    assert "cifar10" not in out
    assert "lambda_a=0.03" in out


def npz(**changes):
    rng = np.random.default_rng(0)
    arrays = {"x": rng.random((60, 1, 8, 8)).astype(np.float32), "y": np.arange(60) % 3} | changes
    np.savez("data.npz", **arrays)
    return ["--set", "data.name=data.npz", "--set", "data.train_size=30", "--set", "data.validation_size=10"]


OWN = ["--set", "data.test_size=15", "--set", "forget.forget_class=1"]
NO_CLASS = ["--set", "forget.forget_class=", "--set", "forget.forget_fraction=none"]
IRIS = ["--set", "data.name=iris", "--set", "data.train_size=90", "--set", "data.validation_size=30"]
BAD = {
    "scenario": (lambda: ["run", "digit"], "unknown scenario 'digit'; did you mean digits"),
    "method": (lambda: ["run", "--methods", "rukr"], "unknown method 'rukr'; did you mean rurk"),
    "data set": (lambda: ["run", "--set", "data.name=cifar"], "unknown data set 'cifar'; did you mean cifar10"),
    "list": (lambda: ["list", "method"], "unknown list 'method'; did you mean methods"),
    "option": (lambda: ["run", "--sedes", "1"], "No such option: --sedes"),
    "grid": (lambda: ["run", "digits", "--methods", "ga", "--grid", "lrr=1"], "unknown setting of ga 'lrr'"),
    "grid values": (lambda: ["run", "digits", "--methods", "ga", "--grid", "lr="], "expected field=value,value,..."),
    "profile": (lambda: ["run", "--profile", "papr"], "papr"),
    "download": (lambda: ["run", "cifar10", "--download"], "expected --data-root FOLDER with --download"),
    "seeds": (lambda: ["run", "--seeds", "1,x"], "expected whole numbers separated by commas for --seeds, got '1,x'"),
    "setting": (lambda: ["run", "--set", "train.epochs"], "expected key=value, got 'train.epochs'"),
    "ids that do not exist": (
        lambda: ["run", *NO_CLASS, "--set", "forget.forget_ids=digits/9999,digits/0001"],
        "digits/9999",
    ),
    "ids that repeat": (
        lambda: ["run", *NO_CLASS, "--set", "forget.forget_ids=digits/0001,digits/0001"],
        "digits/0001",
    ),
    "nothing to forget": (lambda: ["run", "--set", "forget.forget_fraction=0"], "forget"),
    "everything to forget": (
        lambda: ["run", "--set", "forget.forget_class=", "--set", "forget.forget_fraction=1"],
        "forget",
    ),
    "pixels outside": (lambda: ["run", *npz(x=np.full((60, 1, 8, 8), 7.0)), *OWN], "pixels must lie in [0, 1]"),
    "pixels NaN": (lambda: ["run", *npz(x=np.full((60, 1, 8, 8), np.nan)), *OWN], "x[0] (id '0') holds nan"),
    "labels": (lambda: ["run", *npz(y=np.arange(60) - 1), *OWN], "label"),
    "network": (lambda: ["run", *IRIS, *OWN], "cnn needs images"),
    "request": (lambda: ["run", "--request", "clas=8"], "unknown key of a request 'clas'; did you mean class"),
    "request file": (lambda: ["run", "--requests", "nowhere.txt"], "nowhere.txt"),
    "id taken": (
        lambda: ["run", "--request", "class=8,fraction=0.5", "--request", "id=digits/0018"],
        "request 2: forget_ids: 'digits/0018' was already taken by request 1",
    ),
    "id not in training": (
        lambda: ["run", "--request", "fraction=0.1", "--request", "id=digits/9999"],
        "request 2: forget_ids: 'digits/9999' does not exist",
    ),
    "nothing left": (lambda: ["run", "--request", "id=digits/0018", "--request", "fraction=1"], "nothing would be ret"),
    "request and setting": (
        lambda: ["run", "--request", "class=8", "--set", "forget.forget_class=3"],
        "expected requests or the setting forget.forget_class, got both",
    ),
    "cr and a class": (lambda: ["run", "--request", "class=8", "--methods", "cr"], "cr cannot remove a whole class"),
    "no data": (lambda: ["run", "--set", "data.name=missing.npz"], "missing.npz"),
    "cifar absent": (lambda: ["run", "--set", "data.name=cifar10", "--data-root", "nowhere"], "cifar-10-batches-py"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_and_code_2_and_writes_nothing(case, folder, capsys, monkeypatch):
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)
    arguments, message = BAD[case]
    command = arguments()
    before = sorted(folder.rglob("*"))
    assert run_command(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("residuum: error: ")
    assert message in captured.err
    assert sorted(folder.rglob("*")) == before


def test_truncated_data_is_refused(folder, capsys):
    npz()
    whole = (folder / "data.npz").read_bytes()
    (folder / "data.npz").write_bytes(whole[: len(whole) // 2])
    assert run_command(["run", "--set", "data.name=data.npz"]) == 2
    assert "data.npz" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be_written_is_refused_before_any_work(folder, capsys):
    (folder / "taken").write_text("a file")
    assert run_command(["run", *QUICK, "--out", "taken/run"]) == 2
    assert "cannot write to taken/run" in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == ["taken"]


def test_an_interrupt_gives_130(monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("residuum.studies.execution.outline", interrupted)
    assert run_command(["run", "digits"]) == 130
    assert "the same command resumes" in capsys.readouterr().err


def test_a_method_that_diverges_is_a_failed_row(folder, capsys):
    diverging = [*QUICK, "--methods", "ga:lr=1e30:clip=none:epochs=9"]
    assert run_command(["run", "digits", *diverging]) == 1
    assert "finite loss" in capsys.readouterr().err
    failed = json.loads((folder / "runs/digits/results.json").read_text())["failed"]
    assert list(failed) == ["ga:clip=none:epochs=9:lr=1e30"]


def test_the_module_runs_as_a_program():
    assert b"resnet18" in subprocess.check_output([sys.executable, "-m", "residuum", "list", "models"])


ANSWERED_AT_ONCE = [
    *(["--help"], ["--version"], ["--wrong"], ["wrong"], ["run", "--help"], ["run", "--sedes", "1"]),
    *(["export", "--help"], ["report", "--help"], ["list", "--wrong"], ["check", "--help"], ["store", "--help"]),
    *(["store", "gc", "--help"], ["store", "gc", "--wrong"]),
]
TIMED = """
import sys, time
start = time.process_time()
from residuum.cli import run_command
code = run_command(sys.argv[1:])
print(code, time.process_time() - start, sorted({"torch", "sklearn", "matplotlib"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", ANSWERED_AT_ONCE, ids=" ".join)
def test_help_and_wrong_options_are_answered_at_once_without_torch(arguments):
    done = subprocess.run([sys.executable, "-c", TIMED, *arguments], capture_output=True, text=True, check=True)
    code, seconds, loaded = done.stderr.splitlines()[-1].split(maxsplit=2)
    assert code == ("2" if any("wrong" in part or "sedes" in part for part in arguments) else "0")
    assert loaded == "[]"
    assert float(seconds) < 1.5  # of this process alone, however busy the machine; 0.3 where it is not


def test_a_small_run_is_planned_once_and_loads_no_compiler(tmp_path):
    code = """
import sys
from residuum.cli import run_command
from residuum.studies import planning, runner
planned, real = [], planning.plan
def plan(study):
    planned.append(study)
    return real(study)
import residuum.studies
for module in (runner, planning, residuum.studies):
    module.plan = plan
assert run_command(["run", "tiny", "--json", "--seeds", "1", "--workers", "1", "--draws", "3"]) == 0
heavy = {"torch._dynamo", "sympy", "torch.fx.experimental.symbolic_shapes", "distributed"}
print(len(planned), sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "1 []"


@pytest.mark.long
def test_the_smallest_scenario_takes_under_eight_seconds(tmp_path):
    if os.getloadavg()[0] > 0.5:
        pytest.skip("the machine is busy: its clock says nothing")
    seconds = []
    for place in range(3):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "residuum", "run", "tiny", "--store", f"store{place}"],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 8


def test_importing_residuum_costs_little_beside_torch():
    code = "import time, torch; t = time.perf_counter(); import residuum; print(time.perf_counter() - t)"
    seconds = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(seconds) < 0.3
