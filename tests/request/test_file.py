"""A request file: read, written, changed, and what is wrong with it in one line."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from residuum import InputError, Request
from residuum.cli import run_command
from residuum.request import AuditOptions, Reading
from residuum.request.file import RequestFile, about, file_text, is_request_file, needed_settings, sections

NET = """
import torch
from torch import nn


def net():
    return nn.Linear(4, 3)


def train(samples, seed, model=None):
    torch.manual_seed(seed)
    network = model or net()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.05)
    for _ in range(90):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(samples.x), samples.y).backward()
        optimizer.step()
    return network


def rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(60, 4, generator=generator)
    return x, x[:, :3].argmax(1)
"""
GOOD = """
[model]
source = "net.py:net"
weights = "w.pt"
[data]
train = "net.py:rows"
held_out = "held.npz"
[forget]
ids = "ids.txt"
[retrain]
function = "net.py:train"
controls = 1
[audit]
draws = 10
taus = [0, 0.1]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "net.py").write_text(NET)
    made = {}
    exec(compile(NET, "net.py", "exec"), made)
    x, y = made["rows"]()
    held = np.random.default_rng(2).random((40, 4), np.float32)
    np.savez(folder / "held.npz", x=held, y=held[:, :3].argmax(1))
    samples = type("Part", (), {"x": x, "y": y})
    torch.save(made["train"](samples, 0).state_dict(), folder / "w.pt")
    (folder / "ids.txt").write_text("3\n7\n")
    (folder / "before.txt").write_text("9\n")
    (folder / "deletion.toml").write_text(GOOD)
    return folder


def test_paths_are_relative_to_the_file_and_in_changes_to_this_folder(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    file = RequestFile.read(home / "deletion.toml", {"forget.ids": "mine.txt", "audit.draws": "30"})
    assert file.model.weights == home / "w.pt"
    assert file.model.source == f"{home / 'net.py'}:net"
    assert file.output.folder == home / "runs" / "deletion"
    assert file.output.store == home / ".residuum" / "store"
    assert file.forget.ids == tmp_path / "mine.txt"
    assert file.audit.options == AuditOptions(draws=30, taus=[0, 0.1], gallery=False)
    assert file.data.reading == Reading()


def test_python_unlearns_and_audits_as_the_file_says(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    request = Request.load(home / "deletion.toml", {"output.folder": "run", "forget.earlier": str(home / "before.txt")})
    assert str(request) == "Request(forget 2 of 60 training samples, 1 forgotten earlier, 40 held out, 3 classes)"
    assert request.check().training_accuracy > 80
    done = request.unlearn()
    assert (done.method, done.seed) == ("soft_reset", 1)
    run = request.audit(request.model, done)
    assert run.folder == tmp_path / "run"
    assert list(run.rows) == ["original", "retrain", "control", "soft_reset"]
    assert run.record.scenario.settings.audit.model_extra["draws"] == 10
    assert Request.load(home / "deletion.toml", {"unlearn.method": "gd:epochs=1"}).unlearn().method == "gd"


def test_a_request_without_a_file_says_that_it_has_no_model():
    x, y = torch.rand(9, 2), torch.arange(9) % 3
    with pytest.raises(InputError, match="expected a model: this request was not loaded from a file"):
        Request((x, y), forget=["1"]).unlearn()


def test_how_weights_were_unlearned_is_noted_beside_them(home, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    changes = ["--set", "output.folder=run", "--set", "output.store=store"]
    assert run_command(["unlearn", str(home / "deletion.toml"), *changes]) == 0
    assert (tmp_path / "run" / "unlearned.safetensors").is_file()
    assert run_command(["audit", str(home / "deletion.toml"), *changes]) == 0
    assert '"label": "soft_reset"' in (tmp_path / "run" / "unlearned.safetensors.unlearned.json").read_text()
    file = RequestFile.read(home / "deletion.toml", {"output.folder": "run"})
    (label,) = file.unlearned(file.networks(3))
    assert label == "soft_reset"
    plain = torch.nn.Linear(4, 3).state_dict()
    from safetensors.torch import save_file

    save_file(plain, tmp_path / "run" / "unlearned.safetensors")  # other weights: the note is not about them
    (label,) = file.unlearned(file.networks(3))
    assert label == "unlearned"


def test_what_init_writes_is_read_and_all_its_comments_are_settings(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--source", "net.py:net", "--train", "images", "--ids", "sub/ids.txt", "--set", "retrain.recipe.lr=0.1"]
    assert run_command(["init", *given, "--set", "model.mean=0.3,0.4", "--set", "model.std=1"]) == 0
    assert capsys.readouterr().out == "deletion.toml: now `residuum check deletion.toml`\n"
    file = RequestFile.read("deletion.toml")
    assert (file.model.mean, file.model.std, file.retrain.recipe.lr) == ((0.3, 0.4), 1.0, 0.1)
    assert file.forget.ids == tmp_path / "sub" / "ids.txt"
    assert 'source = "net.py:net"' in Path("deletion.toml").read_text()
    everything = re.sub(r"^# (\w+ = )", r"\1", file_text({}), flags=re.M).replace(' = ""', ' = "x"')
    tree = tomllib.loads(everything)
    assert {name: list(kind.model_fields) for name, kind in sections().items()} == {
        name: list(settings) for name, settings in tree.items()
    }
    (tmp_path / "all.toml").write_text(everything)
    RequestFile.read("all.toml")
    assert all(len(line) <= 120 for line in file_text({}).splitlines())


def test_init_does_not_write_over_a_file_and_says_what_is_open(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "a.toml", "--source", "net.py:net"]) == 0
    assert "fill in data.train, forget.ids, then `residuum check a.toml`" in capsys.readouterr().out
    for arguments, words in {
        ("a.toml",): "a.toml exists; move it away",
        ("b.txt",): "ends in .toml",
        ("no/b.toml",): "in a folder that exists",
        ("b.toml", "--set", "model.sorce=x"): "did you mean model.source",
        ("b.toml", "--set", "audit.draws=0"): "audit.draws: Input should be greater than or equal to 1",
        ("b.toml", "--source", "a", "--set", "model.source=b"): "expected --source or --set model.source=, got both",
        ("b.toml", "--set", "audit.draws=1", "--set", "audit.draws=2"): "expected --set audit.draws once",
    }.items():
        assert run_command(["init", *arguments]) == 2
        assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


def test_init_asks_on_a_terminal(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = {"model.weights": "w.pt", "data.train": "images", "forget.ids": "ids.txt"}
    monkeypatch.setattr("typer.prompt", lambda text, **_: answers.get(text.partition(":")[0], ""))
    assert run_command(["init", "--source", "net.py:net"]) == 0
    file = RequestFile.read("deletion.toml")
    assert (file.model.weights, file.data.held_out, file.retrain.function) == (tmp_path / "w.pt", None, None)


def test_a_request_is_told_from_a_scenario(home, tmp_path):
    assert is_request_file(home / "deletion.toml")
    scenario = tmp_path / "mine.toml"
    scenario.write_text('based_on = "tiny"\n[data]\nname = "digits"\n')
    assert not is_request_file(scenario)
    assert not is_request_file(tmp_path / "no.toml")
    assert not is_request_file("digits")
    assert needed_settings() == ["model.source", "data.train", "forget.ids"]
    assert about("forget.ids").startswith("text file")


MISTAKES = {  # what is written in place of the file, and what is said of it
    "": "[model] is missing; expected it with model.source",
    "[model": "expected a request in TOML",
    "\0": "expected a request in TOML",
    "model = 3": "model: expected a table [model], got 3",
    "[[model]]\nsource = 'a.py:b'": "model: expected a table [model]",
    "[modle]\n": "unknown section 'modle'; did you mean model?",
    GOOD + "[ouput]\n": "unknown section 'ouput'; did you mean output?",
    GOOD + "[request]\nname = 'x'\n": "unknown setting of [request] 'name'",
    GOOD + "[request]\nreceived = 'soon'\n": "request.received: Input should be a valid date",
    GOOD + "[tickets.first]\n": "unknown section 'tickets'",
    GOOD.replace("source", "sorce"): "unknown setting of [model] 'sorce'; did you mean source",
    GOOD.replace('source = "net.py:net"', ""): "model.source is missing: FILE.py:NAME",
    GOOD.replace('"net.py:net"', "3"): "model.source: Input should be a valid string, got 3",
    GOOD.replace('"w.pt"', "[1]"): "model.weights: Input is not a valid path, got [1]",
    GOOD.replace('weights = "w.pt"', 'weigths = "w.pt"'): "unknown setting of [model] 'weigths'; did you mean weights?",
    GOOD.replace('weights = "w.pt"', "mean = true"): "model.mean",
    GOOD.replace('weights = "w.pt"', 'mean = "0.5"\nstd = [1, "x"]'): "model.std",
    GOOD.replace('weights = "w.pt"', "mean = nan"): "model.mean: Input should be a finite number",
    GOOD.replace('weights = "w.pt"', "bounds = [0, 1, 2]"): "model.bounds",
    GOOD.replace('weights = "w.pt"', "bounds = 'low'"): "model.bounds",
    GOOD.replace('weights = "w.pt"', "tokens = 'maybe'"): "model.tokens: Input should be a valid boolean",
    GOOD.replace('weights = "w.pt"', "batch = [1]"): "model.batch: Input should be a valid string",
    GOOD.replace("train = ", "# "): "data.train is missing: all training data",
    GOOD.replace('"held.npz"', "7"): "data.held_out: Input should be a valid string, got 7",
    GOOD.replace("[forget]", "size = 'big'\n[forget]"): "data.size: Input should be a valid integer",
    GOOD.replace("[forget]", "size = 1.5\n[forget]"): "data.size: Input should be a valid integer",
    GOOD.replace("[forget]", "inputs = 3\n[forget]"): "data.inputs",
    GOOD.replace("[forget]\n", ""): "unknown setting of [data] 'ids'",
    GOOD.replace("[forget]\nids", "[forget]\nlist"): "unknown setting of [forget] 'list'",
    GOOD.replace("[forget]\nids", "[forget]\n#"): "forget.ids is missing: text file",
    GOOD.replace('"ids.txt"', "['1', '2']"): "forget.ids: Input is not a valid path",
    GOOD.replace("[retrain]", "earlier = 3\n[retrain]"): "forget.earlier",
    GOOD.replace("controls = 1", "controls = -1"): "retrain.controls",
    GOOD.replace("controls = 1", "controls = 2.5"): "retrain.controls",
    GOOD.replace("controls = 1", "controls = true"): "retrain.controls",
    GOOD.replace("controls = 1", "recipe = 'adamw'"): "retrain.recipe",
    GOOD.replace("controls = 1", "recipe.rate = 1"): "unknown setting of [retrain.recipe] 'rate'",
    GOOD.replace("controls = 1", "recipe.lr = 'fast'"): "retrain.recipe.lr: Input should be a valid number",
    GOOD.replace("controls = 1", "recipe.epochs = -2"): "retrain.recipe.epochs",
    GOOD.replace("controls = 1", "surrogates = 3"): "retrain.surrogates",
    GOOD + "[unlearn]\nmethod = 3\n": "unlearn.method: Input should be a valid string",
    GOOD + "[unlearn]\nseed = -1\n": "unlearn.seed: Input should be greater than or equal to 0",
    GOOD + "[unlearn]\nweights = 'new.zip'\n": "unlearn: expected weights that end in .safetensors or .pt",
    GOOD.replace("draws = 10", "draws = 0"): "audit.draws: Input should be greater than or equal to 1",
    GOOD.replace("draws = 10", "draws = 'ten'"): "audit.draws: Input should be a valid integer",
    GOOD.replace("draws = 10", "draw = 10"): "unknown setting of [audit] 'draw'; did you mean draws?",
    GOOD.replace("draws = 10", "draws = true"): "audit.draws",
    GOOD.replace("taus = [0, 0.1]", "taus = [0, -1]"): "audit.taus",
    GOOD.replace("taus = [0, 0.1]", "taus = 'near'"): "audit.taus",
    GOOD.replace("taus = [0, 0.1]", "until = 'noon'"): "audit.until: Input should be 'verdict', got 'noon'",
    GOOD.replace("taus = [0, 0.1]", "gallery = 'yes please'"): "audit.gallery",
    GOOD.replace("taus = [0, 0.1]", "perturbations = [1]"): "audit.perturbations",
    GOOD + "[output]\nfolder = 3\n": "output.folder: Input is not a valid path",
    GOOD + "draws = 11\n": "expected a request in TOML, got Cannot overwrite a value",
}


@pytest.mark.parametrize(("text", "words"), MISTAKES.items())
def test_a_mistake_in_the_file_is_one_line_and_exit_code_2(text, words, home, capsys):
    (home / "wrong.toml").write_text(text)
    assert run_command(["unlearn", str(home / "wrong.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "wrong.toml: " in line
    assert words in line


def test_a_file_that_cannot_be_read_is_one_line(home, capsys):
    (home / "latin.toml").write_bytes(b"# caf\xe9\n")
    for name, words in {
        "no.toml": "No such file",
        "latin.toml": "TOML",
        ".": "not a regular file",
        "w.pt": "TOML",
    }.items():
        assert run_command(["audit", str(home / name)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
