"""Whatever a command is given, it ends with one line and a known code, in time, and leaves nothing half-written.

Inputs are generated: case k of a kind is always the same. A few of each run with every change, all of them in
`make test-long`. What would train or audit is stopped where it begins: these are tests of what is read.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import string
import struct
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file

from residuum.cli import make_app, run_command
from residuum.core.errors import InputError
from residuum.core.files import LOCK
from residuum.request.file import sections

FEW, MANY = 12, 150
SECONDS = 60
CODES = {0, 1, 2, 130}
PROGRESS = "residuum: planning: "  # printed on a slow machine, before the error
SCENARIO = tomllib.loads((Path(__file__).parents[2] / "src/residuum/studies/scenarios/tiny.toml").read_text())
NET = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, classes))
"""
WORDS = [
    "",
    " ",
    ",",
    "=",
    ":",
    "-",
    "--",
    "-1",
    "0",
    "1",
    "1e9",
    "1e-320",
    "nan",
    "inf",
    "none",
    "true",
    "0x10",
    "١",
    "½",
]
WORDS += ["a,b", "1,2,3", "1;2", "[1]", "{}", '"', "'", "\\", "\t", "é", "\ud800", "😀", "%s", "{0}", "$HOME", "~", "/"]
WORDS += [
    "..",
    "../..",
    "/dev/null",
    "/proc/self/mem",
    "/sys",
    "CON",
    "gd",
    "gd:lr=1",
    "gaussian",
    "x" * 5000,
    "1" * 400,
]
WORDS += ["tiny", "digits", "data.npz", "ids.txt", "w.pt", "net.py:net", "net.py:", ":net", "os:system", "json:loads"]
WORDS += [
    "file:///etc/passwd",
    "http://localhost:1",
    "tcp://127.0.0.1:1",
    "class=1",
    "fraction=2",
    "ids=ids.txt",
    "id=a",
]
ARRAYS = ["x", "y", "ids", "class_names", "x_test", "y_test", "ids_test", "", "x.npy", "../x", "z"]
KINDS = [
    "f2",
    "f4",
    "f8",
    ">f4",
    "g",
    "i1",
    "i8",
    ">i8",
    "u1",
    "u8",
    "c8",
    "?",
    "U3",
    "S3",
    "M8[s]",
    "m8[s]",
    "V4",
    "f4,i4",
]
WORK = ["residuum.studies.execution.outline", "residuum.tuning.run_stages", "residuum.request.study.run"]
WORK += [
    "residuum.request.request.unlearn",
    "residuum.studies.retraining.trained_by_function",
    "residuum.studies.retraining.trained_by",
]


def options_of(command):
    return [option for option in command.params if option.name not in ("help", "install_completion")]


COMMANDS = typer.main.get_command(make_app()).commands
LEAVES = {name: c for name, c in COMMANDS.items() if not hasattr(c, "commands")}
LEAVES |= {f"{group} {name}": c for group in ("store", "export") for name, c in COMMANDS[group].commands.items()}
LEAVES = {name: c for name, c in LEAVES.items() if name != "check"}


def word(rng):
    if rng.random() < 0.8:
        return rng.choice(WORDS)
    return "".join(rng.choices(string.printable, k=rng.randrange(12)))


def command_line(rng, home):
    """Any command with some of its options, each with any word."""
    name = rng.choice(sorted(LEAVES))
    line = name.split()
    for option in rng.sample(options_of(LEAVES[name]), k=min(rng.randrange(1, 6), len(options_of(LEAVES[name])))):
        if option.param_type_name == "argument":
            line.append(word(rng))
        else:
            line += [rng.choice(option.opts)] + ([] if getattr(option, "is_flag", False) else [word(rng)])
    return line


def setting(rng, home):
    """A scenario with any of its settings, or a method's or perturbation's, set to any word."""
    keys = ["seeds", "rows", "controls", "threads", "measures", "references", "data.name", "data.size", "data.classes"]
    keys += ["data.train_ranks", "data.train_size", "data.split_seed", "forget.forget_class", "forget.forget_ids"]
    keys += ["forget.forget_fraction", "model.name", "model.width", "train.lr", "train.clip", "audit.taus.gaussian"]
    keys += ["audit.draws", "audit.half_width", "audit.until", "audit.confidence", "picture.copies", "name", "profile"]
    keys += [
        "scrub.decay_epochs",
        "rurk.bounds",
        "soft_reset.keep",
        "left_open",
        "earlier",
        "methods",
        "relearn.margin",
    ]
    if rng.random() < 0.5:
        pairs = [f"{rng.choice(keys)}={word(rng)}" for _ in range(rng.randrange(1, 3))]
        return ["run", "tiny", *(part for pair in pairs for part in ("--set", pair))]
    names = ["gd", "rurk", "scrub", "ssd", "ntk", "cr", "soft_reset", "teacher", "msg", "falw"]
    keys = ["lr", "epochs", "keep", "tau", "v", "cap", "bounds", "decay_epochs", "clip", "schedule"]
    pairs = [f"{rng.choice(keys)}={word(rng)}" for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.5:
        return ["run", "tiny", "--methods", ":".join([rng.choice(names), *pairs])]
    names = ["gaussian", "uniform_l2", "uniform_linf", "fgsm", "pgd", "substitution"]
    keys = ["at", "unit", "scale", "bounds", "still", "steps", "alpha", "target", "vocabulary", "keep", "mask"]
    pairs = [f"{rng.choice(keys)}={word(rng)}" for _ in range(rng.randrange(1, 3))]
    name = rng.choice(names)
    spec = ":".join([name, *pairs])
    return ["run", "tiny", "--perturbations", spec, "--set", f"audit.taus.{name}=0,0.1"]


def array(rng):
    kind, sizes = rng.choice(KINDS), [rng.choice([0, 1, 2, 4, 12, 12, 12]) for _ in range(rng.randrange(4))]
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(0, 100, max(int(np.prod(sizes)), 1) * 40)
    whole = np.frombuffer(numbers.astype("u1").tobytes() * 8, np.dtype(kind), count=int(np.prod(sizes))).reshape(sizes)
    return np.nan_to_num(whole) if whole.dtype.kind == "f" and rng.random() < 0.5 else whole


def npz(rng, home):
    """An .npz file in which some arrays are of another type, shape or name."""
    arrays = {"x": np.linspace(0, 1, 48, dtype="f4").reshape(12, 4), "y": np.arange(12) % 3}
    if rng.random() < 0.7:
        arrays["ids"] = np.array([f"s{k}" for k in range(12)])
    for _ in range(rng.randrange(1, 3)):
        arrays[rng.choice(ARRAYS)] = array(rng)
    with zipfile.ZipFile(home / "odd.npz", "w") as archive:
        for name, values in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, values, allow_pickle=False)
            whole = content.getvalue()
            archive.writestr(f"{name}.npy", whole if rng.random() < 0.9 else whole[: rng.randrange(len(whole))])
    if rng.random() < 0.4:
        return ["run", "tiny", "--set", "data.name=odd.npz", "--set", "data.classes=none"]
    return own(rng, train="odd.npz")


def csv(rng, home):
    """A table with odd cells, columns and ends of lines."""
    columns = ["id", "a", "b", "c", "d", "label"]
    rows = [columns, *([f"s{k}", *(str(k * j % 7) for j in range(4)), str(k % 3)] for k in range(12))]
    for _ in range(rng.randrange(1, 4)):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = word(rng)
    if rng.random() < 0.3:
        rng.choice(rows).pop()
    text = rng.choice(["\n", "\r\n", "\r"]).join(rng.choice([",", ",", ",", ";"]).join(row) for row in rows)
    (home / "odd.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    return own(rng, train="odd.csv")


def as_toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return str(value) if isinstance(value, float) else json.dumps(value)


def scenario(rng, home):
    """A scenario's file with odd values, keys and tables."""
    tree = json.loads(json.dumps(SCENARIO))
    for _ in range(rng.randrange(1, 4)):
        node = tree
        while isinstance(inner := node[rng.choice(sorted(node))] if node else None, dict) and rng.random() < 0.8:
            node = inner
        key = rng.choice([*sorted(node), word(rng)])
        odd = [-1, 0, 2**70, 1e300, float("nan"), True, [], {}, [[]], {"a": {}}, "none", ["x"], word(rng), [1, "a"]]
        node[key] = rng.choice(odd)
    text = "\n".join(f"{json.dumps(key)} = {as_toml(value)}" for key, value in tree.items())
    (home / "odd.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    return ["run", "odd.toml"]


def weights(rng, home):
    """A weights file with odd tensors and names, or an odd safetensors header."""
    state = {"0.weight": torch.zeros(5, 4), "0.bias": torch.zeros(5), "2.weight": torch.zeros(3, 5)}
    state["2.bias"] = torch.zeros(3)
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64, torch.int64]
    for _ in range(rng.randrange(1, 3)):
        shape = [rng.choice([0, 1, 3, 5]) for _ in range(rng.randrange(3))]
        odd = [torch.full(shape, float("nan")), torch.zeros(shape, dtype=rng.choice(kinds)), torch.tensor(1.0)]
        state[rng.choice([*state, "extra", "", "module.x", "_orig_mod."])] = rng.choice(odd)
    form = rng.randrange(4)
    if form == 0:
        save_file(state, home / "odd.safetensors")
        return own(rng, weights="odd.safetensors")
    if form == 1:
        entry = {"dtype": rng.choice(["F32", "F8_E4M3", "X", 3]), "shape": rng.choice([[2], [-1], [2**40], "2", []])}
        head = json.dumps({word(rng): entry | {"data_offsets": rng.choice([[0, 8], [8, 0], [0], None])}}).encode()
        (home / "odd.safetensors").write_bytes(struct.pack("<Q", rng.choice([len(head), 2**60, 0])) + head + bytes(8))
        return own(rng, weights="odd.safetensors")
    inside = [
        state,
        {"state_dict": state},
        {"model": {"state_dict": state}},
        list(state.values()),
        {**state, "n": 3},
        {},
        None,
    ]
    torch.save(rng.choice(inside), home / "odd.pt", _use_new_zipfile_serialization=rng.random() < 0.8)
    if rng.random() < 0.3:
        whole = bytearray((home / "odd.pt").read_bytes())
        whole[rng.randrange(len(whole))] ^= 255
        (home / "odd.pt").write_bytes(whole)
    return own(rng, weights="odd.pt")


def ids(rng, home):
    """A list of ids, or a file of requests, with odd lines."""
    lines = [
        rng.choice(["s1", "s2", "s11", word(rng), "#", "s1 ", "\ufeffs1", "S1", "s1\0", "s" * 9999]) for _ in range(4)
    ]
    (home / "odd.txt").write_bytes(rng.choice(["\n", "\r\n", "\u2028"]).join(lines).encode("utf-8", "surrogatepass"))
    if rng.random() < 0.5:
        return own(rng, ids="odd.txt")
    keys = ["class", "fraction", "id", "ids", "Class", ""]
    asked = [",".join(f"{rng.choice(keys)}={word(rng)}" for _ in range(rng.randrange(1, 3))) for _ in range(2)]
    (home / "asked.txt").write_bytes("\n".join(asked).encode("utf-8", "surrogatepass"))
    return rng.choice([["run", "tiny", "--requests", "asked.txt"], ["run", "tiny", "--request", asked[0]]])


def pack(rng, home):
    """A zip file that looks a little like an evidence pack."""
    names = [
        "pack.json",
        "manifest.json",
        "results.json",
        "report.html",
        "counts/a.npz",
        "../x",
        "/x",
        "a" * 300,
        "folder/",
    ]
    with zipfile.ZipFile(home / "odd.zip", "w") as archive:
        for name in rng.sample(names, k=rng.randrange(len(names))):
            content = rng.choice(
                [b"", b"{}", b"[]", b"null", b"\xff", b"{" * 9000, b'{"schema": 3}', b"PK\3\4", b"1e999"]
            )
            archive.writestr(name, content, rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))
    if rng.random() < 0.3:
        whole = bytearray((home / "odd.zip").read_bytes())
        whole[rng.randrange(len(whole))] ^= 255
        (home / "odd.zip").write_bytes(whole)
    return ["verify", "odd.zip"]


def own(rng, **files):
    """A request file of an own model, with a setting of any word."""
    places = {"train": "data.npz", "weights": "w.pt", "ids": "ids.txt"} | files
    given = {"data.train": places["train"], "model.weights": places["weights"], "forget.ids": places["ids"]}
    given |= {"model.source": "net.py:net", "unlearn.weights": "new.pt", "unlearn.method": "gd"}
    line = ["unlearn", "own.toml"]
    Path("own.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
    if rng.random() < 0.5:
        known = [f"{section}.{key}" for section, kind in sections().items() for key in kind.model_fields]
        line += ["--set", f"{rng.choice(known)}={word(rng)}"]
    return line


MAKERS = {maker.__name__: maker for maker in (command_line, setting, npz, csv, scenario, weights, ids, pack)}


class TookTooLongError(Exception):
    pass


def stopped(*given, **more):
    raise InputError("the work would begin here")


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    torch.manual_seed(0)
    state = {"0.weight": torch.rand(5, 4), "0.bias": torch.rand(5), "2.weight": torch.rand(3, 5)}
    torch.save(state | {"2.bias": torch.rand(3)}, folder / "w.pt")
    x = np.random.default_rng(1).random((12, 4), dtype=np.float32)
    np.savez(folder / "data.npz", x=x, y=np.arange(12) % 3, ids=[f"s{k}" for k in range(12)])
    (folder / "ids.txt").write_text("s1\ns2\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)
    monkeypatch.chdir(folder)
    for work in WORK:
        monkeypatch.setattr(work, stopped)
    monkeypatch.setattr("residuum.data.ids.SILENCE", 0.1)
    monkeypatch.setattr("residuum.studies.engines.REACH", 1)
    return folder


def files_in(folder):
    return {path for path in folder.rglob("*") if path.name != LOCK and "__pycache__" not in path.parts}


def try_one(maker, number, home, capsys):
    """Run one generated command line, and return what is wrong with how it ended."""
    line = maker(random.Random(f"{maker.__name__}/{number}"), home)
    before = files_in(home)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TookTooLongError()))
    signal.alarm(SECONDS)
    try:
        code = run_command([text.replace("\0", "") for text in line])
    except TookTooLongError:
        code = None
    finally:
        signal.alarm(0)
    said = capsys.readouterr()
    lines = [line for line in said.err.split("\n")[:-1] if not line.startswith(PROGRESS)]
    new = files_in(home) - before
    faults = []
    if code not in CODES or "TookTooLong" in said.err:
        faults.append(f"exit code {code}")
    if "raceback" in said.err + said.out:
        faults.append("a traceback")
    if code == 2 and (new or len(lines) != 1 or not lines[0].startswith("residuum: error: ")):
        faults.append(f"left {sorted(map(str, new))}, {len(lines)} lines")
    for path in new:
        if path.is_file():
            path.unlink()
    return f"{number}: {line}: {', '.join(faults)}: {said.err[-600:]}" if faults else None


@pytest.mark.parametrize("kind", MAKERS)
def test_odd_input_ends_in_one_line(kind, home, capsys):
    faults = [try_one(MAKERS[kind], number, home, capsys) for number in range(FEW)]
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
def test_much_odd_input_ends_in_one_line(kind, home, capsys):
    first = int(os.environ.get("RESIDUUM_FUZZ_FROM", FEW))
    faults = [try_one(MAKERS[kind], number, home, capsys) for number in range(first, first + MANY)]
    assert not any(faults), "\n".join(filter(None, faults))
