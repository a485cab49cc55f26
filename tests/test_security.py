"""What SECURITY.md promises: nothing that is read is executed, and what cannot be read is one line."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.version import Version
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from residuum.auditing import Counts, audit
from residuum.cli import run_command
from residuum.core.console import traceback_kept
from residuum.core.errors import InputError
from residuum.core.files import file_sha256, read_arrays, write_arrays, write_sealed
from residuum.core.samples import Samples
from residuum.data import load_dataset
from residuum.models import build_model, load_weights, save_weights
from residuum.models.weights import read_state
from residuum.pack.hashing import canonical, listed, root_of, seal_of
from residuum.record import Results
from residuum.studies.artifacts import Manifest
from residuum.training.checkpoint import Checkpoint
from residuum.unlearning import METHODS

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
RAN = []


class Malicious:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return RAN.append, ("ran",)


@cache
def all_calls():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(path.name, ast.unparse(node.func), node.keywords) for path, node in nodes]


def calls(name):
    """Return file and arguments of every call of this name in the package."""
    return [
        (file, {word.arg: ast.unparse(word.value) for word in keywords})
        for file, called, keywords in all_calls()
        if called == name
    ]


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
    assert using == ["cifar.py", "probabilities.py"]
    hashed = next(path for path in SOURCES if path.name == "probabilities.py").read_text()
    assert set(re.findall(r"pickle\.(\w+)", hashed)) == {"dumps"}  # written to be hashed, never read


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
    content = io.BytesIO()
    torch.save(Malicious(), content)
    write_sealed(tmp_path / "training.pt", content.getvalue(), "")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        Checkpoint(tmp_path / "training.pt").restore()
    assert RAN == []


CODE = ("trap.py:Trap", "trap:Trap")  # a file, and a module that can be imported
TRAP = "from pathlib import Path\nPath({!r}).touch()\nclass Trap:\n    name = 'trap'\n"


FEW = ["--methods", "gd", "--seeds", "1", "--draws", "5", "--workers", "1", "--set", "relearn.epochs=1"]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A file that exists once the trap was imported, from the folder where commands run."""
    marker = tmp_path / "ran"
    (tmp_path / "trap.py").write_text(TRAP.format(str(marker)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield marker
    for name in [name for name in sys.modules if name == "trap" or name.startswith("residuum_plugin_trap")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small run with its store, pack and key, in one folder."""
    folder = tmp_path_factory.mktemp("made")
    assert run_command(["run", "tiny", *FEW, "--out", f"{folder}/run", "--store", f"{folder}/store"]) == 0
    assert run_command(["pack", f"{folder}/run", "--output", f"{folder}/evidence.zip", "--with-data"]) == 0
    return folder


def with_network(path, name):
    """Give the header of a weights file another network's name."""
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()["residuum"])
    record["architecture"]["name"] = name
    save_file(load_file(path), path, {"residuum": json.dumps(record, sort_keys=True)})


def forged(made, target, change=None, models=None):
    """Write the pack with a changed record and, if there are any, the hashes of changed models; mend all hashes."""
    with zipfile.ZipFile(made / "evidence.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if change is not None:
        record = json.loads(members["results.json"])
        change(record)
        members["results.json"] = canonical(record, sort_keys=False)
    manifest = json.loads(members["manifest.json"])
    for name, model in manifest["models"].items() if models else ():
        label, _, seed = name.rpartition("/")
        model["weights_sha256"] = file_sha256(models / seed / f"{label}.safetensors")
        with safe_open(models / seed / f"{label}.safetensors", framework="pt") as file:
            model["architecture"] = json.loads(file.metadata()["residuum"])["architecture"]
    manifest["files"] = listed({name: content for name, content in members.items() if name != "manifest.json"})
    manifest["root"] = root_of(manifest["files"])
    manifest["seal"] = seal_of(manifest)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in (members | {"manifest.json": canonical(manifest)}).items():
            archive.writestr(name, content)
    return target


@pytest.mark.parametrize("name", [*CODE, "this:s"])
def test_the_network_that_a_weights_file_names_is_looked_up_and_never_imported(name, ran, tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(build_model("mlp", (4,), 3, seed=1), path)
    with_network(path, name)
    sys.modules.pop("this", None)
    with pytest.raises(InputError, match=f"unknown model '{name}'.*Known: .*cnn"):
        load_weights(path)
    assert not ran.exists()
    assert "this" not in sys.modules


@pytest.mark.parametrize("name", CODE)
def test_verify_runs_no_code_that_the_weights_beside_a_pack_name(name, made, ran, tmp_path, capsys):
    shutil.copytree(made / "run" / "models", tmp_path / "models")
    for file in (tmp_path / "models" / "1").glob("*.safetensors"):
        with_network(file, name)
    gift = forged(made, tmp_path / "gift.zip", models=tmp_path / "models")
    given = ["--models", "models", "--with-data", "--key", f"{made}/evidence.key"]
    assert run_command(["verify", str(gift), *given]) == 2
    assert f"unknown model '{name}'" in capsys.readouterr().err
    assert not ran.exists()


@pytest.mark.parametrize("name", [*CODE, "secret.npz", "folder"])
def test_the_data_that_a_pack_names_are_looked_up_never_imported_or_read_from_a_path(name, made, ran, tmp_path, capsys):
    (tmp_path / "folder" / "class").mkdir(parents=True)
    np.savez(tmp_path / "secret.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2)

    def change(record):
        record["scenario"]["settings"]["data"]["name"] = name

    gift = forged(made, tmp_path / "gift.zip", change)
    assert run_command(["verify", str(gift), "--with-data", "--key", f"{made}/evidence.key"]) == 2
    assert f"unknown data set '{name}'" in capsys.readouterr().err
    assert not ran.exists()


def renamed(thing, old, new):
    thing[new] = thing.pop(old)


def results(record):
    return [row["per_seed"]["1"] for row in record["methods"].values()]


# every name in a record that stands for code, by how to put another there
IN_A_RECORD = {
    "data": lambda record, name: record["scenario"]["settings"]["data"].update(name=name),
    "model": lambda record, name: record["scenario"]["settings"]["model"].update(name=name),
    "measures": lambda record, name: record["scenario"]["settings"].update(measures=[name]),
    "rows": lambda record, name: record["scenario"]["settings"].update(rows=[name]),
    "perturbations": lambda record, name: record["scenario"]["settings"]["audit"].update(perturbations=[name]),
    "plug-ins": lambda record, name: record["scenario"].update(plugins={"measure": {name: {"source": name}}}),
    "method": lambda record, name: record["methods"]["gd"].update(method=name),
    "row": lambda record, name: renamed(record["methods"], "gd", name),
    "audit": lambda record, name: [renamed(found["audits"], "gaussian", name) for found in results(record)],
    "settings of an audit": lambda record, name: [
        found["audits"]["gaussian"]["settings"].update(name=name) for found in results(record)
    ],
    "measure of an audit": lambda record, name: [
        found["audits"]["gaussian"].update(measures={name: {"title": "t", "meaning": "m", "value": []}})
        for found in results(record)
    ],
    "probe": lambda record, name: [row.update(probes={name: {"value": 0.5}}) for row in record["methods"].values()],
    "probe of a seed": lambda record, name: [found.update(probes={name: {"value": 0}}) for found in results(record)],
}


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("where", IN_A_RECORD)
def test_no_command_imports_a_name_out_of_a_record(where, name, made, ran, tmp_path):
    run, key = tmp_path / "run", f"{made}/evidence.key"
    shutil.copytree(made / "run", run)
    record = json.loads((run / "results.json").read_text())
    IN_A_RECORD[where](record, name)
    assert name in json.dumps(record)
    (run / "results.json").write_text(json.dumps(record))
    gift = forged(made, tmp_path / "gift.zip", lambda into: IN_A_RECORD[where](into, name))
    codes = {
        run_command(["report", str(run)]),
        run_command(["pack", str(run), "--with-data", "--key", key, "--output", "new.zip"]),
        run_command(["verify", str(gift), "--with-data", "--key", key]),
    }
    assert codes <= {0, 1, 2}
    assert not ran.exists()


@pytest.mark.parametrize("seed", ["../../elsewhere", "/etc", ".hidden", ""])
def test_a_seed_in_a_record_is_no_path(seed, made, tmp_path):
    record = json.loads((made / "run" / "results.json").read_text())
    for row in record["methods"].values():
        renamed(row["per_seed"], "1", seed)
    (tmp_path / "results.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="expected a name that can name a file"):
        Results.load(tmp_path)


def resealed(folder, content):
    """Describe a stage's folder anew, as whoever may write to a store can do; its content may be another one's."""
    described = Manifest.describe(folder, content, title="t")
    described.write(folder)
    return folder.rename(folder.with_name(described.key))


def content_of(folder):
    manifest = Manifest.read(folder)
    return manifest.model_dump(include={"kind", "settings", "parents", "code"})


@pytest.mark.parametrize("name", CODE)
def test_a_run_imports_nothing_that_models_in_a_shared_store_name(name, made, ran, tmp_path, capsys):
    store = tmp_path / "store"
    shutil.copytree(made / "store", store)
    for folder in [*(store / "train").iterdir(), *(store / "unlearn").iterdir()]:
        content = content_of(folder)
        with_network(folder / "model.safetensors", name)
        (folder / "manifest.json").unlink()
        assert resealed(folder, content) == folder
    shutil.rmtree(store / "evaluate")
    assert run_command(["run", "tiny", *FEW, "--out", "run", "--store", str(store)]) == 2
    assert f"unknown model '{name}'" in capsys.readouterr().err
    assert not ran.exists()


@pytest.mark.parametrize("name", CODE)
def test_looking_after_a_store_imports_nothing_that_its_manifests_name(name, made, ran, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(made / "store", store)
    for folder in [path.parent for path in store.glob("*/*/manifest.json")]:
        content = content_of(folder)
        settings = content["settings"]
        changes = {"method": name, "model": {"name": name}, "name": name, "perturbation": name, "data": {"name": name}}
        settings |= {key: value for key, value in changes.items() if key in settings}
        settings |= {"plugins": [["residuum.models", name]], "was": folder.name}
        (folder / "manifest.json").unlink()
        resealed(folder, content)
    where = ["--store", str(store)]
    assert run_command(["store", "ls", *where]) == 0
    assert run_command(["store", "verify", *where]) == 0
    assert run_command(["forget", "digits/0001", "--dry-run", *where]) in (0, 2)
    assert run_command(["store", "gc", *where]) == 0
    assert not ran.exists()


SCENARIO = """
description = "a stranger's"
based_on = "tiny"
{}
[forget]
forget_class = 8
forget_fraction = 0.5
"""
NAMED = {
    "rows": "rows = [{!r}]",
    "labeled rows": "rows = ['gd', 'mine={}']",
    "measures": "measures = [{!r}]",
    "data.name": "[data]\nname = {!r}",
    "model.name": "[model]\nname = {!r}",
    "audit.perturbations": "[audit]\nperturbations = [{!r}]",
    "audit.taus": "[audit.taus]\n{!r} = [0.1]",
    "methods": "[methods.{!r}]\nlr = 0.1",
    "a profile's rows": "[profiles.paper]\nrows = [{!r}]",
}


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("where", NAMED)
def test_a_dry_run_imports_nothing_that_a_scenario_file_names(where, name, ran, tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SCENARIO.format(NAMED[where].format(name)))
    profile = ["--profile", "paper"] if where.startswith("a profile") else []
    assert run_command(["run", "s.toml", "--dry-run", *profile]) == 2
    assert "trap" in capsys.readouterr().err
    assert not ran.exists()


def test_a_dry_run_imports_what_the_command_line_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from residuum.unlearning.gd import GD\nclass Mine(GD):\n    name = 'mine'\n")
    (tmp_path / "s.toml").write_text(SCENARIO.format("rows = ['trap.py:Trap']"))
    assert run_command(["run", "s.toml", "--dry-run"]) == 2
    assert "leave --dry-run out or add --methods trap.py:Trap" in capsys.readouterr().err
    try:
        assert run_command(["run", "s.toml", "--methods", "mine.py:Mine", "--dry-run"]) == 0
    finally:
        for name in list(METHODS.sources):
            del METHODS[name], METHODS.sources[name]


def test_listing_imports_nothing_from_the_folder_it_runs_in(ran, tmp_path):
    (tmp_path / "s.toml").write_text(SCENARIO.format("rows = ['trap.py:Trap']"))
    assert run_command(["list"]) == 0
    assert run_command(["list", "scenarios", "--json"]) == 0
    assert not ran.exists()


@pytest.mark.parametrize("version", ["2.4.1", "2.5.1+cu124"])
def test_a_torch_that_runs_code_from_weights_is_refused(version, tmp_path, monkeypatch):
    torch.save({"a": torch.zeros(1)}, tmp_path / "w.pt")
    assert list(read_state(tmp_path / "w.pt")) == ["a"]
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)(version))
    for read in (read_state, lambda path: Checkpoint(path).restore()):
        with pytest.raises(InputError, match=r"CVE-2025-32434.*update to torch 2\.6"):
            read(tmp_path / "w.pt")


def test_the_oldest_torch_promised_runs_nothing_from_weights():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [text for text in project["dependencies"] if text.startswith("torch>=")]
    assert Version(bound.removeprefix("torch>=")) >= Version("2.6")


def test_matplotlib_obeys_nothing_in_the_shared_temporary_folder(tmp_path):
    (tmp_path / "matplotlibrc").write_text("figure.facecolor: red\n")
    text = (
        "import os, stat; from residuum.reporting import figures\n"
        "with figures.mpl_style(): import matplotlib\n"
        "folder = os.environ['MPLCONFIGDIR']\n"
        "print(matplotlib.rcParams['figure.facecolor'], oct(stat.S_IMODE(os.stat(folder).st_mode)), folder)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    where = tmp_path / "work"
    where.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment | {"TMPDIR": str(tmp_path)},
        cwd=where,
        capture_output=True,
        text=True,
        check=True,
    )
    color, mode, folder = done.stdout.split()
    assert (color, mode) == ("white", "0o700")
    assert Path(folder) != tmp_path
    assert not Path(folder).exists()


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


def test_the_document_lists_every_place_that_imports_by_name():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for path in SOURCES:
        if re.search(r"\b(import_module|resolve_name|spec_from_file_location)\(", path.read_text(encoding="utf-8")):
            where = path.relative_to(ROOT / "src" / "residuum").as_posix()
            special = {"__init__.py": "residuum/__init__.py", "core/registry.py": "registry.load_plugin"}
            named = special.get(where, where)
            assert named in text or f"`{where.split('/')[0]}`" in text, where


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
