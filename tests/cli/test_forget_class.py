"""The command line forgets the class that was named, and says which before it computes anything."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from residuum.auditing import Counts
from residuum.cli import run_command

QUICK = [
    *("--seeds", "1", "--workers", "1", "--draws", "2", "--methods", "gd:epochs=1", "--out", "out"),
    *("--set", "train.epochs=1", "--set", "relearn.epochs=1", "--set", "audit.taus.gaussian=0"),
    *("--set", "data.train_size=24", "--set", "data.validation_size=3", "--set", "data.test_size=9"),
    *("--set", "data.name=mine", "--set", "model.width=2"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def image_folder(folder, names):
    for position, name in enumerate(names):
        (folder / "mine" / name).mkdir(parents=True)
        for number in range(12):
            shade = Image.new("RGB", (8, 8), (80 * position, 10 * number, 99))
            shade.save(folder / "mine" / name / f"{number}.png")
    return []


def npz_file(folder, names):
    rng = np.random.default_rng(0)
    ids = [f"{names[row % len(names)]}/{row}" for row in range(12 * len(names))]
    arrays = {"x": rng.random((len(ids), 1, 8, 8)).astype("float32"), "y": np.arange(len(ids)) % len(names)}
    np.savez(folder / "mine.npz", **arrays, ids=ids, class_names=names)
    return ["--set", "data.name=mine.npz"]


def forgotten_classes(folder):
    counts = Counts.load(next((folder / "out").rglob("counts/1/retrain/gaussian.npz")))
    return {name.rpartition("/")[0] for name in counts.ids}, len(counts.ids)


def page(folder):
    return next((folder / "out").rglob("report.html")).read_text()


@pytest.mark.parametrize(
    ("made", "names", "asked", "option"),
    [
        (image_folder, ["1", "2", "3"], "1", "--request"),
        (image_folder, ["1", "2", "3"], "1", "--set"),
        (image_folder, ["0", "false", "true"], "true", "--request"),
        (npz_file, ["2", "1", "0"], "2", "--request"),
        (npz_file, ["1.0", "[1]", "none"], "none", "--set"),
        (npz_file, ["a", "b, c", "b"], "b, c", "--request"),
    ],
)
def test_the_class_that_is_named_is_forgotten_and_printed_first(made, names, asked, option, folder, capsys):
    data = made(folder, names)
    request = ["--request", f"class={asked}"]
    setting = ["--set", f"forget.forget_class={asked}", "--set", "forget.forget_fraction=none"]
    assert run_command(["run", "tiny", *QUICK, *data, *(request if option == "--request" else setting)]) == 0
    assert forgotten_classes(folder) == ({asked}, 8)
    lines = capsys.readouterr().err.splitlines()
    line = f"residuum: forgets 8 of 8 training samples of class {asked!r}"
    assert lines.index(line) < next(k for k, text in enumerate(lines) if text.startswith("[1/"))
    assert f"all of class {asked}" in page(folder)


def test_half_of_a_class_called_none_is_not_half_of_everything(folder, capsys):
    data = npz_file(folder, ["none", "null", "some"])
    assert run_command(["run", "tiny", *QUICK, *data, "--request", "class=none,fraction=0.5"]) == 0
    assert forgotten_classes(folder) == ({"none"}, 4)
    assert "forgets 4 of 8 training samples of class 'none'\n" in capsys.readouterr().err


def test_a_position_is_told_by_the_name_of_its_class(folder, capsys):
    data = npz_file(folder, ["cat", "dog", "fox"])
    assert run_command(["run", "tiny", *QUICK, *data, "--request", "class=1"]) == 0
    assert forgotten_classes(folder) == ({"dog"}, 8)
    assert "forgets 8 of 8 training samples of class 'dog'\n" in capsys.readouterr().err
    assert "all of class dog" in page(folder)


def test_every_request_of_a_sequence_is_told(folder, capsys):
    data = npz_file(folder, ["1", "2", "3"])
    asked = ["--request", "class=3,fraction=0.5", "--request", "class=2", "--request", "fraction=0.25"]
    assert run_command(["run", "tiny", *QUICK, *data, *asked]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if " forgets " in line]
    assert told == [
        "residuum: request 1 forgets 4 of 8 training samples of class '3'",
        "residuum: request 2 forgets 8 of 8 training samples of class '2'",
        "residuum: request 3 forgets 3 of 12 training samples",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--request", "class=none,fraction=0.5"], "unknown class 'none'"),
        (["--request", "class=true"], "unknown class 'true'"),
        (["--request", "class=null"], "unknown class 'null'"),
        (["--request", "class=1.0"], "unknown class '1.0'"),
        (["--request", "class=[1]"], "unknown class '[1]'"),
        (["--request", "class=1,fraction=none"], "expected a valid number such as fraction=0.5, got 'none'"),
        (["--set", "forget.forget_class=none"], "unknown class 'none'"),
        (["--set", "forget.forget_class=true"], "unknown class 'true'"),
        ([], "class 2 can mean two classes: '2', or '3', which is at position 2"),
    ],
)
def test_what_names_no_class_is_refused_before_anything_is_computed(arguments, message, folder, capsys, monkeypatch):
    data = npz_file(folder, ["1", "2", "3"])
    if not arguments:  # the number as a scenario's file gives it
        monkeypatch.setattr("residuum.cli.options.parse_setting", with_a_number)
        arguments = ["--set", "forget.forget_class=2"]
    assert run_command(["run", "tiny", *QUICK, *data, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "out").exists()


def with_a_number(text):
    key, _, value = text.partition("=")
    return key, int(value) if key == "forget.forget_class" else value


def test_an_empty_setting_names_no_class(folder, capsys):
    data = npz_file(folder, ["1", "2", "3"])
    share = ["--set", "forget.forget_class=", "--set", "forget.forget_fraction=0.25"]
    assert run_command(["run", "tiny", *QUICK, *data, *share]) == 0
    assert "forgets 6 of 24 training samples\n" in capsys.readouterr().err
