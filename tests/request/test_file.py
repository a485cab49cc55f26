"""A request file: read, written, changed, and what is wrong with it in one line."""

import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from residuum import InputError, Request
from residuum.cli import run_command
from residuum.request import AuditOptions, Reading
from residuum.request.file import RequestFile, about, file_text, is_request_file, needed_settings, sections
from residuum.request.sequence import file_studies

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
        ("b.toml", "--set", "audit.draws=0"): "audit.draws: expected 1 or more, got 0",
        ("b.toml", "--set", "unlearn.weights=../new.zip"): "/../new.zip'",
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
    "[model": "it is not valid TOML: Expected ']'",
    "\0": "it is not valid TOML",
    "model = 3": "model: expected a table [model], got 3",
    "[[model]]\nsource = 'a.py:b'": "model: expected a table [model]",
    "[modle]\n": "unknown section 'modle'; did you mean model?",
    GOOD + "[ouput]\n": "unknown section 'ouput'; did you mean output?",
    GOOD + "[request]\nname = 'x'\n": "unknown setting of [request] 'name'",
    GOOD + "[request]\nreceived = 'soon'\n": "request.received: expected a date such as 2026-11-02, got 'soon'",
    GOOD + "[tickets.first]\n": "unknown section 'tickets'",
    GOOD.replace("source", "sorce"): "unknown setting of [model] 'sorce'; did you mean source",
    GOOD.replace('source = "net.py:net"', ""): "model.source is missing: FILE.py:NAME",
    GOOD.replace('"net.py:net"', "3"): "model.source: expected a text, got 3",
    GOOD.replace('"w.pt"', "[1]"): "model.weights: expected a path, got [1]",
    GOOD.replace('weights = "w.pt"', 'weigths = "w.pt"'): "unknown setting of [model] 'weigths'; did you mean weights?",
    GOOD.replace('weights = "w.pt"', "mean = true"): "model.mean: expected a number or a list, got 'true'",
    GOOD.replace(
        'weights = "w.pt"', 'mean = "0.5"\nstd = [1, "x"]'
    ): "model.std: expected a number or a list of numbers, got",
    GOOD.replace('weights = "w.pt"', "mean = nan"): "model.mean: expected a finite number or a list, got nan",
    GOOD.replace('weights = "w.pt"', "bounds = [0, 1, 2]"): "model.bounds: expected at most 2 values or 'none'",
    GOOD.replace('weights = "w.pt"', "bounds = [0]"): "model.bounds: expected a longer list or 'none', got [0]",
    GOOD.replace('weights = "w.pt"', "bounds = 'low'"): "model.bounds: expected a list or 'none', got 'low'",
    GOOD.replace('weights = "w.pt"', "tokens = 'maybe'"): "model.tokens: expected true or false, got 'maybe'",
    GOOD.replace('weights = "w.pt"', "batch = [1]"): "model.batch: expected a list of texts, got 1",
    GOOD.replace("train = ", "# "): "data.train is missing: all training data",
    GOOD.replace('"held.npz"', "7"): "data.held_out: expected a text, got 7",
    GOOD.replace("[forget]", "size = 'big'\n[forget]"): "data.size: expected a whole number, got",
    GOOD.replace("[forget]", "size = 1.5\n[forget]"): "data.size: expected a whole number, got",
    GOOD.replace("[forget]", "inputs = 3\n[forget]"): "data.inputs: expected a list of texts, got 3",
    GOOD.replace("[forget]\n", ""): "ids is a setting of [forget]; move it there",
    GOOD.replace("[forget]\nids", "[forget]\nlist"): "unknown setting of [forget] 'list'",
    GOOD.replace("[forget]\nids", "[forget]\n#"): "forget.ids is missing: text file",
    GOOD.replace('"ids.txt"', "['1', '2']"): "forget.ids: expected the name of a text file with one id per line",
    GOOD.replace("[retrain]", "earlier = 3\n[retrain]"): "forget.earlier: expected a list, got 3",
    GOOD.replace("controls = 1", "controls = -1"): "retrain.controls: expected 'auto' or 0 or more or a list",
    GOOD.replace("controls = 1", "controls = 2.5"): "retrain.controls: expected 'auto' or a whole number or a list",
    GOOD.replace("controls = 1", "controls = true"): "retrain.controls: expected 'auto' or a whole number or a list",
    GOOD.replace("controls = 1", "recipe = 'adamw'"): "retrain.recipe: expected a table, got 'adamw'",
    GOOD.replace("controls = 1", "recipe.rate = 1"): "unknown setting of [retrain.recipe] 'rate'",
    GOOD.replace("controls = 1", "recipe.lr = 'fast'"): "retrain.recipe.lr: expected a number, got 'fast'",
    GOOD.replace("controls = 1", "recipe.epochs = -2"): "retrain.recipe.epochs: expected 0 or more, got -2",
    GOOD.replace("controls = 1", "surrogates = 3"): "retrain.surrogates: expected true or false, got 3",
    GOOD + "[unlearn]\nmethod = 3\n": "unlearn.method: expected a text, got 3",
    GOOD + "[unlearn]\nseed = -1\n": "unlearn.seed: expected 0 or more, got -1",
    GOOD
    + "[unlearn]\nweights = 'new.zip'\n": "unlearn.weights: expected a file that ends in .safetensors, .pt or .pth",
    GOOD.replace("draws = 10", "draws = 0"): "audit.draws: expected 1 or more, got 0",
    GOOD.replace("draws = 10", "draws = 'ten'"): "audit.draws: expected a whole number, got 'ten'",
    GOOD.replace("draws = 10", "draw = 10"): "unknown setting of [audit] 'draw'; did you mean draws?",
    GOOD.replace("draws = 10", "draws = true"): "audit.draws: expected a whole number, got 'true'",
    GOOD.replace("taus = [0, 0.1]", "taus = [0, -1]"): "audit.taus: expected a list, each 0 or more or a table, got -1",
    GOOD.replace("taus = [0, 0.1]", "taus = 'near'"): "audit.taus: expected a list of numbers or a table",
    GOOD.replace("taus = [0, 0.1]", "until = 'noon'"): "audit.until: expected 'verdict', got 'noon'",
    GOOD.replace("taus = [0, 0.1]", "gallery = 'yes please'"): "audit.gallery: expected true or false",
    GOOD.replace("taus = [0, 0.1]", "perturbations = [1]"): "audit.perturbations: expected a list of texts, got 1",
    GOOD + "[output]\nfolder = 3\n": "output.folder: expected a path, got 3",
    GOOD.replace("[forget]", "epochs = 30\n[forget]"): "epochs is a setting of [retrain]; move it there",
    "weights = 'w.pt'\n" + GOOD: "weights is a setting of [model]; move it there",
    GOOD + "[unlearn]\nbudget = 2\n": "unlearn.budget: expected 1 or less, got 2",
    GOOD + "[unlearn]\nbudget = 0\n": "unlearn.budget: expected more than 0, got 0",
    GOOD + "[unlearn]\ndecoys = 1.5\n": "unlearn.decoys: expected a whole number, got 1.5",
    GOOD.replace("[forget]", "channels = 'gray'\n[forget]"): "data.channels: expected a whole number, got 'gray'",
    GOOD + "draws = 11\n": "it is not valid TOML: Cannot overwrite a value",
    GOOD.replace(
        '"w.pt"', '"data\\train.pt"'
    ): r"model.weights: expected a text without special characters, got 'data\t",
    GOOD.replace('"ids.txt"', '"lists\\ids.txt"'): "in a string (at line 9, column 15); in double quotes",
    GOOD.replace('"w.pt"', '"C:\\Users\\w.pt"'): "begins a special character: write / in paths, or use single quotes",
}


@pytest.mark.parametrize(("text", "words"), MISTAKES.items())
def test_a_mistake_in_the_file_is_one_line_and_exit_code_2(text, words, home, capsys):
    (home / "wrong.toml").write_text(text)
    assert run_command(["unlearn", str(home / "wrong.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "wrong.toml: " in line
    assert words in line


def test_weights_to_start_from_are_never_replaced(home, tmp_path):
    """As where the next request starts from the weights of the one before, and goes to the same folder."""
    changes = {"output.folder": str(tmp_path), "output.store": str(tmp_path / "store")}
    for weights in ("unlearned.safetensors", "unlearned-1.safetensors"):
        shutil.copy(home / "w.pt", tmp_path / weights)
        (tmp_path / "link.pt").unlink(missing_ok=True)
        (tmp_path / "link.pt").symlink_to(tmp_path / weights)
        file = RequestFile.read(home / "deletion.toml", changes | {"model.weights": str(tmp_path / "link.pt")})
        with pytest.raises(InputError, match=r"would replace .* model.weights = .*link.pt; name another output.folder"):
            file_studies(file, [home / "ids.txt"]) if "-1" in weights else file.refuse_unusable_place()
        assert (tmp_path / weights).read_bytes() == (home / "w.pt").read_bytes()


def test_a_file_of_a_windows_editor_is_read(home):
    (home / "windows.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert is_request_file(home / "windows.toml")
    assert RequestFile.read(home / "windows.toml").audit.draws == 10


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
