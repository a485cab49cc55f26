"""Runs that are killed, find damage or a full disk: the result is the same, and nothing is done twice.

`make test` does this on `tiny`, `make test-long` on the demo. There the command is started afresh each time, with two
worker processes; tests of `tiny` fork it off this process, which has loaded everything.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from contextlib import suppress

import pytest

from residuum.cli import run_command
from residuum.studies import Study, maintenance, plan, run_all

FORK = multiprocessing.get_context("fork")
SCENARIOS = ["tiny", pytest.param("digits", marks=pytest.mark.long)]
SIZES = {"tiny": "512k", "digits": "2m"}  # of a disk that is too small for the store


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("created", "seconds", "record_sha256")}
    return value


def command(scenario, store, out):
    workers = "1" if scenario == "tiny" else "2"
    return ["run", scenario, "--workers", workers, "--store", str(store), "--out", str(out)]


def start(arguments, log):
    """Start a command at the head of a process group of its own."""
    with open(log, "w", encoding="utf-8") as errors:
        if "tiny" in arguments:
            process = FORK.Process(target=forked, args=(arguments, errors.fileno()))
            process.start()
        else:
            whole = [sys.executable, "-m", "residuum", *arguments]
            process = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    return process


def forked(arguments, errors):
    os.setsid()
    os.dup2(errors, 2)
    warnings.simplefilter("default")  # as in a command, not as in a test
    with open(2, "w", encoding="utf-8", closefd=False) as sys.stderr, open(os.devnull, "w") as sys.stdout:
        code = run_command(arguments)
    os._exit(code)


def is_running(process):
    return process.poll() is None if isinstance(process, subprocess.Popen) else process.is_alive()


def exit_code(process):
    if isinstance(process, subprocess.Popen):
        return process.wait()
    process.join()
    return process.exitcode


def finish(scenario, store, out, log):
    """Run the command to its end; return exit code and what it said on standard error."""
    process = start(command(scenario, store, out), log)
    return exit_code(process), log.read_text()


def record(out):
    return without_times(json.loads((out / "results.json").read_text()))


def logged(store, event):
    log = store / "log.txt"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [key for _, _, happened, key, *_ in lines if happened == event]


@pytest.fixture(scope="module")
def undisturbed(request, tmp_path_factory):
    """The scenario's name, what its command wrote without disturbance, and the number of its stages."""
    scenario, folder = request.param, tmp_path_factory.mktemp(request.param)
    if scenario == "tiny":  # here, so that what is forked off has everything loaded
        code = run_command(command(scenario, folder / "store", folder / "out"))
    else:
        code, _ = finish(scenario, folder / "store", folder / "out", folder / "log")
    assert code == 0
    stages = {stage.key for seed in plan(Study.create(scenario)) for stage in seed.stages}
    return scenario, folder, len(stages)


@pytest.mark.parametrize("undisturbed", SCENARIOS, indirect=True)
def test_ten_kills_change_nothing_and_no_finished_stage_runs_again(undisturbed, tmp_path):
    scenario, folder, stages = undisturbed
    store, out, chance = tmp_path / "store", tmp_path / "out", random.Random(7)
    longest = 0.4 if scenario == "tiny" else 3.0
    for moment in range(10):
        before = len(logged(store, "started"))
        process = start(command(scenario, store, out), tmp_path / "log")
        while moment % 5 and is_running(process) and len(logged(store, "started")) == before:
            time.sleep(0.01)  # all but two of the moments are while stages are under way
        time.sleep(chance.uniform(0, longest))
        with suppress(ProcessLookupError):  # a fast machine may have finished
            if moment % 2:
                os.kill(process.pid, signal.SIGKILL)
            else:
                os.killpg(process.pid, signal.SIGKILL)
        assert exit_code(process) in {-signal.SIGKILL, 0}
    unfinished = len(logged(store, "started")) - len(logged(store, "finished"))
    assert unfinished > 0  # some stage was under way at some of the moments
    code, _ = finish(scenario, store, out, tmp_path / "log")
    assert code == 0
    assert record(out) == record(folder / "out")
    keys = logged(store, "finished")
    assert len(keys) == len(set(keys))
    assert len(list(store.glob("*/[!.]*/manifest.json"))) == stages
    assert len(keys) >= stages - 10  # each kill may come between a stage's end and its line in the log


def test_two_runs_at_once_do_every_stage_once_between_them(quick, tmp_path):
    processes = [FORK.Process(target=run_all, args=([quick],), kwargs={"store": tmp_path}) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    keys = logged(tmp_path, "finished")
    assert len(keys) == len(set(keys)) == 22


def one_of_each(store):
    """Return a file of every kind that stages leave, no two manifests or other files of a kind in one folder."""
    chosen = {}
    folders = defaultdict(list)
    for manifest in sorted(store.glob("*/*/manifest.json")):
        folders[manifest.parent.parent.name].append(manifest.parent)
    for kind, (first, *others) in folders.items():
        chosen[kind, "manifest.json"] = first / "manifest.json"
        for place, folder in enumerate(others):
            names = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
            for name in names[place % len(names) :] + names[: place % len(names)]:
                chosen.setdefault((kind, str(name.parent.relative_to(folder)), name.suffix, name.stem[:3]), name)
    return list(chosen.values())


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("undisturbed", SCENARIOS, indirect=True)
def test_a_flipped_byte_in_any_kind_of_artifact_is_noticed_reported_and_mended(undisturbed, tmp_path):
    scenario, folder, _ = undisturbed
    store, before = folder / "store", len(logged(folder / "store", "finished"))
    damaged = one_of_each(store)
    kinds = {path.name for path in damaged}
    assert {"manifest.json", "record.json", "ids.txt", "model.safetensors", "initial.safetensors"} <= kinds
    assert {"gallery.npz", "original.npz"} <= kinds
    for path in damaged:
        flip(path)
    code, said = finish(scenario, store, tmp_path / "out", tmp_path / "log")
    assert code == 0
    told = "is not what was written; the stage is computed again"
    reports = [line for line in said.splitlines() if line.startswith("residuum: ") and line.endswith(told)]
    stages = {path.relative_to(store).parts[1] for path in damaged}
    assert len(reports) == len(stages)
    for path in damaged:
        kind, key, *name = path.relative_to(store).parts
        assert any(f"{kind}/{key}: " in line and "/".join(name) in line for line in reports)
    assert sorted(logged(store, "finished")[before:]) == sorted(stages)
    assert record(tmp_path / "out") == record(folder / "out")
    assert maintenance.verify(store) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("undisturbed", SCENARIOS, indirect=True)
def test_a_full_disk_gives_one_clear_line_and_leaves_a_store_that_can_be_used(undisturbed, tmp_path):
    scenario, folder, _ = undisturbed
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZES[scenario]}", "tmpfs", disk], check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        code, said = finish(scenario, disk / "store", tmp_path / "out", tmp_path / "log")
        assert code == 2
        assert [line for line in said.splitlines() if "rror" in line] == said.splitlines()[-1:]
        assert f"no space left for the store {disk}" in said.splitlines()[-1]
        assert maintenance.verify(disk / "store") == {}
        done = set(logged(disk / "store", "finished"))
        assert done
        subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
        code, _ = finish(scenario, disk / "store", tmp_path / "out", tmp_path / "log")
        assert code == 0
        keys = logged(disk / "store", "finished")
        assert len(keys) == len(set(keys))
        assert record(tmp_path / "out") == record(folder / "out")
    finally:
        subprocess.run(["umount", disk], check=True)
