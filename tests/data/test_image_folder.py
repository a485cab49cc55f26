"""Folders of class folders: layouts, ids, labels, and what is refused."""

import dataclasses
import os

import numpy as np
import pytest
import torch
from PIL import Image

from residuum.core.errors import InputError, ResiduumWarning
from residuum.data import load_dataset, load_image_folder, make_splits
from residuum.data.loaders import IMAGENET_MEAN


def fill(root, tree, size=(8, 8)):
    """Write images of a color of their own."""
    for shade, path in enumerate(tree):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (shade, 2 * shade, 3 * shade)).save(file)
    return root


FLAT = ["dog/b.png", "dog/a.png", "cat/2.png", "cat/1.png", "cat/deep/3.PNG", "fox/x.png"]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)


def test_ids_are_paths_and_classes_are_folders(tmp_path):
    data = load_image_folder(fill(tmp_path / "pets", FLAT))
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog", "fox")
    assert data.train.ids == ("cat/1.png", "cat/2.png", "cat/deep/3.PNG", "dog/a.png", "dog/b.png", "fox/x.png")
    assert data.train.y.tolist() == [0, 0, 0, 1, 1, 2]
    assert data.test is None
    assert data.shape == (3, 8, 8)
    for row, name in enumerate(data.train.ids):
        shade = FLAT.index(name)
        x, _ = data.train.batch(torch.tensor([row]))
        assert (x[0, :, 0, 0] * 255).round().tolist() == [shade, 2 * shade, 3 * shade]


@pytest.mark.parametrize(("held_out", "expected"), [(("val",), "val"), (("test",), "test"), (("val", "test"), "test")])
def test_a_folder_may_bring_its_own_test_set(tmp_path, held_out, expected):
    tree = ["train/cat/1.png", "train/dog/1.png"] + [f"{part}/{name}/1.png" for part in held_out for name in ("dog",)]
    data = load_image_folder(fill(tmp_path, tree))
    assert data.train.ids == ("train/cat/1.png", "train/dog/1.png")
    assert data.test.ids == (f"{expected}/dog/1.png",)
    assert data.test.y.tolist() == [1]


def test_train_beside_other_names_is_a_class(tmp_path):
    data = load_image_folder(fill(tmp_path, ["train/1.png", "boat/1.png"]))
    assert data.class_names == ("boat", "train")


def test_images_of_many_sizes_need_a_size(tmp_path):
    fill(fill(tmp_path, ["a/1.png", "b/1.png"]), ["b/2.png"], size=(30, 20))
    with pytest.raises(InputError, match=r"b/2\.png has 30x20 pixels, the first image 8x8; give the size"):
        load_image_folder(tmp_path)
    assert load_image_folder(tmp_path, size=16).shape == (3, 16, 16)
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="size must be a whole number of pixels"):
            load_image_folder(tmp_path, size=wrong)


def test_it_is_loaded_by_path_and_below_a_data_root(tmp_path, monkeypatch):
    fill(tmp_path / "pets", FLAT)
    assert load_dataset(str(tmp_path / "pets")).classes == 3
    assert load_dataset("pets", root=tmp_path, size=4).shape == (3, 4, 4)
    monkeypatch.setenv("RESIDUUM_DATA", str(tmp_path))
    assert load_dataset("pets").classes == 3
    with pytest.raises(InputError, match=r"unknown data set 'pest'.*FILE.npz, FOLDER"):
        load_dataset("pest")
    with pytest.raises(InputError, match="'digits' has a fixed size"):
        load_dataset("digits", size=16)


def test_it_is_cut_like_any_other(tmp_path):
    tree = [f"{name}/{k:02}.png" for name in ("a", "b", "c") for k in range(10)]
    data = load_image_folder(fill(tmp_path, tree))
    splits = make_splits(data, classes=["c", "a"], forget_class="a", forget_fraction=0.5, test_size=4)
    assert splits.class_names == ("c", "a")
    assert len(splits.train) == 16
    assert len(splits.forget) == 4
    assert {name[0] for name in splits.forget.ids} == {"a"}
    x, y = splits.forget.batch(torch.arange(4))
    assert y.tolist() == [1] * 4
    assert [round(float(v) * 255) for v in x[:, 0, 0, 0]] == [tree.index(name) for name in splits.forget.ids]


def test_the_fingerprint_sees_pixels_names_and_size(tmp_path):
    first = load_image_folder(fill(tmp_path / "one", FLAT)).fingerprint
    assert load_image_folder(fill(tmp_path / "two", FLAT)).fingerprint == first
    assert load_image_folder(tmp_path / "two", size=4).fingerprint != first
    (tmp_path / "two/dog/a.png").rename(tmp_path / "two/dog/c.png")
    renamed = load_image_folder(tmp_path / "two").fingerprint
    assert renamed != first
    Image.new("RGB", (8, 8), (99, 0, 0)).save(tmp_path / "two/dog/c.png")
    assert load_image_folder(tmp_path / "two").fingerprint not in {first, renamed}


def test_empty_missing_and_single_classes_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file.*one sub-folder per class"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no sub-folders; put the images of each class in a sub-folder"):
        load_image_folder(tmp_path)
    fill(tmp_path, ["cat/1.png"])
    with pytest.raises(InputError, match="at least 2 classes, got 1: cat"):
        load_image_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match=r"dog holds no image \(\.jpg .*fill the folder or remove it"):
        load_image_folder(tmp_path)


def test_a_test_class_that_was_never_trained_is_refused(tmp_path):
    fill(tmp_path, ["train/cat/1.png", "train/dog/1.png", "val/dgo/1.png"])
    with pytest.raises(InputError, match="unknown class 'dgo'; did you mean dog"):
        load_image_folder(tmp_path)


def test_a_damaged_image_is_named(tmp_path):
    fill(tmp_path, FLAT)
    (tmp_path / "fox/x.png").write_bytes((tmp_path / "fox/x.png").read_bytes()[:-30])
    with pytest.raises(InputError, match=r"cannot use .*fox/x\.png"):
        load_image_folder(tmp_path)


def test_other_files_are_counted_and_hidden_ones_ignored(tmp_path):
    fill(tmp_path, FLAT)
    (tmp_path / "cat/.hidden").touch()
    (tmp_path / "cat/notes.txt").touch()
    with pytest.warns(ResiduumWarning, match=r"skipped 1 file without an image suffix, first 'cat"):
        assert len(load_image_folder(tmp_path).train) == len(FLAT)


def test_names_that_no_list_of_ids_could_carry_are_refused(tmp_path):
    fill(tmp_path, ["cat/1.png", "dog/1.png", "#fox/1.png"])
    with pytest.raises(InputError, match="does not start with '#'"):
        load_image_folder(tmp_path)


def test_imagenet100_has_its_folder_size_and_constants(tmp_path):
    fill(tmp_path / "imagenet100", ["train/n01/1.JPEG", "train/n02/1.JPEG", "val/n01/1.JPEG"], size=(20, 10))
    data = load_dataset("imagenet100", root=tmp_path)
    assert (data.name, data.shape, data.mean) == ("imagenet100", (3, 224, 224), IMAGENET_MEAN)
    assert load_dataset("imagenet100", root=tmp_path, size=32).shape == (3, 32, 32)
    with pytest.raises(InputError, match=r"looked for imagenet100 in: .*elsewhere\. Make DIR/imagenet100/train/CLASS"):
        load_dataset("imagenet100", root=tmp_path / "elsewhere")


def test_labels_can_be_replaced_without_reading(tmp_path):
    data = load_image_folder(fill(tmp_path, FLAT))
    other = dataclasses.replace(data.train, y=torch.ones(6, dtype=torch.int64))
    assert np.array_equal(other.batch(torch.arange(6))[1].numpy(), np.ones(6))


@pytest.fixture
def folder_of_two(tmp_path):
    return fill(tmp_path / "two", ["a/0.png", "a/1.png", "b/0.png", "b/1.png"])


def test_a_named_pipe_is_refused_and_not_waited_for(folder_of_two):
    os.mkfifo(folder_of_two / "a" / "pipe.png")
    with pytest.raises(InputError, match=r"cannot use .*pipe\.png: it is not a regular file"):
        load_image_folder(folder_of_two)


def test_names_that_are_not_utf8_are_refused_or_escaped(folder_of_two):
    odd = os.fsdecode(b"caf\xe9.txt")
    (folder_of_two / "a" / odd).write_text("a note")
    with pytest.warns(ResiduumWarning, match=r"first 'a/caf\\udce9.txt'"):
        load_image_folder(folder_of_two)
    (folder_of_two / "a" / odd).unlink()
    (folder_of_two / "a" / "0.png").replace(folder_of_two / "a" / os.fsdecode(b"caf\xe9.png"))
    with pytest.raises(InputError, match=r"is 'a/caf\\udce9.png'; an id is one line of Unicode"):
        load_image_folder(folder_of_two)
    (folder_of_two / "b").rename(folder_of_two / os.fsdecode(b"caf\xe9"))
    with pytest.raises(InputError, match=r"'caf\\udce9' cannot name a class"):
        load_image_folder(folder_of_two)


def test_the_folder_itself_may_lie_below_a_name_that_is_not_utf8(folder_of_two, tmp_path):
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    folder_of_two.rename(root / "mine")
    assert len(load_dataset("mine", root=root).fingerprint) == 64


def test_a_first_image_that_is_no_square_is_called_so(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 6)).save(tmp_path / name / "1.png")
    with pytest.raises(InputError, match=r"1.png has 8x6 pixels, which is no square; give the size"):
        load_dataset(str(tmp_path))
