"""The iris figure: one command draws it, its counts follow from the models' answers, and the documents quote them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from examples import iris_figure

ROOT = Path(__file__).parents[1]
COUNTS = (ROOT / "docs" / "images" / "iris-figure.txt").read_text(encoding="utf-8")


def draw(folder, *options):
    command = [sys.executable, "examples/iris_figure.py", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def splits():
    return iris_figure.iris_splits()


@pytest.fixture(scope="module")
def answers(splits):
    return iris_figure.answers_of(splits, 1)


@pytest.mark.long
def test_one_command_writes_the_picture_and_prints_its_counts(tmp_path):
    said = draw(tmp_path / "out", "--seeds", "2")
    pictures = {f"iris-figure.{kind}" for kind in ("svg", "png", "txt")} | {"one-iris.png"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == pictures
    assert said == (tmp_path / "out" / "iris-figure.txt").read_text(encoding="utf-8")
    assert re.search(r"for \d+ of 14 pairs of seed and flower; two retrained models do so for \d+\.", said)
    assert ET.parse(tmp_path / "out" / "iris-figure.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "out" / "iris-figure.png").read_bytes().startswith(b"\x89PNG")


def test_seven_flowers_of_three_species_are_forgotten(splits):
    assert list(splits.forget.ids) == iris_figure.FLOWERS
    assert set(splits.forget.y.tolist()) == {0, 1, 2}
    assert len(iris_figure.iris_splits(random=True).forget) == 7


def test_the_counts_follow_from_what_the_models_answer(splits, answers):
    for model in (iris_figure.UNLEARNED, iris_figure.CONTROL):
        for flower, counted in enumerate(answers.contrasts(model)):
            said = []
            for network in (answers.models[iris_figure.RETRAINED], answers.models[model]):
                points = [splits.forget.x[flower].numpy(), *answers.copies[flower]]
                inputs = torch.tensor(np.array(points), dtype=torch.float64)
                with torch.no_grad():
                    said.append(network.double()(inputs).argmax(1).tolist())
            differ = sum(one != other for one, other in zip(said[0][1:], said[1][1:], strict=True))
            assert counted == (said[0][0] == said[1][0] and differ >= 10)


def test_at_five_flowers_the_drawn_models_agree_and_around_most_of_them_they_differ(answers):
    agree = answers.centers[iris_figure.UNLEARNED] == answers.centers[iris_figure.RETRAINED]
    assert agree.sum() == 5
    assert answers.contrasts(iris_figure.UNLEARNED).sum() == 4
    right = answers.around == iris_figure.iris_splits().forget.y.numpy()[:, None]
    assert (right[iris_figure.UNLEARNED].mean(1) > right[iris_figure.RETRAINED].mean(1)).all()


def test_the_small_picture_shows_a_flower_that_both_models_recognize(splits, answers):
    label = splits.forget.y[iris_figure.SINGLE].item()
    assert (answers.centers[:2, iris_figure.SINGLE] == label).all()
    shares = [round(100 * float((answers.around[model, iris_figure.SINGLE] == label).mean())) for model in (0, 1)]
    said = [panel.get_xlabel() for panel in iris_figure.draw_single(splits, answers).axes]
    assert all(f" {share} % of its copies" in text for share, text in zip(shares, said, strict=True))
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"recognizes {shares[1]} % of slightly moved copies, the retrained one {shares[0]} %" in text


def test_copies_scatter_by_the_radius_and_stay_in_range(splits, answers):
    noise = answers.copies - splits.forget.x.numpy()[:, None]
    inside = (answers.copies > 0) & (answers.copies < 1)
    assert noise[inside].std() == pytest.approx(iris_figure.RADIUS, rel=0.1)
    assert answers.copies.min() >= 0
    assert answers.copies.max() <= 1


def test_a_class_leads_by_its_distance_to_the_next(answers):
    points = answers.copies[0, :5]
    with torch.no_grad():
        logits = answers.models[0].double()(torch.from_numpy(points)).numpy()
    slow = [[row[k] - max(row[j] for j in range(3) if j != k) for k in range(3)] for row in logits]
    np.testing.assert_allclose(iris_figure.leads(answers.models[0], points), slow, rtol=1e-9, atol=1e-12)


def test_the_page_quotes_the_counts_of_the_picture():
    text = " ".join((ROOT / "docs" / "concepts" / "residual-knowledge.md").read_text(encoding="utf-8").split())
    assert COUNTS.strip() in text


@pytest.mark.long
@pytest.mark.parametrize(("options", "counts"), [((), None), (("--random",), "for 0 of 140 pairs of seed and flower")])
def test_the_counts_of_twenty_seeds_are_those_of_the_page(options, counts, tmp_path):
    said = draw(tmp_path, *options)
    assert (counts or COUNTS) in said
