"""Counting, drawing and the page to explore: from answers whose counts can be seen by eye."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from matplotlib.path import Path as Shape

from residuum.cli import run_command
from residuum.decision_regions.answers import CONTROL, UNLEARNED, Answers, caption, contrast, contrasts, marks_astray
from residuum.decision_regions.figure import page_data, page_text, region_paths, simplified, write_drawings
from residuum.decision_regions.querying import grid_points

CENTRES = [[0, 1, 1], [0, 1, 0], [0, 1, 1]]  # the second model leaves the reference at the last sample
COPIES = [
    [[0, 0, 0, 0], [1, 1, 2, 2], [1, 1, 1, 1]],
    [[0, 0, 0, 0], [1, 1, 1, 2], [0, 0, 0, 0]],
    [[0, 0, 1, 0], [1, 1, 2, 2], [1, 1, 1, 1]],
]


def bands(x, y):
    """Leads of three classes that rule x < -0.2, the middle, and x > 0.2."""
    return np.stack([-0.2 - x, 0.2 - np.abs(x), x - 0.2], axis=-1) + 0 * y[..., None]


def toy(seed=1, copies_say=COPIES, **changes):
    rng = np.random.default_rng(seed)
    at, across = np.linspace(-0.3, 0.3, 21), np.linspace(-1, 1, 41)
    inputs = np.array([[-0.5, 0, 0], [0.0, 0, 0], [0.1, 0, 0.5]])
    grid = grid_points(at, at) + inputs[:, None, None, :2]
    train = np.concatenate([rng.uniform(-0.9, 0.9, (40, 2)), inputs[:, :2]])
    parts = {
        "seed": np.array(seed),
        "models": np.array(["retrain", "gd", "control"]),
        "class_names": np.array(["a", "b<c", "d"]),
        "ids": np.array(["s/0", "s/1", "s/2"]),
        "labels": np.array([0, 1, 1]),
        "inputs": inputs.astype(np.float32),
        "copies": (inputs[:, None] + rng.normal(0, 0.1, (3, 4, 3))).astype(np.float32),
        "centre_says": np.array(CENTRES),
        "copies_say": np.array(copies_say),
        "radius": np.array(0.1),
        "least": np.array(0.25),
        "shown": np.array(4),
        "mean": np.zeros(3),
        "axes": np.eye(3)[:2],
        "explained": np.array([0.7, 0.2]),
        "train": train,
        "train_labels": np.digitize(train[:, 0], [-0.2, 0.2]),
        "train_forgotten": np.arange(43) >= 40,
        "overview_x": across,
        "overview_y": across,
        "overview": np.stack([bands(*np.moveaxis(grid_points(across, across), -1, 0))] * 3),
        "around_at": at,
        "around": np.stack([np.stack([bands(g[..., 0], g[..., 1]) for g in grid])] * 3),
    }
    return Answers(**{**parts, **changes})


def test_contrasts_are_those_one_counts_by_eye():
    gd, control = contrast(toy(), UNLEARNED), contrast(toy(), CONTROL)
    assert gd.agrees.tolist() == [True, True, False]
    assert gd.differs.tolist() == [0, 0.25, 1]
    assert gd.shown.tolist() == [False, True, False]
    assert gd.remembers.tolist() == [False, True, False]
    assert (gd.right.tolist(), gd.reference_right.tolist()) == ([1, 0.75, 0], [1, 0.5, 1])
    assert control.shown.tolist() == [True, False, False]
    assert control.remembers.tolist() == [False, False, False]


def test_a_contrast_needs_as_many_copies_as_asked_for():
    assert contrast(toy(least=np.array(0.26)), UNLEARNED).shown.tolist() == [False, False, False]
    assert contrast(toy(least=np.array(0.01)), UNLEARNED).shown.tolist() == [False, True, False]


@pytest.mark.parametrize(("least", "copies", "many"), [(0.1, 100, 10), (0.1, 25, 3), (0.001, 10, 1), (0.07, 100, 7)])
def test_a_share_of_copies_is_a_whole_number_and_never_none(least, copies, many):
    assert toy(least=np.array(least), copies_say=np.zeros((3, 3, copies), int)).least_copies == many


def test_the_caption_counts_what_a_slow_loop_counts(tmp_path):
    rng = np.random.default_rng(3)
    seeds = []
    for seed in range(5):
        made = toy(seed, rng.integers(0, 3, (3, 3, 4)), centre_says=rng.integers(0, 3, (3, 3)))
        made.save(tmp_path / f"{seed}.npz")
        seeds.append(Answers.load(tmp_path / f"{seed}.npz"))
    slow = {1: 0, 2: 0}
    for answers in seeds:
        for model in slow:
            for i in range(3):
                differ = sum(answers.copies_say[model][i][j] != answers.copies_say[0][i][j] for j in range(4))
                slow[model] += int(answers.centre_says[model][i] == answers.centre_says[0][i] and differ >= 1)
    assert 0 < slow[1] < 15
    words = caption(seeds)
    found = [int(number) for number in re.findall(r"(\d+) of 15 pairs of seed and sample", words)]
    assert found == [slow[1], slow[2]]
    assert "Over 5 seeds" in words
    assert "Drawn is seed 0" in words
    assert "90 % of the variance" in words
    counts = contrasts(seeds, UNLEARNED)
    assert (counts.sum(), counts.shape) == (slow[1], (5, 3))


def test_a_caption_without_contrasts_says_so_and_no_more():
    nothing = caption([toy(copies_say=np.array(COPIES)[[0, 0, 0]])])
    assert nothing.count("0 of 3 pairs of seed and sample (0.0 of 3 a seed on average, 0)") == 2
    assert "of these" not in nothing
    assert "in 1 of these 1 the unlearned model" in caption([toy()])


def test_marks_beyond_a_line_are_counted():
    copies = np.repeat(toy().inputs[:, None], 4, axis=1)
    copies[0, 0, 0] += 0.35  # over the line at -0.2, but outside the drawing
    copies[1, :2, 0] += 0.25  # over the line at 0.2
    still = toy(copies=copies, copies_say=np.repeat(toy().labels[None, :, None], 3, axis=0).repeat(4, axis=2))
    assert marks_astray(still) == (4, 2 * 11)


def drawings(seeds, folder):
    write_drawings(seeds, folder, "p")
    return [(folder / name).read_bytes() for name in ("p.svg", "p.png")]


def test_drawings_have_the_same_bytes_whatever_the_users_style(tmp_path):
    first = drawings([toy()], tmp_path / "a")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": None}):
        again = drawings([toy()], tmp_path / "b")
    other = drawings([toy(2)], tmp_path / "c")
    assert first == again
    assert first != other
    assert b"<dc:date>" not in first[0]
    assert ET.fromstring(first[0]).tag.endswith("svg")
    assert first[1].startswith(b"\x89PNG")


def test_a_class_that_never_leads_can_be_drawn(tmp_path):
    alone = np.broadcast_to([1.0, -1.0, -2.0], (3, 41, 41, 3))
    assert all(drawings([toy(overview=alone)], tmp_path))
    assert region_paths(np.arange(41.0), np.arange(41.0), alone[0])[1:] == ["", ""]


def test_the_regions_of_the_page_are_where_a_class_leads():
    at = np.linspace(-0.3, 0.3, 21)
    leads = bands(*np.moveaxis(grid_points(at, at), -1, 0))
    for label, path in enumerate(region_paths(at, at, leads)):
        corners = np.array([[float(n) for n in pair.split()] for pair in re.findall(r"[\d.]+ [\d.]+", path)])
        outline = Shape(corners)
        for x, y in ((20, 500), (400, 300), (600, 700), (980, 100)):
            there = bands(np.array(0.6 * x / 1000 - 0.3), np.array(0.3 - 0.6 * y / 1000))[label] > 0
            assert outline.contains_point((x, y)) == there


def test_a_simplified_line_stays_within_the_tolerance():
    t = np.linspace(0, 6, 200)
    curve = np.stack([100 * t, 80 * np.sin(t)], axis=1)
    few = simplified(curve, 1.0)
    assert len(few) < 40
    again = np.interp(curve[:, 0], few[:, 0], few[:, 1])
    assert np.abs(again - curve[:, 1]).max() < 1.5


def test_the_page_needs_nothing_else_and_holds_the_answers():
    seeds = [toy(1), toy(2)]
    text = page_text(seeds)
    assert text == page_text([toy(1), toy(2)])
    assert not re.search(r"(src|href)=|@import|fetch\(|https?://(?!www\.w3\.org/2000/svg)", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert data == json.loads(json.dumps(page_data(seeds)))
    counted = 0
    for seed in data["seeds"]:
        for i in range(len(data["labels"])):
            pairs = zip(seed["says"][1][i], seed["says"][0][i], strict=True)
            differ = sum(one != other for one, other in pairs)
            counted += seed["centre"][1][i] == seed["centre"][0][i] and differ >= data["least"]
    assert counted == contrasts(seeds, UNLEARNED).sum() == 2


def test_the_page_survives_names_that_look_like_markup():
    strange = dataclasses.replace(toy(), class_names=np.array(["</script>", "b", "c"]))
    assert page_text([strange]).count("</script>") == page_text([toy()]).count("</script>")


def test_one_command_writes_the_picture_and_prints_its_caption(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["train.epochs=20", "relearn.epochs=1", "audit.taus.gaussian=0,0.1", "picture.resolution=9"]
    command = ["run", "iris-figure", "--seeds", "3,4", "--workers", "1", "--draws", "5"]
    assert run_command([*command, *(part for text in quick for part in ("--set", text))]) == 0
    folder = tmp_path / "runs" / "iris-figure"
    seeds = [Answers.load(folder / "pictures" / f"{seed}.npz") for seed in (3, 4)]
    assert f"picture: {caption(seeds)}" in capsys.readouterr().out
    made = {path.name for path in (folder / "figures").iterdir()}
    assert {f"iris-figure.{kind}" for kind in ("svg", "png", "html", "txt")} <= made
    assert (folder / "figures" / "iris-figure.txt").read_text().strip() == caption(seeds)


@pytest.mark.parametrize("wrong", ["picture.radius=-1", "picture.least=0", "picture.shape=round"])
def test_wrong_settings_get_one_line(wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "iris-figure", "--set", wrong]) == 2
    assert capsys.readouterr().err.startswith("residuum: error: ")
    assert not list(tmp_path.iterdir())
