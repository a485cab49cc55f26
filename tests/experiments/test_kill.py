"""Runs that are killed, run side by side or find damage: the result is the same, and nothing is done twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import pytest

from residuum.experiments import run
from residuum.experiments.results import results_record
from residuum.types import ResiduumWarning

FORK = multiprocessing.get_context("fork")  # the parent has imported everything: a child starts at once


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("created", "seconds")}
    return value


def finished_keys(store):
    lines = [line.split() for line in (store / "log.txt").read_text().splitlines()]
    return [key for _, _, event, key, *_ in lines if event == "finished"]


def test_ten_kills_change_nothing_and_no_finished_stage_runs_again(finished, quick, tmp_path):
    record, _, _ = finished
    store, chance = tmp_path / "store", random.Random(7)
    for _ in range(10):
        process = FORK.Process(target=run, args=(quick,), kwargs={"store": store})
        process.start()
        time.sleep(chance.uniform(0.05, 0.8))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL or process.exitcode == 0
    results = run(quick, store=store)
    assert without_times(results_record(quick, results)) == without_times(record)
    keys = finished_keys(store)
    assert len(keys) == len(set(keys)) == 22


def test_two_runs_at_once_do_every_stage_once_between_them(quick, tmp_path):
    processes = [FORK.Process(target=run, args=(quick,), kwargs={"store": tmp_path}) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    keys = finished_keys(tmp_path)
    assert len(keys) == len(set(keys)) == 22


def test_a_flipped_byte_in_any_artefact_is_noticed_and_mended(finished, quick, tmp_path):
    record, _, _ = finished
    store = tmp_path / "store"
    run(quick, store=store)
    weights = sorted(store.glob("unlearn/*/model.safetensors"))[0]
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.warns(ResiduumWarning, match=r"model.safetensors is not what was written"):
        results = run(quick, store=store)
    assert without_times(results_record(quick, results)) == without_times(record)
