"""Running stages elsewhere: local processes, interrupts, a cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from residuum.core import devices
from residuum.core.errors import InputError, LostProcessError
from residuum.studies import Study, engines, plan, run_all, runner
from residuum.studies.engines import Cluster, engine
from residuum.studies.execution import Resources
from residuum.studies.planning import outline
from residuum.studies.results import results_record


def without_times(value):
    if isinstance(value, dict):
        return {
            k: without_times(v) for k, v in value.items() if k not in ("created", "seconds", "files", "record_sha256")
        }
    return value


def test_one_worker_needs_no_executor():
    with engine(workers=1) as executor:
        assert executor is None


def test_two_processes_give_the_same_record(finished, quick, tmp_path):
    with engine(workers=2) as executor:
        results = run_all([quick], store=tmp_path / "store", executor=executor)[0]
    assert without_times(results_record(quick, results).as_dict()) == without_times(finished[0])


def test_two_processes_compute_in_the_precision_of_the_run(tmp_path):
    plain = Study.create("tiny", methods="gd", seeds=[1, 2], overrides={"train.epochs": 2})
    fabric = devices.make_fabric(None, precision="bf16-mixed")
    mixed = plain.model_copy(update={"compute": devices.compute_of(fabric)})
    with devices.launched(fabric):
        with engine(workers=2) as executor:
            beside = run_all([mixed], store=tmp_path / "beside", executor=executor)[0]
        alone = run_all([mixed], store=tmp_path / "alone")[0]
    records = [without_times(results_record(mixed, found).as_dict()) for found in (beside, alone)]
    assert records[0] == records[1]
    models = [found[0].model.read_bytes() for found in (beside, alone)]
    assert models[0] == models[1]
    (exact, *_), *_ = run_all([plain], store=tmp_path / "plain")
    assert exact.model.read_bytes() != models[0]


def test_only_stages_that_share_nothing_run_side_by_side():
    assert Resources().side_by_side
    assert Resources(precision="bf16-mixed").side_by_side
    assert not Resources(devices=1).side_by_side


def test_a_worker_that_is_killed_is_said_in_one_line():
    lost = pytest.raises(LostProcessError, match="a worker process was killed or ran out of memory; finished stages")
    with lost, engine(workers=2) as executor:
        executor.submit(signal.raise_signal, signal.SIGKILL).result(timeout=60)


def test_the_outline_counts(finished, quick, tmp_path):
    _, folder, _ = finished
    assert str(outline([plan(quick)], folder / "store")) == "22 stages: 22 finished, 0 to run"
    assert str(outline([plan(quick)], tmp_path / "empty")) == "22 stages: 0 finished, 22 to run"
    scenario = quick.scenario.model_copy(update={"seeds": [1, 2, 3]})
    more = outline([plan(Study(scenario=scenario, rows=quick.rows))], folder / "store")
    assert (more.total, more.finished) == (33, 22)


COMMAND = [
    *(sys.executable, "-m", "residuum", "run", "digits", "--methods", "gd", "--workers", "2"),
    *("--seeds", "1,2", "--draws", "5", "--set", "audit.taus.gaussian=0,0.1"),
]


def start_two_workers(folder):
    """Start a long run in a process group of its own; return it and, once both workers work, all its processes."""
    slow = [*COMMAND, "--set", "train.epochs=100000"]
    process = subprocess.Popen(slow, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
    log = folder / ".residuum/store/log.txt"
    workers = set()
    for _ in range(600):
        workers = {int(line.split()[1]) for line in log.read_text().splitlines()} if log.is_file() else set()
        if len(workers) == 2:
            break
        time.sleep(0.1)
    assert len(workers) == 2
    everyone = descendants(process.pid)
    assert workers < everyone  # and the server that forked them off
    return process, everyone


def descendants(pid):
    children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return children.union(*(descendants(child) for child in children))


def is_alive(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()  # a dead one may wait for its parent to look


def wait_for_the_end_of(processes):
    for _ in range(100):
        if not any(is_alive(process) for process in processes):
            return
        time.sleep(0.1)
    left = [process for process in processes if is_alive(process)]
    for process in left:
        os.kill(process, signal.SIGKILL)
    raise AssertionError(f"{left} were still there")


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """A shell has them ignored in what it starts in the background, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_stops_within_seconds_and_the_same_command_resumes(tmp_path):
    process, everyone = start_two_workers(tmp_path)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: everybody gets it
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - start < 10
    assert err.splitlines()[-1] == "residuum: interrupted; the same command resumes"
    assert "Traceback" not in err
    assert not list((tmp_path / ".residuum/store/train").glob("*/manifest.json"))
    wait_for_the_end_of(everyone)


@pytest.mark.long
def test_an_interrupt_while_libraries_are_loaded_is_one_line_too(tmp_path):
    process = subprocess.Popen(COMMAND, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        if len(everyone := descendants(process.pid)) == 2:  # the server and the keeper of its resources
            break
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "residuum: interrupted; the same command resumes"
    assert "Traceback" not in err
    wait_for_the_end_of(everyone)


@pytest.mark.long
def test_a_killed_run_leaves_no_worker_behind(tmp_path):
    process, everyone = start_two_workers(tmp_path)
    process.kill()
    process.wait()
    process.stderr.close()
    wait_for_the_end_of(everyone)


@pytest.mark.long
def test_a_killed_worker_ends_the_run_with_one_line(tmp_path):
    process, everyone = start_two_workers(tmp_path)
    log = (tmp_path / ".residuum/store/log.txt").read_text()
    os.kill(int(log.split()[1]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    expected = "a worker process was killed or ran out of memory; finished stages are in the store"
    assert expected in err.splitlines()[-1]
    wait_for_the_end_of(everyone)


class Nobody:
    """A dask client whose scheduler has no workers."""

    status = "running"

    def get_executor(self, retries):
        return None

    def nthreads(self):
        return {}


def test_a_cluster_without_workers_is_said_once_and_given_up_in_time(capsys):
    client = Nobody()
    patient, impatient = (Cluster(client, "tcp://there:1", patience) for patience in (60, 0))
    patient.check()
    patient.check()
    assert capsys.readouterr().err.count("tcp://there:1 has no workers left; waiting 60 s for one") == 1
    with pytest.raises(LostProcessError, match="has no workers left; finished stages are in the store"):
        impatient.check()
    client.nthreads = lambda: {"a": 1}
    impatient.check()
    client.status = "closed"
    with pytest.raises(LostProcessError, match="the scheduler at tcp://there:1 is gone"):
        patient.check()


def test_while_nothing_is_done_the_executor_is_asked_whether_anybody_works(quick, tmp_path, monkeypatch):
    class Idle(Executor):
        def submit(self, call, *arguments):
            return Future()

        def check(self):
            raise LostProcessError("nobody")

    monkeypatch.setattr(runner, "LOOK_EVERY", 0.01)
    with pytest.raises(LostProcessError, match="nobody"):
        run_all([quick], store=tmp_path / "store", executor=Idle())


def test_a_relative_store_is_the_same_folder_for_workers_elsewhere(quick, tmp_path, monkeypatch):
    class Elsewhere(Executor):
        def submit(self, call, *arguments):
            done = Future()
            (tmp_path / "worker").mkdir(exist_ok=True)
            os.chdir(tmp_path / "worker")
            done.set_result(call(*arguments))
            os.chdir(tmp_path)
            return done

    monkeypatch.chdir(tmp_path)
    fast = Study.create("tiny", methods="gd", seeds=[1], overrides={"train.epochs": 1})
    run_all([fast], store="store", executor=Elsewhere())
    assert list((tmp_path / "worker").iterdir()) == []
    assert (tmp_path / "store" / "train").is_dir()


def test_a_scheduler_that_is_not_there_gets_one_line(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "REACH", 0.5)
    with (
        pytest.raises(InputError, match=r"cannot reach a scheduler at tcp://127.0.0.1:9"),
        engine(cluster="tcp://127.0.0.1:9"),
    ):
        pass


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers in processes of their own; yields address and worker processes."""
    pytest.importorskip("distributed")
    started = []

    def start(*arguments):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL))
        return started[-1]

    contact = tmp_path / "scheduler.json"
    start("dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(contact))
    for _ in range(600):
        if contact.is_file() and contact.stat().st_size:
            break
        time.sleep(0.1)
    address = json.loads(contact.read_text())["address"]
    one_thread = ("--nthreads", "1", "--no-dashboard", "--no-nanny")
    workers = [start("dask_worker", address, *one_thread) for _ in range(2)]
    workers[0].scheduler = started[0]
    yield address, workers
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
def test_a_cluster_gives_the_same_record_even_if_a_worker_dies(killed, cluster, finished, quick, tmp_path):
    address, workers = cluster
    done = []

    def report(stage, finished_stages, total):
        done.append(stage)
        if killed and len(done) == 5:
            workers[0].kill()

    with engine(cluster=address) as executor:
        results = run_all([quick], store=tmp_path / "store", executor=executor, report=report)[0]
    assert without_times(results_record(quick, results).as_dict()) == without_times(finished[0])
    assert len(done) == 22


@pytest.mark.long
@pytest.mark.parametrize("who", ["scheduler", "workers"])
def test_a_cluster_that_is_lost_ends_the_run_with_one_line(who, cluster, quick, tmp_path, monkeypatch):
    address, workers = cluster
    monkeypatch.setattr(Cluster.__init__, "__defaults__", (5.0,))
    lost = workers if who == "workers" else [workers[0].scheduler]

    def report(stage, finished_stages, total):
        for process in lost:
            process.kill()

    with pytest.raises(LostProcessError, match="finished stages are in the store"), engine(cluster=address) as executor:
        run_all([quick], store=tmp_path / "store", executor=executor, report=report)


@pytest.mark.long
def test_a_worker_with_other_versions_is_refused(cluster, monkeypatch):
    address, _ = cluster
    real = engines.version
    monkeypatch.setattr(engines, "version", lambda name: "0.0" if name == "torch" else real(name))
    with (
        pytest.raises(InputError, match=r"has torch .*, this process 0.0; install the same versions"),
        engine(cluster=address),
    ):
        pass


def test_everything_can_be_imported_where_there_is_no_posix():
    code = """
import sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
import residuum.studies, residuum.reporting, residuum.cli
residuum.cli.make_app()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_web_server_in_place_of_a_scheduler_is_one_line():
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        with server.accept()[0] as visitor:
            visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            time.sleep(0.2)

    threading.Thread(target=answer, daemon=True).start()
    address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    with server, pytest.raises(InputError, match=f"cannot reach a scheduler at {address} "), engine(cluster=address):
        pass
