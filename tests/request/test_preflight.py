"""`residuum check deletion.toml` says what a request will meet before anything is computed or written."""

import json
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tests.request.test_file import GOOD, NET, home  # noqa: F401 (a fixture)

from residuum.cli import run_command
from residuum.core.samples import Samples
from residuum.data import read_data
from residuum.data.copies import equal_inputs
from residuum.request import preflight


def test_a_check_does_not_read_all_of_large_data_for_near_copies(home, monkeypatch, capsys):  # noqa: F811 (the fixture)
    monkeypatch.setattr(preflight, "near_copies", lambda splits, tokens: pytest.fail("it read all inputs"))
    monkeypatch.setattr(preflight, "MOST_VALUES", 399)  # there are 100 samples of 4 features
    run_command(["check", str(home / "deletion.toml")])
    words = "near copies: not searched here, because that would take long; an audit counts them"
    assert words in capsys.readouterr().out.splitlines()


def test_everything_is_said_and_nothing_written(home, capsys):  # noqa: F811 (the fixture)
    (home / "many.txt").write_text("\n".join(map(str, range(6))))
    before = sorted(home.rglob("*"))
    assert run_command(["check", str(home / "deletion.toml"), "--set", f"forget.ids={home / 'many.txt'}"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "request: forget 6 of 60 training samples (10 %) in 3 of 3 classes, 40 held out"
    assert out[1].startswith("model: accuracy on training data")
    assert out[2:5] == [
        "copies: no samples to forget among the retained samples",
        "leaks: no held-out samples among the training data",
        "near copies: no samples to forget; no held-out samples",
    ]
    assert out[5].startswith("audit: 4 models, about ")
    assert "and 2 trainings by your function; memory about" in out[5]
    assert out[6:] == ["fits"]
    assert [path for path in sorted(home.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]


def test_the_range_of_automatic_controls_is_said(home, capsys):  # noqa: F811 (the fixture)
    options = ["--set", "retrain.controls=auto"]
    assert run_command(["check", str(home / "deletion.toml"), *options]) == 1  # two samples are few
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("audit: ")]
    assert line.startswith("audit: 6 models, about ")
    assert "; at most 11 models, about " in line
    assert "and 9 trainings by your function, if fewer do not detect the original; memory about" in line


def test_a_check_compares_no_more_pairs_than_it_says(home, monkeypatch, capsys):  # noqa: F811 (the fixture)
    def searched(*given, **more):
        raise AssertionError("near copies were searched")

    monkeypatch.setattr("residuum.request.preflight.MOST_PAIRS", 10)
    monkeypatch.setattr("residuum.request.preflight.near_copies", searched)
    monkeypatch.setattr("residuum.request.study.near_copies", searched)
    assert run_command(["check", str(home / "deletion.toml")]) == 1  # two samples are few
    assert "near copies: not searched here" in capsys.readouterr().out


def test_both_ends_of_the_range_are_told_at_one_speed(home, monkeypatch, capsys):  # noqa: F811 (the fixture)
    seconds = iter([0.001, 0.001, 0.1, 0.1])  # of one sample: the machine gets slower
    monkeypatch.setattr("residuum.studies.estimates.seconds_per_sample", lambda *_: next(seconds))
    options = ["retrain.controls=auto", "retrain.function=", "retrain.recipe.epochs=200"]
    settings = [part for text in options for part in ("--set", text)]
    assert run_command(["check", str(home / "deletion.toml"), *settings]) == 1
    said = re.search(r"6 models, about (\d+) s on .* at most 11 models, about (\d+) s,", capsys.readouterr().out)
    least, most = map(int, said.groups())
    assert 1.8 < most / least < 2.4  # nine trainings instead of four


def test_copies_leaks_and_sizes_are_problems_and_exit_code_1(home, tmp_path, capsys):  # noqa: F811 (the fixture)
    made = {}
    exec(compile(NET, "net.py", "exec"), made)
    x, y = made["rows"]()
    x[50:53] = x[0:3]
    np.savez(tmp_path / "train.npz", x=x, y=y)
    np.savez(tmp_path / "held.npz", x=x[20:40], y=y[20:40])
    (tmp_path / "ids.txt").write_text("\n".join(map(str, range(20))))
    changes = {"data.train": "train.npz", "data.held_out": "held.npz", "forget.ids": "ids.txt"}
    options = [part for key, value in changes.items() for part in ("--set", f"{key}={tmp_path / value}")]
    assert run_command(["check", str(home / "deletion.toml"), *options, "--json"]) == 1
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["copied"] == ["0", "1", "2"]
    assert len(facts["leaked"]) == 20
    text = " ".join(facts["problems"])
    assert "3 samples to forget have equal copies among the retained samples" in text
    assert "20 held-out samples are training data as well, the first is 'held_out/0'" in text
    assert "the request asks for 33 % of the training data" in text
    assert f"{len(facts['problems'])} things to look at before you go on" in said.err


@pytest.mark.parametrize(("settings", "words"), [
    (["data.held_out="], "an audit is not possible: expected held-out samples"),
    (["retrain.function="], "an audit is not possible: expected a way to retrain: give retrain.function"),
    ([], "2 samples to forget: an audit of fewer than 5 rarely tells anything"),
    (["model.mean=5", "model.std=1"], "does not fit: with inputs without its mean and std"),
])  # fmt: skip
def test_what_does_not_fit_is_said(settings, words, home, capsys):  # noqa: F811 (the fixture)
    options = [part for text in settings for part in ("--set", text)]
    assert run_command(["check", str(home / "deletion.toml"), *options]) == 1
    assert words in capsys.readouterr().out


def test_a_scenario_and_a_wrong_file_are_one_line(home, tmp_path, capsys):  # noqa: F811 (the fixture)
    (tmp_path / "mine.toml").write_text('based_on = "tiny"\n')
    assert run_command(["check", str(tmp_path / "mine.toml")]) == 2
    assert "is a scenario; `residuum run" in capsys.readouterr().err
    (tmp_path / "wrong.toml").write_text(GOOD.replace("source", "sorce"))
    assert run_command(["check", str(tmp_path / "wrong.toml")]) == 2
    assert "did you mean source" in capsys.readouterr().err


def test_images_are_compared_as_files_without_decoding_all(tmp_path):
    for part, shades in {"train": range(8), "held": (3, 40, 41)}.items():
        for shade in shades:
            folder = tmp_path / part / f"{shade % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 5 * shade).save(folder / f"{shade}.png")
    train, held = (read_data(tmp_path / part).samples for part in ("train", "held"))
    assert equal_inputs([held, train.subset([])], train) == [("1/3.png",), ()]
    decoded = Samples(train.batch(torch.arange(len(train)))[0], train.y, train.ids)
    assert equal_inputs([held], decoded) == [("1/3.png",)]


MILLION = """
import numpy as np, torch
rng = np.random.default_rng(0)
for name, n in (("train", 1_000_000), ("held", 5000)):
    x = rng.standard_normal((n, 20), dtype=np.float32)
    np.savez(f"{name}.npz", x=x, y=x[:, :5].argmax(1), ids=np.char.add(f"{name}-", np.arange(n).astype(str)))
open("ids.txt", "w").write("".join(f"train-{k}\\n" for k in range(200)))
open("net.py", "w").write("from torch import nn\\ndef net():\\n    return nn.Linear(20, 5)\\n")
torch.save({"weight": torch.eye(5, 20), "bias": torch.zeros(5)}, "w.pt")
"""


@pytest.mark.long
def test_a_million_rows_are_checked_in_ten_seconds_and_a_gigabyte(tmp_path):
    subprocess.run([sys.executable, "-c", MILLION], cwd=tmp_path, check=True)
    places = ["--source", "net.py:net", "--weights", "w.pt", "--train", "train.npz", "--held-out", "held.npz"]
    more = ["--ids", "ids.txt", "--set", "model.bounds=none", "--set", "retrain.recipe.epochs=2"]
    command = [sys.executable, "-m", "residuum"]
    subprocess.run([*command, "init", *places, *more], cwd=tmp_path, check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = "import resource, sys\nfrom residuum.cli import run_command\ncode = run_command(['check'])\n"
    script += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\nsys.exit(code)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "forget 200 of 1,000,000 training samples" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10  # of an idle machine
    assert int(done.stdout.splitlines()[-1]) < 2**20  # KiB
