"""What SECURITY.md promises: nothing that is read is executed, and what cannot be read is one line."""

from __future__ import annotations

import ast
import os
import pickle
import re
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from residuum.auditing import Counts, audit
from residuum.checkpoint import Checkpoint
from residuum.cli import run_command
from residuum.data import load_dataset
from residuum.errors import traceback_kept
from residuum.files import read_arrays, write_arrays
from residuum.models import load_weights
from residuum.types import InputError, Samples

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
RAN = []


class Malicious:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return RAN.append, ("ran",)


def calls(name):
    """Return file and arguments of every call of this name in the package."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield path.name, {word.arg: ast.unparse(word.value) for word in node.keywords}


def test_arrays_are_never_unpickled():
    found = list(calls("np.load"))
    assert found
    assert all(words.get("allow_pickle") == "False" for _, words in found)


def test_weights_are_never_unpickled():
    found = list(calls("torch.load"))
    assert found
    assert all(words.get("weights_only") == "True" for _, words in found)


def test_one_unpickler_and_no_other_way_to_run_what_is_read():
    forbidden = ("pickle.load", "pickle.loads", "eval", "exec", "yaml.load", "os.system", "marshal.loads")
    assert [(name, *found) for name in forbidden for found in calls(name)] == []
    using = [path.name for path in SOURCES if re.search(r"(?m)^import pickle|^from pickle", path.read_text())]
    assert using == ["cifar.py"]


@pytest.mark.parametrize(
    "read", [lambda f: load_dataset(str(f)), Counts.load, load_weights], ids=["npz", "counts", "w"]
)
def test_a_pickle_runs_nowhere(read, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.array([Malicious()], dtype=object), y=np.zeros(1), ids=np.array(["a"]))
    for content in (path.read_bytes(), pickle.dumps(Malicious())):
        path.write_bytes(content)
        with pytest.raises(InputError):
            read(path)
    assert RAN == []


def test_a_checkpoint_runs_nothing(tmp_path):
    torch.save(Malicious(), tmp_path / "training.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        Checkpoint(tmp_path / "training.pt").restore()
    assert RAN == []


def test_a_header_that_promises_more_than_there_is_reserves_nothing(tmp_path):
    whole = {"x": np.zeros((4, 2), np.float32), "y": np.zeros(4, np.int64)}
    np.savez(tmp_path / "x.npz", **whole)
    content = (tmp_path / "x.npz").read_bytes()
    promised = b"(99999999, 99999999), }"
    kept = b"(4, 2), }".ljust(len(promised))
    assert kept in content
    (tmp_path / "x.npz").write_bytes(content.replace(kept, promised))
    with pytest.raises(InputError, match=r"x\.npz"):
        load_dataset(str(tmp_path / "x.npz"))


def test_a_named_pipe_among_images_is_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "a" / "1.png")
    (tmp_path / "b" / "1.png").write_bytes(b"")
    with pytest.raises(InputError):
        load_dataset(str(tmp_path), size=8)


def test_only_the_download_opens_a_connection():
    using = [
        path.name for path in SOURCES if re.search(r"urllib\.request|import socket|requests\.get", path.read_text())
    ]
    assert using == ["cifar.py"]


def test_a_log_is_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    traceback_kept(ValueError("private"))
    (log,) = tmp_path.iterdir()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_document_names_this_file():
    assert "tests/test_security.py" in (ROOT / "SECURITY.md").read_text()


def test_a_small_file_of_arrays_that_unfolds_to_much_is_refused_before_memory_is_reserved(tmp_path):
    write_arrays(tmp_path / "gallery.npz", {"images": np.zeros(2**27, np.uint8)})
    assert (tmp_path / "gallery.npz").stat().st_size < 2**20
    with pytest.raises(InputError, match=r"0.125 GiB out of .* times the size of the file"):
        read_arrays(tmp_path / "gallery.npz", ["images"], "a gallery")


def test_more_draws_than_counts_can_hold_are_refused(tmp_path, capsys):
    assert run_command(["run", "tiny", "--draws", "2147483648", "--out", str(tmp_path / "out")]) == 2
    assert "2147483648" in capsys.readouterr().err
    samples = Samples(torch.rand(2, 3), torch.zeros(2, dtype=torch.int64), ("a", "b"))
    model = torch.nn.Linear(3, 2)
    with pytest.raises(InputError, match="expected at most 2147483647 draws of each sample, got 2147483648"):
        audit({"m": model}, model, samples, "gaussian", taus=[0.1], draws=2**31, seed=1)
