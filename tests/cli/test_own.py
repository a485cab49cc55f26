"""`residuum unlearn` and `residuum audit` on a network and data of the user's own; what is wrong is one line."""

import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from residuum.cli import run_command
from residuum.record.folder import DECOY_AUDIT, note_written
from residuum.studies import execution
from residuum.studies.maintenance import known_runs

NET = """
import torch
from torch import nn


class HerNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.fc = nn.Linear(6, 16), nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.body(x).relu())


class Gray(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.body(x).relu().mean((2, 3)))


def killed(samples, seed):
    import os, pathlib

    log = pathlib.Path("trained.log")
    lines = log.read_text().splitlines() if log.exists() else []
    log.write_text("\\n".join([*lines, str(seed)]) + "\\n")
    if os.environ.get("KILL") and len(lines) == 2:
        os.kill(os.getpid(), 9)
    return train(samples, seed)


def no_argument():
    return HerNet(3)


def two(a, b):
    return HerNet(3)


def text():
    return "a network"


def failing():
    raise RuntimeError("no weights today")


def train(samples, seed):
    torch.manual_seed(seed)
    net = HerNet(3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(samples.x), samples.y).backward()
        optimizer.step()
    return net


def train_on(samples, seed, model=None):
    torch.manual_seed(seed)
    net = model or HerNet(3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(samples.x), samples.y).backward()
        optimizer.step()
    return net
def no_seed(samples):
    return HerNet(3)


def forgetful(samples, seed):
    return None


def broken(samples, seed):
    return {}["train_loader"]


def exiting(samples, seed):
    raise SystemExit(3)


def exploding(samples, seed, model=None, epochs=2):
    net = model or HerNet(3)
    nn.init.constant_(net.fc.bias, float("nan"))
    return net


NUMBER = 3
"""


class Malicious:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


def table(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 6)) + 1.2 * np.eye(6)[y], y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("own")
    (home / "net.py").write_text(NET)
    for name, n, seed in (("train", 90, 1), ("held", 60, 2)):
        x, y = table(n, seed)
        np.savez(home / f"{name}.npz", x=x, y=y, ids=[f"{name}-{k}" for k in range(n)])
        rows = [",".join(map(str, [f"{name}-{k}", *x[k], y[k]])) for k in range(n)]
        (home / f"{name}.csv").write_text("\n".join(["id,a,b,c,d,e,f,label", *rows]) + "\n")
    (home / "ids.txt").write_text("# two people\ntrain-3\ntrain-40\n")
    (home / "later.txt").write_text("train-7\n")
    made = {}
    exec(compile(NET, "net.py", "exec"), made)
    x, y = table(90, 1)
    inputs, labels = torch.from_numpy(x).float(), torch.from_numpy(y)
    kept = [k for k in range(90) if k not in (3, 40)]

    def saved(name, rows, seed):
        part = type("Part", (), {"x": inputs[rows], "y": labels[rows]})
        torch.save(made["train"](part, seed).state_dict(), home / name)

    saved("w.pt", list(range(90)), 0)
    torch.save(made["Gray"]().state_dict(), home / "gray.pt")
    for k in range(3):
        saved(f"retrained{k}.pt", kept, k + 1)
    write_bad_files(home, x, y)
    return home


def write_bad_files(home, x, y):
    for name, text in {
        "p.txt": "p\n", "one.txt": "train-3\n",
        "none.txt": "# nothing\n", "stranger.txt": "nobody\n", "twice.txt": "train-3\ntrain-3\n",
        "row.txt": ",".join(f"train-{k}" for k in range(90)) + "\n",
        "held.txt": "held-3\n", "real.csv": "id,a,label\np,1,0.5\nq,2,1.5\n",
        "broken.py": "def (", "raising.py": "raise SystemExit(3)\n", "w.txt": "weights", "empty.csv": "",
        "words.csv": "id,a,label\np,red,0\nq,1,1\n", "ragged.csv": "id,a,label\np,1\n",
    }.items():  # fmt: skip
        (home / name).write_text(text)
    (home / "all.txt").write_text("".join(f"train-{k}\n" for k in range(90)))
    sparse = {"body.weight": torch.eye(6).to_sparse()}
    for name, state in {
        "sparse": sparse,
        "meta": {"w": torch.zeros(2, device="meta")},
        "keys": {3: torch.zeros(2)},
    }.items():
        torch.save(state, home / f"{name}.pt")
    np.savez(home / "column.npz", x=x, y=y[:, None])
    np.savez(home / "floats.npz", x=x, y=y.astype(float))
    np.savez(home / "huge.npz", x=x, y=np.where(np.arange(90) == 5, 2**40, y))
    (home / "square.csv").write_text("id,a,label\np,1,\u00b2\nq,2,\u00b9\n")
    (home / "latin.txt").write_bytes(b"caf\xe9\n")
    torch.save({"body.weight": Malicious()}, home / "evil.pt")
    (home / "raw.pt").write_bytes(pickle.dumps(Malicious()))
    (home / "cut.pt").write_bytes((home / "w.pt").read_bytes()[:200])
    (home / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    save_file({"body.weight": torch.zeros(2, 2)}, home / "other.safetensors")
    np.savez(home / "multi.npz", x=x, y=np.eye(3)[y])
    np.savez(home / "nan.npz", x=np.where(np.arange(6) == 2, np.nan, x), y=y)
    np.savez(home / "objects.npz", x=np.array([{}], dtype=object), y=[0])
    np.savez(home / "wide.npz", x=np.hstack([x, x]), y=y, ids=[f"train-{k}" for k in range(90)])
    (home / "no_classes").mkdir()
    for k in range(20):
        (home / "gray" / f"{k % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 12 * k).save(home / "gray" / f"{k % 2}" / f"train-{k}.png")
    (home / "photos" / "cat").mkdir(parents=True)
    (home / "photos" / "dog").mkdir()
    Image.new("RGB", (4, 4)).save(home / "photos" / "cat" / "1.png")
    (home / "photos" / "dog" / "2.png").write_text("no image")


GOOD = {
    "model.source": "net.py:HerNet", "model.weights": "w.pt", "model.bounds": "none",
    "data.train": "train.npz", "forget.ids": "ids.txt",
}  # fmt: skip
UNLEARN = GOOD | {"unlearn.weights": "new.safetensors", "unlearn.method": "gd:epochs=1"}
AUDIT = GOOD | {
    "data.held_out": "held.npz", "audit.unlearned": ["w.pt"], "retrain.reference": "retrained0.pt",
    "retrain.controls": ["retrained1.pt", "retrained2.pt"],
    "audit.draws": 20, "audit.taus": [0, 0.5], "output.folder": "run",
}  # fmt: skip
TRAINED = {key: value for key, value in AUDIT.items() if key not in ("retrain.reference", "retrain.controls")}


GRAY = {
    "data.train": "gray", "model.source": "net.py:Gray", "model.weights": "gray.pt", "forget.ids": "one.txt",
    "model.bounds": [0, 1], "data.channels": 1,
}  # fmt: skip


def written(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {written(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def arguments(command, settings, folder="."):
    """Write a request file and return the command that reads it."""
    file = Path(folder) / f"{command}.toml"
    file.write_text("".join(f"{key} = {written(value)}\n" for key, value in settings.items() if value is not None))
    return [command, str(file)]


def test_weights_are_unlearned_under_her_own_keys(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(arguments("unlearn", UNLEARN)) == 0
    assert "accuracy on training data" in capsys.readouterr().out
    assert list(load_file("new.safetensors")) == sorted(torch.load("w.pt", weights_only=True))
    assert run_command([*arguments("unlearn", UNLEARN | {"unlearn.weights": "new.pt"}), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "gd"
    assert torch.equal(torch.load("new.pt", weights_only=True)["fc.bias"], load_file("new.safetensors")["fc.bias"])


def test_accuracy_is_printed_before_and_after_with_what_to_try_where_it_is_lost(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(arguments("unlearn", UNLEARN | {"data.held_out": "held.npz"})) == 0
    out = capsys.readouterr().out
    assert re.search(r"gd:epochs=1: retain accuracy [\d.]+ % before, [\d.]+ % after; held-out accuracy [\d.]+ %", out)
    assert "warning" not in out
    harsh = UNLEARN | {
        "unlearn.method": "soft_reset:keep=0:epochs=0",
        "retrain.recipe": {"optimizer": "adamw", "epochs": 30, "lr": 0.02},
    }
    assert run_command(arguments("unlearn", harsh)) == 0
    said = capsys.readouterr()
    assert re.search(r"warning: soft_reset lost [\d.]+ points of retain accuracy .*; try soft_reset:epochs=2", said.out)
    assert not said.err
    assert run_command([*arguments("unlearn", harsh), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    before, after = facts["accuracy"]["retain"]
    assert before - after > 3
    assert "points of retain accuracy" in facts["warnings"][-1]


def test_a_soft_reset_is_trained_by_her_own_function(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    given = UNLEARN | {"unlearn.method": "soft_reset", "retrain.function": "net.py:train_on"}
    assert run_command(arguments("unlearn", given)) == 0
    out = capsys.readouterr().out
    assert "trained by your function" in out
    assert "warning" not in out


def test_earlier_requests_are_given_by_a_file_and_missed_where_they_are_not(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    assert run_command(arguments("unlearn", UNLEARN | {"unlearn.weights": "first.pt"})) == 0
    assert "train-3" not in (folder / "first.pt.unlearned.json").read_text()
    second = UNLEARN | {"model.weights": "first.pt", "forget.ids": "later.txt", "unlearn.weights": "second.pt"}
    capsys.readouterr()
    assert run_command(arguments("unlearn", second)) == 0
    assert "warning: the model has unlearned 2 samples that this request retains" in capsys.readouterr().out
    assert run_command(arguments("unlearn", second | {"forget.earlier": "ids.txt"})) == 0
    out = capsys.readouterr().out
    assert "forget 1 of 90 training samples, 2 forgotten earlier" in out
    assert "warning" not in out
    audit = AUDIT | {"forget.ids": "later.txt", "forget.earlier": "ids.txt", "audit.unlearned": "second.pt"}
    assert run_command(arguments("audit", audit | {"output.folder": str(tmp_path / "run")})) == 0
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    assert record["scenario"]["sizes"] == {"retain": 87, "forget": 1, "validation": 0, "test": 60}


def test_models_made_elsewhere_are_audited_without_training(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(arguments("audit", AUDIT | {"audit.unlearned": {"same": "w.pt"}})) == 0
    record = json.loads((folder / "run" / "results.json").read_text())
    assert list(record["methods"]) == ["original", "retrain", "control", "control_2", "same"]
    assert record["scenario"]["settings"]["model"]["name"] == "HerNet"
    assert (folder / "run" / "report.html").exists()
    assert record["methods"]["original"]["per_seed"] == {
        "1": record["methods"]["same"]["per_seed"]["1"]
        | {"audits": record["methods"]["original"]["per_seed"]["1"]["audits"]}
    }


def test_an_audit_into_a_folder_of_others_leaves_it_as_it_is(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "best.pt").write_text("mine")
    assert run_command(arguments("audit", AUDIT | {"output.folder": str(tmp_path)})) == 2
    said = capsys.readouterr().err
    assert "has models that no run of residuum wrote; choose another folder with --out" in said
    assert len(said.splitlines()) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["models", "best.pt"]


def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_audit(out):
    """Audit until all stages are finished, but for the run, and be killed."""
    execution.write_run = die
    run_command(arguments("audit", AUDIT | {"output.folder": str(out)}))


def killed(out):
    process = multiprocessing.get_context("fork").Process(target=killed_audit, args=(out,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_what_a_killed_audit_left_is_used_by_the_next_and_removed_by_forget(folder, monkeypatch, capsys, tmp_path):
    retrained = [f"retrained{k}.pt" for k in range(3)]
    for name in ("net.py", "w.pt", *retrained, "train.npz", "held.npz", "ids.txt"):
        shutil.copy(folder / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    killed(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []  # what is half-finished is in the store alone
    assert run_command(arguments("audit", AUDIT | {"output.folder": "run"})) == 0
    known = {"counts", "models", "results.json", "report.html", "statement.html", "table.tex", "table.csv", ".lock"}
    assert {path.name for path in (tmp_path / "run").iterdir()} <= known
    killed(tmp_path / "killed")
    assert run_command(["forget", "train-3", "train-333"]) == 2
    assert "was made with 1 id of those given: train-333" in capsys.readouterr().err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # neither a store nor runs are here
    assert run_command(["forget", "train-3"]) == 0
    said = capsys.readouterr().out
    assert f"holds such samples (--runs cleans it): {tmp_path / 'run'}" in said
    store = tmp_path / ".residuum" / "store"
    assert "removed: evaluate original (seed 1)" in said
    assert run_command(["forget", "train-3", "--runs"]) == 0
    assert f"cleaned the run: {tmp_path / 'run'}" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    files = [path for path in store.rglob("*") if path.is_file()]
    assert not [path for path in files if b"train-3\n" in path.read_bytes()]
    assert run_command(["forget", "train-3", "--runs"]) == 2


def test_weights_that_were_unlearned_are_named_when_their_samples_are_forgotten(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    assert run_command(arguments("unlearn", UNLEARN | {"unlearn.weights": str(tmp_path / "new.pt")})) == 0
    assert run_command(arguments("audit", AUDIT | {"output.folder": str(tmp_path / "run")})) == 0
    capsys.readouterr()
    assert run_command(["forget", "train-3", "--runs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert str(tmp_path / "run") in told["runs"]
    assert f"{tmp_path / 'new.pt'}, unlearned weights that may have been made with them" in told["unreachable"]
    assert {path.name for path in tmp_path.iterdir()} == {"new.pt", "new.pt.unlearned.json"}


def test_a_cleaned_run_is_not_looked_for_again(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    places = {"output.folder": str(tmp_path / "run"), "output.store": str(tmp_path / "store")}
    weights = {"unlearn.weights": str(tmp_path / "run" / "new.pt")}
    (tmp_path / "run").mkdir()
    assert run_command(arguments("unlearn", UNLEARN | places | weights)) == 0
    assert run_command(arguments("audit", AUDIT | places)) == 0
    decoys = tmp_path / "run" / "decoys.json"
    decoys.write_text("{}")
    note_written(decoys, DECOY_AUDIT)
    command = ["forget", "train-3", "--runs", "--store", str(tmp_path / "store")]
    assert run_command(command) == 0
    assert str(decoys) not in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"new.pt", "new.pt.unlearned.json", ".lock"}
    assert known_runs(tmp_path / "store") == []
    assert run_command(command) == 2  # there is nothing left
    assert "was made with 1 id of those given: train-3" in capsys.readouterr().err


def test_an_audit_fails_on_what_it_was_told_not_to_accept(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    audit = AUDIT | {"audit.unlearned": {"same": "w.pt"}, "output.folder": str(tmp_path / "run")}
    assert run_command([*arguments("audit", audit), "--fail-if", "same.test_accuracy<0"]) == 0
    again = [
        *arguments("audit", audit | {"output.folder": str(tmp_path / "again")}),
        "--fail-if",
        "same.test_accuracy>0",
    ]
    capsys.readouterr()
    assert run_command(again) == 1
    assert "gate failed: same.test_accuracy>0: same has test_accuracy" in capsys.readouterr().err
    assert (tmp_path / "again" / "results.json").exists()
    assert run_command([*again[:-1], "sam.residual"]) == 2
    assert "did you mean same?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "how",
    [
        {"retrain.function": "net.py:train"},
        {"retrain.recipe": {"optimizer": "adamw", "lr": 0.01, "epochs": 15, "batch_size": 32}},
        {"retrain.surrogates": True},
    ],
)
def test_references_are_made_where_none_is_given(folder, how, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    given = TRAINED | {
        "data.train": "train.csv",
        "data.held_out": "held.csv",
        "retrain.controls": 2,
        "output.folder": str(tmp_path / "run"),
        **how,
    }
    assert run_command([*arguments("audit", given), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["methods"])[:4] == ["original", "retrain", "control", "control_2"]


def test_gray_images_reach_a_network_of_one_channel(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(arguments("unlearn", UNLEARN | GRAY | {"unlearn.weights": "gray-new.pt"})) == 0
    assert "forget 1 of 20" in capsys.readouterr().out


def test_an_audit_that_was_killed_trains_only_what_is_missing(folder, tmp_path, monkeypatch):
    for name in ("net.py", "w.pt", "train.npz", "held.npz", "ids.txt"):
        shutil.copy(folder / name, tmp_path)
    command = arguments("audit", TRAINED | {"retrain.function": "net.py:killed", "retrain.controls": 3}, tmp_path)
    process = {"args": [sys.executable, "-m", "residuum", *command], "cwd": tmp_path, "capture_output": True}
    assert subprocess.run(**process, env=os.environ | {"KILL": "1"}, check=False).returncode != 0
    assert not (tmp_path / "run" / "results.json").exists()
    seeds = (tmp_path / "trained.log").read_text().split()
    assert len(seeds) == 3
    assert b"13 stages: 3 finished, 10 to run" in subprocess.run(**process, check=True).stderr
    again = (tmp_path / "trained.log").read_text().split()[3:]
    assert len(again) == 2
    assert again[0] == seeds[2]
    resumed = {file.name: file.read_bytes() for file in (tmp_path / "run" / "models" / "1").iterdir()}
    shutil.rmtree(tmp_path / ".residuum")
    (tmp_path / "trained.log").unlink()
    monkeypatch.chdir(tmp_path)
    assert run_command(command) == 0
    assert resumed == {file.name: file.read_bytes() for file in (tmp_path / "run" / "models" / "1").iterdir()}


def test_two_workers_audit_an_own_network_and_forget_finds_its_run(folder, tmp_path, monkeypatch, capsys):
    for name in ("net.py", "w.pt", "train.npz", "held.npz", "ids.txt"):
        shutil.copy(folder / name, tmp_path)
    given = TRAINED | {"retrain.function": "net.py:train", "retrain.controls": 2}
    records = {}
    for workers in ("1", "2"):
        asked = given | {"output.folder": f"run-{workers}", "output.store": f"store-{workers}"}
        command = [sys.executable, "-m", "residuum", *arguments("audit", asked, tmp_path), "--workers", workers]
        one_thread = os.environ | {"OMP_NUM_THREADS": workers}  # one for each worker
        done = subprocess.run(command, cwd=tmp_path, env=one_thread, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        log = (tmp_path / f"store-{workers}" / "log.txt").read_text().splitlines()
        assert len({line.split()[1] for line in log}) == int(workers)  # processes
        folder_of_run = tmp_path / f"run-{workers}"
        records[workers] = {
            file.relative_to(folder_of_run): file.read_bytes()
            for kind in ("counts", "models")
            for file in sorted((folder_of_run / kind).rglob("*"))
            if file.is_file()
        }
    assert records["1"] == records["2"]
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run_command(["forget", "train-3", "--runs", "--store", "store-2", "--json"]) == 0
    assert str(tmp_path / "run-2") in json.loads(capsys.readouterr().out)["runs"]
    assert not (tmp_path / "run-2").exists()


MADE = {"retrain.reference": None, "retrain.controls": 3}
BAD = [
    ("unlearn", {"model.source": "net.py"}, "expected FILE.py:NAME"),
    ("unlearn", {"model.source": "nowhere.py:HerNet"}, "cannot load"),
    ("unlearn", {"model.source": "broken.py:HerNet"}, "SyntaxError"),
    ("unlearn", {"model.source": "raising.py:HerNet"}, "SystemExit"),
    ("unlearn", {"model.source": "net.py:HisNet"}, "did you mean HerNet"),
    ("unlearn", {"model.source": "net.py:NUMBER"}, "a class or a function"),
    ("unlearn", {"model.source": "net.py:two"}, "needs 2 arguments"),
    ("unlearn", {"model.source": "net.py:text"}, "returned str"),
    ("unlearn", {"model.source": "net.py:failing"}, "no weights today"),
    ("unlearn", {"model.weights": "nowhere.pt"}, "does not exist"),
    ("unlearn", {"model.weights": "w.txt"}, "not a safetensors file"),
    ("unlearn", {"model.weights": "evil.pt"}, "could run code"),
    ("unlearn", {"model.weights": "raw.pt"}, "could run code"),
    ("unlearn", {"model.weights": "cut.pt"}, "damaged"),
    ("unlearn", {"model.weights": "cut.safetensors"}, "truncated or not a safetensors"),
    ("unlearn", {"model.weights": "other.safetensors"}, "another architecture"),
    ("unlearn", {"model.weights": "sparse.pt"}, "expected plain weights, got a sparse, quantized or empty tensor"),
    ("unlearn", {"model.weights": "meta.pt"}, "expected plain weights"),
    ("unlearn", {"model.weights": "keys.pt"}, "expected names of weights, got 3"),
    ("unlearn", {"data.train": "column.npz"}, "give y.squeeze(1)"),
    ("unlearn", {"data.train": "floats.npz"}, "give y.long()"),
    ("unlearn", {"data.train": "huge.npz"}, "labels must be below 1048576"),
    ("unlearn", {"data.train": "square.csv", "forget.ids": "p.txt"}, "the model needs (2, 16)"),
    ("unlearn", {"model.categorical": [1.5]}, "model.categorical: expected a list of whole numbers"),
    ("unlearn", {"data.class_names": ["a", "b", "b"]}, "class_names: 'b' occurs 2 times"),
    ("audit", {"audit.perturbations": "substitution"}, "expected token ids"),
    ("audit", {"audit.unlearned": "runs/lr=0.1/no.pt"}, "runs/lr=0.1/no.pt does not exist"),
    ("audit", MADE | {"retrain.function": "net.py:no_seed"}, "retrain(samples, seed) -> model"),
    ("unlearn", {"data.train": "nowhere"}, "expected a folder of class folders"),
    ("unlearn", {"data.train": "multi.npz"}, "single label"),
    ("unlearn", {"data.train": "real.csv"}, "single label"),
    ("unlearn", {"data.train": "nan.npz"}, "nan"),
    ("unlearn", {"data.train": "objects.npz"}, "Python objects"),
    ("unlearn", {"data.train": "wide.npz"}, "cannot take inputs of shape"),
    ("unlearn", {"data.train": "empty.csv"}, "0 lines"),
    ("unlearn", {"data.train": "words.csv"}, "expected a number, got 'red'"),
    ("unlearn", {"data.train": "ragged.csv"}, "line 2"),
    ("unlearn", {"data.train": "train.csv", "data.label": "risk"}, "unknown column 'risk'"),
    ("unlearn", {"data.train": "train.csv", "data.inputs": ["a", "z"]}, "'z'"),
    ("unlearn", {"data.train": "no_classes"}, "no sub-folders"),
    ("unlearn", {"data.train": "photos"}, "not an image"),
    ("unlearn", {"forget.ids": "nowhere.txt"}, "nowhere.txt: No such file"),
    ("unlearn", {"forget.ids": "none.txt"}, "nothing to forget"),
    ("unlearn", {"forget.ids": "stranger.txt"}, "not among the 90"),
    ("unlearn", {"forget.ids": "twice.txt"}, "occurs 2 times"),
    ("unlearn", {"forget.ids": "latin.txt"}, "not a UTF-8"),
    ("unlearn", {"forget.ids": "all.txt"}, "nothing would be retained"),
    ("unlearn", {"forget.ids": "held.txt", "data.held_out": "held.npz"}, "not among the 90"),
    ("unlearn", {"unlearn.method": "rukr"}, "did you mean rurk"),
    ("unlearn", {"unlearn.method": "gd:lr=-1"}, "lr"),
    ("unlearn", {"unlearn.method": "falw"}, "validation"),
    ("unlearn", {"unlearn.method": "soft_reset"}, "a retrain.function that takes model= to start from"),
    ("unlearn", {"unlearn.method": "soft_reset", "retrain.function": "net.py:train"}, "or a retrain.function"),
    ("unlearn", {"unlearn.method": "teacher"}, "which is not known: give retrain.recipe"),
    ("unlearn", {"forget.earlier": "ids.txt"}, "earlier: 'train-3' is among the ids of this request as well"),
    ("unlearn", {"forget.earlier": "stranger.txt"}, "earlier: 'nobody' is not among the 90"),
    ("unlearn", {"unlearn.weights": "new.zip"}, ".safetensors, .pt or .pth"),
    ("unlearn", {"unlearn.weights": "nowhere/new.pt"}, "folder that exists"),
    ("unlearn", {"model.bounds": [0, 1]}, "give model.bounds"),
    ("unlearn", {"model.bounds": "low"}, "model.bounds"),
    ("unlearn", {"model.bounds": [1, 0]}, "low < high"),
    ("unlearn", {"model.mean": 0.5}, "mean and std together"),
    ("unlearn", {"model.mean": 0.5, "model.std": 0}, "above 0"),
    ("unlearn", {"model.scale": [1, "x"]}, "model.scale"),
    ("unlearn", {"model.tokens": True}, "no nn.Embedding"),
    ("unlearn", {"model.logits": "scores"}, "model.logits"),
    ("unlearn", {"retrain.recipe": "lr"}, "retrain.recipe"),
    ("unlearn", {"retrain.recipe": {"rate": 1}}, "unknown setting of [retrain.recipe] 'rate'"),
    ("unlearn", {"retrain.recipe": {"optimizer": "adam"}}, "retrain.recipe.optimizer: expected 'sgd'"),
    ("unlearn", {"data.class_names": ["a", "b"]}, "class names"),
    ("audit", {"data.held_out": "wide.npz"}, "inputs of shape"),
    ("audit", {"retrain.reference": "nowhere.pt"}, "does not exist"),
    ("audit", {"retrain.reference": "evil.pt"}, "could run code"),
    ("audit", {"audit.unlearned": ["w.pt", "w.pt"]}, "two rows are called 'w'"),
    ("audit", {"audit.unlearned": {"original": "w.pt"}}, "other than original"),
    ("audit", {"audit.unlearned": {"control_9": "w.pt"}}, "other than original, retrain, control and control_"),
    ("audit", {"audit.unlearned": {"../x": "w.pt"}}, "can name a file"),
    ("audit", {"audit.perturbations": "gausian"}, "did you mean gaussian"),
    ("audit", {"audit.perturbations": "gaussian:at=conv9"}, "unknown layer 'conv9'"),
    ("audit", {"audit.perturbations": "gaussian:unit=std"}, "std with a layer"),
    ("audit", {"audit.taus": [0, -1]}, "audit.taus"),
    ("audit", {"audit.taus": "near"}, "audit.taus"),
    ("audit", {"audit.taus": []}, "expected different radii of 0 or more, got none"),
    ("audit", MADE, "a way to retrain"),
    ("audit", MADE | {"retrain.function": "net.py:NUMBER"}, "expected a function"),
    ("audit", {"output.folder": "w.pt"}, "w.pt"),
    ("audit", {"audit.draws": 2**40}, "draws"),
    ("audit", {"audit.galery": True}, "did you mean gallery"),
    ("unlearn", GRAY | {"data.channels": None}, "data.channels = 1"),
    ("unlearn", GRAY | {"data.channels": 2}, "1 (gray) or 3 (RGB)"),
    ("unlearn", GRAY | {"data.size": 50_000}, "size: expected at most 8192 pixels, got 50000"),
    ("unlearn", GRAY | {"model.mean": [0.3] * 3, "model.std": 1}, "model.mean and model.std: expected one number"),
    ("unlearn", GRAY | {"unlearn.weights": "gray/new.pt"}, "unlearn.weights: expected a place outside the data in"),
    ("audit", GRAY | {"output.folder": "gray/1/out"}, "output.folder: expected a place outside the data in"),
    ("unlearn", {"output.store": "w.pt"}, "output.store: expected a folder that can be written, got"),
    ("unlearn", {"output.folder": "/proc/x"}, "output.folder: expected a folder that can be written, got /proc/x"),
    ("unlearn", {"unlearn.weights": "w.pt"}, "would replace the weights to start from"),
    ("unlearn", {"model.weights": "gray"}, "gray is no file; give the path of"),
    ("unlearn", {"forget.ids": "row.txt"}, "...' is not among the 90 training samples; ids look"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "changes", "words"), BAD)
def test_bad_input_is_one_line_exit_code_2_and_nothing_half_written(
    folder, command, changes, words, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    given = (
        {"unlearn": UNLEARN, "audit": AUDIT}[command]
        | ({"unlearn.weights": "fresh.safetensors"} if command == "unlearn" else {"output.folder": "fresh"})
        | changes
    )
    asked = arguments(command, given)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "__pycache__" not in path.parts}
    assert run_command(asked) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1
    left = {path for path in folder.rglob("*") if "__pycache__" not in path.parts} - before.keys()
    assert not [path for path in left if path.is_file()]
    assert not (folder / "ran").exists()


def test_an_audit_that_takes_too_long_is_not_begun(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("residuum.studies.execution.MOST_DAYS", 1e-9)
    asked = arguments(
        "audit", AUDIT | {"output.folder": str(tmp_path / "run"), "output.store": str(tmp_path / "store")}
    )
    assert run_command(asked) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "expected work of at most 1e-09 days, got about 0 s on one core" in error
    assert "--yes" in error
    assert not (tmp_path / "run" / "results.json").exists()
    assert run_command([*asked, "--yes"]) == 0


def test_a_training_function_that_returns_nothing_ends_the_audit(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    given = TRAINED | {
        "retrain.function": "net.py:forgetful",
        "output.folder": str(tmp_path / "run"),
        "output.store": str(tmp_path / "store"),
    }
    assert run_command(arguments("audit", given)) == 2
    assert "must return its model" in capsys.readouterr().err.splitlines()[-1]
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(("function", "words"), [("broken", "KeyError: 'train_loader'"), ("exiting", "SystemExit: 3")])
def test_what_a_training_function_raises_is_said_with_its_line(folder, function, words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    given = {"retrain.function": f"net.py:{function}", "output.store": str(tmp_path / "store")}
    assert run_command(arguments("audit", TRAINED | given | {"output.folder": str(tmp_path / "run")})) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    line = NET.splitlines().index(f"def {function}(samples, seed):") + 2
    assert f"retrain: {function} raised {words} (net.py, line {line}); correct it, then do the same again" in error


def test_a_training_function_whose_weights_explode_is_named(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    given = UNLEARN | {"unlearn.method": "soft_reset", "retrain.function": "net.py:exploding"}
    assert run_command(arguments("unlearn", given)) == 2
    assert "error: retrain: the model returns NaN" in capsys.readouterr().err


def test_boolean_features_are_zeros_and_ones(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(folder)
    np.savez(tmp_path / "bool.npz", x=table(90, 1)[0] > 0, y=table(90, 1)[1], ids=[f"train-{k}" for k in range(90)])
    given = UNLEARN | {"data.train": str(tmp_path / "bool.npz"), "unlearn.weights": str(tmp_path / "new.pt")}
    assert run_command(arguments("unlearn", given)) == 0
