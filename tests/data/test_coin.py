"""`residuum split` tosses a coin before training, and records it."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data.coin import read_coin, toss, write_split
from residuum.data.read import read_data


def points(n=90):
    return Samples(torch.rand(n, 2), torch.arange(n) % 3, tuple(f"p{i}" for i in range(n)))


def test_each_class_has_the_same_share_of_decoys_and_of_held_out_samples():
    samples = points()
    coin = toss(samples, 15, 30, seed=1)
    label = dict(zip(samples.ids, samples.y.tolist(), strict=True))
    for part, each in ((coin.decoys, 5), (coin.held_out, 10)):
        assert np.bincount([label[name] for name in part]).tolist() == [each] * 3
    assert not set(coin.decoys) & set(coin.held_out)
    shuffled = samples.subset(np.random.default_rng(0).permutation(90))
    again = toss(shuffled, 15, 30, seed=1)  # ids decide, not their order
    assert set(again.decoys) == set(coin.decoys)
    assert set(again.held_out) == set(coin.held_out)
    assert toss(samples, 15, 30, seed=2) != coin


def test_the_coin_is_fair():
    samples, times = points(12), np.zeros(12)
    for seed in range(300):
        times += np.isin(samples.ids, toss(samples, 3, 3, seed=seed).decoys)
    assert np.abs(times / 300 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 300)


def test_an_npz_file_becomes_two_that_keep_the_ids(tmp_path):
    x, y = np.random.default_rng(0).random((40, 3)), np.arange(40) % 2
    np.savez(tmp_path / "all.npz", x=x, y=y, class_names=np.array(["no", "yes"]))
    coin = write_split(tmp_path / "all.npz", tmp_path / "out", decoys=6, held_out=10, seed=3)
    train, held_out = (read_data(tmp_path / "out" / f"{name}.npz") for name in ("train", "held_out"))
    assert set(held_out.samples.ids) == set(coin.held_out)
    assert set(coin.decoys) < set(train.samples.ids)
    assert len(train.samples) == 30
    assert train.class_names == ("no", "yes")
    rows = np.array([int(name) for name in held_out.samples.ids])
    assert np.allclose(held_out.samples.batch(torch.arange(10))[0], x[rows])
    assert read_coin(tmp_path / "out" / "split.json") == coin
    with pytest.raises(InputError, match="exists"):
        write_split(tmp_path / "all.npz", tmp_path / "out", decoys=6, held_out=10, seed=3)


@pytest.mark.parametrize("named", [True, False])
def test_a_table_becomes_two_with_ids(tmp_path, named):
    lines = [["a", "risk", *(["id"] if named else [])]]
    lines += [[str(k), "high" if k % 2 else "low", *([f"row-{k}"] if named else [])] for k in range(30)]
    with (tmp_path / "all.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    coin = write_split(tmp_path / "all.csv", tmp_path / "out", decoys=4, held_out=8, seed=3, label="risk")
    with (tmp_path / "out" / "held_out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} == set(coin.held_out)
    assert all(row["a"] == row["id"].removeprefix("row-") for row in rows)
    assert ("row-" in rows[0]["id"]) is named


def test_a_folder_of_images_becomes_two(tmp_path):
    for k in range(20):
        place = tmp_path / "all" / ("cat" if k % 2 else "dog") / f"{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (k, 0, 0)).save(place)
    coin = write_split(tmp_path / "all", tmp_path / "out", decoys=4, held_out=6, seed=3)
    held_out = read_data(tmp_path / "out" / "held_out").samples
    assert set(held_out.ids) == set(coin.held_out)
    assert len(read_data(tmp_path / "out" / "train").samples) == 14


def test_what_is_no_record_is_refused(tmp_path):
    (tmp_path / "split.json").write_text('{"schema": "other", "decoys": ["a"], "held_out": ["b"], "seed": 1}')
    for name in ("split.json", "none.json"):
        with pytest.raises(InputError, match="that `residuum split` wrote"):
            read_coin(tmp_path / name)
    with pytest.raises(InputError, match="fewer than 90 together, got 45 and 45"):
        toss(points(), 45, 45, seed=1)
