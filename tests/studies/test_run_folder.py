"""The folder of a run is the old run or the new one, never both, however many write to it and whenever they end."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from residuum.cli import run_command
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.files import ASIDE, locked
from residuum.record import Results, sealed
from residuum.record.folder import DECOYS, check_counts, check_files, hashes, remove_run, run_files
from residuum.reporting import write_report
from residuum.studies import claim_folder

FORK = multiprocessing.get_context("fork")
QUICK = ["run", "tiny", "--workers", "1", "--methods", "gd", "--set", "train.epochs=2"]


def run_tiny(folder, out, *more):
    return run_command([*QUICK, "--store", str(folder / "store"), "--out", str(out), *more])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A store, and the folders of two runs from it that differ in everything."""
    folder = tmp_path_factory.mktemp("runs")
    assert run_tiny(folder, folder / "old", "--seeds", "1,2") == 0
    assert run_tiny(folder, folder / "new", "--seeds", "3") == 0
    return folder


def whole_run(folder):
    """Return the seeds of the run in a folder after checking that every file is there and what it was."""
    record = Results.load(folder)
    there = {name for name in hashes(folder) if name.split("/")[0] in ("counts", "models", "gallery")}
    assert there == record.files.keys()
    check_files(folder, record)
    return record.seeds


def test_the_record_has_the_hash_of_every_file(runs):
    files = Results.load(runs / "old").files
    assert {name.split("/")[0] for name in files} == {"counts", "models", "gallery"}
    assert whole_run(runs / "old") == [1, 2]


def test_a_decoy_audit_stays_when_its_folder_gets_a_new_run_and_goes_with_the_run(runs, tmp_path):
    shutil.copytree(runs / "old", tmp_path / "run")
    for name in DECOYS:
        (tmp_path / "run" / name).write_text("{}")  # no other command writes them again
    assert run_tiny(runs, tmp_path / "run", "--seeds", "3") == 0
    assert whole_run(tmp_path / "run") == [3]
    assert all((tmp_path / "run" / name).is_file() for name in DECOYS)
    remove_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["counts/1/gd/gaussian.npz", "models/2/gd.safetensors", "gallery/1.npz"])
def test_a_report_refuses_a_file_that_the_run_did_not_write(runs, name, tmp_path, capsys):
    shutil.copytree(runs / "old", tmp_path / "out")
    other = bytearray((tmp_path / "out" / name).read_bytes())
    other[len(other) // 2] ^= 1
    (tmp_path / "out" / name).write_bytes(other)
    assert run_command(["report", str(tmp_path / "out")]) == 2
    assert f"1 file not what the run wrote, the first is {name}" in capsys.readouterr().err
    (tmp_path / "out" / name).unlink()  # to save space
    check_files(tmp_path / "out", Results.load(tmp_path / "out"))


def test_a_new_run_leaves_nothing_of_the_old_one_and_nothing_else_is_touched(runs, tmp_path):
    shutil.copytree(runs / "old", tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("not the run's")
    assert run_tiny(runs, tmp_path / "out", "--seeds", "3") == 0
    assert whole_run(tmp_path / "out") == [3]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in (runs / "new").iterdir()} | {"mine.txt"}


@pytest.mark.parametrize(
    "name",
    ["models/best.pt", "counts/x", "gallery/1.jpg", "report.html",
     "table.csv", "samples.csv", "index.html", "requests.csv", "request-2024/letter.txt", "results.json"],
)  # fmt: skip
@pytest.mark.parametrize("sequence", [False, True])
def test_a_folder_with_files_of_others_is_refused_and_left_as_it_is(name, sequence, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=r"that no run of residuum wrote; choose another folder|another kind of run"):
        claim_folder(tmp_path, sequence=sequence)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("more", [[], ["--request", "class=8,fraction=0.5"]])
def test_a_run_into_a_folder_of_others_ends_with_one_line(runs, more, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("models/best.pt", "index.html"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("mine")
    assert run_tiny(runs, Path(), "--seeds", "3", *more) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(said) == 1
    assert ". has index.html, models that no run of residuum wrote; choose another folder with --out" in said[0]
    assert {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {
        "best.pt": "mine", "index.html": "mine"
    }  # fmt: skip


def test_only_files_that_the_record_lists_are_replaced(runs, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(runs / "old", out)
    mine = ["models/best.pt", "models/1/best.pt", "figures/own.svg", "counts/notes.txt", "request-2024/x", "index.html"]
    for name in mine:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    changed(out, ("files", "mine.txt"), "0" * 64)  # a record that lists what no run writes
    (out / "mine.txt").write_text("mine")
    assert run_tiny(runs, out, "--seeds", "3") == 0
    assert [(out / name).read_text() for name in [*mine, "mine.txt"]] == ["mine"] * 7
    files = {name for name in hashes(out) if name.split("/")[0] in ("counts", "models", "gallery")}
    assert files == Results.load(out).files.keys() | set(mine[:2]) | {"counts/notes.txt"}


def test_a_file_in_the_way_of_a_new_run_is_neither_lost_nor_is_the_old_run(runs, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(runs / "old", out)
    (out / "models" / "3").mkdir()
    (out / "models" / "3" / "gd.safetensors").write_text("mine")
    assert run_tiny(runs, out, "--seeds", "3") == 2
    assert "gd.safetensors is in the way, and no run wrote it" in capsys.readouterr().err
    assert (out / "models" / "3" / "gd.safetensors").read_text() == "mine"
    assert Results.load(out).seeds == [1, 2]
    check_files(out, Results.load(out))


def test_links_lead_no_removal_out_of_the_folder(runs, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    shutil.copytree(runs / "old", out)
    (out / "models").rename(elsewhere)
    (out / "models").symlink_to(elsewhere)
    before = hashes(elsewhere)
    assert run_tiny(runs, out, "--seeds", "3") == 2
    remove_run(out)
    assert hashes(elsewhere) == before
    assert [path.name for path in out.iterdir() if path.name != ".lock"] == ["models"]


def dying(arguments, moment):
    left = iter(range(moment))

    def hook(event, details):
        if event == "os.rename" and ASIDE in str(details) and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    os._exit(quiet(arguments))


def quiet(arguments):
    warnings.simplefilter("default")
    with open(os.devnull, "w") as sys.stdout, open(os.devnull, "w") as sys.stderr:
        return run_command(arguments)


def test_a_run_killed_while_it_rewrites_its_folder_leaves_the_old_run_the_new_one_or_none(runs, tmp_path):
    seen, out = set(), tmp_path / "out"
    arguments = [*QUICK, "--seeds", "3", "--store", str(runs / "store"), "--out", str(out)]
    old = len(run_files(runs / "old"))
    # the record is written, goes, its files go, new ones come, the record comes
    for moment in (0, 1, 2, old, old + 2, old + 4):
        shutil.copytree(runs / "old", out)
        process = FORK.Process(target=dying, args=(arguments, moment))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        seen.add(tuple(whole_run(out)) if (out / "results.json").exists() else None)
        assert run_command(arguments) == 0
        assert whole_run(out) == [3]
        assert list(out.glob(f"{ASIDE}*")) == []
        shutil.rmtree(out)
    assert {(1, 2), None} <= seen


def start_all(commands, folder):
    processes = [FORK.Process(target=logged, args=(command, folder / f"{k}.err")) for k, command in enumerate(commands)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    said = [(folder / f"{k}.err").read_text() for k in range(len(commands))]
    return [process.exitcode for process in processes], said


def logged(arguments, errors):
    warnings.simplefilter("default")
    with open(errors, "w") as sys.stderr, open(os.devnull, "w") as sys.stdout:
        code = run_command(arguments)
    os._exit(code)


@pytest.mark.parametrize("number", [4, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["equal", "different"])
def test_many_runs_at_once_with_one_folder_and_one_store_all_end_well(how, number, tmp_path):
    out = tmp_path / "out"
    commands = [
        [*QUICK, "--store", str(tmp_path / "store"), "--out", str(out), "--seeds", str(k if how == "different" else 1)]
        for k in range(number)
    ]
    codes, said = start_all(commands, tmp_path)
    assert codes == [0] * number, [text for text in said if "rror" in text]
    assert "Traceback" not in "".join(said)
    seeds = whole_run(out)
    assert len(seeds) == 1
    assert hashes(out)["results.json"] in (out / "report.html").read_text()  # the page is that of the record
    log = (tmp_path / "store" / "log.txt").read_text().splitlines()
    keys = [line.split()[3] for line in log if line.split()[2] == "finished"]
    assert len(keys) == len(set(keys)) == 9 * len({command[-1] for command in commands})


def test_a_reader_waits_for_the_writer(runs, tmp_path):
    shutil.copytree(runs / "new", tmp_path / "out")
    with locked(tmp_path / "out"):
        process = FORK.Process(target=write_report, args=(tmp_path / "out",))
        process.start()
        process.join(0.5)
        assert process.is_alive()
    process.join()
    assert process.exitcode == 0


def test_a_folder_that_cannot_be_written_is_read_without_a_lock(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "new", tmp_path / "out")
    (tmp_path / "out" / ".lock").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "out")
    write_report(tmp_path / "out", out=tmp_path / "page")
    assert not (tmp_path / "out" / ".lock").exists()


@pytest.fixture
def private(tmp_path):
    """Arguments of a run on an own data file."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.random((60, 1, 8, 8)).astype(np.float32), y=np.arange(60) % 3)
    sizes = {"train_size": 30, "validation_size": 10, "test_size": 15, "name": tmp_path / "d.npz"}
    changes = [f"data.{key}={value}" for key, value in sizes.items()] + ["relearn.epochs=0", "audit.draws=2"]
    return [part for change in changes for part in ("--set", change)]


def test_pictures_of_own_data_are_written_only_on_request(private, tmp_path):
    own = [*private, "--request", "class=1", "--seeds", "1"]
    assert run_tiny(tmp_path, tmp_path / "out", *own) == 0
    assert not (tmp_path / "out" / "request-1" / "gallery").exists()
    assert run_tiny(tmp_path, tmp_path / "out", *own, "--gallery") == 0
    assert (tmp_path / "out" / "request-1" / "gallery" / "1.npz").is_file()
    assert run_tiny(tmp_path, tmp_path / "out", *own) == 0
    assert not (tmp_path / "out" / "request-1" / "gallery").exists()


def test_fewer_requests_leave_no_run_of_an_earlier_sequence(runs, tmp_path):
    one, two = ["--request", "class=8,fraction=0.5"], ["--request", "class=7,fraction=0.5"]
    assert run_tiny(runs, tmp_path / "out", "--seeds", "1", *one, *two) == 0
    assert (tmp_path / "out" / "request-2").is_dir()
    assert run_tiny(runs, tmp_path / "out", "--seeds", "1", *one) == 0
    assert not (tmp_path / "out" / "request-2").exists()
    assert Results.load(tmp_path / "out" / "request-1").sequence.of == 1


def test_a_record_from_before_the_hashes_is_still_read(runs, tmp_path):
    shutil.copytree(runs / "new", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    del record["files"]
    (tmp_path / "out" / "results.json").write_text(json.dumps(sealed(record)))
    (tmp_path / "out" / "report.html").unlink(missing_ok=True)
    write_report(tmp_path / "out")
    assert (tmp_path / "out" / "report.html").stat().st_size > 0


def test_a_folder_without_a_record_says_so(runs, tmp_path):
    shutil.copytree(runs / "new", tmp_path / "out")
    (tmp_path / "out" / "results.json").unlink()
    with pytest.raises(InputError, match="expected the folder of a finished run"):
        write_report(tmp_path / "out")


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", ".hidden", "", "x" * 300, "a\\b"])
def test_a_scenario_s_name_cannot_lead_out_of_the_folder(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command([*QUICK, "--set", f"name={name}"]) == 2
    assert "expected a scenario's name that can name a file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def changed(folder, place, value, file="results.json"):
    record = json.loads((folder / file).read_text())
    *path, last = place
    inner = record
    for step in path:
        inner = inner[step]
    inner[last] = value
    (folder / file).write_text(json.dumps(record))


@pytest.mark.parametrize(
    "place",
    [
        ("scenario", "name"),
        ("files", "../x"),
        ("methods", "../x"),
        ("methods", "gd", "per_seed", "3", "audits", "gaussian", "counts"),
        ("methods", "gd", "per_seed", "3", "audits", "gaussian", "heldout", "counts"),
    ],
)
def test_a_record_that_points_out_of_its_folder_is_refused(place, runs, tmp_path, capsys):
    shutil.copytree(runs / "new", tmp_path / "out")
    row = json.loads((tmp_path / "out" / "results.json").read_text())["methods"]["gd"]
    changed(tmp_path / "out", place, row if place[0] == "methods" and len(place) == 2 else "../x")
    assert run_command(["report", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "that can name a file, got '..'" in said or "that can name a file, got '../x'" in said
    assert len(said.splitlines()) == 1


def test_a_sequence_of_which_a_run_is_missing_is_refused(runs, tmp_path, capsys):
    one, two = ["--request", "class=8,fraction=0.5"], ["--request", "class=7,fraction=0.5"]
    assert run_tiny(runs, tmp_path / "out", "--seeds", "1", *one, *two) == 0
    shutil.rmtree(tmp_path / "out" / "request-1")
    capsys.readouterr()
    assert run_command(["report", str(tmp_path / "out")]) == 2
    assert "expected the runs of requests 1 to 2, got 2; run them again" in capsys.readouterr().err


def test_a_sequence_whose_first_run_was_only_begun_is_written_again(runs, tmp_path):
    begun = tmp_path / "out" / "request-1" / f"{ASIDE}0" / "counts"
    begun.mkdir(parents=True)
    (tmp_path / "out" / "request-1" / ".lock").touch()
    assert run_tiny(runs, tmp_path / "out", "--seeds", "3", "--request", "class=8,fraction=0.5") == 0
    assert whole_run(tmp_path / "out" / "request-1") == [3]
    assert not begun.exists()


def edited(folder, change, *, mend):
    """Edit the record of a run; a careful editor also mends its hash."""
    record = json.loads((folder / "results.json").read_text())
    change(record)
    (folder / "results.json").write_text(json.dumps(sealed(record) if mend else record))


def audit_in(record, label):
    return record["methods"][label]["per_seed"]["3"]["audits"]["gaussian"]


def point_at_the_control(record):
    audit_in(record, "gd")["counts"] = audit_in(record, "control")["counts"]


def exchange_counts(record):
    gd, control = audit_in(record, "gd"), audit_in(record, "control")
    gd["counts"], control["counts"] = control["counts"], gd["counts"]


def fewer_draws(record):
    audit_in(record, "gd")["settings"]["draws"] -= 1


def other_settings(record):
    record["scenario"]["settings"]["audit"]["draws"] += 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (point_at_the_control, "expected different counts for every row, got counts/3/control/gaussian.npz twice"),
        (exchange_counts, "expected the counts that its numbers come from"),
        (fewer_draws, "as its settings say"),
        (other_settings, "as the run's settings say"),
    ],
)
def test_a_record_whose_rows_do_not_have_their_own_counts_is_refused(change, said, runs, tmp_path, capsys):
    out = shutil.copytree(runs / "new", tmp_path / "out")
    edited(out, change, mend=True)
    for arguments in (["report", str(out)], ["report", str(out), "--fail-if", "gd.residual"]):
        assert run_command(arguments) == 2
        assert said in capsys.readouterr().err
    assert run_command(["pack", str(out), "--output", str(tmp_path / "pack.zip")]) == 2
    assert not (tmp_path / "pack.zip").exists()


def test_a_record_that_was_edited_is_refused(runs, tmp_path, capsys):
    def rosier(record):
        record["methods"]["gd"]["per_seed"]["3"]["metrics"]["test_accuracy"] = 99.0

    def without_hash(record):
        del record["record_sha256"]

    for number, change in enumerate((rosier, without_hash)):
        out = shutil.copytree(runs / "new", tmp_path / str(number))
        edited(out, change, mend=False)
        for command in (["report", str(out)], ["pack", str(out), "--output", str(tmp_path / "pack.zip")]):
            assert run_command(command) == 2
            said = capsys.readouterr().err
            assert "expected the record as it was written, got one that was edited" in said
            assert len(said.splitlines()) == 1


def test_answers_of_the_reference_that_differ_between_rows_are_refused(runs, tmp_path):
    out = shutil.copytree(runs / "new", tmp_path / "out")
    record = Results.load(out)
    path = out / record.methods["gd"].per_seed["3"].audits["gaussian"].counts
    counts = Counts.load(path)
    joint = counts.joint[..., [1, 0, 3, 2, 5, 4, 7, 6]]  # the reference wrong where it was right
    replace(counts, joint=joint, same_prediction=joint[..., 3] + joint[..., 7]).save(path)
    with pytest.raises(InputError, match="expected the reference's answers of the other rows"):
        check_counts(out, record)


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("what", ["folder", "loop", "pipe"])
def test_counts_that_are_no_file_are_refused_at_once(what, hashed, runs, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(runs / "new", out)
    if not hashed:
        record = json.loads((out / "results.json").read_text())
        record.pop("files")
        (out / "results.json").write_text(json.dumps(sealed(record)))
    counts = out / "counts" / "3" / "gd" / "gaussian.npz"
    counts.unlink()
    {"folder": counts.mkdir, "loop": lambda: counts.symlink_to(counts), "pipe": lambda: os.mkfifo(counts)}[what]()
    assert run_command(["report", str(out)]) == 2
    said = capsys.readouterr().err
    assert "gaussian.npz" in said
    assert len(said.splitlines()) == 1


def test_a_lock_that_is_a_folder_is_one_line(runs, tmp_path, capsys):
    shutil.copytree(runs / "new", tmp_path / "out")
    (tmp_path / "out" / ".lock").unlink()
    (tmp_path / "out" / ".lock").mkdir()
    assert run_command(["report", str(tmp_path / "out")]) == 2
    assert "expected a file, remove what is there" in capsys.readouterr().err
