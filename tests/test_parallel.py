"""Two processes on the CPU do what one does: counts exactly, trainings up to rounding; and a lost one is noticed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from residuum.core import devices
from residuum.core.errors import InputError, LostProcessError
from residuum.models import build_model
from residuum.training import Recipe, TrainingPhase, fit
from residuum.training.minibatches import MiniBatches

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
FOLLOWED = ("plain", "augmented", "clipped")
COMMAND = str(Path(sys.executable).with_name("residuum"))
RUN = [COMMAND, "run", "tiny", "--devices", "2", "--seeds", "131", "--methods", "gd"]
RUN += ["--store", "store", "--out", "out"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    script = Path(__file__).with_name("two_processes.py")
    subprocess.run([sys.executable, "-W", "ignore", script, folder], env=ENVIRONMENT, check=True, timeout=240)
    return torch.load(folder / "found.pt", weights_only=False)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_counts_are_those_of_one_process(found):
    alone, together = found["alone"]["counts"], found["together"]["counts"]
    assert len(alone) == 4 * 2 * 2  # audits, models, forgotten and held-out samples
    assert all(same(*pair) for pair in zip(alone, together, strict=True))
    assert any(0 < int(entry["method_right"].sum()) < int(entry["draws"].sum()) for entry in alone)
    assert alone[-1]["draws"].max() > 112  # the half-width asked for more than the pilot, as both found


@pytest.mark.parametrize("how", FOLLOWED)
def test_training_follows_the_loss_of_one_process(found, how):
    alone, together = found["alone"][how], found["together"][how]
    assert len(alone["losses"]) == 4 * 6
    assert alone["losses"][-1] < 0.8 * alone["losses"][0]
    assert together["losses"] == pytest.approx(alone["losses"], abs=1e-4)
    assert distance(alone["weights"], together["weights"]) < 1e-5


def test_the_odd_last_batch_is_computed_by_everybody(found):
    assert found["alone"]["plain"]["passes"] == 4 * 45
    assert found["together"]["plain"]["passes"] == 4 * (40 + 2 * 5)


def test_a_weight_without_gradient_is_left_alone(found):
    for how in ("alone", "together"):
        assert found[how]["idle"]["idle"].tolist() == [1, 1]


def test_chance_within_a_loss_differs_between_processes(found):
    first, second = found["together"]["idle"]["drawn"]
    assert len(first) == len(second) == 24
    assert not set(first) & set(second)


def test_a_training_goes_on_from_its_checkpoint(found):
    for how in ("alone", "together"):
        assert same(found[how]["resumed"]["weights"], found[how]["plain"]["weights"])


def test_every_method_unlearns_as_one_process_does(found):
    alone, together = found["alone"]["methods"], found["together"]["methods"]
    assert len(alone) == 20
    for name, one in alone.items():
        assert distance(one["weights"], together[name]["weights"]) < 1e-5, name
        assert together[name]["notes"].keys() == one["notes"].keys()


def test_batch_norm_differs_but_all_processes_agree(found):
    assert distance(found["alone"]["batch_norm"]["weights"], found["together"]["batch_norm"]["weights"]) > 1e-4
    first, second = found["weights"]
    assert same(first["weights"], second["weights"])


def test_logits_and_metrics_are_those_of_one_process(found):
    assert same(found["alone"]["logits"], found["together"]["logits"])
    alone, together = found["alone"]["metrics"], found["together"]["metrics"]
    assert alone["relearn_epochs"]["value"] != 0  # so that re-learning took steps
    assert together == alone


def test_every_process_says_what_its_share_is(found):
    first, second = found["shares"]
    assert first[0] == second[0] == "25 of 45 samples of train in every pass"
    assert {"5 of 9 samples", "4 of 9 samples"} <= {*first, *second}
    assert found["compute"] == {"processes": 2, "accelerator": "cpu", "precision": "32-true"}


def test_shards_are_every_second_row_and_odd_batches_whole(splits):
    options = {"augment": False, "seed": 0, "device": torch.device("cpu")}
    second = MiniBatches("train", splits.train, 8, **options, rank=1, world_size=2)
    assert second.shard(torch.tensor([7, 8, 9, 4])).tolist() == [8, 4]
    assert second.shard(torch.tensor([7, 8, 9])).tolist() == [7, 8, 9]


def test_batches_that_cannot_be_shared_are_refused(splits, monkeypatch):
    model = build_model("mlp", splits.train.shape, splits.classes, seed=0)
    second = SimpleNamespace(global_rank=1, world_size=2, device=torch.device("cpu"), setup_module=lambda loss: loss)
    monkeypatch.setattr(devices, "current", lambda: second)
    with pytest.raises(InputError, match="batches that 2 processes can share, got batch_size 7"):
        fit(model, {"train": splits.train}, Recipe(batch_size=7), [], seed=0)


def test_mixed_precision_computes_losses_in_bfloat16(splits):
    model, seen = build_model("mlp", splits.train.shape, splits.classes, seed=0), []

    def noted(model, batch, paired, noise):
        logits = model(batch.x)
        seen.append(logits.dtype)
        return torch.nn.functional.cross_entropy(logits, batch.y)

    fabric = devices.make_fabric(None, precision="bf16-mixed")
    assert devices.compute_of(fabric) == devices.Compute(precision="bf16-mixed")
    with devices.launched(fabric):
        fit(model, {"train": splits.train}, Recipe(epochs=1), [TrainingPhase(noted, "train")], seed=0)
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert devices.current() is None


def test_the_text_of_a_broken_connection_is_kept_for_the_log():
    gloo = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:29617. This may indicate ..."
    with pytest.raises(LostProcessError) as lost, devices.connected():
        raise RuntimeError(gloo)
    assert str(lost.value) == (
        "another process of this run ended or cannot be reached; "
        "finished stages are in the store, and the same command resumes"
    )
    assert str(lost.value.__cause__) == gloo


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (["--precision", "fp8"], "expected a precision of 32-true or bf16-mixed, got 'fp8'"),
        (["--devices", "0"], "greater than or equal to 1"),
        (["--devices", "2", "--cluster", "tcp://localhost:1"], "expected --cluster or --devices"),
        (["--devices", "2", "--download"], "expected --download without --devices"),
    ],
)
def test_bad_input_is_one_line(wrong, expected, capsys, tmp_path, monkeypatch):
    from residuum.cli import run_command

    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "tiny", *wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert expected in lines[0]


def start(folder):
    return subprocess.Popen(
        RUN, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def sharing(folder, stage, deadline=180.0):
    """Wait until rank 1 has said its share of a stage; return its process id."""
    log, end = folder / "store" / "log.txt", time.monotonic() + deadline
    while time.monotonic() < end:
        said = log.read_text() if log.is_file() else ""
        if found := re.search(rf"^\S+ (\d+) shared \w+ {stage} .*: rank 1 of 2 has", said, re.M):
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(f"rank 1 never said what its share of {stage} is")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Kill rank 1 while it trains, and give the same command again."""
    folder = tmp_path_factory.mktemp("killed")
    process = start(folder)
    os.kill(sharing(folder, "train retrain"), signal.SIGKILL)
    errors = process.communicate(timeout=60)[1]
    again = start(folder)
    said = again.communicate(timeout=120)[1]
    return folder, (process.returncode, errors), (again.returncode, said)


@pytest.mark.long
def test_a_killed_process_ends_the_run_with_one_line(interrupted):
    _, (code, errors), _ = interrupted
    assert code == 1
    lines = [line for line in errors.splitlines() if "error" in line]
    assert len(lines) == 1
    assert "residuum rank 0: error: another process of this run ended" in lines[0]


@pytest.mark.long
def test_two_processes_finish_a_run_and_its_record_says_so(interrupted):
    folder, _, (code, said) = interrupted
    assert code == 0, said
    assert "Traceback" not in said
    record = json.loads((folder / "out" / "results.json").read_text())
    assert record["compute"] == {"processes": 2, "accelerator": "cpu", "precision": "32-true"}
    shares = re.findall(r"audit gaussian \(seed 131\): (rank \d of 2 has \d+ of 10 samples)$", _log(folder), re.M)
    assert sorted(shares) == ["rank 0 of 2 has 5 of 10 samples", "rank 1 of 2 has 5 of 10 samples"]


@pytest.mark.long
def test_two_processes_resume(interrupted):
    folder, _, (_, said) = interrupted
    assert re.search(r"residuum: 9 stages: [1-8] finished", said)
    finished = [line.split()[3] for line in _log(folder).splitlines() if line.split()[2] == "finished"]
    assert len(finished) == len(set(finished)) == 9


@pytest.mark.long
def test_the_others_end_when_the_leader_is_killed(tmp_path):
    process = start(tmp_path)
    follower = sharing(tmp_path, "train original")
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 30
    while alive(follower) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(follower)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
def test_the_others_end_when_the_leader_is_killed_before_they_are_connected(tmp_path):
    process, end = start(tmp_path), time.monotonic() + 90
    while not (followers := children(process.pid)) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(followers) == 1
    process.kill()
    process.communicate(timeout=90)
    while alive(followers[0]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(followers[0])


@pytest.mark.long
@pytest.mark.parametrize("how", ["two nodes", "torchrun"])
def test_several_machines_and_torchrun(how, tmp_path):
    if how == "torchrun":
        launcher = str(Path(sys.executable).with_name("torchrun"))
        commands = [([launcher, "--nproc-per-node", "2", *RUN], {})]
    else:
        nodes = [*RUN[: RUN.index("--devices")], "--devices", "1", "--nodes", "2", *RUN[RUN.index("--seeds") :]]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617"}
        commands = [(nodes, {**place, "NODE_RANK": str(rank)}) for rank in (0, 1)]
    processes = [subprocess.Popen(line, cwd=tmp_path, env={**ENVIRONMENT, **more}) for line, more in commands]
    assert [process.wait(timeout=240) for process in processes] == [0] * len(processes)
    assert {f"rank {rank} of 2 has 5 of 10 samples" in _log(tmp_path) for rank in (0, 1)} == {True}


def _log(folder):
    return (folder / "store" / "log.txt").read_text()
